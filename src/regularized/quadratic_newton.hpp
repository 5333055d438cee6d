// Annealed, damped semismooth Newton for quadratically regularised plans (docs/math.md, section 18).
#pragma once
#include <functional>
#include <span>

#include <monge/regularized.hpp>

#include "backend/backend.hpp"
#include "regularized/quadratic_operator.hpp"
#include "regularized/regularized_run.hpp"

namespace monge {

/// What a solve has reached, in the units of the operator.
struct QuadraticProgress {
  int passes = 0;             ///< Over all pairs.
  int steps = 0;              ///< Directions.
  int linear_iterations = 0;  ///< Steps of conjugate gradients.
  double weight = 0;
  double residual = 0;  ///< |(X 1 - p, X^T 1 - q)|_2 over |(p, q)|_2
  QuadraticValues values;
};

struct QuadraticSettings {
  double tolerance = 0;  ///< > 0, as RegularizedOptions has it.
  RegularizedCriterion criterion = RegularizedCriterion::gap;
  int passes = 0;  ///< No step begins after so many.
  std::span<double const> p, q;
  std::span<double const> u{}, v{};                         ///< Warm start, or empty.
  std::function<bool(QuadraticProgress const&)> observe{};  ///< After the start and each step; false: no more.
};

struct QuadraticNewtonResult {
  QuadraticProgress last;
  Status status;  ///< converged, iteration_limit, precision_limit or stopped.
};

/// Maximises the dual of this weight inside; of 0, of weights that fall until potentials that are feasible without the
/// term certify the tolerance. Leaves the operator there. Throws invalid_argument where no plan has these marginals.
QuadraticNewtonResult solve_quadratic(QuadraticOperator& quadratic, double weight, QuadraticSettings const& settings);

/// Whether rounding may leave a larger residual than the tolerance with this weight, in the units of the costs inside.
bool is_too_small(double weight, RegularizedCosts const& costs, double tolerance);

/// Solves problems whose method is newton, each with its operator made, and fills in their reports but for the time of
/// the set-up. `index[k]` is what progress and a ProblemError call problem k. With progress, one after the other.
void run_newton(Backend const& backend, std::span<RegularizedRun* const> runs, std::span<int const> index,
                RegularizedOptions const& options);

}  // namespace monge
