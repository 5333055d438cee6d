#include "cuda/regularized/splitting.hpp"

#include <algorithm>
#include <string>

#include <monge/error.hpp>

#include "core/numbers.hpp"
#include "cuda/device/numerics.cuh"
#include "cuda/device/source.cuh"
#include "cuda/device/stored.cuh"
#include "cuda/launch/generation.hpp"
#include "cuda/launch/occupancy.hpp"
#include "cuda/launch/sizes.hpp"
#include "cuda/regularized/splitting.cuh"
#include "cuda/runtime/check.hpp"
#include "regularized/splitting_rule.hpp"

namespace monge::cuda {

// Between the iterations of splitting: a new step, residuals, counts, and spare states.

inline constexpr int kRestartThreads = 1024;

/// The grid has one block.
template <class T, class Source>
__global__ void __launch_bounds__(kRestartThreads) restart_splitting_kernel(Source const source) {
  Slice<SplittingRestart> const slice = slice_of(source);
  SplittingRestart const& restart = slice.arguments;
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
  Slice<SplittingResidualArguments> const slice = slice_of(source);
  SplittingResidualArguments const& arguments = slice.arguments;
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
  Slice<SplittingResidualArguments> const slice = slice_of(source);
  SplittingArguments const& problem = slice.arguments.problem;
  start_next_kernel();
  wait_for_previous_kernel();
  std::int64_t const vectors = problem.pitch * problem.side[1].size / kPerVector;
  std::int64_t const first = std::int64_t{slice.block} * kCountVectors + threadIdx.x;
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
    atomicAdd(reinterpret_cast<unsigned long long*>(&slice.arguments.result->nonzeros),
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

namespace {

/// Columns of a part. Fewer than 4 would write row sums too often; more than 256 would let sums in T lose digits.
constexpr int kLeastColumns = 4, kMostColumns = 256;

/// Reserve of shared memory: what split_kernel declares, and the arguments of a launch for many problems.
constexpr int kReservedBytes = 1024;
static_assert(sizeof(SplittingArguments) + 512 <= kReservedBytes);

/// Bytes of a column in a slab of small groups: 256 threads with 4 vectors each.
constexpr int kGroupedSlabBytes = 256 * 4 * 16;

template <class Function>
auto with_iteration(SplittingIteration iteration, Function&& function) {
  using enum SplittingIteration;
  switch (iteration) {
    case opening:
      return function.template operator()<opening>();
    case closing:
      return function.template operator()<closing>();
    default:
      return function.template operator()<single>();
  }
}

/// Calls function.operator()<T, kProx>().
template <class Function>
auto with_prox(DataType scalar, SplittingProx prox, Function&& function) {
  auto const with_type = [&]<class T>() {
    using enum SplittingProx;
    switch (prox) {
      case shrink:
        return function.template operator()<T, shrink>();
      case group:
        return function.template operator()<T, group>();
      case group_hypentropy:
        return function.template operator()<T, group_hypentropy>();
      case slopes:
        return function.template operator()<T, slopes>();
      default:
        return function.template operator()<T, hypentropy>();
    }
  };
  return scalar == DataType::float32 ? with_type.template operator()<float>() : with_type.template operator()<double>();
}

template <class T, SplittingProx kProx, SplittingIteration kIteration>
Kernel<SplittingArguments> kernel_of() {
  return {split_kernel<T, kProx, kIteration>, split_kernel<T, kProx, kIteration>};
}

template <class T, SplittingProx kProx, SplittingIteration kIteration>
int shared_bytes(int threads) {
  int const sums = has_groups(kProx) ? 2 * kGroupSums<kProx> * SplittingTile<T, kProx>::kVectors * sizeof(T) : 0;
  return threads * (SplittingRing<kProx, kIteration>::kThreadBytes + sums);
}

/// Threads of a block that find room in shared memory, whole warps.
template <class T, SplittingProx kProx>
int most_threads() {
  int const per_warp = shared_bytes<T, kProx, SplittingIteration::single>(32);
  return std::min(SplittingTile<T, kProx>::kMostThreads, 32 * ((most_shared_bytes() - kReservedBytes) / per_warp));
}

int update_blocks(SplittingSide const (&side)[2]) {
  return divided_up(side[0].size, kUpdatePoints) + divided_up(side[1].size, kUpdatePoints);
}

/// The first row of each slab, and the end. A slab holds whole groups: at most `most` rows, or one group.
std::vector<int> grouped_slabs(std::vector<int> const& group_begin, int most) {
  int const rows = group_begin.back();
  int const target = divided_up(rows, divided_up(rows, most));
  std::vector<int> slabs{0};
  for (std::size_t g = 0; g + 1 < group_begin.size(); ++g) {
    int const begin = group_begin[g], end = group_begin[g + 1];
    if (begin > slabs.back() && (begin - slabs.back() >= target || end - slabs.back() > most)) slabs.push_back(begin);
  }
  slabs.push_back(rows);
  return slabs;
}

int spare_blocks(std::int64_t size) {
  constexpr std::int64_t kPerThread = 4, kMost = 4096;
  return static_cast<int>(std::clamp<std::int64_t>(size / (kSpareThreads * kPerThread), 1, kMost));
}

/// Calls action(T()) with the type of the entries.
template <class Action>
void with_entries(DataType scalar, Action&& action) {
  if (scalar == DataType::float32) {
    action(float());
  } else {
    action(double());
  }
  MONGE_CUDA_TRY(cudaGetLastError());
}

}  // namespace

SplittingPlan plan_splitting(DataType scalar, SplittingProx prox, int rows, int columns,
                             std::vector<int> const& group_begin, int multiprocessors) {
  return with_prox(scalar, prox, [&]<class T, SplittingProx kProx>() {
    using Tile = SplittingTile<T, kProx>;
    SplittingPlan plan{scalar, prox};
    int const most_rows = most_threads<T, kProx>() * Tile::kThreadRows;
    if (has_groups(kProx)) {
      plan.slabs = grouped_slabs(group_begin, kGroupedSlabBytes / static_cast<int>(sizeof(T)));
    } else {
      for (int row = 0; row < rows; row += most_rows) plan.slabs.push_back(row);
      plan.slabs.push_back(rows);
    }
    int most = 0;
    for (int k = 0; k < plan.slab_count(); ++k) {
      auto const slab = to_size(k);
      most = std::max(most, plan.slabs[slab + 1] - plan.slabs[slab]);
    }
    plan.cluster = divided_up(most, most_rows);
    int const most_clustered = generation() < Generation::sm_90 ? 1 : kMostSplittingCluster;
    if (plan.cluster > most_clustered)
      throw Error(ErrorCode::unsupported, "groups: one has " + std::to_string(most) +
                                              " rows; this device supports at most " +
                                              std::to_string(most_clustered * most_rows));
    plan.threads = 32 * divided_up(most, plan.cluster * 32 * Tile::kThreadRows);
    int resident = 1;
    for (SplittingIteration const iteration :
         {SplittingIteration::closing, SplittingIteration::single, SplittingIteration::opening})
      with_iteration(iteration, [&]<SplittingIteration kIteration>() {
        int const bytes = shared_bytes<T, kProx, kIteration>(plan.threads);
        Kernel<SplittingArguments> const kernel = kernel_of<T, kProx, kIteration>();
        occupancy_of(kernel.many, plan.threads, bytes);
        Occupancy const occupancy = occupancy_of(kernel.one, plan.threads, bytes, plan.cluster);
        resident =
            plan.cluster > 1 ? occupancy.resident_clusters * plan.cluster : multiprocessors * occupancy.resident_blocks;
      });
    int const most_parts = std::max(columns / kLeastColumns, 1);
    int const needed = divided_up(columns, kMostColumns);
    int const in_a_wave = std::max(resident / plan.cluster / plan.slab_count(), 1);
    plan.parts = std::min(most_parts, in_a_wave * divided_up(needed, in_a_wave));
    return plan;
  });
}

void splitting_iteration(SplittingPlan const& plan, SplittingIteration iteration, SplittingArguments const& arguments,
                         Queue const& queue) {
  with_prox(plan.scalar, plan.prox, [&]<class T, SplittingProx kProx>() {
    with_iteration(iteration, [&]<SplittingIteration kIteration>() {
      queue.launch(kernel_of<T, kProx, kIteration>(),
                   {.blocks = plan.blocks(),
                    .threads = plan.threads,
                    .shared_bytes = shared_bytes<T, kProx, kIteration>(plan.threads),
                    .cluster = has_groups(kProx) ? plan.cluster : 0},
                   arguments);
    });
    queue.launch(Kernel<SplittingArguments>{update_splitting_kernel<T>, update_splitting_kernel<T>},
                 {update_blocks(arguments.side), kUpdateThreads}, arguments);
  });
}

void restart_splitting(SplittingRestart const& restart, Queue const& queue) {
  using Restart = Kernel<SplittingRestart>;
  queue.launch(restart.scalar == DataType::float32
                   ? Restart{restart_splitting_kernel<float>, restart_splitting_kernel<float>}
                   : Restart{restart_splitting_kernel<double>, restart_splitting_kernel<double>},
               {1, kRestartThreads}, restart);
}

void splitting_residual(SplittingResidualArguments const& arguments, Queue const& queue) {
  queue.launch(Kernel<SplittingResidualArguments>{splitting_residual_kernel, splitting_residual_kernel},
               {1, kRestartThreads}, arguments);
  using Count = Kernel<SplittingResidualArguments>;
  SplittingArguments const& problem = arguments.problem;
  std::int64_t const vectors = problem.pitch * problem.side[1].size * size_of(arguments.scalar) / 16;
  queue.launch(arguments.scalar == DataType::float32
                   ? Count{count_entries_kernel<float>, count_entries_kernel<float>}
                   : Count{count_entries_kernel<double>, count_entries_kernel<double>},
               {static_cast<int>((vectors - 1) / kCountVectors + 1), kSpareThreads}, arguments);
}

void approach_spare(SplittingSpareArguments const& arguments, double fraction, cudaStream_t stream) {
  with_entries(arguments.scalar, [&]<class T>(T) {
    approach_kernel<T><<<spare_blocks(arguments.size), kSpareThreads, 0, stream>>>(
        arguments.size, static_cast<T>(fraction), static_cast<T const*>(arguments.entries),
        static_cast<T*>(arguments.spare_entries));
  });
  approach_kernel<double><<<spare_blocks(arguments.count), kSpareThreads, 0, stream>>>(
      arguments.count, fraction, arguments.numbers, arguments.spare_numbers);
  MONGE_CUDA_TRY(cudaGetLastError());
}

void exchange_spare(SplittingSpareArguments const& arguments, cudaStream_t stream) {
  // Columns are padded to 128 bytes.
  std::int64_t const words = arguments.size * size_of(arguments.scalar) / static_cast<std::int64_t>(sizeof(double));
  exchange_kernel<<<spare_blocks(words), kSpareThreads, 0, stream>>>(words, static_cast<double*>(arguments.entries),
                                                                     static_cast<double*>(arguments.spare_entries));
  exchange_kernel<<<spare_blocks(arguments.count), kSpareThreads, 0, stream>>>(arguments.count, arguments.numbers,
                                                                               arguments.spare_numbers);
  MONGE_CUDA_TRY(cudaGetLastError());
}

void spare_distance(SplittingSpareArguments const& arguments, double* partials, cudaStream_t stream) {
  with_entries(arguments.scalar, [&]<class T>(T) {
    distance_kernel<T>
        <<<kSpareBlocks, kSpareThreads, 0, stream>>>(arguments.size, static_cast<T const*>(arguments.entries),
                                                     static_cast<T const*>(arguments.spare_entries), partials);
  });
}

}  // namespace monge::cuda
