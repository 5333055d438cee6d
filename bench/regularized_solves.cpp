// Whole solves of quadratically regularised plans: `regularized_solves [--cuda] [--float32] [--method M] [--absolute]
// [--tolerance R] [--shift D] [--costs FILE] [n weight]...` solves 2-D normal clouds of n points, one moved by (D, D),
// costs over the largest, to a residual of R, relative or, as RDROT has it, absolute; three times each, and prints a
// line of the fastest: passes or iterations, directions, steps of conjugate gradients, milliseconds of set-up, solve
// and evaluation. Weight 0: an optimal plan without the term. The first line is the provenance of the run.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include <monge/monge.hpp>

#include "provenance.hpp"

namespace {

using namespace monge;

struct Choice {
  bool cuda = false, float32 = false, absolute = false;
  RegularizedMethod method = RegularizedMethod::automatic;
  double tolerance = 5e-9;  // Relative: at most twice this in L1.
  double shift = 0.5;
  char const* costs = nullptr;  // A file of n x n float64 numbers, in the place of the clouds'.
};

template <class T>
std::vector<T> cloud_costs(std::int64_t n, double shift) {
  std::mt19937_64 random(7);
  std::normal_distribution<double> normal;
  std::vector<double> x(static_cast<std::size_t>(2 * n)), y(x.size()), cost(static_cast<std::size_t>(n * n));
  for (double& value : x) value = normal(random);
  for (double& value : y) value = normal(random) + shift;
  for (std::size_t i = 0, k = 0; i < x.size(); i += 2) {
    for (std::size_t j = 0; j < y.size(); j += 2, ++k)
      cost[k] = (x[i] - y[j]) * (x[i] - y[j]) + (x[i + 1] - y[j + 1]) * (x[i + 1] - y[j + 1]);
  }
  double const most = *std::max_element(cost.begin(), cost.end());
  std::vector<T> result;
  for (double const value : cost) result.push_back(static_cast<T>(value / most));
  return result;
}

template <class T>
std::vector<T> file_costs(char const* name, std::int64_t n) {
  std::vector<double> cost(static_cast<std::size_t>(n * n));
  std::FILE* const file = std::fopen(name, "rb");
  bool const is_read = file && std::fread(cost.data(), sizeof(double), cost.size(), file) == cost.size();
  if (file) std::fclose(file);
  if (!is_read) {
    std::fprintf(stderr, "%s: does not hold n x n numbers\n", name);
    std::exit(1);
  }
  return {cost.begin(), cost.end()};
}

template <class T>
void measure(Context const& context, Choice const& choice, std::int64_t n, double weight) {
  std::vector<T> const cost = choice.costs ? file_costs<T>(choice.costs, n) : cloud_costs<T>(n, choice.shift);
  Regularizer h;
  h.quadratic = weight;
  RegularizedOptions options;
  options.method = choice.method;
  options.criterion = RegularizedCriterion::residual;
  // |(p, q)|_2 of uniform masses.
  options.tolerance = choice.absolute ? choice.tolerance / std::sqrt(2 / static_cast<double>(n)) : choice.tolerance;
  RegularizedReport best;
  for (int run = 0; run < 3; ++run) {
    RegularizedReport const report =
        solve_regularized(context, CostMatrix{{cost.data(), n, n}}, {}, {}, h, options).report();
    if (run == 0 || report.seconds.iterations < best.seconds.iterations) best = report;
  }
  std::printf(
      "n %lld weight %g method %s status %s passes %d directions %d gradients %d residual_l1 %.2e gap %.1e "
      "active_a_row %.2f last_weight %.2e setup_ms %.2f solve_ms %.2f evaluate_ms %.2f\n",
      static_cast<long long>(n), weight, std::string(name(best.method)).c_str(), std::string(name(best.status)).c_str(),
      best.iterations, best.newton_steps, best.linear_iterations, best.marginal_error, best.gap,
      static_cast<double>(best.nonzeros) / static_cast<double>(n), best.weight, 1e3 * best.seconds.setup,
      1e3 * best.seconds.iterations, 1e3 * best.seconds.evaluation);
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  Choice choice;
  int k = 1;
  for (; k < argc && std::strncmp(argv[k], "--", 2) == 0; ++k) {
    if (std::strcmp(argv[k], "--cuda") == 0) choice.cuda = true;
    if (std::strcmp(argv[k], "--float32") == 0) choice.float32 = true;
    if (std::strcmp(argv[k], "--absolute") == 0) choice.absolute = true;
    if (std::strcmp(argv[k], "--method") == 0 && k + 1 < argc) choice.method = *from_name<RegularizedMethod>(argv[++k]);
    if (std::strcmp(argv[k], "--shift") == 0 && k + 1 < argc) choice.shift = std::atof(argv[++k]);
    if (std::strcmp(argv[k], "--costs") == 0 && k + 1 < argc) choice.costs = argv[++k];
    if (std::strcmp(argv[k], "--tolerance") == 0 && k + 1 < argc) choice.tolerance = std::atof(argv[++k]);
  }
  Context const context = choice.cuda ? Context::cuda() : Context::cpu();
  std::printf("# {%s}\n", bench::provenance_on(context.device()).c_str());
  for (; k + 1 < argc; k += 2) {
    auto const run = choice.float32 ? measure<float> : measure<double>;
    run(context, choice, std::atoll(argv[k]), std::atof(argv[k + 1]));
  }
}
