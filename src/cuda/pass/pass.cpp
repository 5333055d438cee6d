#include "cuda/pass/pass.hpp"

#include <algorithm>

#include "cuda/launch/occupancy.hpp"
#include "cuda/launch/sizes.hpp"

namespace monge::cuda {
namespace {

PassKernel kernel_of(PassChoice const& choice, Operand const& rows) {
  switch (choice.kernel) {
    case ScoreKernel::difference:
      return difference_kernel(choice.pass, choice.form, rows.dimension);
    case ScoreKernel::tile:
      return tile_kernel(choice.pass, choice.form, rows.scalar, rows.dimension);
    default:
      return mma_kernel(choice.pass, choice.kernel, generation(), rows.half_stride,
                        most_shared_bytes() - kArgumentBytes);
  }
}

}  // namespace

WorkPlan plan_work(int row_blocks, int rows_per_block, int column_tiles, int resident_blocks) {
  WorkPlan work;
  work.row_blocks = row_blocks;
  work.rows_per_block = rows_per_block;
  work.column_tiles = column_tiles;
  work.tiles = static_cast<std::int64_t>(row_blocks) * column_tiles;
  work.grid = static_cast<int>(std::clamp<std::int64_t>(work.tiles, 1, resident_blocks));
  for (int block = 0; block < row_blocks; ++block) work.slots = std::max(work.slots, work.slots_of(block));
  return work;
}

PassPlan plan_pass(PassChoice const& choice, Operand const& rows, Operand const& columns) {
  PassPlan plan{kernel_of(choice, rows), {}};
  PassKernel const& kernel = plan.kernel;
  if (kernel.kernel.many) occupancy_of(kernel.kernel.many, kernel.threads, kernel.shared_bytes);
  Occupancy const occupancy = occupancy_of(kernel.kernel.one, kernel.threads, kernel.shared_bytes);
  plan.work =
      plan_work(divided_up(rows.padded_size, kernel.rows), kernel.rows, divided_up(columns.padded_size, kernel.columns),
                choice.multiprocessors * occupancy.resident_blocks);
  return plan;
}

void launch_pass(PassPlan const& plan, PassArguments const& arguments, Queue const& queue) {
  PassKernel const& kernel = plan.kernel;
  PassArguments filled = arguments;
  filled.chunks = kernel.chunks;
  queue.launch(kernel.kernel,
               {.blocks = plan.work.grid,
                .threads = kernel.threads,
                .shared_bytes = kernel.shared_bytes,
                .merged = kernel.merged},
               filled);
}

}  // namespace monge::cuda
