// The seam of quadratically regularised plans: the dual of
//   min_X <C, X> + lambda / 2 |X|^2,  X 1 = p,  X^T 1 = q,  X >= 0,
// which is max p'u + q'v - |[u + v - C]_+|^2 / (2 lambda), with X = [u + v - C]_+ / lambda, and the system of its
// semismooth Newton steps, whose matrix depends only on the active entries (docs/math.md, section 18).
//
// A pass over all pairs finds the sums of [u + v - C]_+ and the active pairs. Neither depends on lambda: another lambda
// takes no pass.
#pragma once
#include <cstdint>
#include <span>

#include "seam/regularized_operator.hpp"

namespace monge {

/// The dual at (u, v), for masses of 1 and costs of range 1.
struct QuadraticValues {
  double dual = 0;
  double penalty = 0;           ///< |[u + v - C]_+|^2 / (2 lambda), subtracted in the dual.
  double gap = 0;               ///< <C, X> + lambda / 2 |X|^2 less the dual value.
  double residual_l1 = 0;       ///< |X 1 - p|_1 + |X^T 1 - q|_1
  double residual_squares = 0;  ///< |X 1 - p|_2^2 + |X^T 1 - q|_2^2
  std::int64_t active = 0;      ///< Pairs with u_i + v_j > C_ij.
};

/// The parameters of a step's linear system.
struct QuadraticDamping {
  double mu;         ///< The fraction of the diagonal that is added to it.
  double tolerance;  ///< Bound of the linear system's residual, relative to its right-hand side.
  int most;          ///< Limit of conjugate gradient steps; the direction is then used as it is.
};

/// A direction (du, dv), and the values at (u + du, v + dv).
struct QuadraticStep {
  double slope = 0;        ///< <gradient, direction>: twice the dual's rise if the active pairs stay the same.
  double linear_rise = 0;  ///< p'du + q'dv: the dual's rise without the penalty.
  int linear_iterations = 0;
  QuadraticValues trial;
};

/// Points without mass take no part; evaluate() makes their potentials. All calls wait.
class QuadraticOperator : public RegularizedOperator {
 public:
  using RegularizedOperator::RegularizedOperator;
  /// Sets (u, v) and returns their values. Empty ones stand for the potentials of the plan without the constraint X >=
  /// 0, with which about half of the pairs are active. One pass.
  virtual QuadraticValues start(double weight, std::span<double const> u, std::span<double const> v) = 0;
  /// Changes lambda. No pass.
  virtual QuadraticValues set_weight(double weight) = 0;
  /// ( [diag(M 1) M; M^T diag(M^T 1)] + mu D ) d = lambda gradient, M the active pairs of (u, v), D the larger of the
  /// diagonal and 1. One pass, of the trial.
  virtual QuadraticStep step(QuadraticDamping damping) = 0;
  /// Another trial: `fraction` of the direction of the last step. One pass.
  virtual QuadraticValues shorten(double fraction) = 0;
  /// The last trial becomes (u, v).
  virtual void accept() = 0;
};

}  // namespace monge
