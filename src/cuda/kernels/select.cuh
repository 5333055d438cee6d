// Entries of a plan selected from rows of log2 w_ij (Pass::logits), one block or warp a row.
//
//   top_k    The largest of each thread's columns are known after one read of the row. As many of these as k are at
//            least the k-th of them, so the k largest of the row are among what is not below that: few more than k,
//            which the threads that own them read again and the block sorts. Where k is large, or too many columns are
//            alike, the k-th largest is found bit by bit, each bit by counting over the row.
//   above    A warp walks along the row; its ballots count, and place in order, what is above the threshold. It
//            compares logarithms first and, near the threshold or above it, P_ij in float64.
//   draws    operators/sampling.hpp. A counting sort deals the draws to rows. The block of a row sums tiles of its
//            columns, and each draw finds its tile, then its column.
//
// Traffic: 4 or 8 bytes a pair, read once, from L2 where the rows of a chunk fit there.
//
// Numerics: the order is that of (logarithm, column), so results do not depend on the order in which threads find them.
//   Integer atomics alone; sums in float64 in a fixed order.
#pragma once
#include "cuda/device/numerics.cuh"
#include "cuda/device/score_tile.cuh"
#include "cuda/device/strided.cuh"
#include "cuda/launch/select.hpp"
#include "operators/sampling.hpp"

namespace monge::cuda {

inline constexpr int kSelectThreads = 128;
inline constexpr int kScanThreads = 1024;
/// Up to this k a thread's largest columns say enough.
inline constexpr int kFewest = kSelectThreads / 2;
/// What a block may sort in shared memory; a power of two.
inline constexpr int kCandidates = 4 * kSelectThreads;

/// Numbers whose unsigned order is that of the floating-point numbers.
__device__ __forceinline__ std::uint32_t ordered_bits(float value) {
  std::uint32_t const bits = __float_as_uint(value);
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}
__device__ __forceinline__ std::uint64_t ordered_bits(double value) {
  std::uint64_t const bits = static_cast<std::uint64_t>(__double_as_longlong(value));
  constexpr std::uint64_t kSign = std::uint64_t{1} << 63;
  return bits & kSign ? ~bits : bits | kSign;
}

/// What a list of `count` is padded to for the sort: the next power of two.
__host__ __device__ constexpr std::int64_t sorted_size(std::int64_t count) {
  std::int64_t size = 1;
  while (size < count) size *= 2;
  return size;
}

template <class T>
struct Ranked {
  T logarithm;
  int column;

  __device__ __forceinline__ bool before(Ranked const& other) const {
    return logarithm != other.logarithm ? logarithm > other.logarithm : column < other.column;
  }
};

/// Sum over the block, for all threads. Shared memory is free for other use when the next barrier is passed.
__device__ __forceinline__ int block_count(int mine) {
  __shared__ int partial[kSelectThreads / 32];
  for (int mask = 16; mask > 0; mask >>= 1) mine += __shfl_xor_sync(0xffffffffu, mine, mask);
  __syncthreads();
  if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = mine;
  __syncthreads();
  int total = 0;
#pragma unroll
  for (int w = 0; w < kSelectThreads / 32; ++w) total += partial[w];
  return total;
}

/// Bitonic, in place; `size` is a power of two.
template <class T>
__device__ void sort_ranked(Ranked<T>* list, int size) {
  for (int length = 2; length <= size; length *= 2) {
    for (int step = length / 2; step > 0; step /= 2) {
      __syncthreads();
      for (int pair = static_cast<int>(threadIdx.x); pair < size / 2; pair += kSelectThreads) {
        int const low = pair / step * 2 * step + pair % step, high = low + step;
        Ranked<T> const first = list[low], second = list[high];
        if (second.before(first) == ((low & length) == 0)) {
          list[low] = second;
          list[high] = first;
        }
      }
    }
  }
  __syncthreads();
}

/// This block's row.
template <class T>
struct RowReader {
  T const* row;
  int stride;

  __device__ explicit RowReader(LogRows const& rows, int index)
      : row(static_cast<T const*>(rows.values) + index * rows.stride), stride(static_cast<int>(rows.stride)) {}

  /// visit(logarithm, column) for this thread's share of the columns, some of them past the last.
  template <class Visit>
  __device__ __forceinline__ void for_mine(Visit const& visit) const {
#pragma unroll 4
    for (int j = static_cast<int>(threadIdx.x) * 4; j < stride; j += kSelectThreads * 4) {
      T value[4];
      load_vector_4(value, row + j);
#pragma unroll
      for (int c = 0; c < 4; ++c) visit(value[c], j + c);
    }
  }
  template <class Predicate>
  __device__ __forceinline__ int count(Predicate const& predicate) const {
    int mine = 0;
    for_mine([&](T logarithm, int column) { mine += predicate(logarithm, column) ? 1 : 0; });
    return block_count(mine);
  }
};

/// The k largest of a row, whatever it holds, to `list` in any order.
template <class T>
__device__ void find_exactly(RowReader<T> const& reader, int k, Ranked<T>* list, int* found) {
  using Bits = decltype(ordered_bits(T()));
  Bits least = 0;  // Of the k-th.
  for (Bits bit = Bits{1} << (8 * sizeof(T) - 1); bit != 0; bit >>= 1) {
    Bits const trial = least | bit;
    if (reader.count([&](T value, int) { return ordered_bits(value) >= trial; }) >= k) least = trial;
  }
  int const ties = k - reader.count([&](T value, int) { return ordered_bits(value) > least; });
  int last = 0;  // Of the columns that tie with the k-th and are among the k.
  for (int bit = 1 << 30; bit != 0; bit >>= 1) {
    int const trial = last | bit;
    int const earlier =
        reader.count([&](T value, int column) { return ordered_bits(value) == least && column < trial; });
    if (earlier < ties) last = trial;
  }
  if (threadIdx.x == 0) *found = 0;
  __syncthreads();
  reader.for_mine([&](T value, int column) {
    Bits const bits = ordered_bits(value);
    if (bits > least || (bits == least && column <= last)) list[atomicAdd(found, 1)] = {value, column};
  });
}

/// One block a row.
template <class T>
__global__ void __launch_bounds__(kSelectThreads) top_k_kernel(TopKArguments const arguments) {
  __shared__ T largest[kSelectThreads];
  __shared__ Ranked<T> candidates[kCandidates];
  __shared__ T least;
  __shared__ int found;
  int const thread = static_cast<int>(threadIdx.x), k = arguments.k;
  LogRows const& rows = arguments.rows;
  std::int64_t const i = rows.first + static_cast<int>(blockIdx.x);
  start_next_kernel();
  wait_for_previous_kernel();
  std::int64_t* const indices = arguments.indices.data + i * arguments.indices.stride;
  if (!(rows.weight[i] > 0)) {
    for (int q = thread; q < k; q += kSelectThreads) {
      indices[q] = q;
      store_element(arguments.values, i * arguments.values.stride + q, 0.0);
    }
    return;
  }
  RowReader<T> const reader(rows, static_cast<int>(blockIdx.x));
  Ranked<T>* list = candidates;
  if (k <= kFewest) {
    T mine = -std::numeric_limits<T>::infinity();
    reader.for_mine([&](T value, int) { mine = value > mine ? value : mine; });
    largest[thread] = mine;
    if (thread == 0) found = 0;
    __syncthreads();
    int rank = 0;
    for (int other = 0; other < kSelectThreads; ++other)
      rank += largest[other] > mine || (largest[other] == mine && other < thread) ? 1 : 0;
    if (rank == k - 1) least = mine;
    __syncthreads();
    if (mine >= least) {
      reader.for_mine([&](T value, int column) {
        if (!(value >= least)) return;
        int const at = atomicAdd(&found, 1);
        if (at < kCandidates) candidates[at] = {value, column};
      });
    }
    __syncthreads();
  }
  if (k > kFewest || found > kCandidates) {
    if (k > kFewest) list = static_cast<Ranked<T>*>(arguments.scratch) + blockIdx.x * sorted_size(k);
    find_exactly(reader, k, list, &found);
    __syncthreads();
  }
  int const count = found, size = static_cast<int>(sorted_size(count));
  for (int q = count + thread; q < size; q += kSelectThreads)
    list[q] = {-std::numeric_limits<T>::infinity(), std::numeric_limits<int>::max()};
  sort_ranked(list, size);
  for (int q = thread; q < k; q += kSelectThreads) {
    indices[q] = list[q].column;
    store_element(arguments.values, i * arguments.values.stride + q,
                  rows.factor[i] * exp2(static_cast<double>(list[q].logarithm)));
  }
}

/// One warp a row.
template <class T>
__global__ void __launch_bounds__(kSelectThreads) entries_above_kernel(AboveArguments const arguments) {
  LogRows const& rows = arguments.rows;
  int const lane = static_cast<int>(threadIdx.x) % 32;
  int const index = static_cast<int>(blockIdx.x * (kSelectThreads / 32) + threadIdx.x / 32);
  start_next_kernel();
  wait_for_previous_kernel();
  if (index >= rows.count) return;
  std::int64_t const i = rows.first + index;
  StridedIndices const& row_begin = arguments.row_begin;
  bool const writes = arguments.counts == nullptr;
  std::int64_t const begin = writes ? row_begin.data[i * row_begin.stride] : 0;
  std::int64_t const end = writes ? row_begin.data[(i + 1) * row_begin.stride] : 0;
  bool const inside = begin >= 0 && end <= arguments.size;
  double const factor = rows.factor[i];
  T const near = static_cast<T>(log2(arguments.threshold / factor) - 1);
  T const* const row = static_cast<T const*>(rows.values) + index * rows.stride;
  std::int64_t at = begin;
  if (factor > 0) {
#pragma unroll 4
    for (int first = 0; first < static_cast<int>(rows.stride); first += 32) {
      T const logarithm = row[first + lane];
      bool above = logarithm > near;
      if (!__any_sync(0xffffffffu, above)) continue;
      double const entry = factor * exp2(static_cast<double>(logarithm));
      above = above && entry > arguments.threshold;
      unsigned const ballot = __ballot_sync(0xffffffffu, above);
      std::int64_t const mine = at + __popc(ballot & ((1u << lane) - 1));
      if (writes && above && inside && mine < end) {
        arguments.columns.data[mine * arguments.columns.stride] = first + lane;
        store_element(arguments.values, mine * arguments.values.stride, entry);
      }
      at += __popc(ballot);
    }
  }
  if (lane != 0) return;
  if (!writes) arguments.counts[i] = at;
  if (writes && (!inside || at != end))
    atomicMin(reinterpret_cast<long long*>(arguments.first_wrong), static_cast<long long>(i));
}

/// store(i, the sum of `in` up to and with i), by one block.
template <int kThreads, class T, class Store>
__device__ void scan_block(T const* in, std::int64_t size, Store const& store) {
  __shared__ T sums[kThreads];
  int const thread = static_cast<int>(threadIdx.x);
  std::int64_t const begin = size * thread / kThreads, end = size * (thread + 1) / kThreads;
  T sum = 0;
  for (std::int64_t i = begin; i < end; ++i) sum += in[i];
  sums[thread] = sum;
  for (int step = 1; step < kThreads; step *= 2) {
    __syncthreads();
    T const other = thread >= step ? sums[thread - step] : T(0);
    __syncthreads();
    sums[thread] += other;
  }
  __syncthreads();
  sum = thread > 0 ? sums[thread - 1] : T(0);
  for (std::int64_t i = begin; i < end; ++i) {
    sum += in[i];
    store(i, sum);
  }
}

__global__ void __launch_bounds__(kScanThreads)
    running_counts_kernel(std::int64_t const* in, std::int64_t size, StridedIndices const out) {
  scan_block<kScanThreads>(in, size, [&](std::int64_t i, std::int64_t sum) { out.data[(i + 1) * out.stride] = sum; });
  if (threadIdx.x == 0) out.data[0] = 0;
}

__global__ void __launch_bounds__(kScanThreads)
    running_sums_kernel(double const* values, std::int64_t size, double* sums) {
  scan_block<kScanThreads>(values, size, [&](std::int64_t i, double sum) { sums[i] = sum; });
}

__global__ void __launch_bounds__(kSelectThreads) draw_rows_kernel(SampleArguments const arguments) {
  std::int64_t const k = static_cast<std::int64_t>(blockIdx.x) * kSelectThreads + threadIdx.x;
  if (k >= arguments.count) return;
  double const target =
      sample_target(draw(arguments.seed, static_cast<std::uint64_t>(k)).row, arguments.row_sums[arguments.rows - 1]);
  std::int64_t const i = first_above(arguments.row_sums, arguments.rows, target);
  arguments.pairs.data[k * arguments.pairs.stride] = i;
  atomicAdd(reinterpret_cast<unsigned long long*>(arguments.row_draws + i), 1ull);
}

/// Where draws of one row end up among each other is left to chance, and does not matter.
__global__ void __launch_bounds__(kSelectThreads) order_draws_kernel(SampleArguments const arguments) {
  std::int64_t const k = static_cast<std::int64_t>(blockIdx.x) * kSelectThreads + threadIdx.x;
  if (k >= arguments.count) return;
  std::int64_t const i = arguments.pairs.data[k * arguments.pairs.stride];
  unsigned long long const left =
      atomicAdd(reinterpret_cast<unsigned long long*>(arguments.row_draws + i), ~0ull);  // One less.
  arguments.order[arguments.draw_begin[i] + static_cast<std::int64_t>(left) - 1] = k;
}

/// One block a row.
template <class T>
__global__ void __launch_bounds__(kSelectThreads)
    draw_columns_kernel(SampleArguments const arguments, LogRows const rows, double* tile_sums) {
  int const index = static_cast<int>(blockIdx.x), thread = static_cast<int>(threadIdx.x);
  std::int64_t const i = rows.first + index;
  start_next_kernel();
  wait_for_previous_kernel();
  std::int64_t const first = arguments.draw_begin[i], end = arguments.draw_begin[i + 1];
  if (first == end) return;
  RowReader<T> const reader(rows, index);
  int const tiles = reader.stride / kSampleTile;
  double* const sums = tile_sums + static_cast<std::int64_t>(index) * tiles;
  // Eight lanes share a tile. Rows are padded to 128 columns: the lanes of a warp stay together.
  constexpr int kLanes = kSampleTile / 4;
  for (int j = thread * 4; j < reader.stride; j += kSelectThreads * 4) {
    T value[4];
    load_vector_4(value, reader.row + j);
    double sum = 0;
#pragma unroll
    for (int c = 0; c < 4; ++c) sum += static_cast<double>(power_of_two(value[c]));
#pragma unroll
    for (int mask = 1; mask < kLanes; mask *= 2) sum += __shfl_xor_sync(0xffffffffu, sum, mask);
    if (thread % kLanes == 0) sums[j / kSampleTile] = sum;
  }
  __syncthreads();
  scan_block<kSelectThreads>(sums, tiles, [&](std::int64_t tile, double sum) { sums[tile] = sum; });
  __syncthreads();
  double const total = sums[tiles - 1];
  for (std::int64_t s = first + thread; s < end; s += kSelectThreads) {
    std::int64_t const k = arguments.order[s];
    double const target = sample_target(draw(arguments.seed, static_cast<std::uint64_t>(k)).column, total);
    int const tile = static_cast<int>(first_above(sums, tiles, target));
    T const* const row = reader.row + tile * kSampleTile;
    int const column = column_above(kSampleTile, tile > 0 ? sums[tile - 1] : 0.0, target,
                                    [&](int c) { return static_cast<double>(power_of_two(row[c])); });
    arguments.pairs.data[k * arguments.pairs.stride + 1] = tile * kSampleTile + column;
  }
}

template <class T>
__global__ void __launch_bounds__(kSelectThreads)
    log_factors_kernel(PackedSide const points, float const* beta, T* out) {
  int const j = static_cast<int>(blockIdx.x) * kSelectThreads + static_cast<int>(threadIdx.x);
  if (j >= points.padded_size) return;
  bool const counts = j < points.size && points.weight[j] > 0;
  T const value = beta ? log2(static_cast<T>(beta[j])) : T(0);
  out[j] = counts ? value : -std::numeric_limits<T>::infinity();
}

}  // namespace monge::cuda
