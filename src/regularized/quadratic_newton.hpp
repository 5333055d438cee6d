// Annealed, damped semismooth Newton for quadratically regularised plans (docs/math.md, section 18).
#pragma once
#include <limits>
#include <optional>
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
  std::span<double const> u{}, v{};  ///< Warm start, or empty.
  double weight = 0;                 ///< The weight that u and v belong to; 0: the last one.
};

/// Maximises the dual of `weight`, in inner units, one step at a time. If the weight is 0, weights fall until
/// potentials that are feasible without the term certify the tolerance. The operator keeps the result.
class QuadraticNewtonMethod {
 public:
  /// Makes the first pass over all pairs. The operator and the arrays behind the settings outlive this object.
  QuadraticNewtonMethod(QuadraticOperator& quadratic, double weight, QuadraticSettings const& settings);

  QuadraticProgress const& now() const { return now_; }
  /// Takes a step, or returns the end: converged, iteration_limit or precision_limit. Throws invalid_argument if there
  /// is no plan.
  std::optional<Status> advance();

 private:
  /// The damping of Levenberg and Marquardt.
  class Damping {
   public:
    double value() const { return mu_; }
    /// Adapts mu to a whole step whose rise was `ratio` of the model's. The first step after a refusal does not lessen
    /// mu.
    void accepted(double ratio);
    /// Adapts mu to a step that was refused as a whole and accepted in part: newly active pairs make the curvature of
    /// the dual 2 - ratio times the curvature of the model.
    void shortened(double ratio);
    void refused(double ratio);

   private:
    double mu_ = 1e-2;
    bool was_refused_ = false;
  };

  void set(QuadraticValues const& values);
  /// Gaps are relative to this value.
  double size() const;
  bool is_converged() const;
  /// The last weight.
  double goal_weight() const;
  /// Takes a step and returns the slope of its direction; 0 if no step was taken.
  double step(bool is_last);
  double rounding() const;
  double ratio_of(QuadraticStep const& step, double fraction) const;
  void require_bounded() const;

  QuadraticOperator& quadratic_;
  double target_;
  QuadraticSettings settings_;
  double marginal_squares_ = 0, concentration_ = 0;
  Damping damping_;
  QuadraticProgress now_;
  double least_ = std::numeric_limits<double>::infinity();  // Residual.
  int refusals_ = 0;                                        // In a row.
};

/// Whether rounding may leave a larger residual than the tolerance with this weight, in the units of the costs inside.
bool is_too_small(double weight, RegularizedCosts const& costs, double tolerance);

/// Solves problems whose method is newton, each with its operator made, and fills in their reports except for the
/// set-up time. `index[k]` is the number of problem k for progress and ProblemError.
void run_newton(Backend const& backend, std::span<RegularizedRun* const> runs, std::span<int const> index,
                RegularizedOptions const& options);

}  // namespace monge
