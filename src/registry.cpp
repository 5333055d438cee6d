// The backends of this build. No other file of src tests MONGE_HAVE_CUDA.
#include <thread>

#include <hwy/highway.h>

#include <monge/error.hpp>
#include <monge/version.hpp>

#include "core/out_of_memory.hpp"
#include "cpu/backend.hpp"

#ifdef MONGE_HAVE_CUDA
#include <cuda_runtime_api.h>

#include "cuda/backend.hpp"
#endif

namespace monge {

Context Context::cpu(int threads) try {
  std::shared_ptr<Backend> backend = make_cpu_backend(threads);
  return Context(std::move(backend));
} catch (std::bad_alloc const&) {
  throw_out_of_memory("Context::cpu");
}

Context Context::distributed(Communicator communicator, int threads) try {
  return Context(make_cpu_backend(threads, std::move(communicator)));
} catch (std::bad_alloc const&) {
  throw_out_of_memory("Context::distributed");
}

namespace {

#ifdef MONGE_HAVE_CUDA
using cuda::make_backend;
#else
std::shared_ptr<Backend> make_backend(CudaOptions const& options, std::optional<Communicator> const& = {}) {
  throw Error(ErrorCode::unsupported,
              "device: is cuda:" + std::to_string(options.index) + "; " + cuda_unavailable_reason());
}
#endif

}  // namespace

Context Context::cuda(CudaOptions const& options) {
  return Context(make_backend(options));
}

Context Context::distributed(Communicator communicator, CudaOptions const& options) {
  return Context(make_backend(options, std::move(communicator)));
}

Backend const& backend_of(Context const& context) {
  return *context.backend_;
}

int host_threads(Backend const& backend) {
  bool const on_cpu = backend.device().type == DeviceType::cpu;
  return on_cpu ? backend.info().units : static_cast<int>(std::thread::hardware_concurrency());
}

Ranks* ranks_of(Context const& context) {
  return backend_of(context).ranks();
}

Device Context::device() const {
  return backend_->device();
}

std::vector<DeviceInfo> devices() {
  std::vector<DeviceInfo> found{backend_of(Context::cpu()).info()};
#ifdef MONGE_HAVE_CUDA
  for (int index = 0; index < cuda::device_count(); ++index)
    found.push_back(backend_of(Context::cuda({.index = index})).info());
#endif
  return found;
}

std::string cuda_unavailable_reason() {
#ifdef MONGE_HAVE_CUDA
  return cuda::unavailable_reason();
#else
  return "this build has no CUDA; the Python package monge-cuda has it, and a build with MONGE_CUDA=ON, which needs "
         "nvcc";
#endif
}

std::string version() {
  return std::to_string(MONGE_VERSION_MAJOR) + "." + std::to_string(MONGE_VERSION_MINOR) + "." +
         std::to_string(MONGE_VERSION_PATCH);
}

std::vector<ComponentVersion> component_versions() {
#ifdef __clang__
  std::string const compiler = "Clang " __clang_version__;
#else
  std::string const compiler = "GCC " __VERSION__;
#endif
  auto const dotted = [](int major, int minor) { return std::to_string(major) + "." + std::to_string(minor); };
  std::vector<ComponentVersion> versions{{"monge", version()},
                                         {"compiler", compiler},
                                         {"highway", dotted(HWY_MAJOR, HWY_MINOR) + "." + std::to_string(HWY_PATCH)},
                                         {"openmp", std::to_string(_OPENMP)}};  // The date of the specification.
#ifdef MONGE_HAVE_CUDA
  for (auto const& [name, get] :
       {std::pair("cuda_runtime", &cudaRuntimeGetVersion), {"cuda_driver", &cudaDriverGetVersion}}) {
    int number = 0;  // 1000 major + 10 minor
    bool const known = get(&number) == cudaSuccess && number > 0;
    versions.push_back({name, known ? dotted(number / 1000, number % 1000 / 10) : "none"});
  }
#endif
  return versions;
}

}  // namespace monge
