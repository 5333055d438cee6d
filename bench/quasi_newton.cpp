// SPLR and its ablations on the papers' synthetic problems, as cost matrices, to an L2 error of 1e-8:
// `quasi_newton [cpu|cuda [N [M [SEEDS]]]]`, a table on stdout. Means over the seeds of Synthetic I; one rounding more
// or less changes an iteration count by a tenth.
#include <fmt/format.h>
#include <monge/monge.hpp>

#include <cstdlib>
#include <string_view>
#include <utility>
#include <vector>

#include "core/stopwatch.hpp"
#include "oracle/synthetic.hpp"
#include "solvers/splr.hpp"

namespace {

using namespace monge;

struct Mean {
  double iterations = 0, passes = 0, l1_error = 0, seconds = 0;
};

Mean mean_of(Backend const& backend, std::vector<oracle::Problem> const& problems, double eps,
             SplrOptions const& options) {
  SplrLimits const limits{0, 20000, [](SplrCheck const& check) { return check.l2_error > 1e-8; }};
  Mean mean;
  double const share = 1 / static_cast<double>(problems.size());
  for (oracle::Problem const& problem : problems) {
    Marginals const marginals{problem.a, problem.b};
    auto const entropic = backend.entropic_operator(problem.geometry(), marginals, {Precision::float64, 0, {}});
    Stopwatch const watch;
    SplrCheck const last = run_splr(*entropic, marginals, eps, options, limits).last;
    mean.seconds += share * watch.seconds();
    mean.iterations += share * last.iteration;
    mean.passes += share * last.passes;
    mean.l1_error += share * last.l1_error;
  }
  return mean;
}

}  // namespace

int main(int argc, char** argv) {
  auto const argument = [&](int k, int standard) { return argc > k ? std::atoi(argv[k]) : standard; };
  bool const cuda = argc > 1 && std::string_view(argv[1]) == "cuda";
  Context const context = cuda ? Context::cuda() : Context::cpu();
  std::int64_t const n = argument(2, 1000), m = argument(3, 750);

  std::vector<std::pair<char const*, std::vector<oracle::Problem>>> problems{{"iid", {}}, {"diff", {}}, {"II", {}}};
  for (int seed = 1; seed <= argument(4, 3); ++seed) {
    problems[0].second.push_back(oracle::as_matrix(oracle::gaussian_problem(n, m, 0, seed)));
    problems[1].second.push_back(oracle::as_matrix(oracle::gaussian_problem(n, m, 2, seed)));
  }
  problems[2].second.push_back(oracle::as_matrix(oracle::mixture_problem(n, m)));

  std::pair<char const*, SplrOptions> const variants[] = {
      {"all", {}}, {"no candidate", {.candidate_sweeps = 0}}, {"no reuse", {.pattern_reuse = 1}}};
  fmt::print("n\tm\tproblem\teps\tvariant\titerations\tpasses\tL1 error\tseconds\n");
  for (double const eps : {1e-2, 1e-3, 5e-4}) {
    for (auto const& [problem, seeds] : problems) {
      for (auto const& [variant, options] : variants) {
        Mean const mean = mean_of(backend_of(context), seeds, eps, options);
        fmt::print("{}\t{}\t{}\t{}\t{}\t{:.0f}\t{:.0f}\t{:.1e}\t{:.3f}\n", n, m, problem, eps, variant, mean.iterations,
                   mean.passes, mean.l1_error, mean.seconds);
      }
    }
  }
}
