// The seam of regularised plans: the operations of a problem for solvers, whatever its backend.
//
//   min_X <C, X> + h(X),  X 1 = p,  X^T 1 = q,  X >= 0
//
// Inside, costs begin at 0 and have range 1, and masses sum to 1; potentials, steps and values cross the seam in these
// units (CostScale). Only functions for plans use the user's units.
#pragma once
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <monge/array.hpp>
#include <monge/regularized.hpp>

#include "core/side.hpp"
#include "seam/separable.hpp"
#include "seam/slope_table.hpp"

namespace monge {

/// The terms of h as the user gave them, checked for shape and sign, with groups and their weights on the host.
/// Group lasso has groups of rows or of pairs; both are empty without the term. W and the mask are read, and checked,
/// with the costs, and so are valid labels of pairs.
struct RegularizerTerms {
  double quadratic = 0;
  double group_lasso = 0;
  std::vector<std::int32_t> groups;   // (n)
  IndexMatrixView pair_groups;        // (n x m)
  std::vector<double> group_weights;  // One for each group.
  double l1 = 0;
  MatrixView l1_weights;
  double hypentropy = 0, hypentropy_width = 1;
  MatrixView mask;
  std::shared_ptr<SeparableFunctions> separable;  // Functions of a separable term or of `slopes`; null without both.
  std::shared_ptr<SlopeTable const> slopes;       // Slopes in the user's units; null without that term.

  /// The name of the term that `separable` has.
  char const* own_name() const { return slopes ? "slopes" : "separable"; }
};

/// The user's cost c is (c - offset) / range inside. Allowed pairs whose points both have mass decide on both: the
/// offset is their least cost, and the range is the largest c - offset + lambda_1 W of those that are not dear
/// (CostSearch). If that is 0, all values come from h: the range is then the slope of h at equal entries, or 1 if h is
/// 0. Pairs of a point without mass may cost less than the offset. Operators count their cost as 0 inside, and
/// splitting lowers the potentials of such points by `depth`. Masses are in units of `mass`.
struct CostScale {
  double offset = 0, range = 1, mass = 1;
  double most = 1;      ///< The largest cost inside of two points with mass: above 1 with dear pairs.
  double gap_unit = 1;  ///< Gaps are relative to at least a part of this cost inside (CostSearch).
  double depth = 0;     ///< How far the costs of points without mass lie below the offset, in the user's units.

  /// The weights of the terms inside.
  double quadratic(double weight) const { return weight * mass / range; }
  double linear(double weight) const { return weight / range; }  // The weight of group_lasso, l1 or hypentropy.
  double width(double beta) const { return beta / mass; }
  /// Smaller costs inside count as this.
  double floor() const { return depth > 0 ? 0 : -std::numeric_limits<double>::infinity(); }
};

/// A checked problem, except for the values of matrices and points. p and q are shares of the mass.
struct RegularizedInput {
  Geometry const& geometry;
  std::vector<double> const& p;
  std::vector<double> const& q;
  double mass;
  RegularizerTerms const& terms;
  bool means = true;  // Quadratic operators need the means of the costs; splitting does not.
};

/// The search for the costs that a plan needs, among the allowed pairs whose points both have mass. It asks for surveys
/// of the pairs up to some cost, here 1 % of the range, until this leaves too few pairs.
///
/// Pairs that cost more are dear if each point keeps partners with a share kUnitShare > 1/2 of the other side's mass
/// without them. Then a plan without dear pairs exists, and no optimal plan needs one (docs/math.md, section 17): they
/// are as good as forbidden, and the others decide on the range.
///
/// Where some point keeps less, a plan may need the dear pairs, or not, and the range counts them. If it needs them,
/// its value is large beside the other costs. So a gap is small only beside the value or the other costs, unless these
/// are rare: a part below kGapPart of the allowed pairs, by mass.
class CostSearch {
 public:
  /// Pairs have costs from `least` to `most`, the latter with l1.
  CostSearch(double least, double most) : least_(least), most_(most), range_(most - least), gap_range_(range_) {}

  /// The cost, with l1, up to which the next survey counts pairs.
  double limit() const { return least_ + kCheap * gap_range_; }
  /// Takes its largest cost, with l1; the least share of mass that counted partners of a point have; and the part of
  /// the allowed pairs that counted ones are, by mass. Returns whether another survey is needed.
  bool take(double most, double share, double part) {
    if (!(part >= kGapPart && most > least_)) return false;
    gap_range_ = most - least_;
    if (share >= kUnitShare) range_ = gap_range_;  // Shares fall from survey to survey.
    return true;
  }

  double least() const { return least_; }
  double most() const { return most_; }
  double range() const { return range_; }
  double gap_range() const { return gap_range_; }
  bool has_dear_pairs() const { return range_ < most_ - least_; }

 private:
  static constexpr double kCheap = 0.01, kUnitShare = 0.6, kGapPart = 1.0 / 16;
  double least_, most_, range_, gap_range_;
};

/// The costs of a problem on a device, with the terms of h and the shares. The constructor reads them once; the
/// operators of the problem share its findings.
class RegularizedCosts {
 public:
  virtual ~RegularizedCosts() = default;
  RegularizedCosts(RegularizedCosts const&) = delete;
  RegularizedCosts& operator=(RegularizedCosts const&) = delete;

  std::int64_t rows() const { return n_; }
  std::int64_t columns() const { return m_; }
  CostScale const& scale() const { return scale_; }

 protected:
  explicit RegularizedCosts(RegularizedInput const& input) : n_(std::ssize(input.p)), m_(std::ssize(input.q)) {
    scale_.mass = input.mass;
  }

  /// Sets the scale. `least` is the least cost of all allowed pairs.
  void set_scale(double least, CostSearch const& found, RegularizerTerms const& terms);

  CostScale scale_;

 private:
  std::int64_t n_, m_;
};

/// Values of a plan and of potentials, float64 sums over the caller's own costs, in units of range and mass 1.
struct RegularizedValues {
  double transported_mass = 0;  ///< sum X
  double residual_squares = 0;  ///< |X 1 - p|_2^2 + |X^T 1 - q|_2^2
  double residual_l1 = 0;       ///< |X 1 - p|_1 + |X^T 1 - q|_1
  double transport_cost = 0;    ///< <C, X>
  double regularization = 0;    ///< h(X)
  double dual = 0;              ///< p'u + q'v - h*(u + v - C)
  std::int64_t nonzeros = 0;
};

/// The kind of potentials at which h* is evaluated. Potentials without slack have h* = 0 for any other terms: they meet
/// u_i + v_j <= C_ij or, with groups, the group lasso bounds the norm of their slacks.
enum class DualBound { of_conjugate, without_slack };

/// Values of evaluate(bound), which replaces v where `bound` is without_slack. Divided by a small weight, slacks may
/// make the bound negative. It is then useless, as u = v = 0 has the bound 0, and the bound without slack is better.
template <class Evaluate>
RegularizedValues with_useful_bound(bool has_finite_conjugate, Evaluate&& evaluate) {
  if (has_finite_conjugate) {
    RegularizedValues const values = evaluate(DualBound::of_conjugate);
    if (values.dual >= 0) return values;
  }
  return evaluate(DualBound::without_slack);
}

/// X, and potentials (u, v) that are feasible.
class RegularizedOperator {
 public:
  explicit RegularizedOperator(std::shared_ptr<RegularizedCosts const> costs) : costs_(std::move(costs)) {}
  virtual ~RegularizedOperator() = default;
  RegularizedOperator(RegularizedOperator const&) = delete;
  RegularizedOperator& operator=(RegularizedOperator const&) = delete;

  std::int64_t rows() const { return costs_->rows(); }
  std::int64_t columns() const { return costs_->columns(); }
  CostScale const& scale() const { return costs_->scale(); }

  /// The values of the current X and (u, v). Where the conjugate of h is not finite everywhere, and in splitting where
  /// the dual value would be negative, v first becomes the largest that is feasible with u (docs/math.md, section 17):
  /// with it the dual value only rises. Waits.
  virtual RegularizedValues evaluate() = 0;

  // The functions below are for plans: X in the user's mass, u and v in the user's costs. Outputs may lie on the host
  // or on the device.

  /// Half of the costs' offset is added to u, and half to v.
  virtual void potentials(MutableVectorView u, MutableVectorView v) const = 0;
  virtual void dense(MutableMatrixView out) const = 0;
  virtual std::int64_t nonzeros(MutableIndexView row_begin) const = 0;
  virtual void entries(MutableIndexView row_begin, MutableIndexView columns, MutableVectorView values) const = 0;
  /// X 1 for rows, X^T 1 for columns.
  virtual void marginal(Side side, MutableVectorView out) const = 0;
  /// out = X values for rows, X^T values for columns. If `averaged`, each row of out is divided by the marginal of its
  /// point, or 0 if that is 0.
  virtual void product(Side side, bool averaged, MatrixView values, MutableMatrixView out) const = 0;

 private:
  std::shared_ptr<RegularizedCosts const> costs_;
};

/// Residuals of X after the last iteration.
struct SplittingResidual {
  double row_squares, column_squares;  ///< |X 1 - p|_2^2 and |X^T 1 - q|_2^2.
  std::int64_t nonzeros;               ///< Entries of X that are not 0.
};

/// A state to begin from. An empty part keeps the value of a cold start.
struct SplittingStart {
  std::span<double const> u, v;  ///< Potentials of the costs inside.
  MatrixView plan;               ///< X in the user's mass; on the host or on the device.
};

/// The distance of two plans, and of their potentials, in the Frobenius norm.
struct SplittingDistance {
  double plan;        ///< |X - X'|
  double potentials;  ///< |(u - u') 1^T + 1 (v - v')^T|
};

/// The iteration of RDROT, eq. 6 (docs/math.md, section 17).
class SplittingOperator : public RegularizedOperator {
 public:
  using RegularizedOperator::RegularizedOperator;
  /// X = 0 and, with step = rho / (n + m), potentials phi_i = step m / (n + m), psi_j = step n / (n + m).
  virtual void start(double step) = 0;
  /// Replaces, after start(), the parts of its state that are given. Waits. Throws invalid_argument if a row or a
  /// column of the plan has a total that is not finite.
  virtual void begin_from(SplittingStart const& from) = 0;
  /// Goes on with another step from the current X and u, v: phi and psi are scaled, and the sums that the recursion
  /// keeps are made anew.
  virtual void set_step(double step) = 0;
  /// Enqueues `count` iterations >= 1, after which X is in memory.
  virtual void iterate(int count) = 0;
  /// Waits.
  virtual SplittingResidual residual() = 0;

  /// Beside the current state of the recursion there may be two spare ones, each with memory of its own from its first
  /// keep() on.
  enum class Spare { run, mean };
  static constexpr std::size_t kSpares = 2;
  /// The spare state becomes a copy of the current one.
  virtual void keep(Spare spare) = 0;
  /// Swaps the spare state and the current one, steps included.
  virtual void exchange(Spare spare) = 0;
  /// Moves X, its marginals and the potentials of the spare state by `share` of the way to the current one, which has
  /// the same step. After an exchange() it needs a set_step() before it iterates.
  virtual void approach(Spare spare, double share) = 0;
  /// The distance of both states, which have the same step. Waits.
  virtual SplittingDistance distance(Spare spare) = 0;
};

/// The input of an operator, whose iterations are in float32 or float64.
struct SplittingInput {
  std::shared_ptr<RegularizedCosts const> costs;
  Precision precision;
};

/// One operator's part of a step that many take together.
struct SplittingStep {
  SplittingOperator* splitting;
  int count;
  SplittingResidual residual{};
};

}  // namespace monge
