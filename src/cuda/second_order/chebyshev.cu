// Chebyshev's iteration on diag(1/c) S, where S = diag(c) - E^T diag(1/a) E and E is sparse. With centre and radius of
// [least, 1] it begins with r = diag(1/c) v, d = r / centre, x = d. A step is
//
//   spread   u = diag(1/a) E d                                             lines: the rows of E
//   gather   r -= d - diag(1/c) E^T u;  d = kept d + taken r;  x += d      lines: the columns of E
//
// For B^-1 (z, w) the right side is v = w - E^T diag(1/a) z, and in the end z = diag(1/a) (z - E x).
//
// A group of kSolverLanes threads takes a line, of about 8 entries, and adds its products in an order that depends on
// the line alone. All data lie in L2, 24 bytes for each entry and step. One launch takes all steps, with two barriers
// of the grid each, which dominate the time.
#include "cuda/second_order/chebyshev.hpp"

#include <algorithm>

#include "cuda/device/grid.cuh"
#include "cuda/device/points.cuh"
#include "cuda/runtime/check.hpp"

namespace monge::cuda {
namespace {

inline constexpr int kSolverThreads = 512;
inline constexpr int kSolverLanes = 8;
inline constexpr int kLinesOfWarp = 32 / kSolverLanes;

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
  if (!exists || lane != 0) return;
  scaling.shares[i] = sum;
  scaling.inverse_a[i] = factor;
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
  scaling.inverse_c[j] = factor;
}

/// Calls work(line) with all lanes of a group, for each line of this block.
template <class Work>
__device__ __forceinline__ void for_each_line(int lines, Work const& work) {
  int const groups = static_cast<int>(gridDim.x) * (kSolverThreads / kSolverLanes);
  // The lanes of a warp stay together.
  for (int first = line_of_group() / kLinesOfWarp * kLinesOfWarp; first < lines; first += groups)
    work(first + line_of_group() % kLinesOfWarp);
}

__global__ void __launch_bounds__(kSolverThreads) iterate_entries_kernel(EntryIteration const iteration) {
  auto const& [rows, columns, inverse_a, inverse_c, of_rows, in, between, right, direction, out, least, steps,
               arrived] = iteration;
  double const centre = (1 + least) / 2, radius = (1 - least) / 2, ratio = centre / radius;
  bool const is_first = threadIdx.x % kSolverLanes == 0;
  int barriers = 0;
  if (of_rows) {
    for_each_line(rows.count, [&](int i) {
      if (i < rows.count && is_first) between[i] = of_rows[i] *= inverse_a[i];
    });
    grid_barrier(arrived, ++barriers);
  }
  for_each_line(columns.count, [&](int j) {
    double const sum = of_rows ? line_product(columns, j, between) : 0;
    if (j >= columns.count || !is_first) return;
    right[j] = inverse_c[j] * in[j] - sum;
    direction[j] = out[j] = right[j] / centre;
  });
  double last = 1 / ratio;
  for (int k = 0; k < steps; ++k) {
    double const next = 1 / (2 * ratio - last), kept = next * last, taken = 2 * next / radius;
    last = next;
    grid_barrier(arrived, ++barriers);
    for_each_line(rows.count, [&](int i) {
      double const sum = line_product(rows, i, direction);
      if (i < rows.count && is_first) between[i] = sum;
    });
    grid_barrier(arrived, ++barriers);
    for_each_line(columns.count, [&](int j) {
      double const sum = line_product(columns, j, between);
      if (j >= columns.count || !is_first) return;
      right[j] -= direction[j] - sum;
      direction[j] = kept * direction[j] + taken * right[j];
      out[j] += direction[j];
    });
  }
  if (!of_rows) return;
  grid_barrier(arrived, ++barriers);
  for_each_line(rows.count, [&](int i) {
    double const sum = line_product(rows, i, out);
    if (i < rows.count && is_first) of_rows[i] -= sum;
  });
}

int line_blocks(int lines) {
  return divided_up(lines, kSolverThreads / kSolverLanes);
}

}  // namespace

void scale_entries(EntryScaling const& scaling, cudaStream_t stream) {
  launch_chained(scale_rows_kernel, line_blocks(scaling.rows.count), kSolverThreads, 0, stream, scaling);
  launch_chained(scale_columns_kernel, line_blocks(scaling.columns.count), kSolverThreads, 0, stream, scaling);
}

void iterate_entries(EntryIteration const& iteration, int multiprocessors, cudaStream_t stream) {
  MONGE_CUDA_TRY(cudaMemsetAsync(iteration.arrived, 0, sizeof(unsigned), stream));
  int const blocks = std::min(multiprocessors, line_blocks(std::max(iteration.rows.count, iteration.columns.count)));
  void* parameters[] = {const_cast<EntryIteration*>(&iteration)};
  MONGE_CUDA_TRY(cudaLaunchCooperativeKernel(reinterpret_cast<void const*>(iterate_entries_kernel),
                                             dim3(static_cast<unsigned>(blocks)), dim3(kSolverThreads), parameters, 0,
                                             stream));
}

}  // namespace monge::cuda
