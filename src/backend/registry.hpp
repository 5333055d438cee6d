// The CPU backend as the registry makes it.
#pragma once
#include <memory>

#include "backend/backend.hpp"

namespace monge {

std::shared_ptr<Backend> make_cpu_backend(int threads);

}  // namespace monge
