// A block's share of a pass: some tiles of one row block, or of several one after the other. __device__ only.
#pragma once
#include "cuda/device/ptx.cuh"
#include "cuda/launch/arguments.hpp"

namespace monge::cuda {

/// Calls segment(first_row, first_tile, tiles, offset) for each row block that this block has a part in; `offset` is
/// where the partial sum of `first_row` goes. Shared memory is free for other use when it is called.
template <class Segment>
__device__ __forceinline__ void for_each_segment(WorkPlan const& work, int padded_rows, Segment&& segment) {
  int const block = static_cast<int>(blockIdx.x);
  std::int64_t tile = work.first_tile(block);
  std::int64_t const end = work.first_tile(block + 1);
  while (tile < end) {
    int const row_block = static_cast<int>(tile / work.column_tiles);
    int const first_tile = static_cast<int>(tile % work.column_tiles);
    int const tiles = static_cast<int>(min(static_cast<std::int64_t>(work.column_tiles - first_tile), end - tile));
    std::int64_t const slot = block - work.first_owner(row_block);
    int const first_row = row_block * work.rows_per_block;
    segment(first_row, first_tile, tiles, slot * padded_rows + first_row);
    tile += tiles;
    if (tile < end) __syncthreads();
  }
}

}  // namespace monge::cuda
