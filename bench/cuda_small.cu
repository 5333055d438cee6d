// What a solve of a small problem takes on a CUDA device, where the host's work and its waits count as much as the
// kernels: wall time, where it goes, allocations and waits. Points on the device, otherwise default options; a new
// solve() each time, and a prepared Solver that is given its points anew. Prints JSON.
//
//   cuda_small [repeats]
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include <monge/monge.hpp>

#include "cuda/backend.hpp"
#include "cuda_limits.cuh"
#include "device_points.cuh"

namespace {

using namespace monge;
using monge::bench::DevicePoints;
using monge::bench::median;

/// Medians over many calls of `solve`, in microseconds, and the counts of one.
template <class Solve>
void print_times(char const* name, Context const& context, int repeats, Solve&& solve) {
  std::vector<double> wall, setup, sweeps, certificate;
  cuda::RuntimeCounters counts;
  int iterations = 0, checks = 0;
  for (int r = 0; r < repeats + 3; ++r) {
    cuda::RuntimeCounters const before = cuda::runtime_of(context).counters();
    auto const start = std::chrono::steady_clock::now();
    Report const report = solve().report();
    double const us = 1e6 * std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (r < 3) continue;
    cuda::RuntimeCounters const after = cuda::runtime_of(context).counters();
    counts = {after.allocations - before.allocations, after.waits - before.waits};
    wall.push_back(us);
    setup.push_back(1e6 * report.seconds.setup);
    sweeps.push_back(1e6 * report.seconds.sweeps);
    certificate.push_back(1e6 * report.seconds.certificate);
    iterations = report.iterations;
    checks = static_cast<int>(report.history.size());
  }
  std::printf(
      "\"%s\": {\"us\": %.0f, \"setup_us\": %.0f, \"sweeps_us\": %.0f, \"certificate_us\": %.0f, \"iterations\": %d, "
      "\"checks\": %d, \"waits\": %lld, \"allocations\": %lld}",
      name, median(wall), median(setup), median(sweeps), median(certificate), iterations, checks,
      static_cast<long long>(counts.waits), static_cast<long long>(counts.allocations));
}

}  // namespace

int main(int argc, char** argv) {
  int const repeats = argc > 1 ? std::atoi(argv[1]) : 200;
  Context const context = Context::cuda();
  struct Case {
    std::int64_t n, d;
  };
  std::printf("{\n  %s,\n  \"cases\": [", monge::bench::provenance(0).c_str());
  char const* separator = "";
  for (Case const& one : {Case{128, 8}, Case{500, 8}, Case{1000, 64}, Case{4000, 64}}) {
    DevicePoints const x(one.n, one.d, 1), y(one.n, one.d, 2);
    PointCloud const clouds{x.view(0, one.n), y.view(0, one.n)};
    SolveOptions const options{.eps = 0.1 * static_cast<double>(one.d), .tolerance = 1e-3};
    std::printf("%s\n    {\"n\": %lld, \"d\": %lld, ", separator, static_cast<long long>(one.n),
                static_cast<long long>(one.d));
    print_times("solve", context, repeats, [&] { return solve(context, clouds, options); });
    std::printf(",\n     ");
    Solver solver(context, clouds, options);
    print_times("solver", context, repeats, [&] {
      solver.set_geometry(clouds);
      return solver.solve();
    });
    std::printf("}");
    std::fflush(stdout);
    separator = ",";
  }
  std::printf("\n  ]\n}\n");
  return 0;
}
