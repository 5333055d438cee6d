// Kernels between the iterations of splitting (splitting.cuh): a new step, residuals, counts, and spare states.
#pragma once
#include "cuda/device/numerics.cuh"
#include "cuda/device/source.cuh"
#include "cuda/device/stored.cuh"
#include "cuda/regularized/splitting.hpp"
#include "regularized/splitting_rule.hpp"

namespace monge::cuda {

inline constexpr int kRestartThreads = 1024;

/// One block.
template <class T, class Source>
__global__ void __launch_bounds__(kRestartThreads) restart_splitting_kernel(Source const source) {
  Share<SplittingRestart> const share = share_of(source);
  SplittingRestart const& restart = share.arguments;
  __shared__ double totals[2];
  wait_for_previous_kernel();
  // Not earlier: iterations fetch costs before their wait, and the kernel before this one may still pack them.
  start_next_kernel();
  int const thread = static_cast<int>(threadIdx.x);
  double mass = 0;
  for (int s : {0, 1}) {
    SplittingSide const& side = restart.problem.side[s];
    double total = 0;
    for (int i = thread; i < side.size; i += kRestartThreads) {
      double const potential = restart.factor * side.potential[i];
      side.potential[i] = potential;
      static_cast<T*>(side.rounded)[i] = static_cast<T>(potential);
      if (restart.empty) side.residual[i] = -side.share[i];
      if (s == 0) mass += side.share[i] + side.residual[i];
      total += potential;
    }
    total = block_sum<kRestartThreads>(total);
    if (thread == 0) totals[s] = total;
    __syncthreads();
  }
  double const n = restart.problem.side[0].real, m = restart.problem.side[1].real;
  for (int s : {0, 1}) {
    SplittingSide const& side = restart.problem.side[s];
    for (int i = thread; i < side.size; i += kRestartThreads) {
      if (side.point && side.point[i] < 0) continue;
      side.sum[i] = side.residual[i] + (s == 0 ? m : n) * side.potential[i] + totals[1 - s];
    }
  }
  mass = block_sum<kRestartThreads>(mass);
  if (thread == 0) restart.problem.state->alpha = mass + m * totals[0] + n * totals[1] - 1;
}

/// Squares of the residuals' 2-norms of both sides. One block.
template <class Source>
__global__ void __launch_bounds__(kRestartThreads) splitting_residual_kernel(Source const source) {
  Share<SplittingResidualArguments> const share = share_of(source);
  SplittingResidualArguments const& arguments = share.arguments;
  SplittingArguments const& problem = arguments.problem;
  start_next_kernel();
  wait_for_previous_kernel();
  int const thread = static_cast<int>(threadIdx.x);
  auto const squares = [&](SplittingSide const& side) {
    double sum = 0;
#pragma unroll 8
    for (int i = thread; i < side.size; i += kRestartThreads) sum = fused(side.residual[i], side.residual[i], sum);
    return sum;
  };
  double rows = squares(problem.side[0]), columns = squares(problem.side[1]);
  rows = block_sum<kRestartThreads>(rows);
  __syncthreads();  // block_sum() uses the same memory again.
  columns = block_sum<kRestartThreads>(columns);
  if (thread == 0) *arguments.result = {rows, columns, 0};
}

// Kernels for whole plans work element by element, at the speed of memory.
inline constexpr int kSpareThreads = 256;
inline constexpr int kCountVectors = 32 * kSpareThreads;  // Vectors of a block.

/// Adds the number of entries that are not 0 to the result.
template <class T, class Source>
__global__ void __launch_bounds__(kSpareThreads) count_entries_kernel(Source const source) {
  constexpr int kPerVector = 16 / sizeof(T);
  Share<SplittingResidualArguments> const share = share_of(source);
  SplittingArguments const& problem = share.arguments.problem;
  start_next_kernel();
  wait_for_previous_kernel();
  std::int64_t const vectors = problem.pitch * problem.side[1].size / kPerVector;
  std::int64_t const first = std::int64_t{share.block} * kCountVectors + threadIdx.x;
  int count = 0;
#pragma unroll 8
  for (int k = 0; k < kCountVectors; k += kSpareThreads) {
    if (first + k >= vectors) break;
    T value[kPerVector];
    load_16_bytes(value, static_cast<T const*>(problem.entries) + (first + k) * kPerVector);
#pragma unroll
    for (int e = 0; e < kPerVector; ++e) count += value[e] != 0;
  }
  count = __reduce_add_sync(0xffffffffu, count);
  if (threadIdx.x % 32 == 0 && count > 0)
    atomicAdd(reinterpret_cast<unsigned long long*>(&share.arguments.result->nonzeros),
              static_cast<unsigned long long>(count));
}

template <class T>
__global__ void __launch_bounds__(kSpareThreads)
    approach_kernel(std::int64_t size, T share, T const* __restrict__ from, T* __restrict__ to) {
  for (std::int64_t i = blockIdx.x * std::int64_t{kSpareThreads} + threadIdx.x; i < size;
       i += std::int64_t{gridDim.x} * kSpareThreads)
    to[i] = fused(share, from[i] - to[i], to[i]);
}

/// Exchanges whole double-words.
__global__ inline void __launch_bounds__(kSpareThreads)
    exchange_kernel(std::int64_t size, double* __restrict__ one, double* __restrict__ other) {
  for (std::int64_t i = blockIdx.x * std::int64_t{kSpareThreads} + threadIdx.x; i < size;
       i += std::int64_t{gridDim.x} * kSpareThreads) {
    double const value = one[i];
    one[i] = other[i];
    other[i] = value;
  }
}

/// Grid: kSpareBlocks. Sums in double, in an order that depends on the size only.
template <class T>
__global__ void __launch_bounds__(kSpareThreads)
    distance_kernel(std::int64_t size, T const* __restrict__ one, T const* __restrict__ other, double* partials) {
  double sum = 0;
  for (std::int64_t i = blockIdx.x * std::int64_t{kSpareThreads} + threadIdx.x; i < size;
       i += std::int64_t{gridDim.x} * kSpareThreads) {
    double const difference = static_cast<double>(one[i]) - static_cast<double>(other[i]);
    sum = fused(difference, difference, sum);
  }
  sum = block_sum<kSpareThreads>(sum);
  if (threadIdx.x == 0) partials[blockIdx.x] = sum;
}

}  // namespace monge::cuda
