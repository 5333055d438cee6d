// Entry by entry: what the matrices of a regularised problem say of a pair.
#pragma once
#include <cmath>

#include "cuda/device/strided.cuh"
#include "cuda/launch/regularized_entries.hpp"

namespace monge::cuda {

__device__ __forceinline__ double cost_at(RegularizedMatrix const& matrix, int i, int j) {
  std::int64_t const line = matrix.transposed ? j : i, place = matrix.transposed ? i : j;
  return load_element(matrix.cost, line * matrix.cost.stride + place);
}
__device__ __forceinline__ double l1_weight_at(RegularizedMatrix const& matrix, int i, int j) {
  return load_element(matrix.l1_weights, i * matrix.l1_weights.stride + j);
}
__device__ __forceinline__ double mask_at(RegularizedMatrix const& matrix, int i, int j) {
  return load_element(matrix.mask, i * matrix.mask.stride + j);
}

/// S of a cost but for l1. The product is rounded by itself: where a kernel fused it with the sum that follows, its
/// plan [u + v - S]_+ / lambda would be another one than the next kernel's, by epsilon / lambda.
__device__ __forceinline__ double score_of(RegularizedMatrix const& matrix, double cost) {
  return __dmul_rn(cost - matrix.offset, matrix.inverse_range);
}

/// S_ij
__device__ __forceinline__ double score_at(RegularizedMatrix const& matrix, int i, int j) {
  if (matrix.mask.data && mask_at(matrix, i, j) == 0) return INFINITY;
  double const score = score_of(matrix, cost_at(matrix, i, j));
  return matrix.l1_weights.data ? fma(matrix.l1, l1_weight_at(matrix, i, j), score) : score;
}

}  // namespace monge::cuda
