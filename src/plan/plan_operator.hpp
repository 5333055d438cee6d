// The seam's other half: a plan as a linear operator, P_ij = a_i b_j exp((f_i + g_j - C_ij) / eps) at frozen
// potentials, converged or not. Made by EntropicOperator::plan(); it shares the packed costs and copies the potentials,
// so the operator that made it may go on or go away.
//
// The first product of a side costs one pass more, which finds the log-sum-exp of its rows (and with it the marginal of
// that side) unless set_transforms() says it; after that k products cost at most k passes (Gram: 2 k): nothing is
// allocated, no marginal is formed and, where the result stays on the device, the host does not wait.
//
// For Side::rows a product maps a vector of the columns to one of the rows (P V); for Side::columns the other way round
// (P^T U). Only points of positive weight have entries in P; shares P_ij / sum_j P_ij are defined for all.
#pragma once
#include <cstdint>
#include <memory>
#include <span>

#include <monge/array.hpp>

#include "backend/side.hpp"
#include "backend/vectors.hpp"
#include "geometry/point_cost.hpp"
#include "second_order/entry_solver.hpp"

namespace monge {

/// What a product multiplies by: the entries P_ij, or the shares P_ij / sum_j P_ij, which depend neither on the
/// potential nor on the weights of the output's side.
enum class Scaling { plan, shares };

class PlanOperator;

/// Of each point i of one side, with f its potential, a its weight and rho the penalty of that side; null: not wanted.
struct WeightTerms {
  /// r_i / a_i; where a_i = 0 its limit, exp(-f_i / rho) since f_i is then the best there is.
  Vector* ratio = nullptr;
  /// a_i exp(-f_i / rho), what r_i is at the optimum.
  Vector* wanted = nullptr;
  /// The derivative of the dual value by a_i: phi(f_i) - eps (r_i / a_i - total of the other side's weights) with
  /// phi(f) = rho (1 - exp(-f / rho)), or f where rho is infinite.
  Vector* gradient = nullptr;
};

/// Linear maps by a plan.
class PlanProducts {
 public:
  virtual ~PlanProducts() = default;

  virtual VectorOperations const& vectors() const = 0;

  /// P 1 for rows, P^T 1 for columns; lives as long as this object.
  virtual Vector const& marginal(Side side) = 0;

  /// out = P V for rows, P^T V for columns, or of the shares. V and out have rows of one width >= 1, V for the points
  /// of opposite(side), out for those of `side`; both are vectors or the caller's memory.
  virtual void multiply(Side side, Scaling scaling, Vector const& v, Vector& out) = 0;
  virtual void multiply(Side side, Scaling scaling, MatrixView v, MutableMatrixView out) = 0;
  void multiply(Side side, Vector const& v, Vector& out) { multiply(side, Scaling::plan, v, out); }
  /// out = P (w o (P^T in)) for rows, P^T (w o (P in)) for columns, of width 1: `in` and `out` are of `side`, w of the
  /// other.
  virtual void multiply_gram(Side side, Vector const& w, Vector const& in, Vector& out) = 0;
  /// out = (P o L R^T) V or its transpose, o the product entry by entry: L is size(side) x k, R
  /// size(opposite(side)) x k, any k >= 1. FlashSinkhorn, Algorithm 5.
  virtual void multiply_hadamard(Side side, Vector const& l, Vector const& r, Vector const& v, Vector& out) = 0;
  virtual void multiply_hadamard(Side side, MatrixView l, MatrixView r, MatrixView v, MutableMatrixView out) = 0;
};

/// Entries P_ij one by one, i of `side`. They are made in the arithmetic of the plan as logarithms, which rank where
/// P_ij itself underflows; equal ones rank by index. A pair of no weight or of infinite cost has none: it ranks behind
/// all others, by index again. The n x m entries are in memory only where entries() writes them.
class PlanEntries {
 public:
  virtual ~PlanEntries() = default;

  /// out (size(side) x size(opposite(side))): P_ij, i of `side`.
  virtual void entries(Side side, MutableMatrixView out) = 0;
  /// The k largest P_ij of each i, largest first: their j and their values, size(side) x k, 1 <= k <= size of the other
  /// side. Where i has no weight, j = 0 .. k - 1.
  virtual void top_k(Side side, MutableIndexView indices, MutableMatrixView values) = 0;
  /// How many P_ij > threshold (>= 0, in float64) there are, row by row: row_begin (n + 1) counts those of the rows
  /// before each. Returns their total.
  virtual std::int64_t count_above(double threshold, MutableIndexView row_begin) = 0;
  /// Those entries where count_above() says, j ascending within a row. Returns the first row whose entries do not fill
  /// its part of `columns` and `values` exactly, or n; the others are written.
  virtual std::int64_t entries_above(double threshold, MutableIndexView row_begin, MutableIndexView columns,
                                     MutableVectorView values) = 0;
  /// K pairs (i, j) drawn from P / sum P (plan/sampling.hpp): pairs (K x 2). Throws where sum P is not a
  /// positive number.
  virtual void sample(std::uint64_t seed, MutableIndexView pairs) = 0;
  /// values_k = P_ij of the pairs (rows_k, columns_k), all of one size: made one by one, each from its cost and the
  /// potentials alone, with sums in float64; a pair of no weight or of infinite cost has 0. O(d) a pair.
  virtual void entries_at(IndexView rows, IndexView columns, MutableVectorView values) = 0;
  /// For the entries at these pairs, none twice, of this plan and others of the same problem.
  virtual std::unique_ptr<EntrySolver> entry_solver(std::span<std::int64_t const> rows,
                                                    std::span<std::int64_t const> columns) const = 0;
};

/// The points of a plan, and derivatives by them. All throw unsupported where the costs have no points.
class PlanPoints {
 public:
  virtual ~PlanPoints() = default;

  /// The derivative of the cost by the points.
  virtual PointForm point_form() const = 0;
  /// The points of `side` less their centre, size(side) x d.
  virtual void points(Side side, Vector& out) const = 0;
  /// The slopes of `side`, size(side) x d.
  virtual void slopes(Side side, Vector& out) const = 0;
  /// PlanProducts::multiply() with the points of the other side as V (p = d): no digits are lost to where the cloud
  /// lies.
  virtual void multiply_points(Side side, Scaling scaling, MutableMatrixView out) = 0;
  /// The same plan with this side's points replaced by others, of unit weight and without a potential: shares and
  /// transforms are defined for them. The other side is shared.
  virtual std::unique_ptr<PlanOperator> at(Side side, MatrixView points) const = 0;
};

class PlanOperator : public PlanProducts, public PlanEntries, public PlanPoints {
 public:
  PlanOperator(std::int64_t n, std::int64_t m) : n_(n), m_(m) {}
  PlanOperator(PlanOperator const&) = delete;
  PlanOperator& operator=(PlanOperator const&) = delete;

  std::int64_t size(Side side) const { return side == Side::rows ? n_ : m_; }

  /// In units of C, for the user's cost. A point of no weight has what an update would give it, rho / (rho + eps)
  /// of the soft c-transform of the other side's potential. Either view may be empty.
  virtual void potentials(MutableVectorView f, MutableVectorView g) = 0;
  /// out = the soft c-transform of the other side's potential: for rows
  /// f+_i = -eps log sum_j b_j exp((g_j - C_ij) / eps).
  virtual void transform(Side side, MutableVectorView out) = 0;
  /// Takes the soft c-transforms of both potentials for known, in the operator's own gauge, as
  /// EntropicOperator::potential() gives them: after a plain alternating sweep from g0, which leaves f = f+(g0) and
  /// g1 = g+(f), those of the plan at (f, g0) are f and g1. No pass finds them then, and marginals are
  /// a_i exp((f_i - f+_i) / eps). They must be those of this plan but for rounding, except at points of no weight,
  /// which sweeps leave alone: shares, transforms and weight terms of these are undefined from then on.
  virtual void set_transforms(Vector const& f_plus, Vector const& g_plus) = 0;
  /// <C, P>, in the arithmetic of this operator.
  virtual double transport_cost() = 0;
  /// The part of labels in it, sum_ij P_ij weight W[l_i, l_j], by a product as wide as their features; 0 without
  /// labels.
  virtual double label_cost() = 0;
  virtual void weight_terms(Side side, double penalty, WeightTerms const& out) = 0;
  /// The plan of the same potentials at another eps.
  virtual std::unique_ptr<PlanOperator> at_eps(double eps) const = 0;

 private:
  std::int64_t n_, m_;
};

}  // namespace monge
