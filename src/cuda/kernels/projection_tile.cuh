// Projection with a matrix in the registers of one lane or of a few: P = diag(u) K diag(v).
// 8 n m bytes a matrix of float32; 2 n m multiply-adds and n + m reciprocals an iteration, at 4 x 4 and 8 x 8 less
// (device/projection_ratio.cuh). At n = 4 and 20 iterations multiplier, special function unit and memory are all within
// 20 % of each other on Hopper.
#pragma once
#include "cuda/device/projection_io.cuh"
#include "cuda/device/projection_ratio.cuh"

namespace monge::cuda {

/// The form with fewest operations, where there is one; false: nothing is done.
template <class L, ProjectionMode kMode>
__device__ __forceinline__ bool project_ratio(float (&x)[L::R][L::C], ProjectionArguments const& arguments) {
  if constexpr (L::kLanes == 1 && kMode != ProjectionMode::log_domain) {
    constexpr auto kFree = L::N == 4 ? Reciprocals::proportions : Reciprocals::paired;
    if (!arguments.reducible) return false;
    if constexpr (kMode != ProjectionMode::guarded) {
      CrossRatio<L::N, Guard::none, kFree> ratio;
      return ratio.run(x, arguments);
    } else if (arguments.scaling) {
      CrossRatio<L::N, Guard::scaling, Reciprocals::paired> ratio;
      return ratio.run(x, arguments);
    } else {
      CrossRatio<L::N, Guard::denominator, Reciprocals::paired> ratio;
      return ratio.run(x, arguments);
    }
  }
  return false;
}

/// The projection of the logits that load(x) gives. A second load costs less than registers to keep them in.
template <class L, ProjectionMode kMode, bool kPadded, class Load>
__device__ __forceinline__ void project_tile(float (&x)[L::R][L::C], Load&& load, ProjectionArguments const& arguments,
                                             ProjectionMarginals const* marginals) {
  load(x);
  if constexpr (!kPadded && L::kLanes == 1) {
    if (project_ratio<L, kMode>(x, arguments)) return;
    asm volatile("" ::: "memory");
    load(x);
  }
  Tile<L, kMode, kPadded> tile(arguments, marginals);
  tile.each([&](int r, int c) { tile.k[r][c] = x[r][c]; });
  tile.start();
  tile.iterate([](int) {});
  tile.each([&](int r, int c) { x[r][c] = tile.entry(r, c); });
}

template <class L, ProjectionMode kMode, bool kAligned>
__global__ void __launch_bounds__(128) project_tile_kernel(__grid_constant__ ProjectionArguments const arguments,
                                                           __grid_constant__ MarginalsOf<kMode> const marginals) {
  extern __shared__ float4 shared_memory[];
  int const warp = static_cast<int>(threadIdx.x) / 32;
  std::int64_t const first = (static_cast<std::int64_t>(blockIdx.x) * (blockDim.x / 32) + warp) * L::kPerWarp;
  if (first >= arguments.batch) return;
  TilePlace<L> const place;
  float x[L::R][L::C];
  if constexpr (kAligned) {
    TileStaging<L> const staging(shared_memory + warp * (kTileBytes<L> / 16), place);
    {
      float4 chunk[L::kChunks];
      fetch<L>(arguments.logits, first, arguments.batch, chunk);
      staging.put(chunk);
      __syncwarp();
    }
    project_tile<L, kMode, false>(
        x, [&](auto& to) { staging.get(to); }, arguments, pointer_to(marginals));
    staging.write(arguments.result, first, arguments.batch, [&](int r, int c) { return x[r][c]; });
  } else {
    std::int64_t const matrix = first + place.matrix;
    bool const inside = matrix < arguments.batch;
    auto const load = [&](auto& to) {
      read_elements<L>(to, arguments.logits, matrix, inside, arguments.logit_rows, arguments.logit_columns,
                       inside ? arguments.dustbin_score : 0.0f, place);
    };
    project_tile<L, kMode, true>(x, load, arguments, pointer_to(marginals));
    write_elements<L>(arguments.result, matrix, inside, arguments.rows, arguments.columns, place,
                      [&](int r, int c) { return x[r][c]; });
  }
}

}  // namespace monge::cuda
