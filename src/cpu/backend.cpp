#include <omp.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>

#include <monge/error.hpp>

#include "core/strided.hpp"
#include "cpu/point_cloud_operator.hpp"
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
    with_data(view, [&](auto const* data) {
      for (std::int64_t i = 0; i < view.size(); ++i) values[static_cast<std::size_t>(i)] = data[i * view.stride()];
    });
    return values;
  }

  std::unique_ptr<EntropicOperator> entropic_operator(PointCloud const& geometry, std::vector<double> const& a,
                                                      std::vector<double> const& b, Precision precision,
                                                      double cache_bytes) const override {
    if (precision == Precision::float32)
      return std::make_unique<cpu::PointCloudOperator<float>>(geometry, a, b, threads_, cache_bytes);
    if (precision == Precision::float64)
      return std::make_unique<cpu::PointCloudOperator<double>>(geometry, a, b, threads_, cache_bytes);
    throw Error(ErrorCode::unsupported,
                "precision: is " + std::string(name(precision)) + "; the CPU offers float32 and float64");
  }

  ProjectionOperator const& projection() const override { return projection_; }

 private:
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
