#include "cuda/launch/fused_sweep.hpp"

#include <algorithm>

#include "cuda/kernels/fused_sweep.cuh"
#include "cuda/launch/chained.hpp"
#include "cuda/launch/clusters.hpp"

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

int divided(int value, int by) {
  return (value - 1) / by + 1;
}

}  // namespace

FusedSweepPlan plan_fused_sweep(StoredCosts const& costs, DataType scalar) {
  return with_types(costs.scalar, scalar, [&]<class S, class T, int kVectors>() {
    using Policy = FusedSweepPolicy<S, T, kVectors>;
    auto const kernel = fused_sweep_kernel<S, T, kVectors>;
    FusedSweepPlan plan;
    cudaFuncAttributes attributes;
    MONGE_CUDA_TRY(cudaFuncGetAttributes(&attributes, kernel));
    int const most_places = 32 * kMostWarps * Policy::kPlaces;
    if (attributes.maxThreadsPerBlock < 32 * (kMostWarps + 1) || costs.line_size() > kMostCluster * most_places)
      return plan;
    plan.cluster = divided(costs.line_size(), most_places);
    int const working = 32 * divided(costs.line_size(), plan.cluster * Policy::kPlaces * 32);
    plan.threads = working + 32;
    plan.shared_bytes = working * Policy::kThreadBytes;
    MONGE_CUDA_TRY(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, plan.shared_bytes));
    int const resident = resident_clusters(kernel, plan.cluster, plan.threads, plan.shared_bytes);
    if (resident == 0) return plan;
    int const most = std::clamp(costs.lines() / kLeastLines, 1, resident);
    plan.clusters = divided(costs.lines(), divided(costs.lines(), most));
    return plan;
  });
}

void launch_fused_sweep(FusedSweepPlan const& plan, FusedSweepArguments const& arguments, cudaStream_t stream) {
  with_types(arguments.costs.scalar, arguments.lines.scalar, [&]<class S, class T, int kVectors>() {
    launch_clusters(fused_sweep_kernel<S, T, kVectors>, plan.cluster, plan.clusters * plan.cluster, plan.threads,
                    plan.shared_bytes, stream, arguments);
  });
}

void update_across(AcrossArguments const& arguments, cudaStream_t stream) {
  PackedSide const& points = arguments.update.sums.points;
  auto const kernel = points.scalar == DataType::float32 ? update_across_kernel<float> : update_across_kernel<double>;
  launch_chained(kernel, divided(points.size, kAcrossColumns), kAcrossColumns * kAcrossGroups, 0, stream, arguments);
}

}  // namespace monge::cuda
