// Quadratically regularised plans by Newton's method: `quadratic_newton [--device cuda] [n weight]...` prints passes,
// steps, steps of conjugate gradients and milliseconds.
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include <monge/monge.hpp>

#include "operators/backend.hpp"
#include "solvers/quadratic_newton.hpp"

int main(int argc, char** argv) {
  using namespace monge;
  Context const context = Context::cpu(2);
  for (int k = 1; k + 1 < argc; k += 2) {
    std::int64_t const n = std::atol(argv[k]);
    double const weight = std::atof(argv[k + 1]);
    std::mt19937_64 random(7);
    std::normal_distribution<double> normal;
    std::vector<double> x(2 * n), y(2 * n), cost(n * n), uniform(n, 1.0 / n);
    for (double& value : x) value = normal(random);
    for (double& value : y) value = normal(random) + 0.5;
    double most = 0;
    for (std::int64_t i = 0; i < n; ++i)
      for (std::int64_t j = 0; j < n; ++j) {
        double const dx = x[2 * i] - y[2 * j], dy = x[2 * i + 1] - y[2 * j + 1];
        most = std::max(most, cost[i * n + j] = dx * dx + dy * dy);
      }
    for (double& value : cost) value /= most;
    Geometry const geometry = CostMatrix{MatrixView(cost.data(), n, n)};
    RegularizerTerms terms;
    terms.quadratic = weight;
    for (int run = 0; run < 2; ++run) {
      auto const begin = std::chrono::steady_clock::now();
      auto const op =
          backend_of(context).quadratic_operator({geometry, uniform, uniform, 1, terms, Precision::float64});
      auto const set = std::chrono::steady_clock::now();
      QuadraticSettings settings;
      settings.tolerance = 5e-9;
      settings.passes = 3000;
      settings.criterion = RegularizedCriterion::residual;
      settings.p = settings.q = uniform;
      auto const r = solve_quadratic(*op, op->scale().quadratic(weight), settings);
      auto const end = std::chrono::steady_clock::now();
      auto const ms = [](auto d) { return std::chrono::duration<double, std::milli>(d).count(); };
      std::printf(
          "n %ld weight %g: passes %d steps %d cg %d residual %.1e active/row %.2f weight %.2e dual %.12g status %d "
          "setup %.1f ms solve %.1f ms\n",
          long(n), weight, r.last.passes, r.last.steps, r.last.linear_iterations, r.last.values.residual_l1,
          double(r.last.values.active) / n, r.last.weight, r.last.values.dual, int(r.status), ms(set - begin),
          ms(end - set));
    }
  }
}
