// Derivatives of entropic transport between points, written down plainly in long double: costs from coordinates as they
// are given, sums over all pairs, linear systems by elimination.
#pragma once
#include <functional>

#include "oracle/dense.hpp"
#include "seam/entropic_operator.hpp"

namespace monge::oracle {

/// A square matrix, row-major, ready to be solved with: Gauss's elimination with pivots.
class SquareMatrix {
 public:
  explicit SquareMatrix(Vector matrix);
  Vector solve(Vector right) const;
  std::size_t size() const { return n_; }

 private:
  Vector matrix_;  // L below the diagonal, U from it on.
  std::vector<std::size_t> pivots_;
  std::size_t n_ = 0;
};

/// Two clouds at some potentials, which may be optimal or not.
class PointProblem {
 public:
  PointProblem(Problem const& problem, Real eps, Penalties penalties = {});

  std::int64_t size(Side side) const { return side == Side::rows ? n_ : m_; }
  std::int64_t d() const { return d_; }
  Real eps() const { return eps_; }
  Penalties penalties() const { return penalties_; }
  std::vector<double> const& weights(Side side) const { return side == Side::rows ? a_ : b_; }
  Vector& points(Side side) { return side == Side::rows ? x_ : y_; }
  Vector const& points(Side side) const { return side == Side::rows ? x_ : y_; }
  std::vector<double>& weights(Side side) { return side == Side::rows ? a_ : b_; }
  Real& scale() { return scale_; }
  Real scale() const { return scale_; }
  Dense dense() const;

  /// The maximisers of the dual, by sweeps to the rounding of long double.
  Potentials optimum() const;
  Real dual(Potentials const& potentials) const;

  /// dc(x_i, y_j)/dx_i for rows, dc/dy_i for columns: coordinate k.
  Real slope(Side side, std::int64_t i, std::int64_t j, std::int64_t k) const;
  /// sum_j P_ij t_ij dc/dx_i, with t = 1 by default.
  using Tilt = std::function<Real(std::int64_t i, std::int64_t j)>;
  Vector gradient(Side side, Potentials const& potentials, Tilt const& tilt = {}) const;
  Vector weight_gradient(Side side, Potentials const& potentials) const;

  /// [k_a diag(r), P; P^T, k_b diag(c)], k = 1 + eps / rho, with 1 on the diagonal of points of no weight; `pinned`:
  /// plus a multiple of z z^T, z the null vector (1, -1) of a balanced problem.
  Vector system(Potentials const& potentials, bool pinned) const;
  /// Is there a null vector?
  bool is_balanced() const;
  /// Its solution (of rows, then of columns).
  Vector solve(Potentials const& potentials, Vector right) const;

  /// What df, then dg, are for points that move along v: n d numbers of x, then m d of y.
  Vector response(Potentials const& potentials, std::span<double const> v) const;
  /// v and the result as there.
  Vector hessian_product(Potentials const& potentials, std::span<double const> v) const;
  /// <dc_ij, v>.
  Real change_of_cost(std::int64_t i, std::int64_t j, std::span<double const> v) const;

 private:
  std::int64_t n_, m_, d_;
  Vector x_, y_;
  std::vector<double> a_, b_;
  Real scale_, eps_;
  Penalties penalties_;
  Vector label_cost_;  // n x m
};

}  // namespace monge::oracle
