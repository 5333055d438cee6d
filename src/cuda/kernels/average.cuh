// Averages under the softmax of each row.
//
//   out_ip = row_weight_i (sum_j w_ij V_jp / sum_j w_ij + mean_p),  w_ij = beta_j 2^(h_j + score_ij - L_i),
//   L_i = (norm_i - f+_i) log2(e) / eps known from a softmin pass (FlashSinkhorn, eq. 15-16). Dividing by the sum of
//   the very weights that were used takes the rounding of L_i out.
//
// Tiling: a block of 256 threads takes 64 rows and 64 of the p columns of V and walks over tiles of 64 points: scores
//   (device/score_tile.cuh), weights to shared memory, then their product with V in chunks of 16 points. Scores are
//   computed again for each 64 columns of V.
// Per pair: d ceil(p / 64) + p fused multiply-adds and ceil(p / 64) exponentials, on the FMA pipes.
//
// Numerics: sums over 512 points in T, over these in double.
#pragma once
#include "cuda/device/score_tile.cuh"
#include "cuda/device/strided.cuh"
#include "cuda/launch/average.hpp"

namespace monge::cuda {

template <class T>
struct AverageShared {
  TileBuffers<T> buffers;
  alignas(16) T weights[kTileColumns][TileBuffers<T>::kStride];  // [point][row]
};

/// Grid (row blocks of 64, blocks of 64 columns of V), sizeof(AverageShared<T>) of shared memory.
template <class T, bool kDifference>
__global__ void __launch_bounds__(kTileThreads, 2) average_kernel(AverageArguments const arguments) {
  extern __shared__ __align__(16) unsigned char shared_bytes[];
  auto& shared = *reinterpret_cast<AverageShared<T>*>(shared_bytes);
  constexpr int kFlushTiles = 8;
  int const thread = static_cast<int>(threadIdx.x);
  int const row = thread / 16 * 4;
  int const column = thread % 16 * 4;
  int const first_row = static_cast<int>(blockIdx.x) * kTileRows;
  int const first_value = static_cast<int>(blockIdx.y) * kTileColumns;
  PackedCloud const& columns = arguments.columns;
  T const factor = score_factor<T, kDifference>(arguments.scale, arguments.parameters);

  double const constant = arguments.parameters->constant[1 - arguments.side];
  T log_sum[4];
#pragma unroll
  for (int r = 0; r < 4; ++r) {
    int const i = first_row + row + r;
    log_sum[r] = i < arguments.rows.size ? static_cast<T>((arguments.rows.norm[i] - arguments.plus[i] - constant) *
                                                          arguments.parameters->log2e_over_eps)
                                         : T(0);
  }
  T recent[4][4] = {};
  double total[4][4] = {};
  double weight_sum[4] = {};
  int const tiles = columns.padded_size / kTileColumns;
  for (int tile = 0; tile < tiles; ++tile) {
    int const first_column = tile * kTileColumns;
    T score[4][4];
    score_tile<T, kDifference>(score, shared.buffers, arguments.rows, columns, first_row, first_column, factor);
    T tile_weight[4] = {};
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      ColumnLogit<T> const value(arguments.logits, columns.padded_size, first_column + column + c);
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        // Rows of padding have no log-sum, and must not make infinities.
        bool const real = first_row + row + r < arguments.rows.size;
        T const weight = real ? value.factor * power_of_two(value.logit + score[r][c] - log_sum[r]) : T(0);
        tile_weight[r] += weight;
        shared.weights[column + c][row + r] = weight;
      }
    }
#pragma unroll
    for (int r = 0; r < 4; ++r) weight_sum[r] += tile_weight[r];
    for (int j0 = 0; j0 < kTileColumns; j0 += kTileChunk) {
      __syncthreads();  // Weights are written, and the value buffer is free.
      {
        int const j = thread / 16;
        T value[4];
        load_vector_4(value, static_cast<T const*>(arguments.values) +
                                 static_cast<std::int64_t>(first_column + j0 + j) * arguments.value_stride +
                                 first_value + column);
#pragma unroll
        for (int p = 0; p < 4; ++p) shared.buffers.columns[j][column + p] = value[p];
      }
      __syncthreads();
#pragma unroll 4
      for (int j = 0; j < kTileChunk; ++j) {
        T weight[4], value[4];
        load_vector_4(weight, &shared.weights[j0 + j][row]);
        load_vector_4(value, &shared.buffers.columns[j][column]);
#pragma unroll
        for (int r = 0; r < 4; ++r) {
#pragma unroll
          for (int p = 0; p < 4; ++p) recent[r][p] += weight[r] * value[p];
        }
      }
    }
    if (tile % kFlushTiles == kFlushTiles - 1 || tile == tiles - 1) {
#pragma unroll
      for (int r = 0; r < 4; ++r) {
#pragma unroll
        for (int p = 0; p < 4; ++p) {
          total[r][p] += recent[r][p];
          recent[r][p] = 0;
        }
      }
    }
  }
#pragma unroll
  for (int mask = 1; mask < 16; mask *= 2) {
#pragma unroll
    for (int r = 0; r < 4; ++r) weight_sum[r] += __shfl_xor_sync(0xffffffffu, weight_sum[r], mask);
  }
#pragma unroll
  for (int r = 0; r < 4; ++r) {
    int const i = first_row + row + r;
    if (i >= arguments.rows.size) continue;
    double const row_weight = arguments.row_weight ? arguments.row_weight[i] : 1.0;
#pragma unroll
    for (int p = 0; p < 4; ++p) {
      int const q = first_value + column + p;
      if (q >= arguments.width) continue;
      double const mean = arguments.mean ? arguments.mean[q] : 0.0;
      store_element(arguments.out, static_cast<std::int64_t>(i) * arguments.out.stride + q,
                    row_weight * (total[r][p] / weight_sum[r] + mean));
    }
  }
}

}  // namespace monge::cuda
