#include "cuda/launch/queue.hpp"

#include "core/numbers.hpp"
#include "cuda/launch/batch.hpp"
#include "cuda/launch/generation.hpp"
#include "cuda/runtime/check.hpp"

namespace monge::cuda {

void launch_shape(void const* kernel, LaunchShape const& shape, int blocks, cudaStream_t stream, void** parameters) {
  cudaLaunchAttribute attributes[2] = {};
  unsigned count = 0;
  if (generation() >= Generation::sm_90) {
    attributes[count].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[count++].val.programmaticStreamSerializationAllowed = 1;
  }
  if (shape.cluster > 0 && device_attribute(cudaDevAttrComputeCapabilityMajor) >= 9) {
    attributes[count].id = cudaLaunchAttributeClusterDimension;
    attributes[count++].val.clusterDim = {static_cast<unsigned>(shape.cluster), 1, 1};
  }
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(blocks), static_cast<unsigned>(shape.rows));
  config.blockDim = dim3(static_cast<unsigned>(shape.threads));
  config.dynamicSmemBytes = to_size(shape.shared_bytes);
  config.stream = stream;
  config.attrs = attributes;
  config.numAttrs = count;
  MONGE_CUDA_TRY(cudaLaunchKernelExC(&config, kernel, parameters));
}

void Queue::launch(void const* one, void const* many, LaunchShape const& shape, void const* arguments,
                   std::size_t bytes) const {
  if (batch_) return batch_->record(one, many, shape, arguments, bytes);
  void* parameters[] = {const_cast<void*>(arguments)};
  launch_shape(one, shape, shape.blocks, stream_, parameters);
}

}  // namespace monge::cuda
