// Packing of clouds and matrices (cuda/geometry/pack.cuh).
#pragma once
#include "cuda/launch/arguments.hpp"
#include "cuda/launch/queue.hpp"

namespace monge::cuda {

inline constexpr unsigned long long kAllFinite = ~0ull;

/// What packing finds out about a cloud. It stays on the device, where the later steps read it.
struct CloudFindings {
  double largest_squared_norm;          // Of the packed points, their labels left out.
  double half_scale;                    // See Operand; takes the largest feature to [2^13, 2^14).
  double mean_square;                   // The weighted mean of square |x'_i|^2,
  double mean_lean;                     // and of <x'_i, lean>.
  double constant;                      // Of the rows' shift.
  unsigned long long first_not_finite;  // row features + column, or kAllFinite.
};

/// The same of a few rows, before they are joined.
struct RowFindings {
  double largest_squared_norm, largest_coordinate, mean_square, mean_lean;
};

/// One cloud in packing: what the steps below read and write.
struct CloudArguments {
  StridedView input;  // The features, size x packed.dimension; stride between rows.
  bool is_rows;       // Which side it is.
  int dimension;      // The features that are coordinates of points; the others are those of labels.
  double square;      // PointCost's.
  double product;
  double const* weight;  // Null for ones.
  double total;          // Of the weights.
  Operand packed;
  int size;
  int survey_blocks;
  double* partial_centres;               // survey_blocks x packed.dimension
  unsigned long long* first_not_finite;  // survey_blocks
  double* centre;                        // packed.dimension
  double const* other_centre;            // That of the other side.
  RowFindings* row_findings;             // pack_blocks(packed.padded_size); null where findings are there already.
  CloudFindings* findings;
  double norm_factor;  // `square` in product form, 0 in difference form.
  double* norm;        // padded_size
  double* shift;       // size; null where it is there already.
};

/// The features of points (geometry/point_cost.hpp), where they are more than coordinates.
struct FeatureArguments {
  StridedView points;  // size x dimension; stride between rows.
  int size;
  int dimension;
  bool directions;             // Points are divided by their length.
  std::int64_t const* labels;  // Null for none.
  std::int64_t label_stride;
  double const* classes;  // class_count x width
  int class_count;
  int width;
  double* out;  // size x (dimension + width); NaN where a point has no direction, or a label no class.
};
void make_features(FeatureArguments const& arguments, Queue const& queue);

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
  bool is_rows;   // Which side stays.
  double square;  // PointCost's.
  double product;
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
