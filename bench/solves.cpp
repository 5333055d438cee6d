// What a user waits for: solves of two clouds of N(0, I) with default options, on the CPU or one GPU:
//   solves [cpu|cuda] [N D EPS TOLERANCE]...
// EPS is a share of the mean squared distance, 2 d. JSON on stdout, a line each solve: the first call's seconds and the
// median of kRuns further calls, for each method that `auto` chooses among; passes, of them in float64 and of Newton's
// method, and the seconds of certificates. Points lie in the memory of the device.
#include <monge/monge.hpp>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "machine.hpp"
#include "oracle/problem.hpp"

namespace monge::bench {
namespace {

constexpr int kRuns = 5;

struct Case {
  std::int64_t n, d;
  double eps, tolerance;
};

std::vector<Case> all_cases(bool on_cuda) {
  std::vector<Case> cases{{1000, 64, 0.05, 1e-3}, {1000, 64, 0.05, 1e-6}, {1000, 64, 0.01, 1e-6},
                          {2000, 3, 0.05, 1e-3},  {2000, 3, 0.05, 1e-6},  {2000, 3, 0.01, 1e-6}};
  if (!on_cuda) {
    for (std::int64_t const d : {3, 16, 64}) cases.push_back({3000, d, 0.01, 1e-6});
  } else {
    for (std::int64_t const d : {3, 64, 512}) {
      for (double const eps : {0.05, 0.01}) cases.push_back({10'000, d, eps, 1e-6});
    }
    cases.push_back({50'000, 64, 0.05, 1e-6});
  }
  return cases;
}

void print(Machine const& machine, Case const& problem, Method method) {
  oracle::Random random(1);
  auto const cloud = [&] { return machine.copy(oracle::gaussian_points(problem.n, problem.d, random)); };
  std::shared_ptr<double const> const x = cloud(), y = cloud();
  Device const device = machine.context.device();
  PointCloud const clouds{MatrixView(x.get(), problem.n, problem.d, problem.d, device),
                          MatrixView(y.get(), problem.n, problem.d, problem.d, device)};
  SolveOptions const options{
      .eps = problem.eps * 2 * static_cast<double>(problem.d), .method = method, .tolerance = problem.tolerance};
  std::vector<Report> runs;
  for (int run = 0; run <= kRuns; ++run) runs.push_back(solve(machine.context, clouds, {}, {}, options).report());
  double const first = runs.front().seconds.total;
  auto const middle = runs.begin() + 1 + kRuns / 2;
  std::nth_element(runs.begin() + 1, middle, runs.end(),
                   [](Report const& one, Report const& other) { return one.seconds.total < other.seconds.total; });
  std::printf(
      "\"n\": %d, \"d\": %d, \"eps\": %g, \"tolerance\": %g, \"method\": \"%s\", \"status\": \"%s\", \"seconds\": "
      "%.4g, "
      "\"first_seconds\": %.4g, \"certificate_seconds\": %.3g, \"passes\": %d, \"in_float64\": %d, \"of_newton\": %d",
      static_cast<int>(problem.n), static_cast<int>(problem.d), problem.eps, problem.tolerance,
      std::string(name(method)).c_str(), std::string(name(middle->status)).c_str(), middle->seconds.total, first,
      middle->seconds.certificate, middle->iterations, middle->refinement_iterations, middle->newton_iterations);
}

void run(Machine const& machine, std::vector<Case> const& cases) {
  std::printf("{\n  %s,\n  \"solves\": [", machine.provenance.c_str());
  char const* separator = "";
  for (Case const& problem : cases) {
    for (Method const method : {Method::automatic, Method::sinkhorn, Method::newton}) {
      std::printf("%s\n    {", separator);
      print(machine, problem, method);
      std::printf("}");
      std::fflush(stdout);
      separator = ",";
    }
  }
  std::printf("\n  ]\n}\n");
}

}  // namespace
}  // namespace monge::bench

int main(int argc, char** argv) {
  using namespace monge::bench;
  std::vector<std::string> arguments(argv + 1, argv + argc);
  bool on_cuda = false;
  if (!arguments.empty() && (arguments[0] == "cpu" || arguments[0] == "cuda")) {
    on_cuda = arguments[0] == "cuda";
    arguments.erase(arguments.begin());
  }
  if (arguments.size() % 4 != 0) {
    std::fprintf(stderr, "%zu numbers; must be N D EPS TOLERANCE for each problem\n", arguments.size());
    return 2;
  }
  std::vector<Case> cases;
  for (std::size_t k = 0; k < arguments.size(); k += 4)
    cases.push_back({std::stoll(arguments[k]), std::stoll(arguments[k + 1]), std::stod(arguments[k + 2]),
                     std::stod(arguments[k + 3])});
  if (cases.empty()) cases = all_cases(on_cuda);
#ifdef MONGE_BENCH_CUDA
  run(on_cuda ? cuda_machine() : cpu_machine(), cases);
#else
  if (on_cuda) {
    std::fprintf(stderr, "cuda: this build has none\n");
    return 2;
  }
  run(cpu_machine(), cases);
#endif
}
