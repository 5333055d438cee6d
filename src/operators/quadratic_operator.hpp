// The seam of quadratically regularised plans: the dual of
//   min_X <C, X> + lambda / 2 |X|^2,  X 1 = p,  X^T 1 = q,  X >= 0,
// which is  max p'u + q'v - |[u + v - C]_+|^2 / (2 lambda),  with X = [u + v - C]_+ / lambda, and the system of its
// semismooth Newton steps, whose matrix knows nothing but which entries are active (docs/math.md, section 18).
#pragma once
#include <cstdint>

#include "operators/regularized_operator.hpp"
#include "operators/vectors.hpp"

namespace monge {

/// The dual at (u, v), for masses of 1 and costs of range 1.
struct QuadraticValues {
  double dual;
  double residual_l1;       ///< |X 1 - p|_1 + |X^T 1 - q|_1
  double residual_squares;  ///< |X 1 - p|_2^2 + |X^T 1 - q|_2^2
  std::int64_t active;      ///< Pairs with u_i + v_j > C_ij.
};

/// Vectors are those of vectors(). Nothing but evaluations waits.
class QuadraticOperator : public RegularizedOperator {
 public:
  using RegularizedOperator::RegularizedOperator;
  virtual VectorOperations const& vectors() const = 0;
};

}  // namespace monge
