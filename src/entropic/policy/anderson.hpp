// Anderson's mixing of sweeps: the next sweep starts from a combination of the images of the last ones.
#pragma once
#include <algorithm>
#include <array>
#include <memory>
#include <vector>

#include "seam/entropic_operator.hpp"

namespace monge {

/// A plain sweep maps g to T(g). Near the fixed point the residual r(g) of an affine combination of several g is nearly
/// that of their residuals, so a combination of the T(g) is a better g: the one whose residuals combine to the shortest
/// r (docs/math.md, section 5). The residual is the relative error of each column,
///   r_j = b_j^(1/2) (1 - exp((g_j - T(g)_j - t) / eps)),   t = sum_j b_j (g_j - T(g)_j) / sum b,
/// which is at most b_j^(1/2) however far away g is, and knows no constant in g. The combination of the potentials f
/// has the same weights, and so stays the partner of g. A sweep from a g that is far away may leave a large constant,
/// which would take the digits of the potentials: a combination goes back to the mean of the first g.
///
/// After add() the operator has the best image. All work is vector operations, so every rank and every number of
/// threads finds the same bits.
class AndersonMixing {
 public:
  /// `b`: the weights of the columns. The operator outlives this object.
  AndersonMixing(EntropicOperator& entropic, std::vector<double> const& b);
  ~AndersonMixing();

  /// Forgets all sweeps; the next one starts from the present potentials.
  void start();
  /// Puts the combination of the images into the operator. With less than two images it is the last one.
  void combine();
  /// A plain sweep at eps has followed start() or combine(). If its image is not the best (`is_best`), the operator
  /// gets the best one back.
  void add(double eps, bool is_best);

 private:
  static constexpr int kDepth = 4;  // Differences of images in a combination.
  using Weights = std::array<double, kDepth>;

  /// Potentials after a sweep, and the residual before it.
  struct Image {
    std::unique_ptr<Vector> f, g, residual;
    double mean = 0;  // sum b g / sum b
  };

  /// The number of differences of images that there are.
  std::size_t count() const { return static_cast<std::size_t>(std::clamp(images_ - 1, 0, kDepth)); }
  Image make_image() const;
  /// Finds the mean, too.
  void find_residual(Image& image) const;
  void absorb();
  Weights weights() const;
  void take_away(Weights const& weights, std::unique_ptr<Vector> Image::*part, Vector& out) const;

  EntropicOperator& entropic_;
  VectorOperations const& vectors_;
  double mass_;                              // sum b
  std::unique_ptr<Vector> weight_, root_;    // b, b^(1/2)
  std::unique_ptr<Vector> start_;            // The g from which the last sweep started
  double eps_ = 0;                           // and its eps.
  double mean_ = 0;                          // The mean of all starts, as of Image.
  bool is_added_ = false;                    // Whether `next_` is the image of that sweep.
  std::unique_ptr<Vector> best_f_, best_g_;  // The best image, unless that is the newest.
  bool newest_is_best_ = false;
  Image last_, next_;
  int images_ = 0;                         // Since the start, without `next_`.
  std::array<Image, kDepth> differences_;  // Differences of images in turn; a ring.
  std::array<Weights, kDepth> gram_{};     // Inner products of the differences of residuals
  Weights right_{};                        // and of these with the last residual.
};

}  // namespace monge
