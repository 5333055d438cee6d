// Entries of a plan at given pairs, from their costs and the potentials:
//
//   P_ij = 2^(log2 a_i + log2 b_j + (f'_i + g'_j - C'_ij) log2(e) / eps),   C'_ij = norm_i + norm_j + factor score_ij
//
// Tiling: one thread or one warp for each pair; the lanes of a warp share its coordinates. Traffic: two points or one
// cost, and ten numbers for each pair, at scattered addresses. Numerics: points and costs as the passes read them, all
// else in double. Only the result can overflow.
#pragma once
#include "cuda/device/numerics.cuh"
#include "cuda/device/stored.cuh"
#include "cuda/device/strided.cuh"
#include "cuda/plan/entries_at.hpp"

namespace monge::cuda {

inline constexpr int kEntryThreads = 128;

/// Reductions over the lanes that share a pair.
template <int kLanes>
__device__ __forceinline__ double lanes_sum(double value) {
  return kLanes == 1 ? value : warp_sum(value);
}
template <int kLanes>
__device__ __forceinline__ double lanes_max(double value) {
  return kLanes == 1 ? value : warp_max(value);
}

/// Calls visit(x_k, y_k) for the coordinates of this lane.
template <int kLanes, class Visit>
__device__ __forceinline__ void for_coordinates(PassArguments const& scores, int i, int j, Visit const& visit) {
  auto const coordinate = [](Operand const& operand, int point, int k) {
    StridedView const points{const_cast<void*>(operand.points), operand.stride, operand.scalar};
    return load_element(points, point * points.stride + k);
  };
  for (int k = static_cast<int>(threadIdx.x) % kLanes; k < scores.rows.dimension; k += kLanes)
    visit(coordinate(scores.rows, i, k), coordinate(scores.columns, j, k));
}

/// Takes powers of differences relative to the largest one, so no power overflows.
template <int kLanes>
__device__ __forceinline__ double pair_distance(PassArguments const& scores, int i, int j) {
  double largest = 0, sum = 0;
  for_coordinates<kLanes>(scores, i, j, [&](double x, double y) { largest = fmax(largest, fabs(x - y)); });
  largest = lanes_max<kLanes>(largest);
  if (largest == 0 || isinf(scores.p)) return largest;
  for_coordinates<kLanes>(scores, i, j, [&](double x, double y) { sum += pow(fabs(x - y) / largest, scores.p); });
  return largest * pow(lanes_sum<kLanes>(sum), 1 / scores.p);
}

template <int kLanes>
__device__ __forceinline__ double pair_score(PassArguments const& scores, int i, int j) {
  if (scores.form == ScoreForm::stored) {
    bool const transposed = scores.stored.transposed;
    return stored_score<double>(scores.stored, transposed ? j : i, transposed ? i : j);
  }
  if (scores.form == ScoreForm::distances) return pair_distance<kLanes>(scores, i, j);
  bool const products = scores.form == ScoreForm::products;
  double sum = 0;
  for_coordinates<kLanes>(scores, i, j, [&](double x, double y) { sum += products ? x * y : (x - y) * (x - y); });
  return lanes_sum<kLanes>(sum);
}

template <int kLanes>
__global__ void __launch_bounds__(kEntryThreads) entries_at_kernel(EntriesAtArguments const arguments) {
  std::int64_t const pair = (static_cast<std::int64_t>(blockIdx.x) * kEntryThreads + threadIdx.x) / kLanes;
  if (pair >= arguments.count) return;
  int const i = static_cast<int>(arguments.rows.data[pair * arguments.rows.stride]);
  int const j = static_cast<int>(arguments.columns.data[pair * arguments.columns.stride]);
  auto const& [rows, columns] = arguments.side;
  double entry = 0;
  if (rows.weight[i] > 0 && columns.weight[j] > 0) {
    double const slope = arguments.potential[0][i] - rows.norm[i] + (arguments.potential[1][j] - columns.norm[j]);
    double const t = slope + arguments.scores.factor * pair_score<kLanes>(arguments.scores, i, j);
    entry = exp2(rows.log_weight[i] + columns.log_weight[j] + t * arguments.log2e_over_eps);
  }
  if (threadIdx.x % kLanes == 0) store_element(arguments.values, pair * arguments.values.stride, entry);
}

}  // namespace monge::cuda
