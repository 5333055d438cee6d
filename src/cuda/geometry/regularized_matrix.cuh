// The costs of one pair of a regularised problem, from matrices or points.
#pragma once
#include <cmath>

#include "cuda/device/pair_cost.cuh"
#include "cuda/device/stored.cuh"
#include "cuda/device/strided.cuh"
#include "cuda/geometry/regularized_matrix.hpp"

namespace monge::cuda {

__device__ __forceinline__ double l1_weight_at(RegularizedMatrix const& matrix, int i, int j) {
  return load_element(matrix.l1_weights, i * matrix.l1_weights.stride + j);
}
__device__ __forceinline__ double mask_at(RegularizedMatrix const& matrix, int i, int j) {
  return load_element(matrix.mask, i * matrix.mask.stride + j);
}

/// S without l1, from a cost minus the least one. The product is rounded separately. If one kernel fused it with the
/// next sum and another did not, their plans [u + v - S]_+ / lambda would differ by epsilon / lambda.
__device__ __forceinline__ double scaled_cost(RegularizedMatrix const& matrix, double difference) {
  return __dmul_rn(difference, matrix.inverse_range);
}

/// S_ij of `row` and of the columns column, column + 32, ..., as far as they exist.
template <ScoreForm kForm, int kCount>
__device__ __forceinline__ void read_scaled_costs(RegularizedMatrix const& matrix, int row, int column,
                                                  double (&result)[kCount]) {
  RegularizedPoints const& points = matrix.points;
  PairCost<double, kForm, 1, kCount> pair(points.p);
  double score[1][kCount] = {};
  double const *x = points.coordinates[0] + row, *y = points.coordinates[1];
  for (int k = 0; k < points.dimension; ++k, x += matrix.rows, y += matrix.columns) {
    double const at = *x;
    double to[kCount];
#pragma unroll
    for (int c = 0; c < kCount; ++c) to[c] = column + 32 * c < matrix.columns ? y[column + 32 * c] : 0.0;
    pair.visit([&](auto const& add, auto) {
#pragma unroll
      for (int c = 0; c < kCount; ++c) add(score[0][c], at, to[c], 0, c);
    });
  }
  pair.finish(score);
  double const base = points.base[0][row];
#pragma unroll
  for (int c = 0; c < kCount; ++c) {
    if (column + 32 * c < matrix.columns)
      result[c] = fma(points.factor, score[0][c], base + points.base[1][column + 32 * c]);
  }
}
template <int kCount>
__device__ __forceinline__ void read_scaled_costs(RegularizedMatrix const& matrix, int row, int column,
                                                  double (&result)[kCount]) {
  if (matrix.points.form == ScoreForm::differences) {
    read_scaled_costs<ScoreForm::differences>(matrix, row, column, result);
  } else if (matrix.points.form == ScoreForm::products) {
    read_scaled_costs<ScoreForm::products>(matrix, row, column, result);
  } else {
    read_scaled_costs<ScoreForm::distances>(matrix, row, column, result);
  }
}

/// S_ij from a scaled cost: at least the floor, plus l1 W_ij. NaN stays NaN.
__device__ __forceinline__ double finished_cost(RegularizedMatrix const& matrix, int i, int j, double scaled) {
  double const cost = scaled < matrix.floor ? matrix.floor : scaled;
  return matrix.l1_weights.data ? fma(matrix.l1, l1_weight_at(matrix, i, j), cost) : cost;
}

/// S_ij for a kernel, from matrices or from points.
struct MatrixPairs {
  static __device__ __forceinline__ double cost(RegularizedMatrix const& matrix, int i, int j) {
    if (matrix.mask.data && mask_at(matrix, i, j) == 0) return INFINITY;
    bool const transposed = matrix.cost.transposed;
    double const score = stored_score<double>(matrix.cost, transposed ? j : i, transposed ? i : j);
    return finished_cost(matrix, i, j, scaled_cost(matrix, score));
  }
};
struct PointPairs {
  /// Without l1.
  static __device__ __forceinline__ double of_points(RegularizedMatrix const& matrix, int i, int j) {
    double cost[1];
    read_scaled_costs(matrix, i, j, cost);
    return cost[0];
  }
  static __device__ __forceinline__ double cost(RegularizedMatrix const& matrix, int i, int j) {
    return finished_cost(matrix, i, j, of_points(matrix, i, j));
  }
};

}  // namespace monge::cuda
