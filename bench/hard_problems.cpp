// Sweeps that the default call takes on the 96 hard problems of each seed, beside plain alternating ones without the
// ladder, to a tolerance of 1e-6: `hard_problems [SEED...]`, a table on stdout.
#include <fmt/format.h>
#include <monge/monge.hpp>

#include <cstdlib>

#include "oracle/hard_problems.hpp"

int main(int argc, char** argv) {
  using namespace monge;
  Context const context = Context::cpu(1);
  fmt::print("seed\tproblem\tsweeps\tannealing\tfloat64\terror\tstatus\talternating\tstatus\n");
  std::vector<std::uint64_t> seeds;
  for (int k = 1; k < argc; ++k) seeds.push_back(std::strtoull(argv[k], nullptr, 10));
  if (seeds.empty()) seeds = {3};
  for (std::uint64_t const seed : seeds) {
    int total = 0;
    for (auto const& [name, problem, eps] : oracle::hard_problems(seed)) {
      SolveOptions options{.eps = eps};
      Report const report = solve(context, problem.geometry(), problem.a, problem.b, options).report();
      options.schedule = Schedule::alternating;
      options.annealing = 1;
      Report const plain = solve(context, problem.geometry(), problem.a, problem.b, options).report();
      fmt::print("{}\t{}\t{}\t{}\t{}\t{:.1e}\t{}\t{}\t{}\n", seed, name, report.iterations, report.annealing_iterations,
                 report.refinement_iterations, report.marginal_error, monge::name(report.status), plain.iterations,
                 monge::name(plain.status));
      total += report.iterations;
    }
    fmt::print("{}\tall\t{}\n", seed, total);
  }
}
