// CUDA return codes as monge::Error, and attributes of the device.
#pragma once
#include <cuda_runtime_api.h>

namespace monge::cuda {

/// Throws out_of_memory or device_failure with the name of the function at the start of `call`.
void check(cudaError_t code, char const* call);

/// An attribute of the current device.
int device_attribute(cudaDeviceAttr attribute);

}  // namespace monge::cuda

#define MONGE_CUDA_TRY(call) ::monge::cuda::check((call), #call)
