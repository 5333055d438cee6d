// Averages of the derivatives of distances by points, from entries of a plan in memory:
//
//   S_ik = factor sum_j E_ij v_j d|x_i - y_j|_p / dx_ik   over a part of the points j
//
// Tiling: a block of 128 threads has 64 rows and some coordinates, and walks over tiles of 64 columns of its part. It
//   computes the distances of a tile (device/score_tile.cuh), multiplies them into the entries, and sums over the
//   columns one coordinate after the other. Grid (row tiles, groups of coordinates, parts).
// Per pair: 2 d operations for the distance, and 2 for each coordinate of the group; a p-norm other than 1, 2 and
//   infinity takes two functions more for each coordinate.
// Traffic: an entry once for each group; the points of a tile twice from L2.
//
// Numerics: differences come before powers, so points that nearly meet lose no digits. A thread sums its 16 columns of
//   a tile in T, and tiles in double, in a fixed order. A distance below the least normal number counts as 0.
#pragma once
#include <cuda_fp16.h>

#include <limits>

#include "cuda/device/score_tile.cuh"
#include "cuda/entries/point_slopes.hpp"

namespace monge::cuda {

/// Coordinates of a group: their sums of 64 rows stay in shared memory.
template <class T>
inline constexpr int kSlopeGroup = sizeof(T) == 4 ? 64 : 32;

/// Two chunks of coordinates, transposed, and the sums, behind the memory of TileScores.
template <class T>
struct SlopeMemory {
  static constexpr int kLine = kTileRows + 2;  // Pairs of columns lie at even places, in different banks.
  T rows[kTileChunk][kLine];
  T columns[kTileChunk][kLine];
  double sums[kTileRows][kSlopeGroup<T>];
};

template <class T>
__host__ __device__ constexpr int slope_shared_bytes(int dimension) {
  return TileScores<T, ScoreForm::distances>::shared_bytes(dimension) + static_cast<int>(sizeof(SlopeMemory<T>));
}

/// Loads four entries or values from fp16 parts, at a position that is a multiple of 4, and adds the parts.
__device__ __forceinline__ void load_halves(float (&value)[4], void const* high, void const* low, std::int64_t at) {
  uint2 const h = static_cast<uint2 const*>(high)[at / 4], l = static_cast<uint2 const*>(low)[at / 4];
  auto const join = [](float& first, float& second, unsigned of_high, unsigned of_low) {
    float2 const x = __half22float2(*reinterpret_cast<__half2 const*>(&of_high));
    float2 const y = __half22float2(*reinterpret_cast<__half2 const*>(&of_low));
    first = x.x + y.x, second = x.y + y.y;
  };
  join(value[0], value[1], h.x, l.x);
  join(value[2], value[3], h.y, l.y);
}

/// weight = E_ij v_j for the pairs of a thread.
template <class T>
__device__ __forceinline__ void load_weights(ThreadScores<T>& weight, PointSlopesArguments const& given, int row,
                                             int column) {
#pragma unroll
  for (int quad = 0; quad < kThreadColumns; quad += 4) {
    int const first = column + column_offset(quad);
    T value[4];
    if constexpr (sizeof(T) == 4) {
      load_halves(value, given.value_high, given.value_low, entry_position(first));
    } else {
      double const* const from = static_cast<double const*>(given.value_high) + first;
      load_vector_2(value[0], value[1], from);
      load_vector_2(value[2], value[3], from + column_offset(2));
    }
#pragma unroll
    for (int r = 0; r < kThreadRows; ++r) {
      std::int64_t const begin = (row + row_offset(r)) * given.entries.stride;
      T entry[4];
      if constexpr (sizeof(T) == 4) {
        load_halves(entry, given.entries.high, given.entries.low, begin + entry_position(first));
      } else {
        double const* const from = static_cast<double const*>(given.entries.high) + begin + first;
        load_vector_2(entry[0], entry[1], from);
        load_vector_2(entry[2], entry[3], from + column_offset(2));
      }
#pragma unroll
      for (int c = 0; c < 4; ++c) weight[r][quad + c] = entry[c] * value[c];
    }
  }
}

/// The coordinates [first, end) of a tile, in chunks: visit(k, x, y) with the coordinate k of a thread's points. All
/// threads of the block call it.
template <class T, class Visit>
__device__ __forceinline__ void for_coordinates(SlopeMemory<T>& memory, PointSlopesArguments const& given,
                                                int first_row, int first_column, int first, int end,
                                                Visit const& visit) {
  for (int begin = first; begin < end; begin += kTileChunk) {
    __syncthreads();  // No thread still reads the last chunk.
    for (int e = static_cast<int>(threadIdx.x); e < kTileRows * kTileChunk; e += kTileThreads) {
      int const point = e / kTileChunk, k = e % kTileChunk;
      if (begin + k >= end) continue;
      auto const coordinate = [&](Operand const& operand, int first_point) {
        return static_cast<T const*>(
            operand.points)[static_cast<std::int64_t>(first_point + point) * operand.stride + begin + k];
      };
      memory.rows[k][point] = coordinate(given.rows, first_row);
      memory.columns[k][point] = coordinate(given.columns, first_column);
    }
    __syncthreads();
    int const count = min(kTileChunk, end - begin);
    for (int k = 0; k < count; ++k) {
      T x[kThreadRows], y[kThreadColumns];
#pragma unroll
      for (int r = 0; r < kThreadRows; ++r) x[r] = memory.rows[k][thread_row() + row_offset(r)];
#pragma unroll
      for (int c = 0; c < kThreadColumns; c += 2)
        load_vector_2(y[c], y[c + 1], &memory.columns[k][thread_column() + column_offset(c)]);
      visit(begin + k, x, y);
    }
  }
}

template <class T, class Visit>
__device__ __forceinline__ void for_pairs(Visit const& visit) {
#pragma unroll
  for (int r = 0; r < kThreadRows; ++r) {
#pragma unroll
    for (int c = 0; c < kThreadColumns; ++c) visit(r, c);
  }
}

template <class T>
__device__ __forceinline__ T inverse_or_zero(T size) {
  return size >= std::numeric_limits<T>::min() ? T(1) / size : T(0);
}

/// ratio^power for a ratio in [0, 1]. Inlined at each pair of a thread, it would take most of the time of compiling.
template <class T>
__device__ __noinline__ T ratio_power(T ratio, T power) {
  return ratio > 0 ? exp2(power * log2(ratio)) : T(0);
}

/// Grid (row tiles, groups of coordinates, parts), slope_shared_bytes() of shared memory.
template <class T>
__global__ void __launch_bounds__(kTileThreads, 2) point_slopes_kernel(PointSlopesArguments const given) {
  extern __shared__ __align__(16) unsigned char shared[];
  int const dimension = given.rows.dimension, tiles = given.columns.padded_size / kTileColumns;
  int const part = static_cast<int>(blockIdx.z),
            first_tile = static_cast<int>(std::int64_t{part} * tiles / given.parts);
  int const end_tile = static_cast<int>(std::int64_t{part + 1} * tiles / given.parts);
  int const first_row = static_cast<int>(blockIdx.x) * kTileRows;
  int const first = static_cast<int>(blockIdx.y) * kSlopeGroup<T>, end = min(dimension, first + kSlopeGroup<T>);
  PassArguments pairs;
  pairs.rows = given.rows;
  pairs.columns = given.columns;
  pairs.p = given.p;
  Segment const segment{first_row, first_tile, end_tile - first_tile, 0, 0, 0};
  TileScores<T, ScoreForm::distances> distances(shared, pairs, segment);
  SlopeMemory<T>& memory =
      *reinterpret_cast<SlopeMemory<T>*>(shared + TileScores<T, ScoreForm::distances>::shared_bytes(dimension));
  for (int e = static_cast<int>(threadIdx.x); e < kTileRows * kSlopeGroup<T>; e += kTileThreads)
    memory.sums[e / kSlopeGroup<T>][e % kSlopeGroup<T>] = 0;

  T const power = static_cast<T>(fmin(given.p - 1, 1e30));
  for (int tile = first_tile; tile < end_tile; ++tile) {
    int const column = tile * kTileColumns;
    ThreadScores<T> distance, weight;
    distances.next(distance);
    load_weights(weight, given, first_row + thread_row(), column + thread_column());
    // sums_ik += sum_j weight_ij slope(x_ik - y_jk, i, j). Four lanes have the columns of a row.
    auto const add = [&](auto const& slope) {
      for_coordinates(
          memory, given, first_row, column, first, end,
          [&](int k, T const(&x)[kThreadRows], T const(&y)[kThreadColumns]) {
            T sum[kThreadRows] = {};
            for_pairs<T>([&](int r, int c) { sum[r] = fused(weight[r][c], slope(x[r] - y[c], r, c), sum[r]); });
#pragma unroll
            for (int r = 0; r < kThreadRows; ++r) {
              sum[r] += __shfl_xor_sync(0xffffffffu, sum[r], 1);
              sum[r] += __shfl_xor_sync(0xffffffffu, sum[r], 2);
              if (threadIdx.x % 4 == 0)
                memory.sums[thread_row() + row_offset(r)][k - first] += static_cast<double>(sum[r]);
            }
          });
    };
    auto const sign = [](T by) { return by == 0 ? T(0) : copysign(T(1), by); };
    if (given.p == 2) {
      for_pairs<T>([&](int r, int c) { weight[r][c] *= inverse_or_zero(distance[r][c]); });
      add([](T by, int, int) { return by; });
    } else if (given.p == 1) {
      add([&](T by, int, int) { return sign(by); });
    } else if (isinf(given.p)) {
      ThreadScores<T> ties = {};
      for_coordinates(memory, given, first_row, column, 0, dimension,
                      [&](int, T const(&x)[kThreadRows], T const(&y)[kThreadColumns]) {
                        for_pairs<T>([&](int r, int c) { ties[r][c] += T(fabs(x[r] - y[c]) >= distance[r][c]); });
                      });
      for_pairs<T>([&](int r, int c) { weight[r][c] *= inverse_or_zero(ties[r][c]); });
      add([&](T by, int r, int c) { return fabs(by) >= distance[r][c] ? sign(by) : T(0); });
    } else {
      for_pairs<T>([&](int r, int c) { distance[r][c] = inverse_or_zero(distance[r][c]); });
      add([&](T by, int r, int c) {
        return copysign(ratio_power<T>(fmin(static_cast<T>(fabs(by)) * distance[r][c], T(1)), power), by);
      });
    }
  }
  __syncthreads();
  double const scale = given.factor * (given.value_scale ? *given.value_scale : 1.0);
  std::int64_t const begin = std::int64_t{part} * given.rows.padded_size + first_row;
  for (int e = static_cast<int>(threadIdx.x); e < kTileRows * (end - first); e += kTileThreads) {
    int const r = e / (end - first), k = e % (end - first);
    given.sums[(begin + r) * dimension + first + k] = scale * memory.sums[r][k];
  }
}

}  // namespace monge::cuda
