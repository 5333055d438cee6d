// The seam's other half: a plan as a linear operator, P_ij = a_i b_j exp((f_i + g_j - C_ij) / eps) at frozen
// potentials, converged or not. Made by EntropicOperator::plan(); it shares the packed costs and copies the potentials,
// so the operator that made it may continue or be destroyed.
//
// The first product of a side takes one pass more: it finds the log-sum-exp of the side's rows, and with it the side's
// marginal, unless set_transforms() has given them. From then on k products take at most k passes (Gram products: 2 k),
// allocate nothing and form no marginal. The host does not wait if the result stays on the device.
//
// For Side::rows a product maps a vector of the columns to one of the rows (P V); for Side::columns the other way round
// (P^T U). Only points of positive weight have entries in P; shares P_ij / sum_j P_ij are defined for all.
#pragma once
#include <cstdint>
#include <memory>

#include <monge/array.hpp>

#include "core/side.hpp"
#include "geometry/point_cost.hpp"
#include "seam/entry_solver.hpp"
#include "seam/vectors.hpp"

namespace monge {

/// The matrix of a product: the entries P_ij, or the shares P_ij / sum_j P_ij. Shares depend neither on the potential
/// nor on the weights of the output's side.
enum class Scaling { plan, shares };

class PlanOperator;

/// Terms of the points i of one side with potentials f_i, weights a_i and the penalty rho; null: not wanted.
struct WeightTerms {
  /// r_i / a_i. Where a_i = 0, f_i is the best value for g, and r_i / a_i is its limit exp(-f_i / rho).
  Vector* ratio = nullptr;
  /// a_i exp(-f_i / rho), the value of r_i at the optimum.
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

  /// out = P V for rows, P^T V for columns; with Scaling::shares the shares replace P. V has a row for each point of
  /// opposite(side), out one for each point of `side`, both of one width >= 1.
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

/// Entries P_ij one by one, i of `side`. They are computed as logarithms in the arithmetic of the plan, so they can be
/// sorted where P_ij underflows; equal ones are in the order of their indices. A pair of zero weight or infinite cost
/// has no entry: it comes after all others, by index. Only all() writes n x m entries to memory.
class PlanEntries {
 public:
  virtual ~PlanEntries() = default;

  /// out (size(side) x size(opposite(side))): P_ij, i of `side`.
  virtual void all(Side side, MutableMatrixView out) = 0;
  /// The k largest P_ij of each i, largest first: their j and their values, size(side) x k, 1 <= k <= size of the other
  /// side. Where i has no weight or its marginal is NaN, j = 0 .. k - 1.
  virtual void top_k(Side side, MutableIndexView indices, MutableMatrixView values) = 0;
  /// Counts the entries P_ij > threshold (>= 0, in float64): row_begin_i, i = 0 .. n, is their number in the rows
  /// before i. Returns the total.
  virtual std::int64_t count_above(double threshold, MutableIndexView row_begin) = 0;
  /// Writes these entries to the places that count_above() gave, j ascending within a row. Returns the first row whose
  /// entries do not fill its part of `columns` and `values` exactly, or n; the other rows are written.
  virtual std::int64_t entries_above(double threshold, MutableIndexView row_begin, MutableIndexView columns,
                                     MutableVectorView values) = 0;
  /// Draws K pairs (i, j) from P / sum P (plan/sampling.hpp): pairs (K x 2). Throws if sum P is not positive and
  /// finite.
  virtual void sample(std::uint64_t seed, MutableIndexView pairs) = 0;
  /// values_k = P_ij of the pair (rows_k, columns_k), from its cost and the potentials alone, with sums in float64; 0
  /// for a pair of zero weight or infinite cost. O(d) per pair.
  virtual void entries_at(IndexView rows, IndexView columns, MutableVectorView values) = 0;
  /// A solver for the entries, of this plan or others of the same problem, at the pairs of this plan's largest entries
  /// among the entry_candidates() largest of each row. They are at most `per_row` a row on average, fewer where set()
  /// would take long. One pass.
  virtual std::unique_ptr<EntrySolver> entry_solver(double per_row) = 0;
};

/// Points that take the place of a plan's.
struct NewPoints {
  MatrixView points;
  IndexView labels = {};  // Empty without labels.
  /// A plan for the same cost that has these points on this side. The new plan may share its packed points, their order
  /// and their weights. Null: there is none.
  PlanOperator const* of = nullptr;
};

/// The points of a plan, and derivatives by them.
class PlanPoints {
 public:
  virtual ~PlanPoints() = default;

  virtual PointCost const& cost() const = 0;
  /// The features of `side` without those of labels, less their centre, size(side) x d.
  virtual void features(Side side, Vector& out) const = 0;
  /// The slopes of these features (PointForm), size(side) x d.
  virtual void slopes(Side side, Vector& out) const = 0;
  /// Where the features are directions: u_i = p_i / |p_i| (size(side) x d) and 1 / |p_i| for the points p_i of `side`.
  virtual void directions(Side side, Vector& direction, Vector& inverse_length) const = 0;
  /// PlanProducts::multiply() with the points of the other side as V. The offset of the cloud costs no digits.
  virtual void multiply_points(Side side, Scaling scaling, MutableMatrixView out) = 0;
  /// P or P^T times the features() of the other side. The caller keeps the result, so the plan keeps nothing for it.
  virtual void multiply_features(Side side, Vector& out) = 0;
  /// For distances: out_i = sum_j P_ij <l_i, r_j> dC_ij/dp_i for the points p_i of `side`, size(side) x d, with l and r
  /// as in multiply_hadamard(); both null: P alone.
  virtual void distance_gradients(Side side, Vector const* l, Vector const* r, Vector& out) = 0;
  /// For distances, where the points of `side` move along v and the others along w: costs_i = sum_j P_ij dC_ij, and the
  /// change of sum_j P_ij dC_ij/dp_i at fixed potentials,
  ///   gradients_i = sum_j P_ij (d(dC_ij/dp_i) - dC_ij / eps dC_ij/dp_i).
  virtual void distance_changes(Side side, Vector const& v, Vector const& w, Vector& costs, Vector& gradients) = 0;
  /// The same plan with this side's points replaced by others, which have no potential: only shares and transforms are
  /// defined for them. The other side is shared.
  virtual std::unique_ptr<PlanOperator> at(Side side, NewPoints const& given) const = 0;
};

class PlanOperator : public PlanProducts {
 public:
  PlanOperator(std::int64_t n, std::int64_t m) : n_(n), m_(m) {}
  PlanOperator(PlanOperator const&) = delete;
  PlanOperator& operator=(PlanOperator const&) = delete;

  std::int64_t size(Side side) const { return side == Side::rows ? n_ : m_; }

  /// The entries and the points of this plan, which live as long as it. points() throws unsupported for a plan of a
  /// cost matrix.
  virtual PlanEntries& entries() = 0;
  PlanPoints& points();

  /// In units of C, for the user's cost. A point of zero weight has the value of an update, rho / (rho + eps) times the
  /// soft c-transform of the other side's potential. Either view may be empty.
  virtual void potentials(MutableVectorView f, MutableVectorView g) = 0;
  /// out = the soft c-transform of the other side's potential: for rows
  /// f+_i = -eps log sum_j b_j exp((g_j - C_ij) / eps).
  virtual void transform(Side side, MutableVectorView out) = 0;
  /// Gives the soft c-transforms of both potentials, which saves the pass that finds them: marginals are then a_i
  /// exp((f_i - f+_i) / eps). The gauge is the operator's own, as in EntropicOperator::potential(). A plain alternating
  /// sweep from g0 leaves f = f+(g0) and g1 = g+(f): the transforms of the plan at (f, g0) are f and g1. Transforms
  /// must be those of this plan up to rounding, except at points of zero weight, which sweeps do not update: shares,
  /// transforms and weight terms of these points become undefined. PlanEntries::top_k() needs only finite marginals by
  /// the formula above.
  virtual void set_transforms(Vector const& f_plus, Vector const& g_plus) = 0;
  /// <C, P>, in the arithmetic of this operator.
  virtual double transport_cost() = 0;
  /// The labels' part of <C, P>, sum_ij P_ij weight W[l_i, l_j]; 0 without labels.
  virtual double label_cost() = 0;
  virtual void weight_terms(Side side, double penalty, WeightTerms const& out) = 0;
  /// The plan of the same potentials at another eps.
  virtual std::unique_ptr<PlanOperator> at_eps(double eps) const = 0;

 private:
  virtual PlanPoints* points_or_null() = 0;

  std::int64_t n_, m_;
};

}  // namespace monge
