// Work on points for a plan at rest. O(n) each; all in float64.
//
//   Frozen   L_i = lse_i, the log-sum-exp of a row from its f+
//            In float it is rounded, and a factor 2^(L_i - lse_i) stands beside it. A share of the row is then
//            2^(t_ij - L_i) beta_j times that factor.
#pragma once
#include "cuda/device/ptx.cuh"
#include "cuda/device/strided.cuh"
#include "cuda/device/sums.cuh"
#include "cuda/launch/divided_up.hpp"
#include "cuda/plan/frozen.hpp"
#include "plan/weight_term.hpp"

namespace monge::cuda {

/// See FreezeArguments.
template <class T>
__global__ void __launch_bounds__(kVectorThreads) freeze_rows_kernel(FreezeArguments const arguments) {
  int const i = static_cast<int>(blockIdx.x) * kVectorThreads + static_cast<int>(threadIdx.x);
  PackedSide const& points = arguments.points;
  if (i >= points.padded_size) return;
  T* const references = static_cast<T*>(arguments.references);
  if (i >= points.size) {
    references[i] = -kEmptyLogit<T>;  // Padding has no entries.
    return;
  }
  // The sum's logarithm is never rounded to double: 2^(L_i - lse_i) comes from its parts. As for logits, where a unit
  // of float exceeds 2 the references are noise already.
  double const weight = points.weight[i], plus = arguments.softmin.plus[i];
  double found, sum;
  if (arguments.softmin.sum) {
    found = arguments.softmin.reference[i];
    sum = arguments.softmin.sum[i];
  } else {
    SweepParameters const& parameters = *arguments.parameters;
    double const lse = (points.norm[i] - parameters.constant[1 - arguments.side] - plus) / parameters.eps_ln2;
    found = weight > 0 ? lse : -kEmptyLogit<double>;
    sum = 1;
  }
  T const reference = static_cast<T>(fmin(fmax(found + log2(sum), -1e30), 1e30));
  double const share = fmin(fmax(exp2(static_cast<double>(reference) - found) / sum, 0.5), 2.0);
  double const marginal = weight > 0 ? weight * exp((arguments.potential[i] - plus) / arguments.parameters->eps) : 0.0;
  references[i] = reference;
  arguments.share_factor[i] = share;
  arguments.plan_factor[i] = share * marginal;
  arguments.marginal[i] = marginal;
}

/// The power of two by which a vector is scaled, from the bits of its largest magnitude: products with float terms then
/// neither overflow nor vanish.
__device__ __forceinline__ double vector_scale(unsigned long long largest) {
  double const value = __longlong_as_double(static_cast<long long>(largest));
  return value > 0 && isfinite(value) ? ldexp(1.0, -ilogb(value)) : 1.0;
}

__global__ void __launch_bounds__(kVectorThreads)
    largest_kernel(int size, StridedView const v, unsigned long long* largest) {
  start_next_kernel();
  wait_for_previous_kernel();
  double mine = 0;
  for (int j = static_cast<int>(blockIdx.x) * kVectorThreads + static_cast<int>(threadIdx.x); j < size;
       j += static_cast<int>(gridDim.x) * kVectorThreads)
    mine = fmax(mine, fabs(load_element(v, j * v.stride)));
  mine = warp_max(mine);
  if (threadIdx.x % 32 == 0) atomicMax(largest, static_cast<unsigned long long>(__double_as_longlong(mine)));
}

/// factors_j = beta_j v_j, scaled: what a product is given in place of beta.
template <class T>
__global__ void __launch_bounds__(kVectorThreads)
    scale_factors_kernel(PackedSide const points, T const* beta, StridedView const v, unsigned long long const* largest,
                         T* factors) {
  int const j = static_cast<int>(blockIdx.x) * kVectorThreads + static_cast<int>(threadIdx.x);
  start_next_kernel();
  wait_for_previous_kernel();
  if (j >= points.padded_size) return;
  bool const counts = j < points.size && points.weight[j] > 0;
  double const value = counts ? vector_scale(*largest) * load_element(v, j * v.stride) : 0.0;
  factors[j] = static_cast<T>((beta ? static_cast<double>(beta[j]) : 1.0) * value);
}

/// The sums of a product, times the factor of their row; see FinishArguments.
template <class T>
__global__ void __launch_bounds__(kVectorThreads) finish_product_kernel(FinishArguments const arguments) {
  int const i = static_cast<int>(blockIdx.x) * kVectorThreads + static_cast<int>(threadIdx.x);
  start_next_kernel();
  wait_for_previous_kernel();
  if (i == 0) *arguments.scale.next = 0;
  if (i >= arguments.sums.points.size) return;
  T reference;
  double sum;
  join_slots<T>(arguments.sums, i, reference, sum);
  double value = arguments.row_factor[i] * sum / vector_scale(*arguments.scale.largest);
  if (arguments.origin) value += (arguments.weight ? arguments.weight[i] : 1.0) * *arguments.origin;
  store_element(arguments.out, i * arguments.out.stride, value);
}

template <class T>
__global__ void __launch_bounds__(kVectorThreads) row_sums_kernel(SumArguments const sums, double* out) {
  int const i = static_cast<int>(blockIdx.x) * kVectorThreads + static_cast<int>(threadIdx.x);
  start_next_kernel();
  wait_for_previous_kernel();
  if (i >= sums.points.size) return;
  T reference;
  join_slots<T>(sums, i, reference, out[i]);
}

__global__ void __launch_bounds__(kVectorThreads) weight_terms_kernel(WeightTermArguments const arguments) {
  int const i = static_cast<int>(blockIdx.x) * kVectorThreads + static_cast<int>(threadIdx.x);
  if (i >= arguments.points.size) return;
  double const shift = arguments.shift[i];
  WeightTerm const term =
      weight_term(arguments.potential[i] + shift, arguments.plus[i] + shift, arguments.points.weight[i],
                  arguments.marginal[i], arguments.penalty, arguments.eps, arguments.other_mass);
  if (arguments.ratio) arguments.ratio[i] = term.ratio;
  if (arguments.wanted) arguments.wanted[i] = term.wanted;
  if (arguments.gradient) arguments.gradient[i] = term.gradient;
}

__global__ void __launch_bounds__(kVectorThreads) slopes_kernel(SlopeArguments const arguments) {
  int const k = static_cast<int>(blockIdx.x) * kVectorThreads + static_cast<int>(threadIdx.x);
  if (k >= arguments.size) return;
  int const p = k % arguments.width;
  // The difference first: it is what distances are made of, wherever the clouds lie.
  double const far = arguments.other_centre[p], apart = arguments.centre[p] - far;
  double const own = load_element(arguments.points, k / arguments.width * arguments.points.stride + p);
  arguments.out[k] =
      arguments.curvature * own + arguments.curvature * apart + (arguments.curvature + arguments.product) * far;
}

}  // namespace monge::cuda
