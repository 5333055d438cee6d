// The seam of quadratically regularised plans: the dual of
//   min_X <C, X> + lambda / 2 |X|^2,  X 1 = p,  X^T 1 = q,  X >= 0,
// which is  max p'u + q'v - |[u + v - C]_+|^2 / (2 lambda),  with X = [u + v - C]_+ / lambda, and the system of its
// semismooth Newton steps, whose matrix knows nothing but which entries are active (docs/math.md, section 18).
//
// What a pass over all pairs finds of (u, v), the sums of [u + v - C]_+ and which pairs are active, depends on no
// lambda: another lambda takes no pass.
#pragma once
#include <cstdint>
#include <span>

#include "regularized/regularized_operator.hpp"

namespace monge {

/// The dual at (u, v), for masses of 1 and costs of range 1.
struct QuadraticValues {
  double dual = 0;
  double penalty = 0;           ///< |[u + v - C]_+|^2 / (2 lambda), which the dual takes away.
  double gap = 0;               ///< <C, X> + lambda / 2 |X|^2 less the dual value.
  double residual_l1 = 0;       ///< |X 1 - p|_1 + |X^T 1 - q|_1
  double residual_squares = 0;  ///< |X 1 - p|_2^2 + |X^T 1 - q|_2^2
  std::int64_t active = 0;      ///< Pairs with u_i + v_j > C_ij.
};

/// How the direction of a step is to be found.
struct QuadraticDamping {
  double mu;         ///< Of the diagonal's share that is added to it.
  double tolerance;  ///< On the residual of the linear system, relative to its right-hand side.
  int most;          ///< Steps of conjugate gradients, after which the direction is taken as it is.
};

/// A direction (du, dv) has been found, and (u + du, v + dv) evaluated.
struct QuadraticStep {
  double slope =
      0;  ///< <gradient, direction>: twice what the dual rises by where no pair becomes active or ceases to be.
  double linear_rise = 0;  ///< p'du + q'dv: that of the dual but for the penalty.
  int linear_iterations = 0;
  QuadraticValues trial;
};

/// Points without mass take no part, but that evaluate() makes their potentials. All calls wait.
class QuadraticOperator : public RegularizedOperator {
 public:
  using RegularizedOperator::RegularizedOperator;
  /// Potentials, empty ones those of the dense plan of this lambda, for whose values this returns. A pass.
  virtual QuadraticValues start(double weight, std::span<double const> u, std::span<double const> v) = 0;
  /// From here on lambda is another. No pass.
  virtual QuadraticValues set_weight(double weight) = 0;
  /// ( [diag(M 1) M; M^T diag(M^T 1)] + mu D ) d = lambda gradient, M the active pairs of (u, v), D the larger of the
  /// diagonal and 1. A pass, of the trial.
  virtual QuadraticStep step(QuadraticDamping damping) = 0;
  /// Another trial: `fraction` of the direction of the last step. A pass.
  virtual QuadraticValues shorten(double fraction) = 0;
  /// The last trial becomes (u, v).
  virtual void accept() = 0;
};

}  // namespace monge
