// Launches of the kernels of a sweep, which overlap the start of one with the end of the one before.
#pragma once
#include <type_traits>

#include <cuda_runtime_api.h>

namespace monge::cuda {

/// Only for kernels that call wait_for_previous_kernel() (device/ptx.cuh). A plain launch before Generation::sm_90.
void launch_chained(void const* kernel, dim3 grid, int threads, int shared_bytes, cudaStream_t stream,
                    void** parameters);
template <class... Parameters>
void launch_chained(void (*kernel)(Parameters...), dim3 grid, int threads, int shared_bytes, cudaStream_t stream,
                    std::type_identity_t<Parameters>... arguments) {
  void* parameters[] = {const_cast<void*>(static_cast<void const*>(&arguments))...};
  launch_chained(reinterpret_cast<void const*>(kernel), grid, threads, shared_bytes, stream, parameters);
}

}  // namespace monge::cuda
