// Annealed, damped semismooth Newton for quadratically regularised plans (docs/math.md, section 18).
#pragma once
#include <functional>
#include <span>

#include <monge/regularized.hpp>

#include "regularized/regularized_run.hpp"
#include "seam/backend.hpp"
#include "seam/quadratic_operator.hpp"

namespace monge {

/// The state of a solve, in the units of the operator.
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
  int passes = 0;  ///< No step begins after this many.
  std::span<double const> p, q;
  std::span<double const> u{}, v{};                         ///< Warm start, or empty.
  double weight = 0;                                        ///< The weight that u and v belong to; 0: the last one.
  std::function<bool(QuadraticProgress const&)> observe{};  ///< A call after the start and each step; false stops.
};

struct QuadraticNewtonResult {
  QuadraticProgress last;
  Status status;  ///< converged, iteration_limit, precision_limit or stopped.
};

/// Maximises the dual of `weight`, in inner units. If it is 0, weights fall until potentials that are feasible without
/// the term certify the tolerance. The operator keeps the result. Throws invalid_argument if there is no plan.
QuadraticNewtonResult solve_quadratic(QuadraticOperator& quadratic, double weight, QuadraticSettings const& settings);

/// Whether rounding may leave a larger residual than the tolerance with this weight, in the units of the costs inside.
bool is_too_small(double weight, RegularizedCosts const& costs, double tolerance);

/// Solves problems whose method is newton, each with its operator made, and fills in their reports except for the
/// set-up time. `index[k]` is the number of problem k for progress and ProblemError. With progress the problems are
/// solved in turn.
void run_newton(Backend const& backend, std::span<RegularizedRun* const> runs, std::span<int const> index,
                RegularizedOptions const& options);

}  // namespace monge
