// Packing of clouds and matrices (cuda/geometry/pack.cuh).
#pragma once
#include "cuda/launch/arguments.hpp"
#include "cuda/launch/queue.hpp"

namespace monge::cuda {

inline constexpr unsigned long long kAllFinite = ~0ull;

/// Findings about a cloud. They stay on the device, where later kernels read them.
struct CloudFindings {
  double largest_squared_norm;          // The largest squared norm of the packed points, without labels,
  double largest_squared_norm_of_mass;  // and of those with weight.
  double half_scale;                    // Operand::half_scale; takes the largest feature to [2^13, 2^14).
  double mean_square;                   // The weighted mean of square |x'_i|^2,
  double mean_lean;                     // and of <x'_i, lean>.
  double constant;                      // A term of the rows' shift.
  unsigned long long first_not_finite;  // row features + column, or kAllFinite.
};

/// Findings about a few rows, before they are joined.
struct RowFindings {
  double largest_squared_norm, largest_squared_norm_of_mass, largest_coordinate, mean_square, mean_lean;
};

/// One cloud: inputs and outputs of packing.
struct CloudArguments {
  StridedView input;  // The features, size x packed.dimension; stride between rows.
  int dimension;      // Number of features that are coordinates of points; the others belong to labels.
  double square;      // PointCost::square.
  double product;
  double const* weight;  // Null for ones.
  double total;          // The sum of the weights.
  Operand packed;
  int size;
  int survey_blocks;
  double* partial_centres;               // survey_blocks x packed.dimension
  unsigned long long* first_not_finite;  // survey_blocks
  double* centre;                        // packed.dimension
  double const* other_centre;            // Centre of the other side.
  RowFindings* row_findings;             // pack_blocks(packed.padded_size); null if the findings are known.
  CloudFindings* findings;
  double norm_factor;        // For coordinates of points: `square` in product form, 0 in difference form.
  double label_norm_factor;  // For coordinates of labels: -`square` in difference form, 0 in product form.
  double* norm;              // padded_size
  double* shift;             // size; null if the shift is known.
};

/// The features of points (geometry/point_cost.hpp), if they are more than coordinates.
struct FeatureArguments {
  StridedView points;  // size x dimension; stride between rows.
  int size;
  int dimension;
  bool directions;             // Divide points by their length.
  std::int64_t const* labels;  // Null for none.
  std::int64_t label_stride;
  double const* classes;  // class_count x width
  int class_count;
  int width;
  double* out;  // size x (dimension + width); NaN where a point has no direction, or a label no class.
};
void make_features(FeatureArguments const& arguments, Queue const& queue);

/// The number of blocks in the survey of `size` points.
int survey_blocks(int size);
int pack_blocks(int padded_size);

/// Clouds that are packed together: both sides, or one.
struct CloudPair {
  CloudArguments cloud[2];
  int count;
};
/// Finds the centres and the first coordinate that is not finite.
void survey_points(CloudPair const& clouds, Queue const& queue);
/// Does the rest, after all centres are known. Makes the fp16 parts if packed.high is set.
void pack_points(CloudPair const& clouds, Queue const& queue);

/// Updates the shift of points that stay, for a new centre of the other side.
struct GaugeArguments {
  Operand points;
  int size;
  int dimension;  // Coordinates of points; the others belong to labels.
  double square;  // PointCost::square.
  double product;
  double const* centre;  // Centre of the points; dimension.
  double const* before;  // Old and new centre of the other side.
  double const* after;
  double const* shift_in;
  double* shift_out;
};
void move_gauge(GaugeArguments const& arguments, cudaStream_t stream);

/// Puts `size` logits that Pass::logits left into the order of columns, in place.
void order_logits(float* logits, std::int64_t size, cudaStream_t stream);

/// Converts a caller's matrix to float64, with zeros up to padded_rows x stride.
void convert_matrix(StridedView const& from, int rows, int columns, double* out, int padded_rows, int stride,
                    cudaStream_t stream);

}  // namespace monge::cuda
