// One step of Chebyshev's iteration on diag(1/c) S, where S = diag(c) - E^T diag(1/a) E and E is sparse:
//
//   spread   u = diag(1/a) E d                        lines: the rows of E
//   gather   r -= d - diag(1/c) E^T u;  d = kept d + taken r;  x += d      lines: the columns of E
//
// A group of kSolverLanes threads takes a line, of about 8 entries, and adds its products in an order that depends on
// the line alone. All data lie in L2, 24 bytes for each entry and step, so the launches dominate the time.
#include "cuda/second_order/chebyshev.hpp"

#include "cuda/launch/points.cuh"

namespace monge::cuda {
namespace {

inline constexpr int kSolverThreads = 256;
inline constexpr int kSolverLanes = 8;

/// The sum of `value` over the lanes of a group, for all of them.
__device__ __forceinline__ double group_sum(double value) {
  for (int mask = kSolverLanes / 2; mask > 0; mask /= 2) value += __shfl_xor_sync(0xffffffffu, value, mask);
  return value;
}

/// <line, vector>, for all lanes of the group.
__device__ __forceinline__ double line_product(SparseLines const& lines, int line, double const* vector) {
  double sum = 0;
  if (line < lines.count) {
    int const end = lines.begin[line + 1];
    for (int k = lines.begin[line] + static_cast<int>(threadIdx.x) % kSolverLanes; k < end; k += kSolverLanes)
      sum += lines.value[k] * vector[lines.index[k]];
  }
  return group_sum(sum);
}

__device__ __forceinline__ int line_of_group() {
  return static_cast<int>((blockIdx.x * kSolverThreads + threadIdx.x) / kSolverLanes);
}

__device__ __forceinline__ double inverse_or_one(double value) {
  return value > 0 ? 1 / value : 1.0;
}

__global__ void __launch_bounds__(kSolverThreads) scale_rows_kernel(EntryScaling const scaling) {
  int const i = line_of_group(), lane = static_cast<int>(threadIdx.x) % kSolverLanes;
  start_next_kernel();
  wait_for_previous_kernel();
  bool const exists = i < scaling.rows.count;
  double const factor = exists ? inverse_or_one(scaling.a[i]) : 0.0;
  double sum = 0;
  for (int k = exists ? scaling.rows.begin[i] + lane : 0; k < (exists ? scaling.rows.begin[i + 1] : 0);
       k += kSolverLanes)
    sum += scaling.rows.value[k] = factor * scaling.entries[k];
  sum = group_sum(sum);
  if (exists && lane == 0) scaling.shares[i] = sum;
}

__global__ void __launch_bounds__(kSolverThreads) scale_columns_kernel(EntryScaling const scaling) {
  int const j = line_of_group(), lane = static_cast<int>(threadIdx.x) % kSolverLanes;
  start_next_kernel();
  wait_for_previous_kernel();
  bool const exists = j < scaling.columns.count;
  double const factor = exists ? inverse_or_one(scaling.c[j]) : 0.0;
  double sum = 0;
  for (int k = exists ? scaling.columns.begin[j] + lane : 0; k < (exists ? scaling.columns.begin[j + 1] : 0);
       k += kSolverLanes) {
    double const value = scaling.columns.value[k] = factor * scaling.entries[scaling.order[k]];
    sum += value * scaling.shares[scaling.columns.index[k]];
  }
  sum = group_sum(sum);
  if (!exists || lane != 0) return;
  scaling.sums[j] = sum;
  scaling.inverse_diagonal[j] = factor;
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

int line_blocks(int lines) {
  return divided_up(lines, kSolverThreads / kSolverLanes);
}

}  // namespace

void scale_entries(EntryScaling const& scaling, cudaStream_t stream) {
  launch_chained(scale_rows_kernel, line_blocks(scaling.rows.count), kSolverThreads, 0, stream, scaling);
  launch_chained(scale_columns_kernel, line_blocks(scaling.columns.count), kSolverThreads, 0, stream, scaling);
}

void first_entry_step(FirstEntryStep const& step, cudaStream_t stream) {
  launch_chained(first_entry_step_kernel, divided_up(step.size, kSolverThreads), kSolverThreads, 0, stream, step);
}

void entry_step(EntryStep const& step, cudaStream_t stream) {
  launch_chained(spread_entries_kernel, line_blocks(step.rows.count), kSolverThreads, 0, stream, step);
  launch_chained(gather_entries_kernel, line_blocks(step.columns.count), kSolverThreads, 0, stream, step);
}

}  // namespace monge::cuda
