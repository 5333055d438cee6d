#include "cuda/launch/softmin.hpp"

#include <algorithm>

namespace monge::cuda {

WorkPlan plan_work(int row_blocks, int rows_per_block, int column_tiles, int resident_blocks) {
  WorkPlan work;
  work.row_blocks = row_blocks;
  work.rows_per_block = rows_per_block;
  work.column_tiles = column_tiles;
  work.grid = static_cast<int>(std::min<std::int64_t>(resident_blocks, work.tiles()));
  for (int block = 0; block < row_blocks; ++block) work.slots = std::max(work.slots, work.slots_of(block));
  return work;
}

SoftminPlan plan_softmin(SoftminKernel kernel, PackedCloud const& rows, PackedCloud const& columns, bool moments,
                         int multiprocessors) {
  switch (kernel) {
    case SoftminKernel::difference:
      return plan_difference(rows, columns, multiprocessors);
    case SoftminKernel::tile:
      return plan_tile(rows, columns, moments, multiprocessors);
    default:
      return plan_mma(kernel, rows, columns, multiprocessors);
  }
}

void launch_softmin(SoftminPlan const& plan, SoftminArguments const& arguments, cudaStream_t stream) {
  switch (plan.kernel) {
    case SoftminKernel::difference:
      return launch_difference(plan, arguments, stream);
    case SoftminKernel::tile:
      return launch_tile(plan, arguments, stream);
    default:
      return launch_mma(plan, arguments, stream);
  }
}

}  // namespace monge::cuda
