// Projection with a matrix in the registers of one lane or of a few: P = diag(u) K diag(v).
// A float32 matrix moves 8 n m bytes. An iteration takes 2 n m multiply-adds and n + m reciprocals, at 4 x 4 and 8 x 8
// fewer (device/ratio.cuh). At 20 iterations the limit on Hopper is the ports of the register file: a multiply-add that
// reads three registers takes two cycles, unless the instruction before it reads one of them. At n = 4 memory is the
// next limit.
#pragma once
#include "cuda/projection/device/io.cuh"
#include "cuda/projection/device/ratio.cuh"

namespace monge::cuda {

/// Projects in the form of device/ratio.cuh. Also for the log domain: narrow matrices do not need it. False: the
/// problem has no such form or the matrix is not narrow, and nothing was written.
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

/// Projects the team's matrices, from rows of logits to rows of the result.
template <class L, ProjectionMode kMode, bool kPadded, class Get, class Put>
__device__ __forceinline__ void project_tile(Get const& from, Put const& to, ProjectionArguments const& arguments,
                                             SumTargets const* marginals) {
  if constexpr (!kPadded) {
    if (project_ratio<L, kMode>(from, to, arguments)) return;
  }
  Tile<L, kMode, kPadded> tile(arguments, marginals);
#pragma unroll
  for (int r = 0; r < L::R; ++r) from.get_row(r, tile.k[r]);
  if constexpr (L::kLanes > 1 || kPadded) sync_team<L>();  // `to` may share its memory with `from`, which others read.
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

/// The largest block. Few teams of large tiles fit a multiprocessor; each is a block of its own, so that it leaves as
/// soon as it is done.
template <class L>
inline constexpr int kForwardThreads = L::kChunks < 16 ? 128 : L::kThreads;

/// The number of blocks of a multiprocessor that the registers must allow. Without a bound the compiler takes more
/// registers for 8 x 8 in one lane than pays.
template <class L, ProjectionMode kMode>
inline constexpr int kForwardBlocks = L::N == 8 && L::kLanes == 1 && kMode == ProjectionMode::plain ? 20 : 1;

/// A team prefetches the matrices of the tile this far ahead of its own to the L2 cache. Few warps of large tiles fit a
/// multiprocessor and hide little of a load. Matrices prefetched by half a wave are still in the cache when needed.
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
