// Sums of the entries of a plan, and of entries times costs, in double, from one computation of each score of points.
//
//   P_ij = 2^(h_i + h_j + c score_ij)     h_i + h_j with the constants that logits leave out
//   r_i = sum_j P_ij,   c_j = sum_i P_ij,   sum_j P_ij (-factor) score_ij for each row
//
// The potentials belong to the plan. The exponentials need no reference: an overflow is an infinite entry of P.
//
// Tiling: tiles of 64 x 64 pairs and threads as in cuda/device/score_tile.cuh. A block takes a rectangle of tiles, in
//   strips of four columns of tiles. Sums of rows stay in registers along the strip. Sums of columns are joined in the
//   warp after each tile and stay in shared memory down the strip, apart for each warp, so they need no barrier. Each
//   block leaves its sums in memory, and sum_plan_kernel adds them in order.
//
// Per pair: d multiply-adds, as in a pass; 9 double operations of the exponential and 5 more (two for the exponent,
//   three sums); a shuffle. From L2: 640 d bytes a tile, 1024 d if d > 64.
//
// Numerics: all in double. Sequential sums have at most 64 terms within a strip, then as many terms as the rectangle
//   has strips (rows) or row tiles (columns). Terms of costs cancel as far as |x|^2 and <x, y> do in C'.
#pragma once
#include "cuda/device/score_tile.cuh"
#include "cuda/device/source.cuh"
#include "cuda/sweep/add_halves.cuh"
#include "cuda/sweep/tile_evaluation.hpp"

namespace monge::cuda {

inline constexpr int kStripTiles = 4;

/// Adds the values of the eight lanes that have the same columns. A lane is left with two neighbouring columns, in
/// value[0] and value[1].
__device__ __forceinline__ void add_rows_of_warp(double (&value)[kThreadColumns]) {
  static_assert(kThreadColumns == 16);
  add_halves<2>(value);
}

/// Sums over the entries of a thread in a row of tiles: of its rows, also times their scores.
struct EvaluatedRows {
  double logit[kThreadRows], sum[kThreadRows] = {}, cost[kThreadRows] = {};

  /// Adds the entries of a tile, whose sums over the thread's rows become `of_column`. `logits` are of its columns.
  __device__ __forceinline__ void add(ThreadScores<double> const& score, double factor, Powers<double> const& powers,
                                      double const* logits, double (&of_column)[kThreadColumns]) {
#pragma unroll
    for (int c = 0; c < kThreadColumns; c += 2) {
      double of_pair[2];
      load_vector_2(of_pair[0], of_pair[1], logits + column_offset(c));
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        double entry[kThreadRows];
#pragma unroll
        for (int r = 0; r < kThreadRows; ++r) {
          entry[r] = powers(fused(factor, score[r][c + k], logit[r] + of_pair[k]));
          sum[r] += entry[r];
          cost[r] = fused(entry[r], score[r][c + k], cost[r]);
        }
        of_column[c + k] = entry[0] + entry[1];
      }
    }
  }
  /// Joins the sums over the 4 lanes of a row.
  __device__ __forceinline__ void merge_lanes() {
#pragma unroll
    for (int r = 0; r < kThreadRows; ++r) {
#pragma unroll
      for (int mask = 1; mask <= 2; mask *= 2) {
        sum[r] += __shfl_xor_sync(0xffffffffu, sum[r], mask);
        cost[r] += __shfl_xor_sync(0xffffffffu, cost[r], mask);
      }
    }
  }
};

template <ScoreForm kForm, class Source>
__global__ void __launch_bounds__(kTileThreads, kForm == ScoreForm::distances ? 2 : 3)
    tile_evaluation_kernel(Source const source) {
  constexpr int kWarps = kTileThreads / 32, kStripColumns = kStripTiles * kTileColumns;
  extern __shared__ __align__(16) unsigned char shared[];
  __shared__ __align__(16) double column_sums[kWarps][kStripColumns];
  __shared__ Powers<double>::Table table;
  Slice<TileEvaluationArguments> const slice = slice_of(source);
  TileEvaluationArguments const& arguments = slice.arguments;
  PassArguments const& scores = arguments.scores;
  TileEvaluationPlan const& plan = arguments.plan;
  int const thread = static_cast<int>(threadIdx.x), lane = thread % 32;
  int const row_group = slice.block / plan.column_groups, column_group = slice.block % plan.column_groups;
  int const first_row_tile = row_group * plan.row_tiles, first_tile = column_group * plan.column_tiles;
  int const end_row_tile = min(first_row_tile + plan.row_tiles, scores.rows.padded_size / kTileRows);
  int const end_tile = min(first_tile + plan.column_tiles, scores.columns.padded_size / kTileColumns);
  start_next_kernel();
  wait_for_previous_kernel();
  Powers<double> const powers(table);
  __syncthreads();
  SweepParameters const& parameters = *arguments.parameters;
  double const factor = scores.factor * parameters.log2e_over_eps;
  double const constant = (parameters.constant[0] + parameters.constant[1]) * parameters.log2e_over_eps;
  // After add_rows_of_warp() a lane has two neighbouring columns of a tile: bits 2, 3 and 4 of the lane are the bits of
  // their place from the highest on.
  int const place = (lane / 16 * 4 + lane / 8 % 2 * 2 + lane / 4 % 2) * 8 + thread_column();
  double* const own_sums = column_sums[thread / 32] + place;

  for (int strip = first_tile; strip < end_tile; strip += kStripTiles) {
    int const tiles = min(kStripTiles, end_tile - strip);
    for (int tile = 0; tile < tiles; ++tile) store_vector_2(own_sums + tile * kTileColumns, 0.0, 0.0);
    for (int row_tile = first_row_tile; row_tile < end_row_tile; ++row_tile) {
      Segment const segment{row_tile * kTileRows, strip, tiles, 0, 0, 0};
      TileScores<double, kForm> source_of_scores(shared, scores, segment);
      int const row = segment.first_row + thread_row();
      EvaluatedRows rows;
#pragma unroll
      for (int r = 0; r < kThreadRows; ++r) rows.logit[r] = arguments.row_logits[row + row_offset(r)] + constant;
      for (int tile = 0; tile < tiles; ++tile) {
        ThreadScores<double> score;
        source_of_scores.next(score);
        double const* const logits = arguments.column_logits + (strip + tile) * kTileColumns + thread_column();
        double of_column[kThreadColumns];
        rows.add(score, factor, powers, logits, of_column);
        add_rows_of_warp(of_column);
        double* const at = own_sums + tile * kTileColumns;
        double old[2];
        load_vector_2(old[0], old[1], at);
        store_vector_2(at, old[0] + of_column[0], old[1] + of_column[1]);
      }
      rows.merge_lanes();
#pragma unroll
      for (int r = 0; r < kThreadRows && lane % 4 == 0; ++r) {
        std::int64_t const at = static_cast<std::int64_t>(column_group) * scores.rows.padded_size + row + row_offset(r);
        // The same thread wrote the sums of the strips before.
        bool const begins = strip == first_tile;
        arguments.row_sums[at] = begins ? rows.sum[r] : arguments.row_sums[at] + rows.sum[r];
        double const value = -scores.factor * rows.cost[r];
        arguments.row_costs[at] = begins ? value : arguments.row_costs[at] + value;
      }
      __syncthreads();  // The next scores use the same shared memory.
    }
    std::int64_t const at = static_cast<std::int64_t>(row_group) * scores.columns.padded_size + strip * kTileColumns;
    for (int k = thread; k < tiles * kTileColumns; k += kTileThreads) {
      double total = 0;
#pragma unroll
      for (int w = 0; w < kWarps; ++w) total += column_sums[w][k];
      arguments.column_sums[at + k] = total;
    }
    __syncthreads();
  }
}

}  // namespace monge::cuda
