// Work on points for a plan at rest: before and after its products, and for derivatives by weights and points.
#pragma once
#include "cuda/entropic/update.hpp"
#include "cuda/launch/arguments.hpp"

namespace monge::cuda {

/// From a softmin of the rows: what products of a plan with frozen potentials need. Without its reference and sum they
/// follow from f+, and points of no weight, whose f+ is not known then, have shares of 0.
struct FreezeArguments {
  int side;
  PackedSide points;
  double const* potential;
  SoftminValues softmin;
  SweepParameters const* parameters;
  void* references;      // L_i, padded, in the type of the side.
  double* share_factor;  // 2^(L_i - lse_i)
  double* plan_factor;   // The same times r_i.
  double* marginal;      // r_i = a_i exp((f_i - f+_i) / eps)
};
void freeze_rows(FreezeArguments const& arguments, cudaStream_t stream);

/// A vector's largest magnitude, by which it is scaled to fit in float. Two numbers in device memory take turns, both 0
/// at first: each call clears the other's.
struct VectorScale {
  unsigned long long* largest;  // The bits of the largest magnitude, whose order is that of the numbers.
  unsigned long long* next;     // For the next call.
};
/// factors = beta o v, scaled and padded with zeros; beta null for ones.
void scale_factors(PackedSide const& points, void const* beta, StridedView const& v, VectorScale const& scale,
                   void* factors, cudaStream_t stream);
/// out_i = row_factor_i times the sum of row i, without the scale, + weight_i origin.
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

/// As PlanOperator::weight_terms(); null: not wanted.
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

/// out_i = curvature x'_i + the derivative that x = 0 has, with both centres.
struct SlopeArguments {
  StridedView points;
  int size, width;  // Numbers in all, and of each point.
  double const* centre;
  double const* other_centre;
  double curvature, product;
  double* out;
};
void slopes(SlopeArguments const& arguments, cudaStream_t stream);

}  // namespace monge::cuda
