#include "cuda/launch/queue.hpp"

#include "cuda/launch/batch.hpp"
#include "cuda/launch/chained.hpp"

namespace monge::cuda {

void launch_chained(void const* kernel, dim3 grid, int threads, int shared_bytes, cudaStream_t stream,
                    void** parameters) {
  cudaLaunchAttribute overlap = {};
  overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  overlap.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.dynamicSmemBytes = static_cast<std::size_t>(shared_bytes);
  config.stream = stream;
  config.attrs = &overlap;
  config.numAttrs = device_attribute(cudaDevAttrComputeCapabilityMajor) >= 9 ? 1 : 0;
  MONGE_CUDA_TRY(cudaLaunchKernelExC(&config, kernel, parameters));
}

void Queue::launch(void const* one, void const* many, LaunchShape const& shape, void const* arguments,
                   std::size_t bytes) const {
  if (batch_) return batch_->record(one, many, shape, arguments, bytes);
  dim3 const grid(static_cast<unsigned>(shape.blocks), static_cast<unsigned>(shape.rows));
  void* parameters[] = {const_cast<void*>(arguments)};
  launch_chained(one, grid, shape.threads, shape.shared_bytes, stream_, parameters);
}

}  // namespace monge::cuda
