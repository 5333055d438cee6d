// The EntrySolver by a Cholesky factorisation of a system with the largest entries of a plan.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "cpu/runtime/vectors.hpp"
#include "seam/entry_solver.hpp"
#include "seam/plan_operator.hpp"
#include "second_order/sparse_factor.hpp"

namespace monge::cpu {

/// S is the Schur complement of B = [ diag(a) E ; E^T diag(c) ]. Factorising B causes less fill-in than S and is exact
/// up to rounding. If rounding makes the matrix singular, its diagonal replaces B.
class EntrySolver final : public monge::EntrySolver {
 public:
  /// Pairs (rows[k], columns[k]) of the caller's points, none twice; vectors have the `orders`.
  EntrySolver(std::int64_t n, std::int64_t m, std::span<std::int64_t const> rows, std::span<std::int64_t const> columns,
              double per_row, PointOrders const& orders = {});
  double per_row() const override { return per_row_; }
  /// The approximate time of set() in times of a pass over one pair.
  double pairs() const;
  void set(PlanEntries& plan, Vector const& a, Vector const& c) override;
  void solve(Vector* rows, Vector const& in, Vector& out) override;

 private:
  double per_row_;
  std::vector<std::int64_t> rows_, columns_;
  std::vector<double> entries_;
  SparseFactor factor_;
  bool has_factor_ = false;
  std::vector<double> a_, c_;
  std::vector<double> of_rows_;  // Memory of solve() without rows.
};

/// PlanEntries::entry_solver() for a plan of any backend, whose passes take `pairs` pairs.
std::unique_ptr<EntrySolver> largest_entry_solver(monge::PlanOperator& plan, double per_row, double pairs,
                                                  PointOrders const& orders = {});

}  // namespace monge::cpu
