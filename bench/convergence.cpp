// Error against time on the problems of the papers, as float64 cost matrices in the memory of the device:
//   convergence [cpu|cuda] [--only TEXT]... [N[xM] ...]
// Each method solves each problem to L2 gradients of 1e-4, 1e-6 and 1e-8, from a cold start; M is 3 N / 4 where it is
// not given. `--only` keeps the solves whose "problem, method" has one of the texts. MONGE_INSTRUCTION_SET in the
// environment restricts the CPU's kernels, as in the tests. JSON on stdout, a line each solve: median seconds of up to
// kRuns calls, passes, the certified errors and, for the last tolerance, the history at eps of one call, thinned to
// steps of 2 %: [seconds, passes, L1, L2]. All seconds count from the call, the survey of the matrix included.
#include "machine.hpp"

#include <monge/monge.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "oracle/instruction_set.hpp"
#include "oracle/synthetic.hpp"

namespace monge::bench {
namespace {

constexpr double kTolerances[] = {1e-4, 1e-6, 1e-8};
constexpr double kEps[] = {1e-3, 5e-4};  // Fractions of the largest cost, which is 1.
constexpr int kMostPasses = 3000;
/// Calls of which the median counts, unless they take longer than so many seconds in all.
constexpr int kRuns = 5;
constexpr double kSeconds = 4;

struct NamedMethod {
  char const* name;
  SolveOptions options;
};
std::vector<NamedMethod> const& methods() {
  static std::vector<NamedMethod> const all{
      {"sinkhorn", {.method = Method::sinkhorn, .schedule = Schedule::alternating, .annealing = 1}},
      {"overrelaxed", {.method = Method::sinkhorn}},
      {"splr", {.method = Method::splr}},
      {"splr, no reuse", {.method = Method::splr, .splr = {.pattern_reuse = 1}}},
      {"splr, no candidates", {.method = Method::splr, .splr = {.candidate_sweeps = 0}}},
      {"splr, neither", {.method = Method::splr, .splr = {.pattern_reuse = 1, .candidate_sweeps = 0}}},
      {"newton", {.method = Method::newton}},
      {"auto", {.method = Method::automatic}},
  };
  return all;
}

struct Size {
  std::int64_t n, m;
};

struct NamedProblem {
  char const* name;
  oracle::Problem (*make)(Size size);
};
constexpr NamedProblem kProblems[] = {
    {"Synthetic I iid", [](Size size) { return oracle::gaussian_problem(size.n, size.m, 0, 1); }},
    {"Synthetic I diff", [](Size size) { return oracle::gaussian_problem(size.n, size.m, 2, 1); }},
    {"Synthetic II", [](Size size) { return oracle::mixture_problem(size.n, size.m); }},
    {"features", [](Size size) { return oracle::feature_problem(size.n, size.m, 1); }},
};

std::string number(double value) {
  if (!std::isfinite(value)) return "null";
  char text[32];
  std::snprintf(text, sizeof text, "%.3g", value);
  return text;
}

void print_history(Report const& report) {
  std::printf(", \"history\": [");
  double next = 0;
  for (Check const& check : report.history) {
    // What is left at another eps says nothing of the plan that was asked for.
    if (check.eps != report.eps || check.iteration < next) continue;
    next = 1.02 * check.iteration;
    std::printf("[%s, %d, %s, %s], ", number(report.seconds.setup + check.seconds).c_str(), check.iteration,
                number(check.marginal_error).c_str(), number(check.gradient_norm).c_str());
  }
  std::printf("[%s, %d, %s, %s]]", number(report.seconds.total).c_str(), report.iterations,
              number(report.marginal_error).c_str(), number(report.gradient_norm).c_str());
}

void print_solve(Machine const& machine, CostMatrix const& matrix, oracle::Problem const& problem,
                 SolveOptions const& options) {
  std::vector<Report> runs;
  for (double spent = 0; runs.empty() || (spent < kSeconds && std::ssize(runs) < kRuns);) {
    runs.push_back(solve(machine.context, matrix, problem.a, problem.b, options).report());
    spent += runs.back().seconds.total;
  }
  auto const middle = runs.begin() + std::ssize(runs) / 2;
  std::nth_element(runs.begin(), middle, runs.end(),
                   [](Report const& one, Report const& other) { return one.seconds.total < other.seconds.total; });
  std::printf(
      "\"tolerance\": %g, \"status\": \"%s\", \"seconds\": %s, \"passes\": %d, \"steps\": %d, \"l1\": %s, \"l2\": %s, "
      "\"runs\": %d",
      options.tolerance, std::string(name(middle->status)).c_str(), number(middle->seconds.total).c_str(),
      middle->iterations, middle->newton_steps, number(middle->marginal_error).c_str(),
      number(middle->gradient_norm).c_str(), static_cast<int>(runs.size()));
  if (options.tolerance == *std::rbegin(kTolerances)) print_history(*middle);
}

using Texts = std::vector<std::string_view>;

void study(Machine const& machine, Size size, Texts const& only, char const*& separator) {
  auto const is_kept = [&](std::string const& solve) {
    return only.empty() ||
           std::ranges::any_of(only, [&](std::string_view text) { return solve.find(text) != std::string::npos; });
  };
  for (NamedProblem const& named : kProblems) {
    oracle::Problem const problem = as_matrix(named.make(size));
    std::shared_ptr<double const> const costs = machine.copy(problem.costs());
    CostMatrix const matrix{MatrixView(costs.get(), size.n, size.m, size.m, machine.context.device())};
    for (double const eps : kEps) {
      for (NamedMethod const& method : methods()) {
        if (!is_kept(std::string(named.name) + ", " + method.name)) continue;
        for (double const tolerance : kTolerances) {
          SolveOptions options = method.options;
          options.eps = eps;
          options.tolerance = tolerance;
          options.criterion = Criterion::gradient;
          options.iterations = kMostPasses;
          options.precision = Precision::float64;
          if (options.method != Method::splr) options.check_every = 5;
          std::printf("%s\n    {\"problem\": \"%s\", \"n\": %d, \"m\": %d, \"eps\": %g, \"method\": \"%s\", ",
                      separator, named.name, static_cast<int>(size.n), static_cast<int>(size.m), eps, method.name);
          print_solve(machine, matrix, problem, options);
          std::printf("}");
          std::fflush(stdout);
          separator = ",";
        }
      }
    }
  }
}

void run(Machine const& machine, std::vector<Size> const& sizes, Texts const& only) {
  std::printf("{\n  %s,\n  \"limits\": [", machine.provenance.c_str());
  if (machine.read_rate > 0) {
    for (Size const& size : sizes) {
      double const pairs = static_cast<double>(size.n) * static_cast<double>(size.m);
      std::printf("%s\n    {\"n\": %d, \"m\": %d, \"read_seconds\": %.3g, \"exp_seconds\": %.3g}",
                  &size == sizes.data() ? "" : ",", static_cast<int>(size.n), static_cast<int>(size.m),
                  pairs * sizeof(double) / machine.read_rate, pairs / machine.exp_rate);
    }
  }
  std::printf("],\n  \"solves\": [");
  char const* separator = "";
  for (Size const& size : sizes) study(machine, size, only, separator);
  std::printf("\n  ]\n}\n");
}

}  // namespace
}  // namespace monge::bench

int main(int argc, char** argv) {
  using namespace monge::bench;
  std::vector<std::string_view> arguments(argv + 1, argv + argc);
  bool on_cuda = false;
  if (!arguments.empty() && (arguments[0] == "cpu" || arguments[0] == "cuda")) {
    on_cuda = arguments[0] == "cuda";
    arguments.erase(arguments.begin());
  }
  std::vector<Size> sizes;
  Texts only;
  for (std::size_t k = 0; k < arguments.size(); ++k) {
    std::string_view const argument = arguments[k];
    if (argument == "--only" && k + 1 < arguments.size()) {
      only.push_back(arguments[++k]);
      continue;
    }
    char* end = nullptr;
    std::int64_t const n = std::strtoll(argument.data(), &end, 10);
    std::int64_t const m = *end == 'x' ? std::strtoll(end + 1, &end, 10) : 3 * n / 4;
    if (*end != '\0' || n < 2 || m < 2) {
      std::fprintf(stderr, "%s: is no size; must be N or NxM, each at least 2\n", argument.data());
      return 2;
    }
    sizes.push_back({n, m});
  }
  if (sizes.empty()) sizes = {{1000, 750}};
  if (!monge::oracle::restrict_instruction_set()) {
    std::fprintf(stderr, "MONGE_INSTRUCTION_SET: this machine or build has no %s\n",
                 std::getenv("MONGE_INSTRUCTION_SET"));
    return 2;
  }
#ifdef MONGE_BENCH_CUDA
  run(on_cuda ? cuda_machine() : cpu_machine(), sizes, only);
#else
  if (on_cuda) {
    std::fprintf(stderr, "cuda: this build has none\n");
    return 2;
  }
  run(cpu_machine(), sizes, only);
#endif
}
