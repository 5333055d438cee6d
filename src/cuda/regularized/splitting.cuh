// An iteration of Douglas-Rachford splitting (regularized/splitting_rule.hpp) on entries in memory.
//
//   V = [X + phi 1^T + 1 psi^T - s S]_+,   X <- prox(V),   and the sums of X's rows and columns
//
// X and S are stored column by column, with rows side by side. The first of two iterations leaves X - s S in place of
// X, so the second need not read S.
//
// Tiling: a block takes a slab of rows and a range of columns, one column after the other. A thread takes 1 or 4
//   vectors of 16 bytes of each column. Each thread copies its own vectors to a ring in shared memory, so no barrier
//   waits for memory. Row sums stay in registers; each warp joins the sums of its columns and writes them for 32
//   columns at a time. With groups, a slab holds whole groups: lanes of a warp sum the squares of a group, and shared
//   memory joins the sums of the warps, with one barrier for each column. A group that is too large for a block has a
//   slab of its own, whose rows the blocks of a cluster divide. With hypentropy too, each step of Newton's method for
//   the norms takes two such sums and two barriers.
//
// Traffic: 12 or 8 bytes for each entry in float, 10 on average; 8 bytes of row sums for each part of the columns, and
//   8 bytes of column sums for each 128 rows. Every other iteration runs backwards, through entries that the previous
//   one left in the L2 cache.
//
// Numerics: entries, and sums of up to some hundreds of them, are in T. Further sums, the recursion and the potentials
//   are in double; for the entries, potentials are rounded to T. All orders are fixed.
#pragma once
#include <type_traits>

#include "cuda/device/numerics.cuh"
#include "cuda/device/source.cuh"
#include "cuda/device/stored.cuh"
#include "cuda/regularized/splitting.hpp"
#include "cuda/regularized/splitting_groups.cuh"
#include "regularized/splitting_rule.hpp"

namespace monge::cuda {

template <class T, SplittingProx kProx>
struct SplittingTile {
  static constexpr int kPerVector = 16 / sizeof(T);
  static constexpr int kVectors = has_groups(kProx) ? 4 : 1;  // Vectors of a column, for each thread.
  static constexpr int kMostThreads = has_groups(kProx) ? 512 : 256;
  static constexpr int kThreadRows = kVectors * kPerVector;
};

/// Columns in flight, each with X and, if the iteration reads it, S.
template <SplittingProx kProx, SplittingIteration kIteration>
struct SplittingRing {
  static constexpr int kArrays = kIteration == SplittingIteration::closing ? 1 : 2;
  static constexpr int kVectors = SplittingTile<float, kProx>::kVectors;
  static constexpr int kStages = (has_groups(kProx) ? 4 : 8) / kArrays;
  static constexpr int kThreadBytes = kStages * kArrays * kVectors * 16;
};

__device__ __forceinline__ void store_16_bytes(float* to, float const (&value)[4]) {
  *reinterpret_cast<float4*>(to) = make_float4(value[0], value[1], value[2], value[3]);
}
__device__ __forceinline__ void store_16_bytes(double* to, double const (&value)[2]) {
  *reinterpret_cast<double2*>(to) = make_double2(value[0], value[1]);
}

/// The prox of entries without groups.
template <class T, SplittingProx kProx>
struct UngroupedProx {
  EntryProx<T> entry;
  Polyline<T> table;

  __device__ __forceinline__ UngroupedProx(SplittingArguments const& arguments, SplittingParameters const& parameters)
      : entry{static_cast<T>(parameters.shrink), static_cast<T>(parameters.hypentropy),
              static_cast<T>(parameters.width)},
        table{static_cast<T const*>(arguments.prox_table),
              static_cast<T const*>(arguments.prox_table) + arguments.prox_points, arguments.prox_points} {}
  /// The prox of v >= 0.
  __device__ __forceinline__ T operator()(T v) const {
    if constexpr (kProx == SplittingProx::shrink) return rounded_product(v, entry.shrink);
    if constexpr (kProx == SplittingProx::hypentropy) return entry(v);
    if constexpr (kProx == SplittingProx::slopes) return v > 0 ? table(v) : T(0);
    return v;
  }
};

template <class T>
__device__ __forceinline__ T entry_sum(T const (&value)[16 / sizeof(T)]) {
  if constexpr (sizeof(T) == 4) {
    return (value[0] + value[1]) + (value[2] + value[3]);
  } else {
    return value[0] + value[1];
  }
}

/// The rows and columns of a block of split_kernel, and the first row of its thread.
template <class T, SplittingProx kProx>
struct SplittingBlock {
  using Tile = SplittingTile<T, kProx>;

  int cluster, rank, slab, part;
  int first, end;          // Columns.
  int row_begin, row_end;  // Rows of the block.
  int row;                 // The thread's row.
  bool is_divided;         // The slab is one group, some of it in each block of the cluster.

  __device__ __forceinline__ SplittingBlock(SplittingArguments const& arguments, int block) {
    int const thread = static_cast<int>(threadIdx.x), rows = static_cast<int>(blockDim.x) * Tile::kThreadRows;
    // Only groups need clusters.
    cluster = has_groups(kProx) ? arguments.cluster : 1;
    rank = block % cluster;
    slab = block / cluster % arguments.slab_count;
    part = block / cluster / arguments.slab_count;
    std::int64_t const columns = arguments.side[1].size;
    first = static_cast<int>(columns * part / arguments.parts);
    end = static_cast<int>(columns * (part + 1) / arguments.parts);
    int const slab_begin = arguments.slabs[slab], slab_end = arguments.slabs[slab + 1];
    row_begin = min(slab_begin + rank * rows, slab_end);
    row_end = min(row_begin + rows, slab_end);
    row = row_begin + (thread / 32 * Tile::kVectors * 32 + thread % 32) * Tile::kPerVector;
    is_divided = slab_end - slab_begin > rows;
  }
};

template <class T, SplittingProx kProx, SplittingIteration kIteration, class Source>
__global__ void __launch_bounds__(SplittingTile<T, kProx>::kMostThreads) split_kernel(Source const source) {
  using Tile = SplittingTile<T, kProx>;
  using Ring = SplittingRing<kProx, kIteration>;
  constexpr int kVectors = Tile::kVectors, kPerVector = Tile::kPerVector, kStages = Ring::kStages;
  constexpr bool kReadsCosts = kIteration != SplittingIteration::closing;
  constexpr bool kLeavesPlan = kIteration != SplittingIteration::opening;
  constexpr unsigned kAll = 0xffffffffu;
  extern __shared__ __align__(16) unsigned char dynamic[];
  Slice<SplittingArguments> const slice = slice_of(source);
  SplittingArguments const& arguments = slice.arguments;
  SplittingSide const& rows = arguments.side[0];
  SplittingSide const& columns = arguments.side[1];
  int const thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  int const lane = thread % 32, warp = thread / 32, warps = threads / 32;
  SplittingBlock<T, kProx> const block(arguments, slice.block);
  int const row = block.row, count = block.end - block.first;
  auto const has = [&](int v) { return row + v * 32 * kPerVector < block.row_end; };
  auto const column_of = [&](int k) { return arguments.backwards ? block.end - 1 - k : block.first + k; };
  T* const entries = static_cast<T*>(arguments.entries) + row;
  T const* const costs = static_cast<T const*>(arguments.costs) + row;
  std::int64_t const pitch = arguments.pitch;

  T* const ring = reinterpret_cast<T*>(dynamic) + thread * kPerVector;
  auto const place = [&](int k, int array, int v) {
    return ring + ((k % kStages * Ring::kArrays + array) * kVectors + v) * threads * kPerVector;
  };
  auto const fetch = [&](int k, int array, T const* from) {
    if (k >= count) return;
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      if (has(v)) copy_async_16(shared_address(place(k, array, v)), from + column_of(k) * pitch + v * 32 * kPerVector);
    }
  };

  start_next_kernel();
  if constexpr (kReadsCosts) {
    for (int k = 0; k < kStages; ++k) fetch(k, 1, costs);
  }
  wait_for_previous_kernel();
  for (int k = 0; k < kStages; ++k) {
    fetch(k, 0, entries);
    copy_async_commit();
  }
  if (slice.block == 0 && thread == 0) arguments.state->before = arguments.state->alpha;
  SplittingParameters const parameters = *arguments.parameters;
  T const step = static_cast<T>(parameters.step);
  UngroupedProx<T, kProx> const prox(arguments, parameters);
  T phi[kVectors][kPerVector], row_sum[kVectors][kPerVector];
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
#pragma unroll
    for (int e = 0; e < kPerVector; ++e) phi[v][e] = row_sum[v][e] = 0;
    if (has(v)) load_16_bytes(phi[v], static_cast<T const*>(rows.rounded) + row + v * 32 * kPerVector);
  }
  T* const group_sums = reinterpret_cast<T*>(dynamic + Ring::kThreadBytes * threads);
  using Groups = std::conditional_t<has_groups(kProx), GroupedVectors<T, kVectors>, int>;
  Groups const groups = [&]() -> Groups {
    if constexpr (has_groups(kProx)) {
      return {arguments, block.row_begin, block.row_end, row, static_cast<T>(parameters.group)};
    } else {
      return 0;
    }
  }();
  __shared__ T cluster_parts[2 * kClusterSums<kProx>][kMostSplittingCluster];
  int turn = 0;
#if __CUDA_ARCH__ >= 900
  if (block.cluster > 1) cluster_barrier();  // All blocks have begun.
#endif
  T* const column_parts =
      static_cast<T*>(columns.parts) +
      static_cast<std::int64_t>((block.slab * block.cluster + block.rank) * warps + warp) * columns.part_stride;
  auto const* const all_psi = static_cast<T const*>(columns.rounded);

  T psi_of_lane = 0, sum_of_lane = 0;  // Numbers of one of 32 columns.
  for (int k = 0; k < count; ++k) {
    if (k % 32 == 0) psi_of_lane = k + lane < count ? all_psi[column_of(k + lane)] : T(0);
    T const psi = __shfl_sync(kAll, psi_of_lane, k % 32);
    copy_async_wait<kStages - 1>();
    T value[kVectors][kPerVector];
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      load_16_bytes(value[v], place(k, 0, v));
      T cost[kPerVector];
      if constexpr (kReadsCosts) load_16_bytes(cost, place(k, 1, v));
#pragma unroll
      for (int e = 0; e < kPerVector; ++e) {
        // In this order, subtracting s S here gives the same bits as reading X - s S.
        T sum = value[v][e];
        if constexpr (kReadsCosts) sum = fused(-step, cost[e], sum);
        sum += phi[v][e] + psi;
        value[v][e] = has(v) && sum > 0 ? sum : T(0);
      }
    }
    if constexpr (kProx == SplittingProx::group) {
      shrink_groups(value, groups, block.is_divided, prox.entry.shrink, group_sums + k % 2 * threads * kVectors,
                    cluster_parts[k % 2]);
    }
    if constexpr (kProx == SplittingProx::group_hypentropy)
      solve_groups(value, groups, has, block.is_divided, prox.entry, group_sums, cluster_parts, turn);
    T column_sum = 0;
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
#pragma unroll
      for (int e = 0; e < kPerVector; ++e) {
        if constexpr (!has_groups(kProx)) value[v][e] = prox(value[v][e]);
        row_sum[v][e] += value[v][e];
      }
      column_sum += entry_sum<T>(value[v]);
      if constexpr (!kLeavesPlan) {
        T cost[kPerVector];
        load_16_bytes(cost, place(k, 1, v));
#pragma unroll
        for (int e = 0; e < kPerVector; ++e) value[v][e] = fused(-step, cost[e], value[v][e]);
      }
      if (has(v)) store_16_bytes(entries + column_of(k) * pitch + v * 32 * kPerVector, value[v]);
    }
    column_sum = warp_sum(column_sum);
    if (lane == k % 32) sum_of_lane = column_sum;
    if (k % 32 == 31 || k + 1 == count) {
      int const mine = k / 32 * 32 + lane;
      if (mine <= k) column_parts[column_of(mine)] = sum_of_lane;
    }
    fetch(k + kStages, 0, entries);
    if constexpr (kReadsCosts) fetch(k + kStages, 1, costs);
    copy_async_commit();
  }

  T* const row_parts = static_cast<T*>(rows.parts) + block.part * rows.part_stride + row;
  double total = 0;
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    if (has(v)) store_16_bytes(row_parts + v * 32 * kPerVector, row_sum[v]);
#pragma unroll
    for (int e = 0; e < kPerVector; ++e) total += static_cast<double>(row_sum[v][e]);
  }
  __shared__ double warp_totals[Tile::kMostThreads / 32];
  total = warp_sum(total);
  if (lane == 0) warp_totals[warp] = total;
  __syncthreads();
  if (thread > 0) return;
  for (int w = 1; w < warps; ++w) total += warp_totals[w];
  arguments.totals[slice.block] = total;
}

inline constexpr int kUpdatePoints = 32, kUpdateGroups = 8;
inline constexpr int kUpdateThreads = kUpdatePoints * kUpdateGroups;

/// A block takes 32 rows or columns. 8 threads share the parts of a sum; every block sums the totals itself.
template <class T, class Source>
__global__ void __launch_bounds__(kUpdateThreads) update_splitting_kernel(Source const source) {
  Slice<SplittingArguments> const slice = slice_of(source);
  SplittingArguments const& arguments = slice.arguments;
  __shared__ double sums[kUpdateGroups][kUpdatePoints];
  __shared__ double excess;
  int const point = static_cast<int>(threadIdx.x) % kUpdatePoints,
            group = static_cast<int>(threadIdx.x) / kUpdatePoints;
  int const row_blocks = (arguments.side[0].size - 1) / kUpdatePoints + 1;
  int const s = slice.block < row_blocks ? 0 : 1;
  SplittingSide const& side = arguments.side[s];
  int const i = (slice.block - s * row_blocks) * kUpdatePoints + point;
  bool const real = i < side.size && (!side.point || side.point[i] >= 0);
  double const n = arguments.side[0].real, m = arguments.side[1].real;
  start_next_kernel();
  wait_for_previous_kernel();
  double total = 0;
  int const blocks = arguments.slab_count * arguments.parts * arguments.cluster;
#pragma unroll 4
  for (int k = static_cast<int>(threadIdx.x); k < blocks; k += kUpdateThreads) total += arguments.totals[k];
  total = block_sum<kUpdateThreads>(total);
  if (threadIdx.x == 0) excess = total - 1;
  double sum = 0;
  if (real) {
    T const* const from = static_cast<T const*>(side.parts) + i;
#pragma unroll 8
    for (int k = group; k < side.part_count; k += kUpdateGroups) sum += static_cast<double>(from[k * side.part_stride]);
  }
  sums[group][point] = sum;
  __syncthreads();
  if (group > 0) return;
  double const before = arguments.state->before;
  if (real) {
    for (int g = 1; g < kUpdateGroups; ++g) sum += sums[g][point];
    double const residual = sum - side.share[i];
    SplittingUpdate const update{splitting_shift(excess, before, n, m), s == 0 ? m : n};
    SplittingPoint const next = update(side.sum[i], residual);
    side.sum[i] = next.sum;
    side.potential[i] = next.potential;
    static_cast<T*>(side.rounded)[i] = static_cast<T>(next.potential);
    side.residual[i] = residual;
  }
  if (slice.block == 0 && point == 0) arguments.state->alpha = before - excess;
}

}  // namespace monge::cuda
