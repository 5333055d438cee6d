// The CUDA backend as the registry makes it.
#pragma once
#include <memory>
#include <string>

#include "backend/backend.hpp"

namespace monge::cuda {

class Runtime;

std::shared_ptr<Backend> make_backend(CudaOptions const& options);
/// Devices that this build's kernels run on; 0 without a driver.
int device_count();
std::string unavailable_reason();

/// That of a context of this backend.
Runtime const& runtime_of(Context const& context);

}  // namespace monge::cuda
