// Annealed, damped semismooth Newton for quadratically regularised plans (docs/math.md, section 18).
#pragma once
#include <functional>
#include <span>
#include <string>

#include <monge/regularized.hpp>

#include "operators/quadratic_operator.hpp"

namespace monge {

/// What a solve has reached, in the units of the operator.
struct QuadraticProgress {
  int passes = 0;
  double weight = 0;
  QuadraticValues values;
};

struct QuadraticSettings {
  double tolerance = 0;  ///< As RegularizedOptions has it; 0: `passes` passes.
  RegularizedCriterion criterion = RegularizedCriterion::gap;
  int passes = 0;               ///< No step begins after so many.
  std::span<double const> u{};  ///< Warm start, or empty.
  std::span<double const> v{};
  double marginal_norm = 1;                                 ///< |(p, q)|_2, which residuals are relative to.
  std::function<bool(QuadraticProgress const&)> observe{};  ///< After each pass; false: no more.
};

struct QuadraticNewtonResult {
  int passes = 0;             ///< Over all pairs.
  int steps = 0;              ///< Directions.
  int linear_iterations = 0;  ///< Steps of conjugate gradients.
  double weight = 0;          ///< The last.
  QuadraticValues values;
  Status status = Status::completed;  ///< iteration_limit, precision_limit, stopped too.
};

/// Maximises the dual of this weight, inside; of 0: of weights that fall until the plan of the last is as good as
/// optimal without the term. Leaves the operator there. Throws invalid_argument where no plan has these marginals.
QuadraticNewtonResult solve_quadratic(QuadraticOperator& quadratic, double weight, QuadraticSettings const& settings);

}  // namespace monge
