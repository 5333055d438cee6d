#include "cuda/second_order/chebyshev.cuh"

#include "cuda/launch/chained.hpp"
#include "cuda/launch/divided_up.hpp"

namespace monge::cuda {

void first_entry_step(FirstEntryStep const& step, cudaStream_t stream) {
  launch_chained(first_entry_step_kernel, dim3(divided_up(step.size, kSolverThreads)), kSolverThreads, 0, stream, step);
}

void entry_step(EntryStep const& step, cudaStream_t stream) {
  constexpr int kLines = kSolverThreads / kSolverLanes;
  launch_chained(spread_entries_kernel, dim3(divided_up(step.rows.count, kLines)), kSolverThreads, 0, stream, step);
  launch_chained(gather_entries_kernel, dim3(divided_up(step.columns.count, kLines)), kSolverThreads, 0, stream, step);
}

}  // namespace monge::cuda
