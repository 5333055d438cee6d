// What registry.cpp makes contexts of; it is the only place that knows which backends this build has.
#pragma once
#include <memory>

#include "operators/backend.hpp"

namespace monge {

std::shared_ptr<Backend> make_cpu_backend(int threads);

}  // namespace monge
