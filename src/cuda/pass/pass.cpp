#include "cuda/pass/pass.hpp"

#include <algorithm>

namespace monge::cuda {
namespace {

void count_slots(WorkPlan& work, int resident_blocks) {
  work.grid = static_cast<int>(std::clamp<std::int64_t>(work.tiles, 1, resident_blocks));
  work.slots = 1;
  for (int block = 0; block < work.row_blocks; ++block) work.slots = std::max(work.slots, work.slots_of(block));
}

}  // namespace

WorkPlan plan_work(int row_blocks, int rows_per_block, int column_tiles, int resident_blocks) {
  WorkPlan work;
  work.row_blocks = row_blocks;
  work.rows_per_block = rows_per_block;
  work.column_tiles = column_tiles;
  work.tiles = static_cast<std::int64_t>(row_blocks) * column_tiles;
  count_slots(work, resident_blocks);
  return work;
}

WorkPlan plan_listed_work(std::span<std::int64_t const> tile_begin, int rows_per_block, int resident_blocks,
                          std::int64_t const* device_begin, int const* device_list) {
  WorkPlan work;
  work.row_blocks = static_cast<int>(tile_begin.size()) - 1;
  work.rows_per_block = rows_per_block;
  work.tiles = tile_begin.back();
  work.tile_begin = tile_begin.data();
  count_slots(work, resident_blocks);
  work.tile_begin = device_begin;
  work.tile_list = device_list;
  return work;
}

PassPlan plan_pass(PassChoice const& choice, Operand const& rows, Operand const& columns) {
  switch (choice.kernel) {
    case ScoreKernel::difference:
      return plan_difference(choice, rows, columns);
    case ScoreKernel::tile:
      return plan_tile(choice, rows, columns);
    default:
      return plan_mma(choice, rows, columns);
  }
}

void launch_pass(PassPlan const& plan, PassArguments const& arguments, Queue const& queue) {
  switch (plan.kernel) {
    case ScoreKernel::difference:
      return launch_difference(plan, arguments, queue);
    case ScoreKernel::tile:
      return launch_tile(plan, arguments, queue);
    default:
      return launch_mma(plan, arguments, queue);
  }
}

}  // namespace monge::cuda
