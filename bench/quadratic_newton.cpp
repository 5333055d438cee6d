// Quadratically regularised plans by Newton's method, on the operator: `quadratic_newton [--cuda] [--float32]
// [--tolerance R] [--costs FILE | --points] [n weight]...` solves 2-D clouds of n points, costs over the largest, to a
// residual of R (relative, of the marginals), twice each, and prints a line of the second: passes, directions, steps of
// conjugate gradients, milliseconds of set-up, solve and evaluation. Weight 0: an optimal plan without the term.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <vector>

#include <monge/monge.hpp>

#include "operators/backend.hpp"
#include "solvers/quadratic_newton.hpp"

namespace {

using namespace monge;

struct Choice {
  bool cuda = false, float32 = false;
  bool points = false;          // Costs are made as they are needed.
  double tolerance = 5e-9;      // At most twice this in L1.
  char const* costs = nullptr;  // A file of n x n float64 numbers, in the place of the clouds'.
};

struct Clouds {
  explicit Clouds(std::int64_t n) : x(static_cast<std::size_t>(2 * n)), y(x.size()) {
    std::mt19937_64 random(7);
    std::normal_distribution<double> normal;
    for (double& value : x) value = normal(random);
    for (double& value : y) value = normal(random) + 0.5;
  }
  std::vector<double> x, y;
};

template <class T>
std::vector<T> cloud_costs(Clouds const& clouds) {
  std::vector<double> const &x = clouds.x, &y = clouds.y;
  std::vector<double> cost(x.size() * x.size() / 4);
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
  using Clock = std::chrono::steady_clock;
  auto const ms = [](Clock::duration time) { return std::chrono::duration<double, std::milli>(time).count(); };
  Clouds const clouds(n);
  std::vector<T> const cost = choice.costs ? file_costs<T>(choice.costs, n) : cloud_costs<T>(clouds);
  std::vector<double> const uniform(static_cast<std::size_t>(n), 1 / static_cast<double>(n));
  Geometry geometry = CostMatrix{{cost.data(), n, n}};
  if (choice.points) {
    PointCloud points{{clouds.x.data(), n, 2}, {clouds.y.data(), n, 2}};
    double most = 0;
    for (std::size_t i = 0; i < clouds.x.size(); i += 2) {
      for (std::size_t j = 0; j < clouds.y.size(); j += 2)
        most = std::max(most, std::pow(clouds.x[i] - clouds.y[j], 2) + std::pow(clouds.x[i + 1] - clouds.y[j + 1], 2));
    }
    points.scale = 1 / most;
    geometry = points;
  }
  RegularizerTerms terms;
  terms.quadratic = weight;
  for (int run = 0; run < 2; ++run) {
    auto const begin = Clock::now();
    auto const quadratic =
        backend_of(context).quadratic_operator({geometry, uniform, uniform, 1, terms, Precision::float64});
    auto const made = Clock::now();
    QuadraticSettings settings;
    settings.tolerance = choice.tolerance;
    settings.passes = 5000;
    settings.criterion = RegularizedCriterion::residual;
    settings.p = settings.q = uniform;
    QuadraticNewtonResult const result = solve_quadratic(*quadratic, quadratic->scale().quadratic(weight), settings);
    auto const solved = Clock::now();
    RegularizedValues const values = quadratic->evaluate();
    auto const evaluated = Clock::now();
    if (run == 0) continue;
    QuadraticProgress const& last = result.last;
    std::printf(
        "n %lld weight %g status %s passes %d directions %d gradients %d residual_l1 %.2e gap %.1e active_a_row %.2f "
        "last_weight %.2e setup_ms %.2f solve_ms %.2f evaluate_ms %.2f\n",
        static_cast<long long>(n), weight, std::string(name(result.status)).c_str(), last.passes, last.steps,
        last.linear_iterations, last.values.residual_l1, values.transport_cost + values.regularization - values.dual,
        static_cast<double>(last.values.active) / static_cast<double>(n), last.weight, ms(made - begin),
        ms(solved - made), ms(evaluated - solved));
    std::fflush(stdout);
  }
}

}  // namespace

int main(int argc, char** argv) {
  Choice choice;
  int k = 1;
  for (; k < argc && std::strncmp(argv[k], "--", 2) == 0; ++k) {
    if (std::strcmp(argv[k], "--cuda") == 0) choice.cuda = true;
    if (std::strcmp(argv[k], "--points") == 0) choice.points = true;
    if (std::strcmp(argv[k], "--float32") == 0) choice.float32 = true;
    if (std::strcmp(argv[k], "--costs") == 0 && k + 1 < argc) choice.costs = argv[++k];
    if (std::strcmp(argv[k], "--tolerance") == 0 && k + 1 < argc) choice.tolerance = std::atof(argv[++k]);
  }
  Context const context = choice.cuda ? Context::cuda() : Context::cpu();
  for (; k + 1 < argc; k += 2) {
    auto const run = choice.float32 ? measure<float> : measure<double>;
    run(context, choice, std::atoll(argv[k]), std::atof(argv[k + 1]));
  }
}
