// The sparse part of SPLR's matrix, on the host.
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "core/numbers.hpp"
#include "seam/backend.hpp"
#include "second_order/largest_entries.hpp"
#include "second_order/sparse_factor.hpp"

namespace monge {

/// eps times the Hessian of the dual at a plan, [ diag(P 1) P; P^T diag(P^T 1) ], with P at some pairs alone and a
/// shift of the diagonal. Its unknowns are the potentials of points of positive weight. Vectors may lie on a device.
class SparseHessian {
 public:
  SparseHessian(VectorOperations const& vectors, Marginals const& marginals);

  /// The numbers of points of positive weight.
  std::int64_t rows() const { return std::ssize(points_[0]); }
  std::int64_t columns() const { return std::ssize(points_[1]); }
  std::int64_t pairs() const { return std::ssize(pairs_.rows); }

  /// Chooses the pairs of the first row, of the first column and of about `count` of the largest other entries. One
  /// pass.
  void choose_pairs(PlanOperator& plan, std::int64_t count);
  /// Reads the entries at the pairs, and the marginals. Waits.
  void set(PlanOperator& plan, VectorPair const& marginals);
  /// Analyses the pattern of new pairs, then factors. Returns whether the matrix is positive definite in float64.
  bool factor(double shift);
  /// Replaces z by the solution, which is 0 at points of zero weight.
  void solve(VectorPair const& z);

 private:
  /// The elements of both vectors at points of positive weight.
  std::vector<double> gather(VectorPair const& vectors) const;
  std::int64_t unknown(Side side, std::int64_t point) const { return unknowns_[side_index(side)][to_size(point)]; }
  void add_pair(std::int64_t i, std::int64_t j);

  VectorOperations const& vectors_;
  std::vector<std::int64_t> points_[2];    // Points of positive weight: rows, columns.
  std::vector<std::int64_t> unknowns_[2];  // Index of each point in points_; -1 for zero weight.
  Pairs pairs_, of_unknowns_;              // Pairs of points; the same as pairs of unknowns.
  std::vector<double> entries_, sums_;
  std::optional<SparseFactor> factor_;
};

}  // namespace monge
