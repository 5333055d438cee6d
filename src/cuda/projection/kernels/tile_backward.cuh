// Gradient of the projection with a matrix in the registers of one lane or of a few. The half-steps are repeated and
// their scalings kept: 4 (R / kColumnLanes + C / kRowLanes) bytes for each lane and iteration, in shared memory if they
// fit, else in global memory. Undoing the half-steps takes 4 n m multiply-adds an iteration more. A float32 matrix
// moves 12 n m bytes.
#pragma once
#include "cuda/projection/device/adjoint.cuh"
#include "cuda/projection/device/io.cuh"

namespace monge::cuda {

/// Whether the history keeps u as well as v. At 4 x 4 plain steps share the memory of CrossRatioGradient's history.
/// This history keeps two pairs in registers, so its memory is two pairs short of u and v for all; v alone fits.
template <class L, ProjectionMode kMode>
inline constexpr bool kKeepsBoth = L::N > 4 || kMode != ProjectionMode::plain;

/// Threads of a multiprocessor: the most that the registers allow.
template <class L>
inline constexpr int kBackwardThreads = L::kChunks > 4  ? 256
                                        : L::kLanes > 1 ? 512
                                                        : 384;

/// Turns x from logits into their gradient. g is the gradient of the output and is overwritten.
template <class L, ProjectionMode kMode, bool kPadded, class History>
__device__ __forceinline__ void differentiate_tile(float (&x)[L::R][L::C], float (&g)[L::R][L::C],
                                                   ProjectionArguments const& arguments, SumTargets const* marginals,
                                                   History const& history) {
  Tile<L, kMode, kPadded> tile(arguments, marginals);
  tile.each([&](int r, int c) { tile.k[r][c] = x[r][c]; });
  tile.start();
  float row_kept[L::R], column_kept[L::C];
  bool const adds = kMode != ProjectionMode::plain && arguments.matrix_epsilon > 0;
#pragma unroll
  for (int r = 0; r < L::R; ++r) row_kept[r] = r < L::kOwnRows ? tile.w[r % L::kOwnRows] : 1.0f;
#pragma unroll
  for (int c = 0; c < L::C; ++c) column_kept[c] = c < L::kOwnColumns ? tile.z[c % L::kOwnColumns] : 1.0f;
  if (adds) {
    TileSide<L, true>::gather(row_kept);
    TileSide<L, false>::gather(column_kept);
  }
  tile.iterate([&](int pair) { history.keep(pair, tile.v, tile.u); });
  TileAdjoint<L, kMode, kPadded> adjoint(tile, g);
  bool fixed = false;
  if constexpr (kMode == ProjectionMode::general || kMode == ProjectionMode::log_domain)
    fixed = arguments.implicit && adjoint.converged();
  adjoint.seed();
  adjoint.unwind(history, fixed);
  adjoint.finish(row_kept, column_kept);
  tile.each([&](int r, int c) { x[r][c] = g[r][c]; });
}

/// differentiate_tile(), or cross ratios if the problem and the matrix allow them.
template <class L, ProjectionMode kMode, bool kPadded, class History>
__device__ __forceinline__ void differentiate(float (&x)[L::R][L::C], float (&g)[L::R][L::C],
                                              ProjectionArguments const& arguments, SumTargets const* marginals,
                                              History const& history) {
  if constexpr (L::N == 4 && !kPadded && kMode != ProjectionMode::guarded) {
    if (arguments.reducible) {
      if (arguments.columns_first) {
        CrossRatioGradient<4, true> ratio;
        if (ratio.run(x, g, history, arguments)) return;
      } else {
        CrossRatioGradient<4, false> ratio;
        if (ratio.run(x, g, history, arguments)) return;
      }
    }
  }
  differentiate_tile<L, kMode, kPadded>(x, g, arguments, marginals, history);
}

/// d_dustbin_score of each matrix of the team: the sum of d over the last row and column, in a fixed order.
template <class L>
__device__ __forceinline__ void write_dustbin(ProjectionArguments const& arguments, std::int64_t matrix, bool inside,
                                              TilePlace<L> const& place, float const (&d)[L::R][L::C]) {
  float sum = 0;
#pragma unroll
  for (int r = 0; r < L::R; ++r) {
#pragma unroll
    for (int c = 0; c < L::C; ++c) {
      int const i = place.row_of(r), j = place.column_of(c);
      if (i < arguments.rows && j < arguments.columns && (i == arguments.rows - 1 || j == arguments.columns - 1))
        sum += d[r][c];
    }
  }
  sum = over_lanes<L, Sum>(sum);
  if (inside && threadIdx.x % L::kLanes == 0) arguments.d_dustbin_score[matrix] = sum;
}

/// The grid is persistent: each team walks through the batch. A team's staging memory and its history are the same
/// memory, because the history is empty whenever matrices are moved. Aligned matrices have their history in shared
/// memory.
template <class L, ProjectionMode kMode, bool kAligned>
__global__ void __launch_bounds__(kBackwardThreads<L>)
    project_backward_tile_kernel(__grid_constant__ ProjectionArguments const arguments,
                                 __grid_constant__ MarginalsOf<kMode> const marginals) {
  extern __shared__ float4 shared_memory[];
  int const team = static_cast<int>(threadIdx.x) / L::kThreads, teams = static_cast<int>(blockDim.x) / L::kThreads;
  std::int64_t const team_of_grid = static_cast<std::int64_t>(blockIdx.x) * teams + team;
  int const shared = team * arguments.team_chunks;
  TileHistory<L, kAligned, kKeepsBoth<L, kMode>> history;
  history.place(arguments.history, shared, team_of_grid, arguments.history_chunks);
  TilePlace<L> const place;
  std::int64_t const stride = static_cast<std::int64_t>(gridDim.x) * teams * L::kPerTeam;
  std::int64_t const start = team_of_grid * L::kPerTeam;
  wait_for_previous_kernel();
  // Few warps fit beside the histories, so small tiles load their next matrices during the work on these.
  constexpr bool kPrefetch = kAligned && L::kChunks <= 4;
  float4 chunk[kPrefetch ? L::kChunks : 1], gradient_chunk[kPrefetch ? L::kChunks : 1];
  if constexpr (kPrefetch) {
    if (start < arguments.batch) {
      fetch<L>(arguments.logits, start, arguments.batch, chunk);
      fetch<L>(arguments.gradient, start, arguments.batch, gradient_chunk);
    }
  }
  for (std::int64_t first = start; first < arguments.batch; first += stride) {
    float x[L::R][L::C], g[L::R][L::C];
    if constexpr (kAligned) {
      TileStaging<L> const staging(shared_memory + shared, place);
      if constexpr (kPrefetch) {
        staging.exchange(chunk, x);
        staging.exchange(gradient_chunk, g);
        if (first + stride < arguments.batch) {
          fetch<L>(arguments.logits, first + stride, arguments.batch, chunk);
          fetch<L>(arguments.gradient, first + stride, arguments.batch, gradient_chunk);
        }
      } else {
        float4 now[L::kChunks];
        fetch<L>(arguments.logits, first, arguments.batch, now);
        staging.exchange(now, x);
        fetch<L>(arguments.gradient, first, arguments.batch, now);
        staging.exchange(now, g);
        fetch_to_cache<L>(arguments.logits, first + stride, arguments.batch);
        fetch_to_cache<L>(arguments.gradient, first + stride, arguments.batch);
      }
      differentiate<L, kMode, false>(x, g, arguments, pointer_to(marginals), history);
      sync_team<L>();  // A lane's result overwrites the history of others.
#pragma unroll
      for (int r = 0; r < L::R; ++r) staging.put_row(r, x[r]);
      staging.send(arguments.result, first, arguments.batch);
    } else {
      float* const staging = reinterpret_cast<float*>(shared_memory + shared);
      ElementRows<L> const logits = logit_elements(arguments, place, first, staging);
      ElementRows<L> const gradient{arguments.gradient, place,  first, arguments.batch, arguments.rows,
                                    arguments.columns,  staging};
      ElementRows<L> const result{arguments.result,        place,  first, arguments.batch, arguments.logit_rows,
                                  arguments.logit_columns, staging};
      logits.load();
#pragma unroll
      for (int r = 0; r < L::R; ++r) logits.get_row(r, x[r]);
      sync_team<L>();
      gradient.load();
#pragma unroll
      for (int r = 0; r < L::R; ++r) gradient.get_row(r, g[r]);
      sync_team<L>();
      differentiate<L, kMode, true>(x, g, arguments, pointer_to(marginals), history);
      sync_team<L>();
#pragma unroll
      for (int r = 0; r < L::R; ++r) result.put_row(r, x[r]);
      result.store();
      if (arguments.d_dustbin_score != nullptr) write_dustbin<L>(arguments, result.matrix(), result.inside(), place, x);
    }
  }
}

}  // namespace monge::cuda
