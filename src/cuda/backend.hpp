// The functions through which the registry reaches the CUDA backend.
#pragma once
#include <memory>
#include <optional>
#include <string>

#include "seam/backend.hpp"

namespace monge::cuda {

class Runtime;

/// With a communicator the ranks share the work; the call then meets all ranks.
std::shared_ptr<Backend> make_backend(CudaOptions const& options, std::optional<Communicator> communicator = {});
/// The number of devices that this build's kernels run on; 0 without a driver.
int device_count();
std::string unavailable_reason();

/// The runtime of a context of this backend.
Runtime const& runtime_of(Context const& context);

}  // namespace monge::cuda
