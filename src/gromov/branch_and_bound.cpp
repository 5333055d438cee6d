#include "gromov/branch_and_bound.hpp"

#include <algorithm>
#include <cmath>

namespace monge {
namespace {

constexpr int kSteps = 4;           // Steps to the minimum of a simplex, for each corner.
constexpr double kAccuracy = 0.05;  // Its error, as a share of the bound's distance to the target.
constexpr double kEven = 1e-3;      // A weight of edges that the minimum does not feel, so that no edge stays for ever.

// Without allocations: a simplex has few corners, and there may be millions of them.
constexpr int kMost = kMostDimensions + 2;
using SmallMatrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor, kMost, kMost>;
using SmallVector = Eigen::Matrix<double, Eigen::Dynamic, 1, Eigen::ColMajor, kMost, 1>;

/// The weights w of the corners at which w^T gram w + <w, value> is least on the simplex, and a lower bound of it.
class LeastPoint {
 public:
  /// By Wolfe's active-set method. For every w the tangent of the convex part at w gives a bound: the least slope minus
  /// w^T gram w.
  LeastPoint(SmallMatrix const& gram, SmallVector const& value, double target) : gram_(gram), value_(value) {
    std::int64_t to = 0;
    (gram.diagonal() + value).minCoeff(&to);
    weights = SmallVector::Unit(value.size(), to);
    for (std::int64_t step = 0; step < kSteps * value.size(); ++step) {
      SmallVector const product = gram * weights, slope = 2 * product + value;
      double const square = weights.dot(product);
      bound = std::max(bound, slope.minCoeff(&to) - square);
      bool const is_near = square + weights.dot(value) - bound <= kAccuracy * (target - bound);
      if (bound >= target || is_near || weights(to) > 0) return;
      active_.assign(1, to);
      for (std::int64_t k = 0; k < weights.size(); ++k)
        if (weights(k) > 0) active_.push_back(k);
      while (!settle()) {
      }
    }
  }

  SmallVector weights;
  double bound = -kInfinity;

 private:
  /// Moves to the minimum over the active corners, or until the first weight is 0 on the way; then this corner leaves.
  bool settle() {
    auto const size = static_cast<std::int64_t>(active_.size());
    double const unit = gram_.diagonal().maxCoeff();
    SmallMatrix system = SmallMatrix::Constant(size + 1, size + 1, unit);
    SmallVector right = SmallVector::Constant(size + 1, unit);
    system(size, size) = 0;
    for (std::int64_t k = 0; k < size; ++k) {
      right(k) = -value_(active_[to_size(k)]);
      for (std::int64_t l = 0; l < size; ++l) system(k, l) = 2 * gram_(active_[to_size(k)], active_[to_size(l)]);
    }
    SmallVector const goal = system.partialPivLu().solve(right);
    double length = 1;
    std::int64_t leaves = -1;
    for (std::int64_t k = 0; k < size; ++k) {
      double const weight = weights(active_[to_size(k)]);
      if (goal(k) > 0 || weight / (weight - goal(k)) > length) continue;
      length = weight > 0 ? weight / (weight - goal(k)) : 0;
      leaves = k;
    }
    if (!goal.allFinite()) return true;
    for (std::int64_t k = 0; k < size; ++k) {
      double& weight = weights(active_[to_size(k)]);
      weight = k == leaves ? 0 : std::max(weight + length * (goal(k) - weight), 0.0);
    }
    if (leaves < 0) return true;
    active_.erase(active_.begin() + leaves);
    return active_.size() <= 1;
  }

  SmallMatrix const& gram_;
  SmallVector const& value_;
  std::vector<std::int64_t> active_;  // Corners that may have weight.
};

}  // namespace

BranchAndBound::BranchAndBound(ImagePolytope polytope, double rounding)
    : polytope_(std::move(polytope)), rounding_(rounding) {}

void BranchAndBound::run(Evaluate const& evaluate, std::function<double()> const& target) {
  if (!cover(evaluate, target)) return;
  while (!open_.empty() && open_.top().bound < target()) {
    Simplex const simplex = open_.top();
    auto const [from, to] = simplex.edge;
    auto const ends = std::minmax(simplex.corners[from], simplex.corners[to]);
    if (!middles_.contains(ends)) {
      if (!visit(evaluate, (corners_[ends.first].at + corners_[ends.second].at) / 2)) return;
      middles_[ends] = corners_.size() - 1;
    }
    open_.pop();
    for (std::size_t const k : {from, to}) {
      std::vector<std::size_t> half = simplex.corners;
      half[k] = middles_[ends];
      add(std::move(half), target());
    }
  }
}

/// The origin and the corners on both sides of it make a simplex of each choice of signs.
bool BranchAndBound::cover(Evaluate const& evaluate, std::function<double()> const& target) {
  if (!visit(evaluate, polytope_.origin)) return false;
  for (DenseMatrix const& corner : polytope_.corners)
    if (!visit(evaluate, corner) || !visit(evaluate, -corner)) return false;
  closed_ = kInfinity;
  for (std::size_t signs = 0; signs < std::size_t{1} << polytope_.corners.size(); ++signs) {
    std::vector<std::size_t> simplex{0};
    for (std::size_t k = 0; k < polytope_.corners.size(); ++k) simplex.push_back(1 + 2 * k + (signs >> k & 1));
    add(std::move(simplex), target());
  }
  return true;
}

bool BranchAndBound::visit(Evaluate const& evaluate, DenseMatrix const& image) {
  std::optional<CornerValue> found = evaluate(image);
  if (found) corners_.push_back(std::move(*found));
  return found.has_value();
}

void BranchAndBound::add(std::vector<std::size_t> corners, double target) {
  auto const size = static_cast<std::int64_t>(corners.size());
  Simplex simplex{-kInfinity, std::move(corners), {}};
  auto const at = [&](std::int64_t k) -> CornerValue const& { return corners_[simplex.corners[to_size(k)]]; };
  SmallMatrix gram(size, size);
  SmallVector value(size);
  for (std::int64_t k = 0; k < size; ++k) {
    value(k) = at(k).value;
    for (std::int64_t l = 0; l <= k; ++l)
      gram(k, l) = gram(l, k) = polytope_.factor * at(k).at.cwiseProduct(at(l).at).sum();
  }
  LeastPoint const least(gram, value, target);
  simplex.bound = least.bound;
  // The interpolation misses a quadratic h by the sum over edges of w_k w_l times half of the change of slope.
  double most = 0, largest = 0;
  for (std::int64_t k = 0; k < size; ++k) {
    for (std::int64_t l = 0; l < k; ++l) {
      double const change = 2 * polytope_.factor * (at(k).image - at(l).image).cwiseProduct(at(k).at - at(l).at).sum();
      largest = std::max(largest, change);
      double const share = change * (least.weights(k) * least.weights(l) + kEven);
      if (share <= most) continue;
      most = share;
      simplex.edge = {to_size(k), to_size(l)};
    }
  }
  if (simplex.bound >= target || largest <= rounding_) {
    closed_ = std::min(closed_, simplex.bound);
  } else {
    open_.push(std::move(simplex));
  }
}

}  // namespace monge
