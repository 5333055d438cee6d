// One step of Chebyshev's iteration on diag(1/c) S, S = diag(c) - E^T diag(1/a) E, E sparse:
//
//   spread   u = diag(1/a) E d                        the lines of E are its rows
//   gather   r -= d - diag(1/c) E^T u;  d = kept d + taken r;  x += d      its columns
//
// A group of kSolverLanes threads takes a line, of 8 entries or so, and adds its products in an order that depends on
// the line alone. Everything lies in L2: 24 bytes an entry and step, so the two launches are what it takes.
#pragma once
#include "cuda/device/ptx.cuh"
#include "cuda/second_order/chebyshev.hpp"

namespace monge::cuda {

inline constexpr int kSolverThreads = 256;
inline constexpr int kSolverLanes = 8;

/// <line, vector>, for all lanes of the group.
__device__ __forceinline__ double line_product(SparseLines const& lines, int line, double const* vector) {
  double sum = 0;
  if (line < lines.count) {
    int const end = lines.begin[line + 1];
    for (int k = lines.begin[line] + static_cast<int>(threadIdx.x) % kSolverLanes; k < end; k += kSolverLanes)
      sum += lines.value[k] * vector[lines.index[k]];
  }
  for (int mask = kSolverLanes / 2; mask > 0; mask /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, mask);
  return sum;
}

__device__ __forceinline__ int line_of_group() {
  return static_cast<int>((blockIdx.x * kSolverThreads + threadIdx.x) / kSolverLanes);
}

__global__ void __launch_bounds__(kSolverThreads) first_entry_step_kernel(FirstEntryStep const step) {
  int const j = static_cast<int>(blockIdx.x) * kSolverThreads + static_cast<int>(threadIdx.x);
  start_next_kernel();
  wait_for_previous_kernel();
  if (j >= step.size) return;
  double const right = step.inverse_diagonal[j] * step.in[j], direction = step.factor * right;
  step.right[j] = right;
  step.direction[j] = direction;
  step.out[j] = direction;
}

__global__ void __launch_bounds__(kSolverThreads) spread_entries_kernel(EntryStep const step) {
  int const i = line_of_group();
  start_next_kernel();
  wait_for_previous_kernel();
  double const sum = line_product(step.rows, i, step.direction);
  if (i < step.rows.count && threadIdx.x % kSolverLanes == 0) step.between[i] = sum;
}

__global__ void __launch_bounds__(kSolverThreads) gather_entries_kernel(EntryStep const step) {
  int const j = line_of_group();
  start_next_kernel();
  wait_for_previous_kernel();
  double const sum = line_product(step.columns, j, step.between);
  if (j >= step.columns.count || threadIdx.x % kSolverLanes != 0) return;
  double const right = step.right[j] - (step.direction[j] - sum);
  double const direction = step.kept * step.direction[j] + step.taken * right;
  step.right[j] = right;
  step.direction[j] = direction;
  step.out[j] += direction;
}

}  // namespace monge::cuda
