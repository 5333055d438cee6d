// Which backends this build has. The only file with an #ifdef on it.
#include "operators/registry.hpp"

#include <monge/error.hpp>

namespace monge {

Context Context::cpu(int threads) {
  return Context(make_cpu_backend(threads));
}

Context Context::cuda([[maybe_unused]] int index, [[maybe_unused]] void* stream) {
#ifdef MONGE_HAVE_CUDA
  return Context(cuda::make_backend(index, stream));
#else
  throw Error(ErrorCode::unsupported, "device: is cuda:" + std::to_string(index) + "; " + cuda_unavailable_reason());
#endif
}

Device Context::device() const {
  return backend_->device();
}

std::vector<DeviceInfo> devices() {
  std::vector<DeviceInfo> found{Context::cpu().backend().info()};
#ifdef MONGE_HAVE_CUDA
  for (int index = 0; index < cuda::device_count(); ++index) found.push_back(Context::cuda(index).backend().info());
#endif
  return found;
}

std::string cuda_unavailable_reason() {
#ifdef MONGE_HAVE_CUDA
  return cuda::unavailable_reason();
#else
  return "this build has no CUDA; configure with MONGE_CUDA=ON and a CUDA toolkit";
#endif
}

std::string version() {
  return MONGE_VERSION;
}

}  // namespace monge
