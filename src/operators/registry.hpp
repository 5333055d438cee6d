// Constructors of the backends; registry.cpp is the only place that knows which ones this build has.
#pragma once
#include <memory>

#include "operators/backend.hpp"

namespace monge {

std::shared_ptr<Backend> make_cpu_backend(int threads);

#ifdef MONGE_HAVE_CUDA
namespace cuda {
std::shared_ptr<Backend> make_backend(int index, void* stream);
int device_count();  // Devices that this build's kernels run on; 0 without a driver.
std::string unavailable_reason();
}  // namespace cuda
#endif

}  // namespace monge
