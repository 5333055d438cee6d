#include "solvers/quadratic_newton.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstdio>

#include <monge/error.hpp>

namespace monge {
namespace {
double env(char const* name, double value) {
  char const* s = std::getenv(name);
  return s ? std::atof(s) : value;
}
}  // namespace

QuadraticNewtonResult solve_quadratic(QuadraticOperator& quadratic, double weight, QuadraticSettings const& settings) {
  QuadraticNewtonResult result;
  double const START = env("START", 0.1), FACTOR = env("FACTOR", 0.2), RUNG = env("RUNG", 0.1), CG = env("CG", 1e-3);
  double const UP = env("UP", 1), KEEP = env("KEEP", 0);
  bool const verbose = env("VERBOSE", 0);
  double level = std::max(weight, START * std::sqrt(double(quadratic.rows()) * double(quadratic.columns())));
  QuadraticValues now = quadratic.start(level, settings.u, settings.v);
  result.passes = 1;
  double mu = 1e-2, factor = FACTOR;
  int in_rung = 0;
  for (;;) {
    bool const last = level <= weight * (1 + 1e-9);
    double const residual = std::sqrt(now.residual_squares) / settings.marginal_norm;
    if (last && residual <= settings.tolerance) { result.status = Status::converged; break; }
    if (!last && now.residual_l1 <= RUNG) {
      if (in_rung <= UP) factor = std::max(factor * 0.5, 0.02); else if (in_rung > UP + 2) factor = std::min(0.4, factor * 1.6);
      if (KEEP) factor = FACTOR;
      level = std::max(level * factor, weight);
      now = quadratic.set_weight(level);
      if (verbose) std::printf("level %g residual %g\n", level, now.residual_l1);
      in_rung = 0;
      continue;
    }
    if (result.passes >= settings.passes) { result.status = Status::iteration_limit; break; }
    double tol = CG;
    if (last) tol = std::clamp(0.3 * settings.tolerance / residual, 1e-10, CG);
    QuadraticStep const step = quadratic.step({mu + 1e-9, tol});
    result.passes += 1; result.steps += 1; in_rung += 1; result.linear_iterations += step.linear_iterations;
    double const ratio = step.slope > 0 ? (step.trial.dual - now.dual) / (step.slope / 2) : -1;
    if (verbose) std::printf("  pass %d mu %.1e ratio %.3f residual %.2e -> %.2e active %ld cg %d\n", result.passes, mu, ratio, now.residual_l1, step.trial.residual_l1, long(step.trial.active), step.linear_iterations);
    if (ratio > 0.05) {
      quadratic.accept();
      now = step.trial;
      if (ratio > 0.6) mu = std::max(mu / 5, 1e-9);
      else if (ratio < 0.25) mu = std::min(3 * mu, 1e3);
    } else {
      mu = std::min(8 * mu, 1e4);
    }
  }
  result.weight = level;
  result.values = now;
  return result;
}

}  // namespace monge
