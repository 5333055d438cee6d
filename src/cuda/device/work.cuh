// A block's part of a pass: tiles of one row block, or of several in turn. __device__ only.
#pragma once
#include "cuda/device/ptx.cuh"
#include "cuda/launch/arguments.hpp"

namespace monge::cuda {

/// Consecutive column tiles that one row block meets in one block of the grid.
struct Segment {
  int first_row;
  int first_tile;  // First tile of the columns.
  int tiles;
  std::int64_t offset;  // Index of the partial sum of `first_row`.
  std::int64_t tile;    // Number of the first in the sequence of the plan,
  int owner;            // and the plan's block that has it.
};

/// Calls visit(segment) for each row block in which `count` blocks of the plan, from number `block` on, have a part.
/// Between calls there is a barrier, so visit() may use all shared memory.
template <class Visit>
__device__ __forceinline__ void for_each_segment(WorkPlan const& work, int padded_rows, int block, int count,
                                                 Visit&& visit) {
  std::int64_t tile = work.first_tile(block);
  std::int64_t const end = work.first_tile(block + count);
  while (tile < end) {
    int const row_block = work.row_block(tile);
    int const tiles = static_cast<int>(min(work.begin(row_block + 1), end) - tile);
    int const first_owner = work.first_owner(row_block);
    int const owner = max(block, first_owner);
    int const first_row = row_block * work.rows_per_block;
    int const first_tile = static_cast<int>(tile - work.begin(row_block));
    std::int64_t const slot = owner - first_owner;
    visit(Segment{first_row, first_tile, tiles, slot * padded_rows + first_row, tile, owner});
    tile += tiles;
    if (tile < end) __syncthreads();
  }
}

}  // namespace monge::cuda
