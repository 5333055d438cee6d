#include "cuda/sweep/fused_evaluation.hpp"

#include <algorithm>

#include "cuda/launch/occupancy.hpp"
#include "cuda/launch/sizes.hpp"
#include "cuda/sweep/fused_evaluation.cuh"

namespace monge::cuda {
namespace {

/// A warp takes at least 4 batches of lines, since it writes sums of its places once for all its lines.
constexpr int kLeastBatches = 4;

Kernel<FusedEvaluationArguments> kernel_of(DataType stored) {
  return stored == DataType::float32
             ? Kernel<FusedEvaluationArguments>{fused_evaluation_kernel<float>, fused_evaluation_kernel<float>}
             : Kernel<FusedEvaluationArguments>{fused_evaluation_kernel<double>, fused_evaluation_kernel<double>};
}

}  // namespace

/// One warp for each strip of each group. All warps are resident at once.
FusedEvaluationPlan plan_fused_evaluation(StoredCosts const& costs, int multiprocessors) {
  int const warps = multiprocessors * kEvaluationWarps *
                    occupancy_of(kernel_of(costs.scalar).one, 32 * kEvaluationWarps, 0).resident_blocks;
  FusedEvaluationPlan plan;
  plan.strips = divided_up(costs.line_size(), kStripPlaces);
  int const batches = divided_up(costs.lines(), kBatchLines);
  int const groups = std::clamp(warps / plan.strips, 1, divided_up(batches, kLeastBatches));
  int const group_batches = divided_up(batches, groups);
  plan.groups = divided_up(batches, group_batches);
  plan.group_lines = group_batches * kBatchLines;
  return plan;
}

void launch_fused_evaluation(FusedEvaluationArguments const& arguments, Queue const& queue) {
  int const blocks =
      divided_up(static_cast<std::int64_t>(arguments.plan.strips) * arguments.plan.groups, kEvaluationWarps);
  queue.launch(kernel_of(arguments.costs.scalar), {blocks, 32 * kEvaluationWarps}, arguments);
}

}  // namespace monge::cuda
