// Packing of clouds and matrices (kernels/pack.cuh).
#pragma once
#include "cuda/launch/arguments.hpp"
#include "cuda/launch/queue.hpp"

namespace monge::cuda {

inline constexpr unsigned long long kAllFinite = ~0ull;

/// What packing finds out about a cloud. It stays on the device, where the later steps read it.
struct CloudFindings {
  double largest_squared_norm;          // Of the packed points.
  double half_scale;                    // See Operand; takes the largest coordinate to [2^13, 2^14).
  double mean_cost;                     // This side's part of the mean cost: the weighted mean of s |x'_i|^2.
  double squared_offset;                // |w|^2
  unsigned long long first_not_finite;  // row dimension + column, or kAllFinite.
};

/// The same of a few rows, before they are joined.
struct RowFindings {
  double largest_squared_norm, largest_coordinate, mean_cost;
};

/// One cloud in packing: what the steps below read and write.
struct CloudArguments {
  StridedView input;     // size x dimension; stride between rows.
  bool is_rows;          // Which side it is.
  double scale;          // Of the cost.
  double const* weight;  // Null for ones.
  double total;          // Of the weights.
  Operand packed;
  int size;
  int survey_blocks;
  double* partial_centres;               // survey_blocks x dimension
  unsigned long long* first_not_finite;  // survey_blocks
  double* centre;                        // dimension
  double const* other_centre;            // That of the other side.
  RowFindings* row_findings;             // pack_blocks(packed.padded_size); null where findings are there already.
  CloudFindings* findings;
  double norm_factor;  // s in product form, 0 in difference form.
  double* norm;        // padded_size
  double* shift;       // size; null where it is there already.
};

/// The blocks of the survey of so many points.
int survey_blocks(int size);
int pack_blocks(int padded_size);

/// The clouds that are packed together: both sides, or one.
struct CloudPair {
  CloudArguments cloud[2];
  int count;
};
/// The centres, and whether all coordinates are finite.
void survey_points(CloudPair const& clouds, Queue const& queue);
/// The rest, once all centres are there. Launches split_points() where packed.high is wanted.
void pack_points(CloudPair const& clouds, Queue const& queue);

/// The shift of points that stay, after the centre of the other side has moved.
struct GaugeArguments {
  Operand points;
  int size;
  bool is_rows;  // Which side stays.
  double scale;
  double const* centre;  // Of the points that stay; dimension.
  double const* before;  // The other centre.
  double const* after;
  double const* shift_in;
  double* shift_out;
};
void move_gauge(GaugeArguments const& arguments, cudaStream_t stream);

/// Within the device; `bytes` is a multiple of 8.
struct CopyArguments {
  std::uint64_t const* from;
  std::uint64_t* to;
  std::int64_t count;
};
void copy_words(void const* from, void* to, std::int64_t bytes, Queue const& queue);

/// A caller's matrix as float64, with zeros up to padded_rows x stride.
void convert_matrix(StridedView const& from, int rows, int columns, double* out, int padded_rows, int stride,
                    cudaStream_t stream);

}  // namespace monge::cuda
