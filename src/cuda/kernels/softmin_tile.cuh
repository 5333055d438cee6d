// Softmin half-step on the FMA pipes in float or double, for any dimension and either form; with the moment, the pass
// that evaluates a plan.
//
//   For each row i: (reference, sum) with sum = sum_j beta_j 2^(t_ij - reference), t_ij = h_j + score_ij, over the
//   columns of this block's part; with kMoment also sum_j beta_j 2^(t_ij - reference) (k_j + score_ij), k_j = h_j -
//   log2 b_j.
//
// Tiling: a block of 256 threads takes 64 rows and walks over tiles of 64 columns (device/score_tile.cuh).
// Per pair: d fused multiply-adds (2 d operations in difference form) and one exponential. 128 KiB of L2 reads for each
// 64 x 64 tile and 128 coordinates in double.
//
// Numerics: sums over the 4 columns that a thread has of a tile in T, over tiles in double. k_j is finite where
//   b_j = 0, so such columns add 0 to both sums.
#pragma once
#include "cuda/device/score_tile.cuh"
#include "cuda/device/work.cuh"

namespace monge::cuda {

/// Grid arguments.work.grid.
template <class T, bool kDifference, bool kMoment>
__global__ void __launch_bounds__(kTileThreads, 2) softmin_tile(SoftminArguments const arguments) {
  __shared__ TileBuffers<T> buffers;
  int const thread = static_cast<int>(threadIdx.x);
  int const padded_columns = arguments.columns.padded_size;
  start_next_kernel();
  wait_for_previous_kernel();
  T const factor = score_factor<T, kDifference>(arguments.scale, arguments.parameters);

  for_each_segment(arguments.work, arguments.rows.padded_size,
                   [&](int first_row, int first_tile, int tiles, std::int64_t offset) {
                     T reference[4];
                     double sum[4], moment[4];
#pragma unroll
                     for (int r = 0; r < 4; ++r) {
                       reference[r] = kEmptyLogit<T>;
                       sum[r] = moment[r] = 0;
                     }
                     for (int tile = first_tile; tile < first_tile + tiles; ++tile) {
                       int const first_column = tile * kTileColumns;
                       T score[4][4];
                       score_tile<T, kDifference>(score, buffers, arguments.rows, arguments.columns, first_row,
                                                  first_column, factor);
                       T logit[4], beta[4], slope[4];
#pragma unroll
                       for (int c = 0; c < 4; ++c) {
                         int const column = first_column + thread % 16 * 4 + c;
                         ColumnLogit<T> const value(arguments.logits, padded_columns, column);
                         logit[c] = value.logit;
                         beta[c] = value.factor;
                         slope[c] = kMoment ? static_cast<T>(arguments.slopes[column]) : T(0);
                       }
#pragma unroll
                       for (int r = 0; r < 4; ++r) {
                         T largest = reference[r];
#pragma unroll
                         for (int c = 0; c < 4; ++c) {
                           T const t = logit[c] + score[r][c];
                           largest = t > largest ? t : largest;
                         }
                         if (largest > reference[r]) {
                           double const shrink = power_of_two(reference[r] - largest);
                           sum[r] *= shrink;
                           moment[r] *= shrink;
                           reference[r] = largest;
                         }
                         T tile_sum = 0, tile_moment = 0;
#pragma unroll
                         for (int c = 0; c < 4; ++c) {
                           T const weight = beta[c] * power_of_two(logit[c] + score[r][c] - reference[r]);
                           tile_sum += weight;
                           if constexpr (kMoment) tile_moment += weight * (slope[c] + score[r][c]);
                         }
                         sum[r] += tile_sum;
                         if constexpr (kMoment) moment[r] += tile_moment;
                       }
                     }

    // Over the 16 threads of a row, which are half a warp.
#pragma unroll
                     for (int mask = 1; mask < 16; mask *= 2) {
#pragma unroll
                       for (int r = 0; r < 4; ++r) {
                         T const other = __shfl_xor_sync(0xffffffffu, reference[r], mask);
                         double const other_sum = __shfl_xor_sync(0xffffffffu, sum[r], mask);
                         double const other_moment = __shfl_xor_sync(0xffffffffu, moment[r], mask);
                         T const next = reference[r] > other ? reference[r] : other;
                         double const mine = exp2(static_cast<double>(reference[r]) - static_cast<double>(next));
                         double const theirs = exp2(static_cast<double>(other) - static_cast<double>(next));
                         sum[r] = sum[r] * mine + other_sum * theirs;
                         moment[r] = moment[r] * mine + other_moment * theirs;
                         reference[r] = next;
                       }
                     }
                     if (thread % 16 == 0) {
                       auto* const out = static_cast<PartialSum<T>*>(arguments.partials) + offset + thread / 16 * 4;
#pragma unroll
                       for (int r = 0; r < 4; ++r) {
                         out[r] = {reference[r], static_cast<T>(sum[r])};
                         if constexpr (kMoment) arguments.moments[offset + thread / 16 * 4 + r] = moment[r];
                       }
                     }
                   });
}

}  // namespace monge::cuda
