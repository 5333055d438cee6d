#include "cuda/launch/occupancy.hpp"

#include <map>
#include <tuple>

#include "cuda/runtime/check.hpp"

namespace monge::cuda {
namespace {

Occupancy ask(void const* kernel, int threads, int shared_bytes) {
  cudaFuncAttributes attributes;
  MONGE_CUDA_TRY(cudaFuncGetAttributes(&attributes, kernel));
  if (attributes.maxThreadsPerBlock < threads) return {};
  int const most = device_attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin);
  MONGE_CUDA_TRY(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                      most - static_cast<int>(attributes.sharedSizeBytes)));
  Occupancy result{true};
  MONGE_CUDA_TRY(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&result.resident_blocks, kernel, threads,
                                                               static_cast<std::size_t>(shared_bytes)));
  return result;
}

}  // namespace

Occupancy occupancy_of(void const* kernel, int threads, int shared_bytes) {
  thread_local std::map<std::tuple<int, void const*, int, int>, Occupancy> known;
  int device = 0;
  MONGE_CUDA_TRY(cudaGetDevice(&device));
  std::tuple const key(device, kernel, threads, shared_bytes);
  auto const found = known.find(key);
  return found != known.end() ? found->second : known.emplace(key, ask(kernel, threads, shared_bytes)).first->second;
}

}  // namespace monge::cuda
