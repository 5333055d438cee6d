// Whether a product with a plan needs shares that are too small for its arithmetic.
#pragma once
#include <algorithm>
#include <cmath>
#include <limits>

namespace monge {

/// A product P v sums shares P_ij / r_i times v_j, and no arithmetic holds a share below some number. A lost share
/// changes the sum where a point j of little mass has a large |v_j|, as in P^T (1 / r). Such a v is concentrated: its
/// largest entry is above `reach` times its mean by the masses of the points. The product is then taken as P' sign(v)
/// with P'_ij = P_ij |v_j|, the plan of the potentials g_j + eps log |v_j|, whose largest share of a row is held.
class Concentration {
 public:
  /// A point of mass m_j > 0, with |v_j|.
  void add(double mass, double size) {
    mass_ += mass;
    met_ += mass * size;
    largest_ = std::max(largest_, size);
    if (size > 0) least_ = std::min(least_, size);
  }
  /// `are_marginals`: masses are the marginals of the plan. Weights may be far above them, so a v of a very wide range
  /// counts as concentrated, too. A v that is not finite does not.
  bool exceeds(double reach, bool are_marginals) const {
    if (!std::isfinite(largest_ + met_)) return false;
    return largest_ * mass_ > reach * met_ || (!are_marginals && largest_ > 0x1p30 * reach * least_);
  }

 private:
  double mass_ = 0, met_ = 0, largest_ = 0;
  double least_ = std::numeric_limits<double>::infinity();
};

}  // namespace monge
