// Selects entries of a plan from rows of log2 w_ij (Pass::logits), one block for each row.
//
//   top_k    Each thread finds the largest of some groups of columns, or of some columns of a short row. At least k
//            columns reach the k-th largest of these numbers, so it bounds the k largest of the row from below. The
//            block reads all columns above the bound's first bits, few more than k in few groups, and sorts them. If k
//            is large, or too many columns are alike, the k-th largest is found bit by bit: each bit takes a count in
//            the groups that still matter.
//   above    Each warp counts the entries above the threshold in a part of the row, then writes them in order in a
//            second walk. It compares logarithms first and, near or above the threshold, P_ij in float64.
//   draws    plan/sampling.hpp. A counting sort deals the draws to rows. The block of a row sums tiles of its columns;
//            each draw finds its tile, then its column.
//
// Traffic: draws read 4 or 8 bytes for each pair. The others read the largest of each kLogitGroup columns, and the
//   groups whose largest is large enough.
//
// Numerics: entries are ordered by (logarithm, column), so results do not depend on the order in which threads find
//   them; a logarithm that is NaN counts as minus infinity. Atomics are on integers only. Sums of a tile are in T, sums
//   of tiles in float64, in a fixed order.
#pragma once
#include <type_traits>

#include "cuda/device/numerics.cuh"
#include "cuda/device/scan.cuh"
#include "cuda/device/score_tile.cuh"
#include "cuda/device/strided.cuh"
#include "cuda/plan/select.hpp"
#include "geometry/point_tree.hpp"
#include "plan/sampling.hpp"

namespace monge::cuda {

inline constexpr int kSelectThreads = 128;
inline constexpr int kSelectWarps = kSelectThreads / 32;
inline constexpr int kScanThreads = 1024;
/// Up to this k, the largest columns of the threads give a good bound.
inline constexpr int kFewest = kSelectThreads / 2;
/// Candidates that a block sorts in shared memory, each by counting the better ones.
inline constexpr int kCandidates = 4 * kSelectThreads;
/// Leading bits of the bound, at least 8 of them of the mantissa: enough to tell most columns apart.
inline constexpr int kBoundBits = 20;

/// Unsigned numbers in the order of the floating-point numbers.
__device__ __forceinline__ std::uint32_t ordered_bits(float value) {
  std::uint32_t const bits = __float_as_uint(value);
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}
__device__ __forceinline__ std::uint64_t ordered_bits(double value) {
  std::uint64_t const bits = static_cast<std::uint64_t>(__double_as_longlong(value));
  constexpr std::uint64_t kSign = std::uint64_t{1} << 63;
  return bits & kSign ? ~bits : bits | kSign;
}

/// A logarithm that has an order.
template <class T>
__device__ __forceinline__ T number_of(T logarithm) {
  return logarithm == logarithm ? logarithm : -std::numeric_limits<T>::infinity();
}

/// Room for sorting `count` elements: the next power of two.
__host__ __device__ constexpr std::int64_t sorted_size(std::int64_t count) {
  std::int64_t size = 1;
  while (size < count) size *= 2;
  return size;
}

template <class T>
struct Candidate {
  T logarithm;
  /// As wide as the logarithm: padding would be read, with the whole, before anything wrote it.
  std::conditional_t<sizeof(T) == 8, std::int64_t, int> column;

  __device__ __forceinline__ bool before(Candidate const& other) const {
    return logarithm != other.logarithm ? logarithm > other.logarithm : column < other.column;
  }
};

/// The sum over the block, for all threads.
__device__ __forceinline__ int block_count(int mine) {
  __shared__ int partial[kSelectWarps];
  for (int mask = 16; mask > 0; mask >>= 1) mine += __shfl_xor_sync(0xffffffffu, mine, mask);
  __syncthreads();
  if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = mine;
  __syncthreads();
  int total = 0;
#pragma unroll
  for (int w = 0; w < kSelectWarps; ++w) total += partial[w];
  return total;
}

/// Bitonic sort in place; `size` is a power of two.
template <class T>
__device__ void sort_candidates(Candidate<T>* list, int size) {
  for (int length = 2; length <= size; length *= 2) {
    for (int step = length / 2; step > 0; step /= 2) {
      __syncthreads();
      for (int pair = static_cast<int>(threadIdx.x); pair < size / 2; pair += kSelectThreads) {
        int const low = 2 * pair - (pair & (step - 1)), high = low + step;
        Candidate<T> const first = list[low], second = list[high];
        if (second.before(first) == ((low & length) == 0)) {
          list[low] = second;
          list[high] = first;
        }
      }
    }
  }
  __syncthreads();
}

/// The caller's number of the row of this block.
__device__ __forceinline__ std::int64_t number_of_row(LogRows const& rows) {
  int const place = rows.first + static_cast<int>(blockIdx.x);
  return rows.point ? rows.point[place] : place;
}

/// The caller's numbers of the columns of this block's row.
struct ColumnNumbers {
  int const* columns;

  __device__ explicit ColumnNumbers(LogRows const& rows)
      : columns(rows.columns ? rows.columns + (rows.begin + blockIdx.x) / kTilePoints * rows.stride : nullptr) {}
  __device__ __forceinline__ int operator[](int k) const {
    if (!columns) return k;
    int const column = columns[k];
    return column < 0 ? ~column : column;
  }
};

/// The row of this block.
template <class T>
struct RowReader {
  using Bits = decltype(ordered_bits(T()));
  T const* row;
  T const* largest;  // Largest number of each group of columns.
  int groups;
  ColumnNumbers number;

  __device__ explicit RowReader(LogRows const& rows)
      : groups(static_cast<int>(rows.stride / kLogitGroup)), number(rows) {
    std::int64_t const index = blockIdx.x;
    row = static_cast<T const*>(rows.values) + index * rows.stride;
    largest = static_cast<T const*>(rows.largest) + index * groups;
  }
  /// Calls visit(logarithm, column), all lanes of a warp together, for the columns of each group whose largest is at
  /// least `least`. Each warp walks a part of the row, group by group.
  template <class Visit>
  __device__ __forceinline__ void for_columns(Bits least, Visit const& visit) const {
    constexpr int kBatch = 4;
    int const warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
    int const end = static_cast<int>(static_cast<std::int64_t>(groups) * (warp + 1) / kSelectWarps);
    for (int first = static_cast<int>(static_cast<std::int64_t>(groups) * warp / kSelectWarps); first < end;
         first += 32) {
      bool const wanted = first + lane < end && ordered_bits(number_of(largest[first + lane])) >= least;
      for (unsigned left = __ballot_sync(0xffffffffu, wanted); left != 0;) {
        // kBatch loads are in flight at a time.
        bool there[kBatch];
        int column[kBatch];
        T value[kBatch];
#pragma unroll
        for (int b = 0; b < kBatch; ++b) {
          there[b] = left != 0;
          column[b] = (first + max(__ffs(static_cast<int>(left)) - 1, 0)) * kLogitGroup + lane;
          value[b] = number_of(row[logit_position(column[b])]);
          left &= left - 1;
        }
#pragma unroll
        for (int b = 0; b < kBatch; ++b) {
          if (there[b]) visit(value[b], number[column[b]]);
        }
      }
    }
  }
  /// The number of columns that are at least `least` and satisfy the predicate.
  template <class Predicate>
  __device__ __forceinline__ int count(Bits least, Predicate const& predicate) const {
    int mine = 0;
    for_columns(least, [&](T value, int column) {
      Bits const bits = ordered_bits(value);
      mine += bits >= least && predicate(bits, column) ? 1 : 0;
    });
    return block_count(mine);
  }
};

/// Writes exactly the k largest of a row to `list`, in any order.
template <class T>
__device__ void find_exactly(RowReader<T> const& reader, int k, Candidate<T>* list, int* found) {
  using Bits = typename RowReader<T>::Bits;
  auto const any = [](Bits, int) { return true; };
  Bits least = 0;  // Becomes the k-th largest.
  for (Bits bit = Bits{1} << (8 * sizeof(T) - 1); bit != 0; bit >>= 1) {
    if (reader.count(least | bit, any) >= k) least |= bit;
  }
  // Several columns may equal the k-th largest; `last` is the last of them that is selected.
  int const ties = reader.count(least, [&](Bits bits, int) { return bits == least; });
  int const spare = reader.count(least, any) - k;
  int last = 0;
  for (int bit = 1 << 30; bit != 0; bit >>= 1) {
    int const trial = last | bit;
    if (spare == 0) {
      last = trial;
    } else if (reader.count(least, [&](Bits bits, int column) { return bits == least && column < trial; }) <
               ties - spare) {
      last = trial;
    }
  }
  if (threadIdx.x == 0) *found = 0;
  __syncthreads();
  reader.for_columns(least, [&](T value, int column) {
    Bits const bits = ordered_bits(value);
    if (bits > least || (bits == least && column <= last)) list[atomicAdd(found, 1)] = {value, column};
  });
  __syncthreads();
}

/// At least the k largest of a row, k <= kFewest. `found` is their number; above kCandidates, some found no room.
template <class T>
__device__ void find_candidates(RowReader<T> const& reader, int k, Candidate<T>* candidates, int* found) {
  using Bits = typename RowReader<T>::Bits;
  constexpr int kBits = 8 * sizeof(T);
  __shared__ Bits largest[kSelectThreads], least;
  int const thread = static_cast<int>(threadIdx.x);
  // Rows of few groups have too few group maxima for a bound.
  bool const by_groups = reader.groups >= kSelectThreads;
  T const* const from = by_groups ? reader.largest : reader.row;
  int const size = by_groups ? reader.groups : reader.groups * kLogitGroup;
  Bits mine = 0;
#pragma unroll 4
  for (int at = thread; at < size; at += kSelectThreads) {
    Bits const bits = ordered_bits(number_of(from[at]));
    mine = bits > mine ? bits : mine;
  }
  largest[thread] = mine;
  if (thread == 0) *found = 0;
  __syncthreads();
  if (thread < 32) {
    Bits bound = 0;
    for (int bit = kBits - 1; bit >= kBits - kBoundBits; --bit) {
      Bits const trial = bound | Bits{1} << bit;
      int count = 0;
#pragma unroll
      for (int first = 0; first < kSelectThreads; first += 32)
        count += __popc(__ballot_sync(0xffffffffu, largest[first + thread] >= trial));
      if (count >= k) bound = trial;
    }
    if (thread == 0) least = bound;
  }
  __syncthreads();
  Bits const bound = least;
  reader.for_columns(bound, [&](T value, int column) {
    if (ordered_bits(value) < bound) return;
    int const at = atomicAdd(found, 1);
    if (at < kCandidates) candidates[at] = {value, column};
  });
  __syncthreads();
}

template <class T>
__global__ void __launch_bounds__(kSelectThreads) top_k_kernel(TopKArguments const arguments) {
  __shared__ Candidate<T> candidates[kCandidates];
  __shared__ int found;
  int const thread = static_cast<int>(threadIdx.x), k = arguments.k;
  LogRows const& rows = arguments.rows;
  start_next_kernel();
  wait_for_previous_kernel();
  std::int64_t const i = number_of_row(rows);
  std::int64_t* const indices = arguments.indices.data + i * arguments.indices.stride;
  bool const has_weight = rows.weight[i] > 0;
  if (!has_weight || isnan(rows.factor[i])) {
    for (int q = thread; q < k; q += kSelectThreads) {
      indices[q] = q;
      store_element(arguments.values, i * arguments.values.stride + q, has_weight ? rows.factor[i] : 0.0);
    }
    return;
  }
  auto const store = [&](int position, Candidate<T> const& entry) {
    indices[position] = entry.column;
    store_element(arguments.values, i * arguments.values.stride + position,
                  rows.factor[i] * exp2(static_cast<double>(entry.logarithm)));
  };
  RowReader<T> const reader(rows);
  if (k <= kFewest) {
    find_candidates(reader, k, candidates, &found);
    if (found > kCandidates) find_exactly(reader, k, candidates, &found);
    int const count = found;
    for (int mine = thread; mine < count; mine += kSelectThreads) {
      Candidate<T> const entry = candidates[mine];
      int position = 0;
#pragma unroll 8
      for (int other = 0; other < count; ++other) position += candidates[other].before(entry) ? 1 : 0;
      if (position < k) store(position, entry);
    }
  } else {
    int const size = static_cast<int>(sorted_size(k));
    Candidate<T>* const list =
        static_cast<Candidate<T>*>(arguments.scratch) + static_cast<std::int64_t>(blockIdx.x) * size;
    find_exactly(reader, k, list, &found);
    for (int position = k + thread; position < size; position += kSelectThreads)
      list[position] = {-std::numeric_limits<T>::infinity(), std::numeric_limits<int>::max()};
    sort_candidates(list, size);
    for (int position = thread; position < k; position += kSelectThreads) store(position, list[position]);
  }
}

template <class T>
__global__ void __launch_bounds__(kSelectThreads) entries_above_kernel(AboveArguments const arguments) {
  __shared__ int counts[kSelectWarps];
  LogRows const& rows = arguments.rows;
  int const warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  start_next_kernel();
  wait_for_previous_kernel();
  std::int64_t const i = number_of_row(rows);
  RowReader<T> const reader(rows);
  double const factor = rows.factor[i];
  T const near = static_cast<T>(log2(arguments.threshold / factor) - 1);
  // Calls visit(column, entry, number of earlier entries of this warp); returns the number of entries of this warp.
  auto const walk = [&](auto const& visit) {
    int found = 0;
    if (!(factor > 0)) return found;
    reader.for_columns(ordered_bits(near), [&](T value, int column) {
      double const entry = value > near ? factor * exp2(static_cast<double>(value)) : 0.0;
      bool const above = entry > arguments.threshold;
      unsigned const lanes = __ballot_sync(0xffffffffu, above);
      if (above) visit(column, entry, found + __popc(lanes & ((1u << lane) - 1)));
      found += __popc(lanes);
    });
    return found;
  };

  int const found = walk([](int, double, int) {});
  if (lane == 0) counts[warp] = found;
  __syncthreads();
  std::int64_t total = 0, before = 0;
#pragma unroll
  for (int w = 0; w < kSelectWarps; ++w) {
    before += w < warp ? counts[w] : 0;
    total += counts[w];
  }
  if (arguments.counts) {
    if (threadIdx.x == 0) arguments.counts[i] = total;
    return;
  }
  StridedIndices const& row_begin = arguments.row_begin;
  std::int64_t const begin = row_begin.data[i * row_begin.stride];
  if (begin < 0 || begin > arguments.size - total || row_begin.data[(i + 1) * row_begin.stride] != begin + total) {
    if (threadIdx.x == 0) atomicMin(reinterpret_cast<long long*>(arguments.first_wrong), static_cast<long long>(i));
    return;
  }
  walk([&](int column, double entry, int mine) {
    std::int64_t const at = begin + before + mine;
    arguments.columns.data[at * arguments.columns.stride] = column;
    store_element(arguments.values, at * arguments.values.stride, entry);
  });
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
  double const total = arguments.row_sums[arguments.rows - 1];
  if (k >= arguments.count || !can_be_drawn_from(total)) return;
  double const target = sample_target(draw(arguments.seed, static_cast<std::uint64_t>(k)).row, total);
  std::int64_t const i = first_above(arguments.row_sums, arguments.rows, target);
  std::int64_t* const pair = arguments.pairs.data + k * arguments.pairs.stride;
  pair[0] = i;
  pair[1] = static_cast<std::int64_t>(atomicAdd(reinterpret_cast<unsigned long long*>(arguments.row_draws + i), 1ull));
}

/// The order of draws within a row is arbitrary and has no effect.
__global__ void __launch_bounds__(kSelectThreads) order_draws_kernel(SampleArguments const arguments) {
  std::int64_t const k = static_cast<std::int64_t>(blockIdx.x) * kSelectThreads + threadIdx.x;
  if (k >= arguments.count || !can_be_drawn_from(arguments.row_sums[arguments.rows - 1])) return;
  std::int64_t const* const pair = arguments.pairs.data + k * arguments.pairs.stride;
  arguments.order[arguments.draw_begin[pair[0]] + pair[1]] = k;
}

template <class T>
__global__ void __launch_bounds__(kSelectThreads)
    draw_columns_kernel(SampleArguments const arguments, LogRows const rows, double* tile_sums) {
  int const thread = static_cast<int>(threadIdx.x);
  start_next_kernel();
  wait_for_previous_kernel();
  std::int64_t const index = blockIdx.x, i = number_of_row(rows);
  std::int64_t const first = arguments.draw_begin[i], end = arguments.draw_begin[i + 1];
  if (first == end) return;
  T const* const row = static_cast<T const*>(rows.values) + index * rows.stride;
  int const tiles = static_cast<int>(rows.stride / kSampleTile);
  double* const sums = tile_sums + index * tiles;
  // Eight lanes share a tile. Rows are padded to 128 columns, so the lanes of a warp stay together.
  constexpr int kLanes = kSampleTile / 4;
  for (int j = thread * 4; j < rows.stride; j += kSelectThreads * 4) {
    T value[4];
    load_vector_4(value, row + j);
    T sum = (power_of_two(value[0]) + power_of_two(value[1])) + (power_of_two(value[2]) + power_of_two(value[3]));
#pragma unroll
    for (int mask = 1; mask < kLanes; mask *= 2) sum += __shfl_xor_sync(0xffffffffu, sum, mask);
    if (thread % kLanes == 0) sums[j / kSampleTile] = static_cast<double>(sum);
  }
  __syncthreads();
  scan_block<kSelectThreads>(sums, tiles, [&](std::int64_t tile, double sum) { sums[tile] = sum; });
  __syncthreads();
  double const total = sums[tiles - 1];
  // If rounding in T changes the logits by many powers of two, all shares of a row may vanish.
  if (!can_be_drawn_from(total)) {
    if (thread == 0) atomicAdd(arguments.lost_rows, 1.0);
    return;
  }
  for (std::int64_t s = first + thread; s < end; s += kSelectThreads) {
    std::int64_t const k = arguments.order[s];
    double const target = sample_target(draw(arguments.seed, static_cast<std::uint64_t>(k)).column, total);
    int const tile = static_cast<int>(first_above(sums, tiles, target));
    int const column = column_above(kSampleTile, tile > 0 ? sums[tile - 1] : 0.0, target, [&](int c) {
      return static_cast<double>(power_of_two(row[tile * kSampleTile + logit_position(c)]));
    });
    arguments.pairs.data[k * arguments.pairs.stride + 1] = ColumnNumbers(rows)[tile * kSampleTile + column];
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

/// One block for each row.
template <class T>
__global__ void __launch_bounds__(kSelectThreads)
    all_entries_kernel(LogRows const rows, int columns, StridedView const out) {
  start_next_kernel();
  wait_for_previous_kernel();
  std::int64_t const index = blockIdx.x, i = number_of_row(rows);
  ColumnNumbers const number(rows);
  T const* const row = static_cast<T const*>(rows.values) + index * rows.stride;
  double const factor = rows.weight[i] > 0 ? rows.factor[i] : 0.0;
  if (rows.columns) {
    for (int j = static_cast<int>(threadIdx.x); j < columns; j += kSelectThreads)
      store_element(out, i * out.stride + j, 0.0);
    __syncthreads();
  }
  for (int k = static_cast<int>(threadIdx.x); k < rows.stride; k += kSelectThreads) {
    int const j = number[k];
    double const entry = factor > 0 ? factor * exp2(static_cast<double>(row[logit_position(k)])) : 0.0;
    if (j < columns) store_element(out, i * out.stride + j, entry);
  }
}

}  // namespace monge::cuda
