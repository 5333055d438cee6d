// Launches of the kernels of a sweep, which overlap the start of one with the end of the one before.
#pragma once
#include <type_traits>

#include "cuda/launch/queue.hpp"

namespace monge::cuda {

/// Only for kernels that call wait_for_previous_kernel() (device/ptx.cuh). A plain launch on devices before sm_90.
void launch_chained(void const* kernel, LaunchShape const& shape, void** parameters, cudaStream_t stream);
template <class... Parameters>
void launch_chained(void (*kernel)(Parameters...), LaunchShape const& shape, cudaStream_t stream,
                    std::type_identity_t<Parameters>... arguments) {
  void* parameters[] = {const_cast<void*>(static_cast<void const*>(&arguments))...};
  launch_chained(reinterpret_cast<void const*>(kernel), shape, parameters, stream);
}

}  // namespace monge::cuda
