#include "cuda/sweep/fused_sweep.hpp"

#include <algorithm>

#include "cuda/launch/generation.hpp"
#include "cuda/launch/occupancy.hpp"
#include "cuda/launch/sizes.hpp"
#include "cuda/sweep/fused_sweep.cuh"

namespace monge::cuda {
namespace {

/// A cluster takes at least 4 lines, since it writes sums of its places once for all its lines.
constexpr int kLeastLines = 4;

/// Calls function.operator()<S, kVectors>() with 12 places a thread; with more, registers spill.
template <class Function>
auto with_type(DataType stored, Function&& function) {
  return stored == DataType::float32 ? function.template operator()<float, 3>()
                                     : function.template operator()<double, 6>();
}

template <class S, int kVectors>
Kernel<FusedSweepArguments> kernel_of() {
  return {fused_sweep_kernel<S, kVectors>, fused_sweep_kernel<S, kVectors>};
}

}  // namespace

FusedSweepPlan plan_fused_sweep(StoredCosts const& costs, int multiprocessors) {
  return with_type(costs.scalar, [&]<class S, int kVectors>() {
    using Policy = FusedSweepPolicy<S, kVectors>;
    FusedSweepPlan plan;
    int const most_places = 32 * kMostWarps * Policy::kPlaces;
    if (generation() < Generation::sm_90 || costs.line_size() > kMostCluster * most_places) return plan;
    plan.cluster = divided_up(costs.line_size(), most_places);
    int const working = 32 * divided_up(costs.line_size(), plan.cluster * Policy::kPlaces * 32);
    plan.threads = working + 32;
    plan.shared_bytes = working * Policy::kThreadBytes;
    Kernel<FusedSweepArguments> const kernel = kernel_of<S, kVectors>();
    occupancy_of(kernel.many, plan.threads, plan.shared_bytes);
    Occupancy const occupancy = occupancy_of(kernel.one, plan.threads, plan.shared_bytes, plan.cluster);
    int const resident = plan.cluster == 1 ? multiprocessors * occupancy.resident_blocks : occupancy.resident_clusters;
    if (resident == 0) return plan;
    int const most = std::clamp(costs.lines() / kLeastLines, 1, resident);
    plan.clusters = divided_up(costs.lines(), divided_up(costs.lines(), most));
    return plan;
  });
}

void launch_fused_sweep(FusedSweepPlan const& plan, FusedSweepArguments const& arguments, Queue const& queue) {
  with_type(arguments.costs.scalar, [&]<class S, int kVectors>() {
    queue.launch(kernel_of<S, kVectors>(),
                 {.blocks = plan.clusters * plan.cluster,
                  .threads = plan.threads,
                  .shared_bytes = plan.shared_bytes,
                  .cluster = plan.cluster},
                 arguments);
  });
}

void update_across(AcrossArguments const& arguments, Queue const& queue) {
  queue.launch(Kernel<AcrossArguments>{update_across_kernel, update_across_kernel},
               {divided_up(arguments.update.sums.points.size, kAcrossColumns), kAcrossColumns * kAcrossGroups},
               arguments);
}

}  // namespace monge::cuda
