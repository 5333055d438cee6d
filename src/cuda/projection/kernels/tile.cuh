// Projection with a matrix in the registers of one lane or of a few: P = diag(u) K diag(v).
// 8 n m bytes a matrix of float32; 2 n m multiply-adds and n + m reciprocals an iteration, at 4 x 4 and 8 x 8 less
// (device/ratio.cuh). At 20 iterations Hopper's limit is the ports of the register file: a multiply-add of
// three registers takes two cycles unless it shares one with the instruction before. At n = 4 memory is next to it.
#pragma once
#include "cuda/projection/device/io.cuh"
#include "cuda/projection/device/ratio.cuh"

namespace monge::cuda {

/// The form with fewest operations, where there is one and the matrix is narrow enough for it, which makes the log
/// domain needless; false: nothing is done.
template <class L, ProjectionMode kMode, class Get, class Put>
__device__ __forceinline__ bool project_ratio(Get const& from, Put const& to, ProjectionArguments const& arguments) {
  if constexpr (L::kLanes == 1) {
    if (!arguments.reducible) return false;
    if constexpr (kMode != ProjectionMode::guarded) {
      CrossRatio<L::N, Guard::none> ratio;
      return ratio.run(from, to, arguments);
    } else if (arguments.scaling) {
      CrossRatio<L::N, Guard::scaling> ratio;
      return ratio.run(from, to, arguments);
    } else {
      CrossRatio<L::N, Guard::denominator> ratio;
      return ratio.run(from, to, arguments);
    }
  }
  return false;
}

/// From the logits' rows to the projection's.
template <class L, ProjectionMode kMode, bool kPadded, class Get, class Put>
__device__ __forceinline__ void project_tile(Get const& from, Put const& to, ProjectionArguments const& arguments,
                                             ProjectionMarginals const* marginals) {
  if constexpr (!kPadded) {
    if (project_ratio<L, kMode>(from, to, arguments)) return;
  }
  Tile<L, kMode, kPadded> tile(arguments, marginals);
#pragma unroll
  for (int r = 0; r < L::R; ++r) from.get_row(r, tile.k[r]);
  if constexpr (L::kLanes > 1 || kPadded) sync_team<L>();  // The results go where others read.
  tile.start();
  if constexpr (kMode == ProjectionMode::plain && L::kLanes > 1) {
    tile.iterate_until_settled();
  } else {
    tile.iterate([](int) {});
  }
#pragma unroll
  for (int r = 0; r < L::R; ++r) {
    float row[L::C];
#pragma unroll
    for (int c = 0; c < L::C; ++c) row[c] = tile.entry(r, c);
    to.put_row(r, row);
  }
}

/// Most threads of a block. Large tiles leave room for few teams, which should not wait for each other to make it
/// again.
template <class L>
inline constexpr int kForwardThreads = L::kChunks < 16 ? 128 : L::kThreads;

/// Blocks a multiprocessor that the registers must allow: left alone the compiler spends more on 8 x 8 in one lane than
/// pays.
template <class L, ProjectionMode kMode>
inline constexpr int kForwardBlocks = L::N == 8 && L::kLanes == 1 && kMode == ProjectionMode::plain ? 20 : 1;

/// How many tiles ahead of its own a team asks for. Few warps hide little of a load, so large tiles should come from
/// the L2 cache, where half a wave of them is still there when its turn comes.
template <class L>
inline constexpr std::int64_t kTilesAhead = 1024 / L::kWarps;

template <class L, ProjectionMode kMode, bool kAligned>
__global__ void __launch_bounds__(kForwardThreads<L>, kForwardBlocks<L, kMode>)
    project_tile_kernel(__grid_constant__ ProjectionArguments const arguments,
                        __grid_constant__ MarginalsOf<kMode> const marginals) {
  extern __shared__ float4 shared_memory[];
  int const team = static_cast<int>(threadIdx.x) / L::kThreads;
  std::int64_t const first = (static_cast<std::int64_t>(blockIdx.x) * (blockDim.x / L::kThreads) + team) * L::kPerTeam;
  if (first >= arguments.batch) return;
  wait_for_previous_kernel();
  TilePlace<L> const place;
  if constexpr (kAligned) {
    TileStaging<L> const staging(shared_memory + team * (kTileBytes<L> / 16), place);
    float4 chunk[L::kChunks];
    fetch<L>(arguments.logits, first, arguments.batch, chunk);
    if constexpr (L::kChunks >= 16)
      fetch_to_cache<L>(arguments.logits, first + kTilesAhead<L> * L::kPerTeam, arguments.batch);
    staging.put(chunk);
    sync_team<L>();
    project_tile<L, kMode, false>(staging, staging, arguments, pointer_to(marginals));
    staging.send(arguments.result, first, arguments.batch);
  } else {
    float* const staging = reinterpret_cast<float*>(shared_memory) + team * (kTileBytes<L> / 4);
    ElementRows<L> const from = logit_elements(arguments, place, first, staging);
    ElementRows<L> const to{arguments.result,  place,  first, arguments.batch, arguments.rows,
                            arguments.columns, staging};
    from.load();
    project_tile<L, kMode, true>(from, to, arguments, pointer_to(marginals));
    to.store();
  }
}

}  // namespace monge::cuda
