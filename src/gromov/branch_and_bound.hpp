// A lower bound of a Gromov-Wasserstein problem, as tight as one waits for (docs/math.md, section 21).
#pragma once
#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <queue>
#include <utility>
#include <vector>

#include "core/numbers.hpp"
#include "gromov/gromov_problem.hpp"

namespace monge {

/// The most dimensions of a polytope of images; it is cut into 512 simplices at first.
inline constexpr int kMostDimensions = 9;

/// An exact problem at an image A: h(A) = constant + min <C_A, .>, bounded from below, and the image of its plan.
struct CornerValue {
  DenseMatrix at, image;
  double value = 0;
};

/// Bounds factor |A|^2 + h(A) from below over simplices that cover all images. h is concave, so on a simplex it lies
/// above its interpolation from the corners. The simplex of the least bound is cut in two at the middle of an edge.
class BranchAndBound {
 public:
  /// Nothing is returned if the search must stop.
  using Evaluate = std::function<std::optional<CornerValue>(DenseMatrix const&)>;

  /// Values that differ by at most `rounding` are equal.
  BranchAndBound(ImagePolytope polytope, double rounding);

  /// Ends when bound() has reached target(), which may fall, when `evaluate` stops it, or when h is linear on each
  /// simplex below the target.
  void run(Evaluate const& evaluate, std::function<double()> const& target);
  /// factor |A|^2 + h(A) is nowhere below it; -infinity before the first simplices.
  double bound() const { return open_.empty() ? closed_ : std::min(closed_, open_.top().bound); }

 private:
  struct Simplex {
    double bound;
    std::vector<std::size_t> corners;
    std::pair<std::size_t, std::size_t> edge;  // Positions in `corners`.
    bool operator<(Simplex const& other) const { return bound > other.bound; }
  };

  bool cover(Evaluate const& evaluate, std::function<double()> const& target);
  bool visit(Evaluate const& evaluate, DenseMatrix const& image);
  /// Bounds the simplex, and keeps it if it must be cut.
  void add(std::vector<std::size_t> corners, double target);

  ImagePolytope polytope_;
  double rounding_, closed_ = -kInfinity;  // The least bound of simplices that are not cut any more.
  std::vector<CornerValue> corners_;
  std::map<std::pair<std::size_t, std::size_t>, std::size_t> middles_;
  std::priority_queue<Simplex> open_;
};

}  // namespace monge
