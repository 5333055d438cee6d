#include <omp.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <utility>
#include <variant>

#include <monge/error.hpp>

#include "core/overloaded.hpp"
#include "core/strided.hpp"
#include "cpu/entropic_operator.hpp"
#include "cpu/matrix_costs.hpp"
#include "cpu/point_costs.hpp"
#include "cpu/projection/operator.hpp"
#include "operators/registry.hpp"

namespace monge {
namespace {

std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  }
  return "CPU";
}

class CpuBackend final : public Backend {
 public:
  explicit CpuBackend(int threads) : threads_(threads), projection_(threads) {}

  Device device() const override { return {}; }

  DeviceInfo info() const override {
    return {.device = device(),
            .name = processor_name(),
            .instruction_set = cpu::instruction_set(),
            .units = threads_,
            .memory_bytes = static_cast<std::int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE)};
  }

  std::vector<double> read(VectorView view) const override {
    std::vector<double> values(static_cast<std::size_t>(view.size()));
    read_vector(view, [&](std::int64_t i, double value) { values[static_cast<std::size_t>(i)] = value; });
    return values;
  }

  std::unique_ptr<EntropicOperator> entropic_operator(Geometry const& geometry, Marginals const& marginals,
                                                      OperatorOptions const& options) const override {
    if (options.precision == Precision::float32) return make<float>(geometry, marginals, options.cache_bytes);
    if (options.precision == Precision::float64) return make<double>(geometry, marginals, options.cache_bytes);
    throw Error(ErrorCode::unsupported,
                "precision: is " + std::string(name(options.precision)) + "; the CPU offers float32 and float64");
  }

  ProjectionOperator const& projection() const override { return projection_; }

 private:
  template <class T>
  std::unique_ptr<EntropicOperator> make(Geometry const& geometry, Marginals const& marginals,
                                         double cache_bytes) const {
    auto costs = std::visit(Overloaded{[&](PointCloud const& clouds) -> std::shared_ptr<cpu::Costs<T> const> {
                                         return std::make_shared<cpu::PointCosts<T>>(clouds, marginals.a, marginals.b);
                                       },
                                       [&](CostMatrix const& matrix) -> std::shared_ptr<cpu::Costs<T> const> {
                                         return std::make_shared<cpu::MatrixCosts<T>>(matrix, marginals.a, marginals.b,
                                                                                      threads_);
                                       }},
                            geometry);
    return std::make_unique<cpu::EntropicOperator<T>>(std::move(costs), marginals, threads_, cache_bytes);
  }

  int threads_;
  cpu::Projection projection_;
};

}  // namespace

std::shared_ptr<Backend> make_cpu_backend(int threads) {
  if (threads < 0)
    throw Error(ErrorCode::invalid_argument,
                "threads: is " + std::to_string(threads) + "; must be >= 0 (0: all cores)");
  return std::make_shared<CpuBackend>(threads > 0 ? threads : omp_get_max_threads());
}

}  // namespace monge
