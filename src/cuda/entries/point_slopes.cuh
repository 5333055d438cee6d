// Averages of the derivatives of distances by points, from entries of a plan in memory:
//
//   S_ik = factor sum_j E_ij v_j g_ijk   over a part of the points j, g_ijk = d|x_i - y_j|_p / dx_ik,
//
// or, where the points move, of the changes of g and of the distances (PointSlopesArguments).
//
// Tiling: a block of 128 threads has 64 rows and some coordinates, and walks over tiles of 64 columns of its part. It
//   computes the distances of a tile (device/score_tile.cuh), multiplies them into the entries, and sums over the
//   columns one coordinate after the other. Grid (row tiles, groups of coordinates, parts).
// Per pair: 2 d operations for the distance, and 2 for each coordinate of the group; a p-norm other than 1, 2 and
//   infinity takes two functions more for each coordinate. A motion adds 3 d operations for the change of the distance,
//   and 3 for each coordinate of the group.
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

/// Two chunks of coordinates, transposed, and the sums, behind the memory of TileScores. With a motion, two chunks of
/// it and the sums of the changes of distances, too.
template <class T, bool kMoves>
struct SlopeMemory {
  static constexpr int kChunk = kMoves ? kTileChunk / 2 : kTileChunk;
  static constexpr int kLine = kTileRows + 2;  // Pairs of columns lie at even places, in different banks.
  struct Chunk {
    T rows[kChunk][kLine];
    T columns[kChunk][kLine];
  };
  Chunk chunks[kMoves ? 2 : 1];
  double sums[kTileRows][kSlopeGroup<T>];
  double of_distances[kMoves ? kTileRows : 1];
};

template <class T, bool kMoves>
__host__ __device__ constexpr int slope_shared_bytes(int dimension) {
  return TileScores<T, ScoreForm::distances>::shared_bytes(dimension) +
         static_cast<int>(sizeof(SlopeMemory<T, kMoves>));
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

/// A coordinate of a thread's points, or of their motion.
template <class T>
struct Coordinates {
  T x[kThreadRows], y[kThreadColumns];
};

/// The coordinates [first, end) of a tile, in chunks: visit(k, points, motion) for the coordinate k of a thread's
/// points; without a motion `motion` is the points. All threads of the block call it.
template <class T, bool kMoves, class Visit>
__device__ __forceinline__ void for_coordinates(SlopeMemory<T, kMoves>& memory, PointSlopesArguments const& given,
                                                int first_row, int first_column, int first, int end,
                                                Visit const& visit) {
  constexpr int kChunk = SlopeMemory<T, kMoves>::kChunk;
  for (int begin = first; begin < end; begin += kChunk) {
    __syncthreads();  // No thread still reads the last chunk.
    for (int e = static_cast<int>(threadIdx.x); e < kTileRows * kChunk; e += kTileThreads) {
      int const point = e / kChunk, k = e % kChunk;
      if (begin + k >= end) continue;
      auto const coordinate = [&](Operand const& operand, int first_point) {
        return static_cast<T const*>(
            operand.points)[static_cast<std::int64_t>(first_point + point) * operand.stride + begin + k];
      };
      memory.chunks[0].rows[k][point] = coordinate(given.rows, first_row);
      memory.chunks[0].columns[k][point] = coordinate(given.columns, first_column);
      if constexpr (kMoves) {
        auto const moved = [&](double const* by, int size, int first_point) {
          std::int64_t const i = first_point + point;
          return i < size ? static_cast<T>(by[i * given.rows.dimension + begin + k]) : T(0);
        };
        memory.chunks[1].rows[k][point] = moved(given.motion.own, given.motion.rows, first_row);
        memory.chunks[1].columns[k][point] = moved(given.motion.far, given.motion.columns, first_column);
      }
    }
    __syncthreads();
    int const count = min(kChunk, end - begin);
    for (int k = 0; k < count; ++k) {
      Coordinates<T> at[kMoves ? 2 : 1];
#pragma unroll
      for (int part = 0; part < (kMoves ? 2 : 1); ++part) {
        auto const& chunk = memory.chunks[part];
#pragma unroll
        for (int r = 0; r < kThreadRows; ++r) at[part].x[r] = chunk.rows[k][thread_row() + row_offset(r)];
#pragma unroll
        for (int c = 0; c < kThreadColumns; c += 2)
          load_vector_2(at[part].y[c], at[part].y[c + 1], &chunk.columns[k][thread_column() + column_offset(c)]);
      }
      visit(begin + k, at[0], at[kMoves ? 1 : 0]);
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

/// Calls visit(factor, slope, stretch, bend) for the distances of a thread's pairs, which it changes. A distance has
/// the derivatives g_k = factor(r, c) slope(x_k - y_k, r, c), and bend(r, c) (stretch(x_k - y_k, slope, r, c) [k = l] -
/// g_k g_l). count_ties(ties) adds the numbers of coordinates of the largest difference, for p = infinity.
template <class T, class CountTies, class Visit>
__device__ __forceinline__ void with_slopes(double p, ThreadScores<T>& distance, CountTies const& count_ties,
                                            Visit const& visit) {
  auto const sign = [](T by) { return by == 0 ? T(0) : copysign(T(1), by); };
  auto const all = [](int, int) { return T(1); };
  auto const none = [](int, int) { return T(0); };
  auto const straight = [](T, T, int, int) { return T(0); };
  if (p == 1) {
    visit(
        all, [&](T by, int, int) { return sign(by); }, straight, none);
  } else if (isinf(p)) {
    ThreadScores<T> part = {};
    count_ties(part);
    for_pairs<T>([&](int r, int c) { part[r][c] = distance[r][c] > 0 ? inverse_or_zero(part[r][c]) : T(0); });
    visit([&](int r, int c) { return part[r][c]; },
          [&](T by, int r, int c) { return fabs(by) >= distance[r][c] ? sign(by) : T(0); }, straight, none);
  } else {
    for_pairs<T>([&](int r, int c) { distance[r][c] = inverse_or_zero(distance[r][c]); });
    if (p == 2) {
      auto const inverses = [&](int r, int c) { return distance[r][c]; };
      visit(
          inverses, [](T by, int, int) { return by; }, [](T, T, int, int) { return T(1); }, inverses);
    } else {
      T const power = static_cast<T>(fmin(p - 1, 1e30));
      visit(
          all,
          [&](T by, int r, int c) {
            return copysign(ratio_power<T>(fmin(static_cast<T>(fabs(by)) * distance[r][c], T(1)), power), by);
          },
          [&](T by, T slope, int r, int c) {
            return static_cast<T>(fabs(slope)) * inverse_or_zero(static_cast<T>(fabs(by)) * distance[r][c]);
          },
          [&](int r, int c) { return power * distance[r][c]; });
    }
  }
}

/// Grid (row tiles, groups of coordinates, parts), slope_shared_bytes() of shared memory.
template <class T, bool kMoves>
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
  SlopeMemory<T, kMoves>& memory =
      *reinterpret_cast<SlopeMemory<T, kMoves>*>(shared + TileScores<T, ScoreForm::distances>::shared_bytes(dimension));
  for (int e = static_cast<int>(threadIdx.x); e < kTileRows * kSlopeGroup<T>; e += kTileThreads)
    memory.sums[e / kSlopeGroup<T>][e % kSlopeGroup<T>] = 0;
  if (kMoves && threadIdx.x < kTileRows) memory.of_distances[threadIdx.x] = 0;

  for (int tile = first_tile; tile < end_tile; ++tile) {
    int const column = tile * kTileColumns;
    ThreadScores<T> distance;
    distances.next(distance);
    auto const visit_coordinates = [&](int from, int to, auto const& visit) {
      for_coordinates(memory, given, first_row, column, from, to, visit);
    };
    // Four lanes have the columns of a row.
    auto const add = [](T(&sum)[kThreadRows], auto const& place) {
#pragma unroll
      for (int r = 0; r < kThreadRows; ++r) {
        sum[r] += __shfl_xor_sync(0xffffffffu, sum[r], 1);
        sum[r] += __shfl_xor_sync(0xffffffffu, sum[r], 2);
        if (threadIdx.x % 4 == 0) place(thread_row() + row_offset(r)) += static_cast<double>(sum[r]);
      }
    };
    auto const count_ties = [&](ThreadScores<T>& ties) {
      visit_coordinates(0, dimension, [&](int, Coordinates<T> const& at, Coordinates<T> const&) {
        for_pairs<T>([&](int r, int c) { ties[r][c] += T(fabs(at.x[r] - at.y[c]) >= distance[r][c]); });
      });
    };
    with_slopes<T>(
        given.p, distance, count_ties,
        [&](auto const& factor, auto const& slope, auto const& stretch, auto const& bend) {
          [[maybe_unused]] ThreadScores<T> along = {};  // The changes of the distances.
          if constexpr (kMoves) {
            visit_coordinates(0, dimension, [&](int, Coordinates<T> const& at, Coordinates<T> const& motion) {
              for_pairs<T>([&](int r, int c) {
                along[r][c] = fused(slope(at.x[r] - at.y[c], r, c), motion.x[r] - motion.y[c], along[r][c]);
              });
            });
          }
          ThreadScores<T> weight;
          load_weights(weight, given, first_row + thread_row(), column + thread_column());
          if constexpr (kMoves) {
            T sum[kThreadRows] = {};
            for_pairs<T>([&](int r, int c) {
              along[r][c] *= weight[r][c] * factor(r, c);
              sum[r] += along[r][c];
              along[r][c] *= -factor(r, c) * (bend(r, c) + static_cast<T>(given.motion.rate));
              weight[r][c] *= bend(r, c);
            });
            add(sum, [&](int row) -> double& { return memory.of_distances[row]; });
          } else {
            for_pairs<T>([&](int r, int c) { weight[r][c] *= factor(r, c); });
          }
          visit_coordinates(first, end, [&](int k, Coordinates<T> const& at, Coordinates<T> const& motion) {
            T sum[kThreadRows] = {};
            for_pairs<T>([&](int r, int c) {
              T const by = at.x[r] - at.y[c], of = slope(by, r, c);
              if constexpr (kMoves) {
                sum[r] = fused(weight[r][c] * stretch(by, of, r, c), motion.x[r] - motion.y[c], sum[r]);
                sum[r] = fused(along[r][c], of, sum[r]);
              } else {
                sum[r] = fused(weight[r][c], of, sum[r]);
              }
            });
            add(sum, [&](int row) -> double& { return memory.sums[row][k - first]; });
          });
        });
  }
  __syncthreads();
  double const scale = given.factor * (given.value_scale ? *given.value_scale : 1.0);
  std::int64_t const begin = std::int64_t{part} * given.rows.padded_size + first_row;
  int const width = dimension + (kMoves ? 1 : 0);
  for (int e = static_cast<int>(threadIdx.x); e < kTileRows * (end - first); e += kTileThreads) {
    int const r = e / (end - first), k = e % (end - first);
    given.sums[(begin + r) * width + first + k] = scale * memory.sums[r][k];
  }
  if (kMoves && first == 0 && threadIdx.x < kTileRows)
    given.sums[(begin + threadIdx.x) * width + dimension] = scale * memory.of_distances[threadIdx.x];
}

}  // namespace monge::cuda
