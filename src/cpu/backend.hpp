// The CPU backend, for the registry.
#pragma once
#include <memory>
#include <optional>

#include "seam/backend.hpp"

namespace monge {

/// With a communicator the ranks share the work; the call then meets all ranks.
std::shared_ptr<Backend> make_cpu_backend(int threads, std::optional<Communicator> communicator = {});

}  // namespace monge
