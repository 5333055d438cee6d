// Streaming sums of powers of two, and reductions in a fixed order.
#pragma once
#include <limits>

#include "cuda/device/ptx.cuh"

namespace monge::cuda {

/// Stands for log2(0): finite, so that differences of two of them are 0 and not NaN, and below every real logit.
template <class T>
inline constexpr T kEmptyLogit = T(-1e30);
template <>
inline constexpr double kEmptyLogit<double> = -1e300;

/// Where the reference of a row starts. In double, where columns of no weight have no factor of 0, it is far above
/// their logits, so that they add nothing.
template <class T>
inline constexpr T kLowestReference = kEmptyLogit<T>;
template <>
inline constexpr double kLowestReference<double> = kEmptyLogit<double> / 2;

/// log2 of the share beta 2^(t - reference); minus infinity where beta or the logit says that there is no pair.
template <class T>
__device__ __forceinline__ T log_share(T t, T reference, T log2_beta) {
  return t > kEmptyLogit<T> / 2 ? t - reference + log2_beta : -std::numeric_limits<T>::infinity();
}

/// x y, rounded before anything is added to it: whether a compiler joins a product with a sum may differ between two
/// kernels of the same source, and with it their bits.
__device__ __forceinline__ float rounded_product(float x, float y) {
  return __fmul_rn(x, y);
}
__device__ __forceinline__ double rounded_product(double x, double y) {
  return __dmul_rn(x, y);
}

__device__ __forceinline__ float power_of_two(float x) {
  return fast_exp2(x);
}
__device__ __forceinline__ double power_of_two(double x) {
  return exp2(x);
}

/// A sum of 2^(t - reference) over one tile that reaches this says that the reference is too low and must move. Up to
/// it float loses nothing, and even 2^40 tiles more would not overflow; so hardly any tile but a block's first moves
/// it.
inline constexpr float kLargestTileSum = 1099511627776.0f;  // 2^40

/// sum += value with the rounding error carried along (Kahan).
__device__ __forceinline__ void compensated_add(float& sum, float& compensation, float value) {
  float const corrected = value - compensation;
  float const next = sum + corrected;
  compensation = (next - sum) - corrected;
  sum = next;
}

/// (reference, sum) <- the pair for the union of two sets of terms.
template <class T>
__device__ __forceinline__ void merge_sums(T& reference, T& sum, T other_reference, T other_sum) {
  T const next = reference > other_reference ? reference : other_reference;
  sum = sum * power_of_two(reference - next) + other_sum * power_of_two(other_reference - next);
  reference = next;
}

/// Sum over the lanes of a warp, the same on each; the order is fixed.
template <class T>
__device__ __forceinline__ T warp_sum(T value) {
  for (int mask = 16; mask > 0; mask >>= 1) value += __shfl_xor_sync(0xffffffffu, value, mask);
  return value;
}

template <class T>
__device__ __forceinline__ T warp_max(T value) {
  for (int mask = 16; mask > 0; mask >>= 1) value = fmax(value, __shfl_xor_sync(0xffffffffu, value, mask));
  return value;
}

/// Sum over a block of kThreads threads, for thread 0.
template <int kThreads>
__device__ __forceinline__ double block_sum(double value) {
  __shared__ double partial[kThreads / 32];
  value = warp_sum(value);
  if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = value;
  __syncthreads();
  double total = 0;
  if (threadIdx.x == 0) {
    for (int w = 0; w < kThreads / 32; ++w) total += partial[w];
  }
  return total;
}

}  // namespace monge::cuda
