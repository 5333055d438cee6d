// Which devices there are, and operators on one of them.
#include "cuda/backend.hpp"

#include <string>

#include <monge/error.hpp>

#include "core/require.hpp"
#include "cuda/point_cloud_operator.hpp"
#include "cuda/projection/operator.hpp"
#include "cuda/runtime/runtime.hpp"

namespace monge::cuda {
namespace {

/// Oldest compute capability that this build has code for: asynchronous copies and fp16 products of 16 x 8 x 16.
constexpr int kOldestMajor = 8;

/// The number of devices, and why there is none that can be used.
struct Survey {
  int usable = 0;
  std::string reason;
};

Survey survey() {
  int count = 0;
  cudaError_t const code = cudaGetDeviceCount(&count);
  if (code != cudaSuccess || count == 0) {
    (void)cudaGetLastError();
    return {0, std::string("no CUDA device: ") + (code == cudaSuccess ? "none found" : cudaGetErrorString(code))};
  }
  // CUDA lists the most capable devices first, so the usable ones lead.
  Survey result;
  for (; result.usable < count; ++result.usable) {
    int major = 0;
    if (cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, result.usable) != cudaSuccess ||
        major < kOldestMajor)
      break;
  }
  if (result.usable == 0) result.reason = "no CUDA device of compute capability 8.0 or newer";
  return result;
}

class CudaBackend final : public Backend {
 public:
  explicit CudaBackend(CudaOptions const& options)
      : runtime_(std::make_shared<Runtime const>(options)), projection_(runtime_) {}

  Device device() const override { return {DeviceType::cuda, runtime_->index()}; }

  DeviceInfo info() const override {
    return {.device = device(),
            .name = runtime_->name(),
            .instruction_set = runtime_->instruction_set(),
            .units = runtime_->multiprocessors(),
            .memory_bytes = runtime_->memory_bytes()};
  }

  std::vector<double> read(VectorView view) const override {
    DeviceGuard const guard(runtime_->index());
    return cuda::read(runtime_, view);
  }

  std::unique_ptr<EntropicOperator> entropic_operator(PointCloud const& geometry, std::vector<double> const& a,
                                                      std::vector<double> const& b, Precision precision,
                                                      double /*cache_bytes*/) const override {
    return std::make_unique<PointCloudOperator>(runtime_, geometry, a, b, precision);
  }

  ProjectionOperator const& projection() const override { return projection_; }

  Runtime const& runtime() const { return *runtime_; }

 private:
  std::shared_ptr<Runtime const> runtime_;
  Projection projection_;
};

}  // namespace

std::shared_ptr<Backend> make_backend(CudaOptions const& options) {
  bool const allocates = options.allocator.allocate != nullptr, releases = options.allocator.release != nullptr;
  require(allocates == releases, "allocator: lacks {}; must have both functions, or neither",
          allocates ? "release" : "allocate");
  Survey const found = survey();
  std::string const device = "device: is cuda:" + std::to_string(options.index);
  if (found.usable == 0) throw Error(ErrorCode::unsupported, device + "; " + found.reason);
  if (options.index < 0 || options.index >= found.usable)
    throw Error(ErrorCode::unsupported,
                device + "; this machine has cuda:0 to cuda:" + std::to_string(found.usable - 1));
  return std::make_shared<CudaBackend>(options);
}

Runtime const& runtime_of(Context const& context) {
  return dynamic_cast<CudaBackend const&>(backend_of(context)).runtime();
}

int device_count() {
  return survey().usable;
}

std::string unavailable_reason() {
  return survey().reason;
}

}  // namespace monge::cuda
