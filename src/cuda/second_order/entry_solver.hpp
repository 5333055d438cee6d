// Solves a system with the largest entries of a plan by an iteration, without a factorisation.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "cuda/second_order/chebyshev.hpp"
#include "cuda/vectors/vectors.hpp"
#include "second_order/entry_solver.hpp"

namespace monge::cuda {

/// A fixed number of steps of Chebyshev's iteration on diag(1/c) S, whose eigenvalues lie in (0, 1]. The result is a
/// polynomial of the matrix that is positive on (0, 1], so the map is linear and symmetric positive definite (Saad,
/// Iterative Methods for Sparse Linear Systems, section 12.3.2). It inverts eigenvalues from `least_` on to a relative
/// error of 0.1, smaller ones less accurately.
class EntrySolver final : public monge::EntrySolver {
 public:
  EntrySolver(SharedRuntime runtime, std::int64_t n, std::int64_t m, std::span<std::int64_t const> rows,
              std::span<std::int64_t const> columns);
  double passes() const override { return 0; }
  void set(PlanEntries& plan, Vector const& a, Vector const& c) override;
  void solve(Vector const& in, Vector& out) override;

 private:
  /// The pairs sorted by one of their points.
  struct Lines {
    int count = 0;
    DeviceArray<int> begin, index;
    DeviceArray<double> value;
    SparseLines view() const { return {count, begin.data(), index.data(), value.data()}; }
  };
  Lines upload_lines(std::vector<int> const& begin, std::vector<int> const& index) const;

  SharedRuntime runtime_;
  DeviceVectorOperations vectors_;
  DeviceArray<std::int64_t> pair_rows_, pair_columns_;  // Row by row.
  DeviceArray<double> entries_;                         // In the same order.
  Lines by_rows_, by_columns_;
  DeviceArray<int> order_;  // For each pair by columns, its position by rows.
  DeviceArray<double> inverse_diagonal_, between_, direction_;
  DeviceVector right_;
  double least_ = 1;
  int steps_ = 0;
};

}  // namespace monge::cuda
