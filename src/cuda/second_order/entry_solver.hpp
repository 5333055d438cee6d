// Solves a system with the largest entries of a plan by an iteration, without a factorisation.
#pragma once
#include "cuda/second_order/chebyshev.hpp"
#include "cuda/second_order/chosen_entries.hpp"
#include "cuda/vectors/vectors.hpp"
#include "seam/entry_solver.hpp"
#include "seam/plan_operator.hpp"

namespace monge::cuda {

/// A fixed number of steps of Chebyshev's iteration on diag(1/c) S, whose eigenvalues lie in (0, 1]. The result is a
/// polynomial of the matrix that is positive on (0, 1], so the map is linear and symmetric positive definite (Saad,
/// Iterative Methods for Sparse Linear Systems, section 12.3.2). It inverts eigenvalues from `least_` on to a relative
/// error of 0.1, smaller ones less accurately.
class EntrySolver final : public monge::EntrySolver {
 public:
  /// Chooses the pairs as PlanEntries::entry_solver() does.
  EntrySolver(SharedRuntime runtime, monge::PlanOperator& plan, double per_row);
  double per_row() const override { return per_row_; }
  void set(PlanEntries& plan, Vector const& a, Vector const& c) override;
  void solve(Vector* rows, Vector const& in, Vector& out) override;

 private:
  SparseLines by_rows() const;
  SparseLines by_columns() const;

  SharedRuntime runtime_;
  DeviceVectorOperations vectors_;
  double per_row_;
  ChosenEntries pairs_;
  DeviceArray<double> entries_;                     // Row by row.
  DeviceArray<double> row_values_, column_values_;  // Values of by_rows() and by_columns().
  DeviceArray<double> inverse_a_, inverse_c_, between_, direction_;
  DeviceVector right_;
  DeviceArray<unsigned> arrived_;
  double least_ = 1;
  int steps_ = 0;
};

}  // namespace monge::cuda
