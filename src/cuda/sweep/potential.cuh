// The update of one potential and the logit that follows from it. __device__ only.
#pragma once
#include "cuda/device/numerics.cuh"
#include "cuda/sweep/update.hpp"
#include "entropic/update_rule.hpp"

namespace monge::cuda {

template <class T>
__device__ __forceinline__ void store_logit(LogitArrays const& arrays, int point, bool counts, double logit) {
  T* const out = static_cast<T*>(arrays.logits);
  if constexpr (sizeof(T) == 4) {
    // A poor warm start may exceed the range of float.
    double const h = counts ? fmin(fmax(logit, -1e30), 1e30) : -1e30;
    float const rounded = counts ? static_cast<float>(h) : kEmptyLogit<float>;
    out[point] = rounded;
    // Where float numbers are more than 2 apart, logits are noise already. The clamp only keeps the factor finite.
    arrays.factors[point] =
        counts ? static_cast<float>(exp2(fmin(fmax(h - static_cast<double>(rounded), -1.0), 1.0))) : 0.0f;
  } else {
    out[point] = counts ? logit : kEmptyLogit<double>;
  }
}

/// f+ of a point of `side` whose logits have the sum `sum` 2^reference.
template <class T>
__device__ __forceinline__ double softmin_value(double norm, SweepParameters const& parameters, int side, T reference,
                                                double sum) {
  return norm - parameters.constant[1 - side] - parameters.eps_ln2 * (static_cast<double>(reference) + log2(sum));
}

/// The data of a point that no sweep changes.
struct PointConstants {
  double norm, weight, log_weight;
  double shift;  // 0 where the update does not read it.
  __device__ __forceinline__ PointConstants(PackedSide const& points, int i)
      : norm(points.norm[i]),
        weight(points.weight[i]),
        log_weight(points.log_weight[i]),
        shift(isinf(points.penalty) ? 0.0 : points.shift[i]) {}
};

/// Moves a potential, stores the point's logit and returns the point's error. A point of zero weight does not move: its
/// f+ may be infinite.
template <class T>
__device__ __forceinline__ ErrorSums update_point(UpdateArguments const& arguments, SweepParameters const& parameters,
                                                  PointConstants const& constants, int point, double old, double plus) {
  bool const counts = constants.weight > 0;
  UpdateRule const rule{parameters.eps, arguments.sums.points.penalty, parameters.relaxation, arguments.symmetric};
  double const next = counts ? rule.next(old, plus, constants.shift) : old;
  arguments.potential[point] = next;
  if (arguments.copy) arguments.copy[point] = next;
  store_logit<T>(arguments.arrays, point, counts,
                 constants.log_weight +
                     (next - constants.norm - parameters.constant[arguments.sums.side]) * parameters.log2e_over_eps);
  ErrorSums error;
  if (counts) error.add(constants.weight * rule.error(old, plus, constants.shift));
  return error;
}

/// Sums the errors of a block of kThreads threads, as UpdateArguments::errors holds them.
template <int kThreads>
__device__ __forceinline__ void store_errors(ErrorSums const& error, double* out) {
  double const absolute = block_sum<kThreads>(error.absolute);
  __syncthreads();  // block_sum() uses the same memory again.
  double const square = block_sum<kThreads>(error.square);
  if (threadIdx.x == 0) {
    out[0] = absolute;
    out[1] = square;
  }
}

}  // namespace monge::cuda
