// A pass over all pairs on the FMA pipes in float or double, for any dimension and any form of score:
// t_ij = h_j + score_ij, and what becomes of it:
//
//   softmin    for each row (reference, sum) with sum = sum_j beta_j 2^(t_ij - reference), over the columns of this
//              block's part
//   moments    the same and sum_j beta_j 2^(t_ij - reference) (k_j + score_ij), k_j = h_j - log2 b_j: the pass that
//              evaluates a plan
//   product    the sum with references that are given and beta_j v_j in place of beta_j
//   entries    kEntryScale beta_j 2^(t_ij - reference_i) to memory, and their sums
//   logits     t_ij + log2 beta_j - reference_i to memory
//   hadamard   entries in memory times score_ij (double)
//   values     score_ij to memory (double): a matrix product
//
// Tiling: a block of 256 threads takes 64 rows and walks over tiles of 64 columns (device/score_tile.cuh).
// Per pair: d fused multiply-adds (2 d operations with differences) and one exponential. 128 KiB of L2 reads for each
// 64 x 64 tile and 128 coordinates in double. Stored scores: each is read once, and no barrier holds the warps
// together.
//
// Numerics: sums over the 4 columns that a thread has of a tile in T, over tiles in double. k_j is finite where
//   b_j = 0, so such columns add 0 to both sums. Forbidden pairs have t_ij = -infinity and add 0 too; a row that has no
//   other pairs ends with the sum 0.
#pragma once
#include "cuda/device/row_sums.cuh"
#include "cuda/device/score_tile.cuh"
#include "cuda/device/source.cuh"
#include "cuda/device/work.cuh"

namespace monge::cuda {

/// What a thread knows of its 4 rows.
template <class T>
struct TileSums {
  T reference[4];
  double sum[4] = {}, moment[4] = {};

  /// Adds the terms of 4 columns to row r.
  template <Pass kPass>
  __device__ __forceinline__ void add(int r, T const (&t)[4], T const (&factor)[4], T const (&slope)[4]) {
    if constexpr (kPass != Pass::product) {
      T largest = reference[r];
#pragma unroll
      for (int c = 0; c < 4; ++c) largest = t[c] > largest ? t[c] : largest;
      if (largest > reference[r]) {
        double const shrink = power_of_two(reference[r] - largest);
        sum[r] *= shrink;
        moment[r] *= shrink;
        reference[r] = largest;
      }
    }
    T tile_sum = 0, tile_moment = 0;
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      T const term = factor[c] * power_of_two(t[c] - reference[r]);
      tile_sum += term;
      if constexpr (kPass == Pass::moments) tile_moment += term * slope[c];
    }
    sum[r] += tile_sum;
    if constexpr (kPass == Pass::moments) moment[r] += tile_moment;
  }

  /// Over the 16 threads of a row, which are half a warp.
  __device__ __forceinline__ void merge_lanes() {
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
  }
};

/// Grid arguments.work.grid.
template <class T, ScoreForm kForm, Pass kPass, class Source>
__global__ void __launch_bounds__(kTileThreads, 2) pass_tile(Source const source) {
  constexpr bool kStores = has_stores(kPass);
  constexpr bool kSums = has_sums(kPass);
  __shared__ TileBuffers<T> buffers;
  Share<PassArguments> const share = share_of(source);
  PassArguments const& arguments = share.arguments;
  int const thread = static_cast<int>(threadIdx.x);
  int const row = thread / 16 * 4;
  start_next_kernel();
  wait_for_previous_kernel();
  T const factor =
      static_cast<T>(arguments.parameters ? arguments.factor * arguments.parameters->log2e_over_eps : arguments.factor);

  for_each_segment(arguments.work, arguments.rows.padded_size, share.block, 1, [&](Segment const& segment) {
    TileSums<T> sums;
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      sums.reference[r] = has_references(kPass)
                              ? static_cast<T const*>(arguments.references)[segment.first_row + row + r]
                              : kLowestReference<T>;
    }
    for (int tile = 0; tile < segment.tiles; ++tile) {
      int const column = segment.column_tile(arguments.work, tile) * kTileColumns + thread % 16 * 4;
      T score[4][4];
      if constexpr (kForm == ScoreForm::stored) {
        stored_tile(score, arguments.stored, segment.first_row + row, column, factor);
      } else {
        score_tile<T, kForm == ScoreForm::differences>(score, buffers, arguments.rows, arguments.columns,
                                                       segment.first_row, column - thread % 16 * 4, factor);
      }
      T logit[4] = {}, beta[4] = {}, slope[4] = {};
      if constexpr (kSums || kPass == Pass::logits) {
#pragma unroll
        for (int c = 0; c < 4; ++c) {
          ColumnLogit<T> const value(arguments, column + c);
          logit[c] = value.logit;
          beta[c] = value.factor;
          if constexpr (kPass == Pass::moments) slope[c] = static_cast<T>(arguments.slopes[column + c]);
        }
      }
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        if constexpr (!kStores) {
          T t[4], slopes[4];
#pragma unroll
          for (int c = 0; c < 4; ++c) {
            t[c] = logit[c] + score[r][c];
            // A forbidden pair must not multiply its 0 by infinity.
            slopes[c] = kForm == ScoreForm::stored && isinf(score[r][c]) ? T(0) : slope[c] + score[r][c];
          }
          sums.template add<kPass>(r, t, beta, slopes);
        } else {
          std::int64_t const begin = (segment.first_row + row + r) * arguments.entries.stride;
          T entry[4];
#pragma unroll
          for (int c = 0; c < 4; ++c) {
            entry[c] = score[r][c];
            if constexpr (kPass == Pass::entries) {
              entry[c] = T(kEntryScale) * beta[c] * power_of_two(logit[c] + score[r][c] - sums.reference[r]);
              if constexpr (sizeof(T) == 4) entry[c] = limited_entry(entry[c]);
              sums.sum[r] += entry[c];
            }
            if constexpr (kPass == Pass::logits)
              entry[c] = log_share(logit[c] + score[r][c], sums.reference[r], beta[c]);
          }
          if constexpr (kPass == Pass::logits) {
            T largest = entry[0];
#pragma unroll
            for (int c = 1; c < 4; ++c) largest = entry[c] > largest ? entry[c] : largest;
#pragma unroll
            for (int mask = 1; mask < kLogitGroup / 4; mask *= 2) {
              T const other = __shfl_xor_sync(0xffffffffu, largest, mask);
              largest = other > largest ? other : largest;
            }
            if (column % kLogitGroup == 0)
              static_cast<T*>(arguments.entries.low)[(begin + column) / kLogitGroup] = largest;
          }
          if constexpr (kPass == Pass::logits) {
            T* const out = static_cast<T*>(arguments.entries.high) + begin + logit_position(column);
            store_vector_2(out, entry[0], entry[1]);
            store_vector_2(out + 4, entry[2], entry[3]);
          } else if constexpr (sizeof(T) == 4) {
#pragma unroll
            for (int c = 0; c < 4; c += 2) {
              HalfPairs const split = split_pair(entry[c], entry[c + 1]);
              std::int64_t const at = (begin + entry_position(column + c)) / 2;
              static_cast<std::uint32_t*>(arguments.entries.high)[at] = split.high;
              static_cast<std::uint32_t*>(arguments.entries.low)[at] = split.low;
            }
          } else {
            T* const out = static_cast<T*>(arguments.entries.high) + begin + column;
            if constexpr (kPass == Pass::hadamard) {
              T old[4];
              load_vector_4(old, out);
#pragma unroll
              for (int c = 0; c < 4; ++c) entry[c] *= old[c];
            }
            store_vector_4(out, entry);
          }
        }
      }
    }
    if constexpr (kSums) {
      sums.merge_lanes();
      if (thread % 16 == 0) {
        auto* const out = static_cast<PartialSum<T>*>(arguments.partials) + segment.offset + row;
#pragma unroll
        for (int r = 0; r < 4; ++r) {
          out[r] = {sums.reference[r], static_cast<T>(sums.sum[r])};
          if constexpr (kPass == Pass::moments) arguments.moments[segment.offset + row + r] = sums.moment[r];
        }
      }
    }
  });
}

}  // namespace monge::cuda
