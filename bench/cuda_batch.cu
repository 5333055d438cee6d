// What a batch of small problems takes on a CUDA device, beside its problems solved one after the other: wall time,
// where it goes, launches, allocations and waits. Points on the device, otherwise default options. Prints JSON.
//
//   cuda_batch [repeats]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

#include <monge/monge.hpp>

#include "cuda/backend.hpp"
#include "cuda_limits.cuh"
#include "device_points.cuh"

namespace {

using namespace monge;
using monge::bench::DevicePoints;
using monge::bench::median;

/// Milliseconds of `call`, the median of some after a few that warm up.
template <class Call>
double milliseconds(int repeats, Call&& call) {
  std::vector<double> all;
  for (int r = 0; r < repeats + 2; ++r) {
    auto const start = std::chrono::steady_clock::now();
    call();
    double const ms = 1e3 * std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (r >= 2) all.push_back(ms);
  }
  return median(all);
}

}  // namespace

int main(int argc, char** argv) {
  int const repeats = argc > 1 ? std::atoi(argv[1]) : 20;
  Context const context = Context::cuda();
  cuda::RuntimeCounters const& counters = cuda::runtime_of(context).counters();
  struct Case {
    int problems;
    std::int64_t n, d;
  };
  std::printf("{\n  %s,\n  \"cases\": [", monge::bench::provenance(0).c_str());
  char const* separator = "";
  for (Case const& one : {Case{64, 1000, 64}, Case{1000, 128, 8}, Case{1000, 128, 64}, Case{8, 4000, 64}}) {
    DevicePoints const x(one.problems * one.n, one.d, 1), y(one.problems * one.n, one.d, 2);
    std::vector<BatchProblem> batch;
    for (int p = 0; p < one.problems; ++p)
      batch.push_back({PointCloud{x.view(p * one.n, one.n), y.view(p * one.n, one.n)}});
    SolveOptions const options{.eps = 0.1 * static_cast<double>(one.d), .tolerance = 1e-3};

    std::vector<Plan> plans;
    cuda::RuntimeCounters before;
    double destroy = 0;
    double const together = milliseconds(repeats, [&] {
      auto const start = std::chrono::steady_clock::now();
      plans.clear();
      destroy = 1e3 * std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
      before = counters;
      plans = solve_batch(context, batch, options);
    });
    cuda::RuntimeCounters const after = counters;
    double const alone = milliseconds(std::max(1, repeats / 10), [&] {
      for (BatchProblem const& problem : batch) solve(context, problem.geometry, options);
    });
    Report const& report = plans[0].report();
    int checks = 0;
    double total = 0;
    for (Plan const& plan : plans) {
      checks = std::max(checks, static_cast<int>(plan.report().history.size()));
      total = std::max(total, plan.report().seconds.total);
    }
    std::printf(
        "%s\n    {\"problems\": %d, \"n\": %lld, \"d\": %lld, \"ms\": %.2f, \"setup_ms\": %.2f, \"sweeps_ms\": %.2f, "
        "\"certificate_ms\": %.2f, \"last_ends_ms\": %.2f, \"destroy_ms\": %.2f, \"iterations\": %d, \"checks\": %d, "
        "\"launches\": %lld, "
        "\"waits\": %lld, \"allocations\": %lld, \"alone_ms\": %.1f}",
        separator, one.problems, static_cast<long long>(one.n), static_cast<long long>(one.d), together,
        1e3 * report.seconds.setup, 1e3 * report.seconds.sweeps, 1e3 * report.seconds.certificate, 1e3 * total, destroy,
        report.iterations, checks, static_cast<long long>(after.batch_launches - before.batch_launches),
        static_cast<long long>(after.waits - before.waits),
        static_cast<long long>(after.allocations - before.allocations), alone);
    std::fflush(stdout);
    separator = ",";
  }
  // Newton's method on cost matrices: of the entropic problem and of quadratic plans.
  constexpr int kProblems = 64;
  constexpr std::int64_t kSize = 200;
  std::vector<std::vector<double>> costs;
  std::vector<BatchProblem> entropic;
  std::vector<RegularizedProblem> quadratic;
  std::mt19937_64 random(1);
  std::uniform_real_distribution<double> uniform;
  for (int p = 0; p < kProblems; ++p) {
    std::vector<double>& cost = costs.emplace_back(kSize * kSize);
    for (double& value : cost) value = uniform(random);
  }
  for (std::vector<double> const& cost : costs) {
    CostMatrix const matrix{MatrixView(cost.data(), kSize, kSize)};
    entropic.push_back({matrix});
    quadratic.push_back({.geometry = matrix, .regularizer = {.quadratic = 1}});
  }
  SolveOptions const options{.eps = 1e-3, .method = Method::newton, .tolerance = 1e-9};
  RegularizedOptions const of_quadratic{.method = RegularizedMethod::newton, .tolerance = 1e-6};
  auto const print = [&](char const* method, double together, double alone) {
    std::printf(",\n    {\"method\": \"%s\", \"problems\": %d, \"n\": %lld, \"ms\": %.2f, \"alone_ms\": %.2f}", method,
                kProblems, static_cast<long long>(kSize), together, alone);
  };
  int const times = std::max(1, repeats / 4);
  print("newton", milliseconds(times, [&] { solve_batch(context, entropic, options); }), milliseconds(times, [&] {
          for (BatchProblem const& one : entropic) solve(context, one.geometry, options);
        }));
  print("quadratic", milliseconds(times, [&] { solve_regularized_batch(context, quadratic, of_quadratic); }),
        milliseconds(times, [&] {
          for (RegularizedProblem const& one : quadratic) solve_regularized_batch(context, {&one, 1}, of_quadratic);
        }));
  std::printf("\n  ]\n}\n");
  return 0;
}
