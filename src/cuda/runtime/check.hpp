// CUDA return codes as monge::Error, and what a launch has to ask.
#pragma once
#include <cuda_runtime_api.h>

namespace monge::cuda {

/// Throws out_of_memory or device_failure, naming the function that `call` starts with.
void check(cudaError_t code, char const* call);

/// Of the current device.
int device_attribute(cudaDeviceAttr attribute);

}  // namespace monge::cuda

#define MONGE_CUDA_TRY(call) ::monge::cuda::check((call), #call)
