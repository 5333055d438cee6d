// A pass over all pairs in float or double, for any dimension and any form of score: t_ij = h_j + c score_ij, and one
// of these results:
//
//   softmin    for each row (reference, sum) with sum = sum_j beta_j 2^(t_ij - reference), in the block's columns
//   product    the sum with given references and beta_j v_j in place of beta_j
//   entries    kEntryScale beta_j 2^(t_ij - reference_i) to memory, and their sums
//   logits     t_ij + log2 beta_j - reference_i to memory
//   hadamard   entries in memory times c score_ij (double)
//
// Tiling: a block of 128 threads takes 64 rows and walks over tiles of 64 columns (device/score_tile.cuh). Several
//   blocks share a multiprocessor, so that products of one overlap exponentials of the others.
//
// Per pair: d multiply-adds. Products in double are on tensor cores, which on sm_90 are twice as fast. Differences take
//   2 d operations; a p-norm other than 1, 2 and infinity takes two functions more for each coordinate. Softmin in
//   double takes 12 operations more, 9 of them for the exponential. From L2: 512 d bytes for a tile in double, half of
//   that in float, and twice as much if d > 64. Each stored score is read once, without barriers among the warps.
//
// Numerics: a thread sums its 16 columns of a tile in T, and tiles in double. Softmin takes no maximum: if the
//   sum of a tile shows that a reference is too low, the reference moves and the tile is summed again.
//   Columns with b_j = 0 add 0 to both sums. Forbidden pairs have t_ij = -infinity and add 0, too; a row with forbidden
//   pairs only has the sum 0.
#pragma once
#include "cuda/device/row_sums.cuh"
#include "cuda/device/score_tile.cuh"
#include "cuda/device/source.cuh"
#include "cuda/device/work.cuh"

namespace monge::cuda {

/// Loads numbers of four of a thread's columns, column + column_offset(c).
template <class T>
__device__ __forceinline__ void load_columns(T (&value)[4], void const* from, int column) {
  T const* const first = static_cast<T const*>(from) + column;
  load_vector_2(value[0], value[1], first);
  load_vector_2(value[2], value[3], first + column_offset(2));
}

/// Logits and factors of four columns. In double, passes of sweeps have no factors: they are 1.
template <class T, Pass kPass>
struct TileColumns {
  static constexpr bool kFactors = sizeof(T) == 4 || has_references(kPass);
  T logit[4];
  T factor[4] = {1, 1, 1, 1};

  __device__ __forceinline__ TileColumns(PassArguments const& arguments, int column) {
    load_columns(logit, arguments.logits, column);
    if (kFactors && arguments.factors) load_columns(factor, arguments.factors, column);
  }
};

/// References and sums of a thread's rows.
template <class T>
struct TileSums {
  T reference[kThreadRows];
  double sum[kThreadRows] = {};

  /// Adds the terms of a tile. If the pass finds the references and they prove too low, they move and the tile is
  /// summed again.
  template <Pass kPass>
  __device__ __forceinline__ void add(PassArguments const& arguments, Powers<T> const& powers, int column,
                                      ThreadScores<T> const& score, T factor) {
    T tile_sum[kThreadRows];
    sum_and_raise<has_references(kPass)>(
        tile_sum, [&] { sum_tile<kPass>(tile_sum, arguments, powers, column, score, factor); },
        [&] { raise<kPass>(arguments, column, score, factor); });
#pragma unroll
    for (int r = 0; r < kThreadRows; ++r) sum[r] += tile_sum[r];
  }

  /// Joins the sums over the 4 lanes of a row.
  __device__ __forceinline__ void merge_lanes() {
#pragma unroll
    for (int mask = 1; mask <= 2; mask *= 2) {
#pragma unroll
      for (int r = 0; r < kThreadRows; ++r) {
        T const other = __shfl_xor_sync(0xffffffffu, reference[r], mask);
        double const other_sum = __shfl_xor_sync(0xffffffffu, sum[r], mask);
        T const next = reference[r] > other ? reference[r] : other;
        double const mine = power_of_two(static_cast<double>(reference[r]) - static_cast<double>(next));
        double const theirs = power_of_two(static_cast<double>(other) - static_cast<double>(next));
        sum[r] = fused(sum[r], mine, other_sum * theirs);
        reference[r] = next;
      }
    }
  }

 private:
  template <Pass kPass>
  __device__ __forceinline__ void sum_tile(T (&tile_sum)[kThreadRows], PassArguments const& arguments,
                                           Powers<T> const& powers, int column, ThreadScores<T> const& score,
                                           T factor) const {
#pragma unroll
    for (int r = 0; r < kThreadRows; ++r) tile_sum[r] = 0;
#pragma unroll
    for (int quad = 0; quad < kThreadColumns; quad += 4) {
      int const first = column + column_offset(quad);
      TileColumns<T, kPass> const columns(arguments, first);
#pragma unroll
      for (int r = 0; r < kThreadRows; ++r) {
#pragma unroll
        for (int c = 0; c < 4; ++c) {
          T const power = powers(fused(factor, score[r][quad + c], columns.logit[c]) - reference[r]);
          tile_sum[r] = columns.kFactors ? fused(columns.factor[c], power, tile_sum[r]) : tile_sum[r] + power;
        }
      }
    }
  }

  /// Moves the references to the largest logits of a tile.
  template <Pass kPass>
  __device__ __forceinline__ void raise(PassArguments const& arguments, int column, ThreadScores<T> const& score,
                                        T factor) {
    T largest[kThreadRows];
#pragma unroll
    for (int r = 0; r < kThreadRows; ++r) largest[r] = reference[r];
#pragma unroll
    for (int quad = 0; quad < kThreadColumns; quad += 4) {
      TileColumns<T, kPass> const columns(arguments, column + column_offset(quad));
#pragma unroll
      for (int r = 0; r < kThreadRows; ++r) {
#pragma unroll
        for (int c = 0; c < 4; ++c) {
          T const t = fused(factor, score[r][quad + c], columns.logit[c]);
          largest[r] = t > largest[r] ? t : largest[r];
        }
      }
    }
#pragma unroll
    for (int r = 0; r < kThreadRows; ++r) {
      sum[r] *= power_of_two(reference[r] - largest[r]);
      reference[r] = largest[r];
    }
  }
};

/// Writes log2 of the shares of a tile, and the largest of each group, to memory; the factors are log2 beta.
template <class T>
__device__ __forceinline__ void store_logits(PassArguments const& arguments, int row, int column,
                                             TileSums<T> const& sums, ThreadScores<T> const& score, T factor) {
  constexpr int kQuadColumns = column_offset(4);
  T largest[kThreadRows];
#pragma unroll
  for (int quad = 0; quad < kThreadColumns; quad += 4) {
    int const first = column + column_offset(quad);
    TileColumns<T, Pass::logits> const columns(arguments, first);
    bool const starts = column_offset(quad) % kLogitGroup == 0;
    bool const ends = (column_offset(quad) + kQuadColumns) % kLogitGroup == 0;
#pragma unroll
    for (int r = 0; r < kThreadRows; ++r) {
      std::int64_t const begin = (row + row_offset(r)) * arguments.entries.stride;
      T share[4];
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        T const t = fused(factor, score[r][quad + c], columns.logit[c]);
        share[c] = log_share(t, sums.reference[r], columns.factor[c]);
        largest[r] = (starts && c == 0) || share[c] > largest[r] ? share[c] : largest[r];
      }
      store_vector_4(static_cast<T*>(arguments.entries.high) + begin + logit_position(first), share);
      if (!ends) continue;
#pragma unroll
      for (int mask = 1; mask <= 2; mask *= 2) {
        T const other = __shfl_xor_sync(0xffffffffu, largest[r], mask);
        largest[r] = other > largest[r] ? other : largest[r];
      }
      if (threadIdx.x % 4 == 0) static_cast<T*>(arguments.entries.low)[(begin + first) / kLogitGroup] = largest[r];
    }
  }
}

/// Stores a tile as entries and adds them to the sums (entries), or multiplies entries in memory by the scores
/// (hadamard).
template <Pass kPass, class T>
__device__ __forceinline__ void store_entries(PassArguments const& arguments, Powers<T> const& powers, int row,
                                              int column, TileSums<T>& sums, ThreadScores<T> const& score, T factor) {
#pragma unroll
  for (int quad = 0; quad < kThreadColumns; quad += 4) {
    int const first = column + column_offset(quad);
    T entry[kThreadRows][4];
    if constexpr (kPass == Pass::entries) {
      TileColumns<T, kPass> const columns(arguments, first);
#pragma unroll
      for (int r = 0; r < kThreadRows; ++r) {
#pragma unroll
        for (int c = 0; c < 4; ++c) {
          T const t = fused(factor, score[r][quad + c], columns.logit[c]);
          entry[r][c] = T(kEntryScale) * columns.factor[c] * powers(t - sums.reference[r]);
          if constexpr (sizeof(T) == 4) entry[r][c] = limited_entry(entry[r][c]);
          sums.sum[r] += entry[r][c];
        }
      }
    } else {
#pragma unroll
      for (int r = 0; r < kThreadRows; ++r) {
#pragma unroll
        for (int c = 0; c < 4; ++c) entry[r][c] = factor * score[r][quad + c];
      }
    }
#pragma unroll
    for (int r = 0; r < kThreadRows; ++r) {
      std::int64_t const begin = (row + row_offset(r)) * arguments.entries.stride;
      if constexpr (sizeof(T) == 4) {
        HalfPairs const left = split_pair(entry[r][0], entry[r][1]), right = split_pair(entry[r][2], entry[r][3]);
        std::int64_t const at = (begin + entry_position(first)) / 4;
        static_cast<uint2*>(arguments.entries.high)[at] = make_uint2(left.high, right.high);
        static_cast<uint2*>(arguments.entries.low)[at] = make_uint2(left.low, right.low);
      } else {
#pragma unroll
        for (int c = 0; c < 4; c += 2) {
          T* const out = static_cast<T*>(arguments.entries.high) + begin + first + column_offset(c);
          if constexpr (kPass == Pass::hadamard) {
            T old[2];
            load_vector_2(old[0], old[1], out);
            entry[r][c] *= old[0];
            entry[r][c + 1] *= old[1];
          }
          store_vector_2(out, entry[r][c], entry[r][c + 1]);
        }
      }
    }
  }
}

/// Blocks on a multiprocessor. A distance may need two numbers, and so twice the registers.
template <class T, ScoreForm kForm>
inline constexpr int kTileBlocks = sizeof(T) == 4                  ? 4
                                   : kForm == ScoreForm::distances ? 2
                                                                   : 3;

/// Grid arguments.work.grid, TileScores::shared_bytes() of shared memory.
template <class T, ScoreForm kForm, Pass kPass, class Source>
__global__ void __launch_bounds__(kTileThreads, kTileBlocks<T, kForm>) pass_tile(Source const source) {
  extern __shared__ __align__(16) unsigned char shared[];
  __shared__ typename Powers<T>::Table table;
  Slice<PassArguments> const slice = slice_of(source);
  PassArguments const& arguments = slice.arguments;
  start_next_kernel();
  Powers<T> const powers(table);
  if constexpr (has_sums(kPass)) __syncthreads();
  wait_for_previous_kernel();
  T const factor =
      static_cast<T>(arguments.parameters ? arguments.factor * arguments.parameters->log2e_over_eps : arguments.factor);

  for_each_segment(arguments.work, arguments.rows.padded_size, slice.block, 1, [&](Segment const& segment) {
    int const row = segment.first_row + thread_row();
    TileSums<T> sums;
#pragma unroll
    for (int r = 0; r < kThreadRows; ++r) {
      sums.reference[r] = has_references(kPass) ? static_cast<T const*>(arguments.references)[row + row_offset(r)]
                                                : kLowestReference<T>;
    }
    TileScores<T, kForm> scores(shared, arguments, segment);
    for (int tile = 0; tile < segment.tiles; ++tile) {
      int const column = (segment.first_tile + tile) * kTileColumns + thread_column();
      ThreadScores<T> score;
      scores.next(score);
      if constexpr (kPass == Pass::logits) {
        store_logits(arguments, row, column, sums, score, factor);
      } else if constexpr (has_stores(kPass)) {
        store_entries<kPass>(arguments, powers, row, column, sums, score, factor);
      } else {
        sums.template add<kPass>(arguments, powers, column, score, factor);
      }
    }
    if constexpr (has_sums(kPass)) {
      sums.merge_lanes();
      if (threadIdx.x % 4 == 0) {
#pragma unroll
        for (int r = 0; r < kThreadRows; ++r) {
          std::int64_t const at = segment.offset + thread_row() + row_offset(r);
          static_cast<PartialSum<T>*>(arguments.partials)[at] = {sums.reference[r], static_cast<T>(sums.sum[r])};
        }
      }
    }
  });
}

}  // namespace monge::cuda
