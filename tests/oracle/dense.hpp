// The formulas of entropic.hpp and seam/entropic_operator.hpp, written down plainly: the cost matrix is stored,
// sums run in long double, nothing is centred, shifted or fused. Slow and hard to get wrong.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "oracle/problem.hpp"
#include "seam/entropic_operator.hpp"

namespace monge::oracle {

using Real = long double;
using Vector = std::vector<Real>;

struct Potentials {
  Vector f, g;
  Vector const& of(Side side) const { return side == Side::rows ? f : g; }
  Vector& of(Side side) { return side == Side::rows ? f : g; }
};

constexpr Side other(Side side) {
  return side == Side::rows ? Side::columns : Side::rows;
}
Vector widen(std::span<double const> values);
std::vector<double> narrow(Vector const& values);

/// A problem with its cost matrix.
class Dense {
 public:
  explicit Dense(Problem const& problem);
  /// Any cost matrix (n x m, row-major).
  Dense(Vector cost, std::vector<double> a, std::vector<double> b);

  std::int64_t size(Side side) const { return side == Side::rows ? n_ : m_; }
  std::vector<double> const& weights(Side side) const { return side == Side::rows ? a_ : b_; }
  /// C between point i of `side` and point j of the other side.
  Real cost(Side side, std::int64_t i, std::int64_t j) const {
    return side == Side::rows ? cost_[i * m_ + j] : cost_[j * m_ + i];
  }
  /// The largest cost of an allowed pair.
  Real largest_cost() const;

  Vector softmin(Side side, Real eps, Vector const& potential_of_other_side) const;
  /// n x m, row-major.
  Vector plan(Real eps, Potentials const& potentials) const;
  Vector marginal(Side side, Real eps, Potentials const& potentials) const;
  /// size(side) x p: sum_j P_ij V_j, divided by sum_j P_ij if `normalized`.
  Vector average(Side side, Real eps, Potentials const& potentials, std::span<double const> v, std::int64_t p,
                 bool normalized) const;
  /// size(side) x p: (P o L R^T) V with L (size(side) x k), R (size(other) x k), V (size(other) x p), row-major.
  Vector hadamard(Side side, Real eps, Potentials const& potentials, std::span<double const> l,
                  std::span<double const> r, std::int64_t k, std::span<double const> v, std::int64_t p) const;

 private:
  std::int64_t n_, m_;
  std::vector<double> a_, b_;
  Vector cost_;
};

struct SweepResult {
  Potentials potentials;
  Real row_error = 0;  // as SweepErrors, of the last sweep
  Real column_error = 0;
  Real gradient_norm = 0;
  Real size = 0;  // sum of the larger terms of which the errors are differences: twice the mass without penalties
  /// How far the closest decision of the safeguard was from falling the other way, relative to its scale. Comparing
  /// iterates with an implementation makes sense while this is well above its rounding.
  Real decision_margin = 1;
  std::int64_t plain_steps = 0;  // decisions against the relaxed step
};
SweepResult sweep(Dense const& dense, Sweep const& kind, int count, Potentials potentials,
                  Penalties const& penalties = {});
/// (f + t, g - t), where the dual is largest.
Potentials translated(Dense const& dense, Penalties const& penalties, Potentials potentials);

/// `Evaluation` in long double, from the definitions: primal from the entropy of P, gap as primal - dual.
struct DenseEvaluation {
  Real mass, row_error, column_error, transport_cost, primal, dual, gap;
};
DenseEvaluation evaluate(Dense const& dense, Real eps, Potentials const& potentials, Penalties const& penalties = {});

/// Alternating sweeps until both marginals are right to `tolerance` (L1, relative to the larger mass).
Potentials solve(Dense const& dense, Real eps, Real tolerance, int most_sweeps = 100000,
                 Penalties const& penalties = {});

}  // namespace monge::oracle
