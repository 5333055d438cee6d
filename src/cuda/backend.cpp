// Which devices there are, and operators on one of them.
#include "cuda/backend.hpp"

#include <string>

#include <monge/error.hpp>

#include "core/overloaded.hpp"
#include "core/require.hpp"
#include "cuda/entropic_operator.hpp"
#include "cuda/point_costs.hpp"
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

  std::unique_ptr<monge::EntropicOperator> entropic_operator(Geometry const& geometry, Marginals const& marginals,
                                                             OperatorOptions const& options,
                                                             monge::EntropicOperator const* twin) const override {
    DeviceGuard const guard(runtime_->index());
    DataType const scalar = options.precision == Precision::float64 ? DataType::float64 : DataType::float32;
    Problem problem;
    if (twin) {
      problem = static_cast<EntropicOperator const*>(twin)->problem();
      problem.costs = problem.costs->twin(geometry, scalar);
    } else {
      problem.runtime = runtime_;
      problem.weights[0] = std::make_shared<Weights>(runtime_, marginals.a);
      problem.weights[1] = std::make_shared<Weights>(runtime_, marginals.b);
      problem.costs = make_costs(geometry, problem, scalar);
    }
    problem.precision = options.precision;
    return std::make_unique<EntropicOperator>(std::move(problem), options.cache_bytes);
  }

  ProjectionOperator const& projection() const override { return projection_; }

  Runtime const& runtime() const { return *runtime_; }

 private:
  std::shared_ptr<Costs const> make_costs(Geometry const& geometry, Problem const& problem, DataType scalar) const {
    auto const& [a, b] = problem.weights;
    return std::visit(Overloaded{[&](PointCloud const& clouds) -> std::shared_ptr<Costs const> {
                                   return std::make_shared<PointCosts>(runtime_, clouds, a->of_points(), b->of_points(),
                                                                       scalar);
                                 },
                                 [](CostMatrix const&) -> std::shared_ptr<Costs const> {
                                   throw Error(ErrorCode::unsupported, "cost: matrices are not there yet");
                                 }},
                      geometry);
  }

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
