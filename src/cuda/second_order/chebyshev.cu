#include "cuda/second_order/chebyshev.cuh"

#include "cuda/launch/divided_up.hpp"
#include "cuda/launch/queue.hpp"

namespace monge::cuda {
namespace {

int line_blocks(int lines) {
  return divided_up(lines, kSolverThreads / kSolverLanes);
}

}  // namespace

void scale_entries(EntryScaling const& scaling, cudaStream_t stream) {
  launch_chained(scale_rows_kernel, line_blocks(scaling.rows.count), kSolverThreads, 0, stream, scaling);
  launch_chained(scale_columns_kernel, line_blocks(scaling.columns.count), kSolverThreads, 0, stream, scaling);
}

void first_entry_step(FirstEntryStep const& step, cudaStream_t stream) {
  launch_chained(first_entry_step_kernel, divided_up(step.size, kSolverThreads), kSolverThreads, 0, stream, step);
}

void entry_step(EntryStep const& step, cudaStream_t stream) {
  launch_chained(spread_entries_kernel, line_blocks(step.rows.count), kSolverThreads, 0, stream, step);
  launch_chained(gather_entries_kernel, line_blocks(step.columns.count), kSolverThreads, 0, stream, step);
}

}  // namespace monge::cuda
