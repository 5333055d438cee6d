// Launches of the kernels of a sweep, which overlap the start of one with the end of the one before.
#pragma once
#include <utility>

#include "cuda/runtime/runtime.hpp"

namespace monge::cuda {

/// Only for kernels that call wait_for_previous_kernel() (device/ptx.cuh). A plain launch on devices before sm_90.
template <class... Parameters, class... Arguments>
void launch_chained(void (*kernel)(Parameters...), dim3 grid, int threads, int shared_bytes, cudaStream_t stream,
                    Arguments&&... arguments) {
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
  MONGE_CUDA_TRY(cudaLaunchKernelEx(&config, kernel, std::forward<Arguments>(arguments)...));
}

}  // namespace monge::cuda
