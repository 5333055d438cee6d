// Scores of 64 rows and 64 columns on the FMA pipes: __device__ only.
//
//   score_ij = c <x'_i, y'_j> (products), c |x'_i - y'_j|^2 (differences) or c (C_ij - least) (stored).
//
// 256 threads as 16 x 16, each with 4 x 4 scores: rows 4 (thread / 16) + r, columns 4 (thread % 16) + c. Coordinates
// pass through shared memory in chunks of 16, transposed, so that the 4 values of a thread are one vector. Stored
// scores come straight from memory, 4 of a line at once where they are aligned.
#pragma once
#include "cuda/device/numerics.cuh"
#include "cuda/device/stored.cuh"
#include "cuda/launch/arguments.hpp"

namespace monge::cuda {

inline constexpr int kTileRows = 64;
inline constexpr int kTileColumns = 64;
inline constexpr int kTileThreads = 256;
inline constexpr int kTileChunk = 16;

template <class T>
struct TileBuffers {
  static constexpr int kStride = kTileRows + 4;  // Fewer bank conflicts of the transposing stores; rows stay aligned.
  alignas(16) T rows[kTileChunk][kStride];
  alignas(16) T columns[kTileChunk][kStride];
};

template <class T>
__device__ __forceinline__ void load_vector_4(T (&value)[4], T const* from) {
  if constexpr (sizeof(T) == 4) {
    float4 const v = *reinterpret_cast<float4 const*>(from);
    value[0] = v.x, value[1] = v.y, value[2] = v.z, value[3] = v.w;
  } else {
    double2 const v = *reinterpret_cast<double2 const*>(from);
    double2 const w = *reinterpret_cast<double2 const*>(from + 2);
    value[0] = v.x, value[1] = v.y, value[2] = w.x, value[3] = w.y;
  }
}

__device__ __forceinline__ void store_vector_2(float* to, float first, float second) {
  *reinterpret_cast<float2*>(to) = make_float2(first, second);
}
__device__ __forceinline__ void store_vector_2(double* to, double first, double second) {
  *reinterpret_cast<double2*>(to) = make_double2(first, second);
}
__device__ __forceinline__ void store_vector_4(double* to, double const (&value)[4]) {
  *reinterpret_cast<double2*>(to) = make_double2(value[0], value[1]);
  *reinterpret_cast<double2*>(to + 2) = make_double2(value[2], value[3]);
}

/// Four coordinates of one row of each operand, on their way from device memory to shared memory.
template <class T>
struct TileChunk {
  T row[4];
  T column[4];

  __device__ __forceinline__ void fetch(Operand const& rows, Operand const& columns, int first_row, int first_column,
                                        int first_coordinate) {
    int const thread = static_cast<int>(threadIdx.x);
    fetch_side(row, rows, first_row + thread / 4, first_coordinate + thread % 4 * 4);
    fetch_side(column, columns, first_column + thread / 4, first_coordinate + thread % 4 * 4);
  }
  __device__ __forceinline__ void store(TileBuffers<T>& buffers) const {
    int const thread = static_cast<int>(threadIdx.x);
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      buffers.rows[thread % 4 * 4 + k][thread / 4] = row[k];
      buffers.columns[thread % 4 * 4 + k][thread / 4] = column[k];
    }
  }

 private:
  static __device__ __forceinline__ void fetch_side(T (&value)[4], Operand const& operand, int point, int coordinate) {
    T const* const from = static_cast<T const*>(operand.points) + static_cast<std::int64_t>(point) * operand.stride;
    if (coordinate + 4 <= operand.stride && operand.stride % 4 == 0) {
      load_vector_4(value, from + coordinate);
    } else {
#pragma unroll
      for (int k = 0; k < 4; ++k) value[k] = coordinate + k < operand.stride ? from[coordinate + k] : T(0);
    }
  }
};

/// All threads of the block; ends with the buffers free for other use after a barrier by the caller.
template <class T, bool kDifference>
__device__ __forceinline__ void score_tile(T (&score)[4][4], TileBuffers<T>& buffers, Operand const& rows,
                                           Operand const& columns, int first_row, int first_column, T factor) {
  int const row = static_cast<int>(threadIdx.x) / 16 * 4;
  int const column = static_cast<int>(threadIdx.x) % 16 * 4;
#pragma unroll
  for (int r = 0; r < 4; ++r) {
#pragma unroll
    for (int c = 0; c < 4; ++c) score[r][c] = 0;
  }
  TileChunk<T> chunk;
  chunk.fetch(rows, columns, first_row, first_column, 0);
  for (int k0 = 0; k0 < rows.dimension; k0 += kTileChunk) {
    __syncthreads();
    chunk.store(buffers);
    __syncthreads();
    if (k0 + kTileChunk < rows.dimension) chunk.fetch(rows, columns, first_row, first_column, k0 + kTileChunk);
    int const count = min(kTileChunk, rows.dimension - k0);
#pragma unroll 4
    for (int k = 0; k < count; ++k) {
      T x[4], y[4];
      load_vector_4(x, &buffers.rows[k][row]);
      load_vector_4(y, &buffers.columns[k][column]);
#pragma unroll
      for (int r = 0; r < 4; ++r) {
#pragma unroll
        for (int c = 0; c < 4; ++c) {
          if constexpr (kDifference) {
            T const difference = x[r] - y[c];
            score[r][c] += difference * difference;
          } else {
            score[r][c] += x[r] * y[c];
          }
        }
      }
    }
  }
#pragma unroll
  for (int r = 0; r < 4; ++r) {
#pragma unroll
    for (int c = 0; c < 4; ++c) score[r][c] = rounded_product(score[r][c], factor);
  }
}

/// 4 costs of a line from `at` on; infinity past its end.
template <class S>
__device__ __forceinline__ void load_costs(S (&value)[4], S const* line, int at, int size, bool aligned) {
  if (aligned && at + 4 <= size) {
    load_vector_4(value, line + at);
  } else {
#pragma unroll
    for (int k = 0; k < 4; ++k) value[k] = at + k < size ? line[at + k] : static_cast<S>(INFINITY);
  }
}

/// This thread's scores, its first row and column being given.
template <class T, class S>
__device__ __forceinline__ void stored_tile(T (&score)[4][4], StoredCosts const& stored, S const* data, int row,
                                            int column, T factor) {
  int const first_line = stored.transposed ? column : row, at = stored.transposed ? row : column;
  S value[4][4];
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    int const line = first_line + k;
    load_costs(value[k], data + line * stored.stride, at, line < stored.lines() ? stored.line_size() : 0,
               stored.aligned);
  }
#pragma unroll
  for (int r = 0; r < 4; ++r) {
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      S const cost = stored.transposed ? value[c][r] : value[r][c];
      score[r][c] = rounded_product(factor, stored_score<T>(cost, stored.least));
    }
  }
}
template <class T>
__device__ __forceinline__ void stored_tile(T (&score)[4][4], StoredCosts const& stored, int row, int column,
                                            T factor) {
  if (stored.scalar == DataType::float32) {
    stored_tile(score, stored, static_cast<float const*>(stored.data), row, column, factor);
  } else {
    stored_tile(score, stored, static_cast<double const*>(stored.data), row, column, factor);
  }
}

/// Logit and factor of a column; without factors they are ones.
template <class T>
struct ColumnLogit {
  T logit;
  T factor;
  __device__ __forceinline__ ColumnLogit(PassArguments const& arguments, int column)
      : logit(static_cast<T const*>(arguments.logits)[column]),
        factor(arguments.factors ? static_cast<T const*>(arguments.factors)[column] : T(1)) {}
};

}  // namespace monge::cuda
