// Anderson's mixing of sweeps: the next sweep starts from a combination of the images of the last ones.
#pragma once
#include <memory>
#include <vector>

#include "seam/backend.hpp"

namespace monge {

/// A plain sweep maps g to T(g). Near the fixed point the residual r(g) of an affine combination of several g is nearly
/// that of their residuals, so a combination of the T(g) is a better g: the one whose residuals combine to the shortest
/// r (docs/math.md, section 5). The residual is the relative error of each column,
///   r_j = b_j^(1/2) (1 - exp((g_j - T(g)_j - t) / eps)),   t = sum_j b_j (g_j - T(g)_j) / sum b,
/// which is at most b_j^(1/2) however far away g is, and knows no constant in g. The combination of the potentials f
/// has the same weights, and so stays the partner of g. A sweep from a g that is far away may leave a large constant,
/// which would take the digits of the potentials: a combination goes back to the mean of the first g.
///
/// After add() the operator has the best image. All work is on the backend's vectors, so every rank and every number of
/// threads finds the same bits.
class AndersonMixing {
 public:
  /// `b`: the weights of the columns. Backend and operator outlive this object.
  AndersonMixing(EntropicBackend const& backend, EntropicOperator& entropic, std::vector<double> const& b);
  ~AndersonMixing();

  /// Forgets all sweeps; the next one starts from the present potentials.
  void start();
  /// Puts the combination of the images into the operator, or the last image if there are fewer than two.
  void combine();
  /// A plain sweep at eps has followed start() or combine(). If its image is not the best (`is_best`), the operator
  /// gets the best one back.
  void add(double eps, bool is_best);

 private:
  EntropicBackend const& backend_;
  EntropicOperator& entropic_;
  VectorOperations const& vectors_;
  Mixture mixture_;
  std::unique_ptr<Vector> best_f_, best_g_;  // The best image, unless that is the newest.
  std::unique_ptr<Vector> next_f_, next_g_;  // The newest image, unless that is the best.
  bool newest_is_best_ = false;
};

}  // namespace monge
