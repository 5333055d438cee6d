// Launches of kernels whose blocks come in clusters (sm_90 and newer); chained like those of launch/chained.hpp.
#pragma once
#include <utility>

#include "cuda/runtime/runtime.hpp"

namespace monge::cuda {

struct ClusterLaunch {
  ClusterLaunch(int cluster, int grid, int threads, int shared_bytes, cudaStream_t stream) {
    attributes_[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes_[0].val.programmaticStreamSerializationAllowed = 1;
    attributes_[1].id = cudaLaunchAttributeClusterDimension;
    attributes_[1].val.clusterDim = {static_cast<unsigned>(cluster), 1, 1};
    config.gridDim = dim3(static_cast<unsigned>(grid));
    config.blockDim = dim3(static_cast<unsigned>(threads));
    config.dynamicSmemBytes = static_cast<std::size_t>(shared_bytes);
    config.stream = stream;
    config.attrs = attributes_;
    config.numAttrs = 2;
  }
  ClusterLaunch(ClusterLaunch const&) = delete;
  ClusterLaunch& operator=(ClusterLaunch const&) = delete;

  cudaLaunchConfig_t config = {};

 private:
  cudaLaunchAttribute attributes_[2] = {};
};

/// How many clusters the device runs at once.
template <class... Parameters>
int resident_clusters(void (*kernel)(Parameters...), int cluster, int threads, int shared_bytes) {
  ClusterLaunch const launch(cluster, cluster, threads, shared_bytes, nullptr);
  int count = 0;
  MONGE_CUDA_TRY(cudaOccupancyMaxActiveClusters(&count, kernel, &launch.config));
  return count;
}

template <class... Parameters, class... Arguments>
void launch_clusters(void (*kernel)(Parameters...), int cluster, int grid, int threads, int shared_bytes,
                     cudaStream_t stream, Arguments&&... arguments) {
  ClusterLaunch const launch(cluster, grid, threads, shared_bytes, stream);
  MONGE_CUDA_TRY(cudaLaunchKernelEx(&launch.config, kernel, std::forward<Arguments>(arguments)...));
}

}  // namespace monge::cuda
