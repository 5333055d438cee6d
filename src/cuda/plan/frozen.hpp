// Kernels on points for a plan with frozen potentials: for products, and for derivatives by weights and points.
#pragma once
#include "cuda/launch/arguments.hpp"
#include "cuda/sweep/update.hpp"

namespace monge::cuda {

/// Prepares products with frozen potentials from a softmin of the rows. If `softmin` has no reference and sum, they
/// follow from f+. f+ is then unknown at points of zero weight, whose shares become 0.
struct FreezeArguments {
  int side;
  PackedSide points;
  double const* potential;
  SoftminValues softmin;
  SweepParameters const* parameters;
  void* references;      // L_i, padded, in the type of the side.
  double* share_factor;  // 2^(L_i - lse_i)
  double* plan_factor;   // share_factor_i r_i
  double* marginal;      // r_i = a_i exp((f_i - f+_i) / eps)
};
void freeze_rows(FreezeArguments const& arguments, cudaStream_t stream);

/// The largest magnitude of a vector, which scales it to the range of float. Two numbers in device memory, both 0 at
/// first, take turns: each call clears the other one.
struct VectorScale {
  unsigned long long* largest;  // The bits of the largest magnitude; their order is that of the magnitudes.
  unsigned long long* next;     // The number for the next call.
};
/// factors = beta o v, scaled and padded with zeros; beta null for ones.
void scale_factors(PackedSide const& points, void const* beta, StridedView const& v, VectorScale const& scale,
                   void* factors, cudaStream_t stream);
/// out_i = row_factor_i (sum of row i) / (scale of the vector) + weight_i origin.
struct FinishArguments {
  SumArguments sums;
  double const* row_factor;
  VectorScale scale;
  double const* origin;  // One number; null for 0.
  double const* weight;  // Null for ones.
  StridedView out;
};
void finish_product(FinishArguments const& arguments, cudaStream_t stream);
/// out_i = the sum of row i.
void row_sums(SumArguments const& sums, double* out, cudaStream_t stream);

/// PlanOperator::weight_terms(); null outputs are not wanted.
struct WeightTermArguments {
  PackedSide points;
  double const* potential;
  double const* plus;
  double const* shift;
  double const* marginal;
  double penalty, eps, other_mass;
  double* ratio;
  double* wanted;
  double* gradient;
};
void weight_terms(WeightTermArguments const& arguments, cudaStream_t stream);

/// out_i = curvature (x'_i + centre - other_centre) + (curvature + product) other_centre.
struct SlopeArguments {
  StridedView points;
  int size, width;  // All numbers, and numbers of each point.
  double const* centre;
  double const* other_centre;
  double curvature, product;
  double* out;
};
void slopes(SlopeArguments const& arguments, cudaStream_t stream);

/// direction_i = own_centre + u'_i and inverse_length_i = 1 / <direction_i, centre + p'_i>.
struct DirectionArguments {
  StridedView points, directions;  // p' and u'.
  int size, dimension;             // Points, and coordinates of each.
  double const* centre;
  double const* own_centre;
  double* direction;
  double* inverse_length;
};
void directions(DirectionArguments const& arguments, cudaStream_t stream);

}  // namespace monge::cuda
