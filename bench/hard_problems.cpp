// Passes that each method takes on the 96 hard problems of each seed, beside plain alternating sweeps without the
// ladder: `hard_problems [TOLERANCE [SEED...]]`, a table on stdout, by default to 1e-6 at seed 3.
#include <fmt/format.h>
#include <monge/monge.hpp>

#include <cstdlib>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include "oracle/hard_problems.hpp"
#include "provenance.hpp"

int main(int argc, char** argv) {
  using namespace monge;
  Context const context = Context::cpu(1);
  double const tolerance = argc > 1 ? std::strtod(argv[1], nullptr) : 1e-6;
  std::vector<std::uint64_t> seeds;
  for (int k = 2; k < argc; ++k) seeds.push_back(std::strtoull(argv[k], nullptr, 10));
  if (seeds.empty()) seeds = {3};
  constexpr Method kMethods[] = {Method::automatic, Method::sinkhorn, Method::newton, Method::splr};
  fmt::print("# {{{}}}\n", bench::provenance_on());
  fmt::print("seed\tproblem\tmethod\tpasses\tannealing\tfloat64\tin steps\tsteps\terror\tstatus\n");
  for (std::uint64_t const seed : seeds) {
    struct Total {
      int passes = 0, short_of_it = 0;
      double seconds = 0;
    };
    std::map<std::string_view, Total> totals;
    for (auto const& [name, problem, eps] : oracle::hard_problems(seed)) {
      auto const run = [&](std::string_view method, SolveOptions const& options) {
        Report const report = solve(context, problem.geometry(), problem.a, problem.b, options).report();
        fmt::print("{}\t{}\t{}\t{}\t{}\t{}\t{}\t{}\t{:.1e}\t{}\n", seed, name, method, report.iterations,
                   report.annealing_iterations, report.refinement_iterations, report.newton_iterations,
                   report.newton_steps, report.marginal_error, monge::name(report.status));
        Total& total = totals[method];
        total.passes += report.iterations;
        total.short_of_it += report.status == Status::converged ? 0 : 1;
        total.seconds += report.seconds.total;
      };
      for (Method const method : kMethods)
        run(monge::name(method), {.eps = eps, .method = method, .tolerance = tolerance});
      run("plain", {.eps = eps,
                    .method = Method::sinkhorn,
                    .tolerance = tolerance,
                    .schedule = Schedule::alternating,
                    .annealing = 1});
    }
    for (auto const& [method, total] : totals)
      fmt::print("{}\tall\t{}\t{}\t{} short\t{:.2f} s\n", seed, method, total.passes, total.short_of_it, total.seconds);
  }
}
