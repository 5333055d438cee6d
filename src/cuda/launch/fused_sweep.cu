#include "cuda/launch/fused_sweep.hpp"

#include <algorithm>

#include "cuda/kernels/fused_sweep.cuh"
#include "cuda/launch/occupancy.hpp"

namespace monge::cuda {
namespace {

/// A cluster takes at least so many lines: its places' sums go to memory once for all of them.
constexpr int kLeastLines = 2 * kGroupLines;

/// function.operator()<S, T, kVectors>(), with as many places a thread as its registers hold four numbers of each of.
template <class Function>
auto with_types(DataType stored, DataType scalar, Function&& function) {
  if (scalar == DataType::float32)
    return stored == DataType::float32 ? function.template operator()<float, float, 4>()
                                       : function.template operator()<double, float, 6>();
  return stored == DataType::float32 ? function.template operator()<float, double, 2>()
                                     : function.template operator()<double, double, 4>();
}

template <class S, class T, int kVectors>
Kernel<FusedSweepArguments> kernel_of() {
  return {fused_sweep_kernel<S, T, kVectors>, fused_sweep_kernel<S, T, kVectors>};
}

int divided(int value, int by) {
  return (value - 1) / by + 1;
}

}  // namespace

FusedSweepPlan plan_fused_sweep(StoredCosts const& costs, DataType scalar, int multiprocessors) {
  return with_types(costs.scalar, scalar, [&]<class S, class T, int kVectors>() {
    using Policy = FusedSweepPolicy<S, T, kVectors>;
    FusedSweepPlan plan;
    int const most_places = 32 * kMostWarps * Policy::kPlaces;
    if (costs.line_size() > kMostCluster * most_places) return plan;
    plan.cluster = divided(costs.line_size(), most_places);
    int const working = 32 * divided(costs.line_size(), plan.cluster * Policy::kPlaces * 32);
    plan.threads = working + 32;
    plan.shared_bytes = working * Policy::kThreadBytes;
    Kernel<FusedSweepArguments> const kernel = kernel_of<S, T, kVectors>();
    occupancy_of(kernel.many, plan.threads, plan.shared_bytes);
    Occupancy const occupancy = occupancy_of(kernel.one, plan.threads, plan.shared_bytes, plan.cluster);
    if (!occupancy.can_run) return plan;
    int const resident = plan.cluster == 1 ? multiprocessors * occupancy.resident_blocks : occupancy.resident_clusters;
    if (resident == 0) return plan;
    int const most = std::clamp(costs.lines() / kLeastLines, 1, resident);
    plan.clusters = divided(costs.lines(), divided(costs.lines(), most));
    return plan;
  });
}

void launch_fused_sweep(FusedSweepPlan const& plan, FusedSweepArguments const& arguments, Queue const& queue) {
  with_types(arguments.costs.scalar, arguments.lines.scalar, [&]<class S, class T, int kVectors>() {
    queue.launch(kernel_of<S, T, kVectors>(),
                 {.blocks = plan.clusters * plan.cluster,
                  .threads = plan.threads,
                  .shared_bytes = plan.shared_bytes,
                  .cluster = plan.cluster},
                 arguments);
  });
}

void update_across(AcrossArguments const& arguments, Queue const& queue) {
  using Update = Kernel<AcrossArguments>;
  PackedSide const& points = arguments.update.sums.points;
  queue.launch(points.scalar == DataType::float32 ? Update{update_across_kernel<float>, update_across_kernel<float>}
                                                  : Update{update_across_kernel<double>, update_across_kernel<double>},
               {divided(points.size, kAcrossColumns), kAcrossColumns * kAcrossGroups}, arguments);
}

}  // namespace monge::cuda
