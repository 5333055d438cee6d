#include "cuda/launch/occupancy.hpp"

#include <map>
#include <tuple>

#include "core/numbers.hpp"
#include "cuda/runtime/check.hpp"

namespace monge::cuda {
namespace {

Occupancy ask(void const* kernel, int threads, int shared_bytes, int cluster) {
  cudaFuncAttributes attributes;
  MONGE_CUDA_TRY(cudaFuncGetAttributes(&attributes, kernel));
  int const most = device_attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin);
  MONGE_CUDA_TRY(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                      most - static_cast<int>(attributes.sharedSizeBytes)));
  Occupancy result;
  MONGE_CUDA_TRY(
      cudaOccupancyMaxActiveBlocksPerMultiprocessor(&result.resident_blocks, kernel, threads, to_size(shared_bytes)));
  if (cluster == 1) return result;
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim = {static_cast<unsigned>(cluster), 1, 1};
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(cluster));
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.dynamicSmemBytes = to_size(shared_bytes);
  config.attrs = &attribute;
  config.numAttrs = 1;
  MONGE_CUDA_TRY(cudaOccupancyMaxActiveClusters(&result.resident_clusters, kernel, &config));
  return result;
}

}  // namespace

Occupancy occupancy_of(void const* kernel, int threads, int shared_bytes, int cluster) {
  thread_local std::map<std::tuple<int, void const*, int, int, int>, Occupancy> known;
  int device = 0;
  MONGE_CUDA_TRY(cudaGetDevice(&device));
  std::tuple const key(device, kernel, threads, shared_bytes, cluster);
  auto const found = known.find(key);
  if (found != known.end()) return found->second;
  return known.emplace(key, ask(kernel, threads, shared_bytes, cluster)).first->second;
}

}  // namespace monge::cuda
