// The CUDA backend: which devices there are, and operators on one of them.
#include <string>

#include <monge/error.hpp>

#include "cuda/entropic_operator.hpp"
#include "cuda/point_costs.hpp"
#include "cuda/projection/operator.hpp"
#include "cuda/runtime/runtime.hpp"
#include "operators/registry.hpp"

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
  CudaBackend(int index, void* stream)
      : runtime_(std::make_shared<Runtime const>(index, static_cast<cudaStream_t>(stream))), projection_(runtime_) {}

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

  std::unique_ptr<monge::EntropicOperator> entropic_operator(Geometry const& geometry, Marginals const& marginals,
                                                             OperatorOptions const& options) const override {
    DeviceGuard const guard(runtime_->index());
    Problem problem;
    problem.runtime = runtime_;
    problem.precision = options.precision;
    problem.weights[0] = std::make_shared<Weights>(runtime_, marginals.a);
    problem.weights[1] = std::make_shared<Weights>(runtime_, marginals.b);
    DataType const scalar = options.precision == Precision::float64 ? DataType::float64 : DataType::float32;
    problem.costs = std::visit(
        [&](PointCloud const& clouds) -> std::shared_ptr<Costs const> {
          return std::make_shared<PointCosts>(runtime_, clouds, problem.weights[0]->weight(),
                                              problem.weights[1]->weight(), scalar);
        },
        geometry);
    return std::make_unique<EntropicOperator>(std::move(problem), options.cache_bytes);
  }

  ProjectionOperator const& projection() const override { return projection_; }

 private:
  std::shared_ptr<Runtime const> runtime_;
  Projection projection_;
};

}  // namespace

std::shared_ptr<Backend> make_backend(int index, void* stream) {
  Survey const found = survey();
  if (found.usable == 0)
    throw Error(ErrorCode::unsupported, "device: is cuda:" + std::to_string(index) + "; " + found.reason);
  if (index < 0 || index >= found.usable)
    throw Error(ErrorCode::unsupported, "device: is cuda:" + std::to_string(index) +
                                            "; this machine has cuda:0 to cuda:" + std::to_string(found.usable - 1));
  return std::make_shared<CudaBackend>(index, stream);
}

int device_count() {
  return survey().usable;
}

std::string unavailable_reason() {
  return survey().reason;
}

}  // namespace monge::cuda
