#include "cuda/second_order/entry_solver.hpp"

#include <algorithm>
#include <cmath>

#include "cuda/geometry/costs.hpp"

namespace monge::cuda {
namespace {

/// The number of steps leaves at most kReduction of an eigenvector whose eigenvalue is at least kLeastEigenvalue. It
/// grows as 1 / sqrt(kLeastEigenvalue).
constexpr double kReduction = 0.1, kLeastEigenvalue = 1e-3;

/// The `per_row` largest entries a row of the plan, on average.
ChosenEntries largest_entries(SharedRuntime const& runtime, monge::PlanOperator& plan, double per_row) {
  Device const device{DeviceType::cuda, runtime->index()};
  std::int64_t const n = plan.size(Side::rows), m = plan.size(Side::columns), k = entry_candidates(per_row, m);
  DeviceArray<std::int64_t> const columns(runtime, n * k);
  DeviceArray<double> const values(runtime, n * k);
  plan.entries().top_k(Side::rows, {columns.data(), n, k, k, device},
                       {values.data(), DataType::float64, n, k, k, device});
  checked_size("pairs", n * k);
  RowEntries const entries{static_cast<int>(n), static_cast<int>(m), static_cast<int>(k), columns.data(),
                           values.data()};
  return choose_entries(runtime, entries, std::min(static_cast<std::int64_t>(per_row * static_cast<double>(n)), n * k));
}

}  // namespace

EntrySolver::EntrySolver(SharedRuntime runtime, monge::PlanOperator& plan, double per_row)
    : runtime_(std::move(runtime)),
      vectors_(runtime_, plan.size(Side::rows), plan.size(Side::columns)),
      per_row_(per_row),
      inverse_a_(runtime_, plan.size(Side::rows)),
      inverse_c_(runtime_, plan.size(Side::columns)),
      between_(runtime_, plan.size(Side::rows)),
      direction_(runtime_, plan.size(Side::columns)),
      right_(runtime_, plan.size(Side::columns)),
      arrived_(runtime_, 1) {
  DeviceGuard const guard(runtime_->index());
  pairs_ = largest_entries(runtime_, plan, per_row);
  for (DeviceArray<double>* values : {&entries_, &row_values_, &column_values_})
    *values = DeviceArray<double>(runtime_, pairs_.rows.size());
}

SparseLines EntrySolver::by_rows() const {
  return {static_cast<int>(between_.size()), pairs_.row_begin.data(), pairs_.row_index.data(), row_values_.data()};
}

SparseLines EntrySolver::by_columns() const {
  return {static_cast<int>(direction_.size()), pairs_.column_begin.data(), pairs_.column_index.data(),
          column_values_.data()};
}

void EntrySolver::set(PlanEntries& plan, Vector const& a, Vector const& c) {
  DeviceGuard const guard(runtime_->index());
  Device const device{DeviceType::cuda, runtime_->index()};
  std::int64_t const count = entries_.size();
  if (count > 0)
    plan.entries_at({pairs_.rows.data(), count, 1, device}, {pairs_.columns.data(), count, 1, device},
                    {entries_.data(), DataType::float64, count, 1, device});
  scale_entries({by_rows(), by_columns(), pairs_.order.data(), entries_.data(), on_device(a).data(),
                 on_device(c).data(), inverse_a_.data(), inverse_c_.data(), between_.data(), right_.data()},
                runtime_->stream());
  // No row sum of diag(1/c) E^T diag(1/a) E, and so no eigenvalue, exceeds 1 - least.
  least_ = std::clamp(1 - vectors_.norms(right_).largest, kLeastEigenvalue, 1.0);
  // Chebyshev's polynomial starts at 2 and falls by a factor exp(-2 sqrt(least)) in each step.
  steps_ = least_ < 1 ? static_cast<int>(std::ceil(std::log(2 / kReduction) / (2 * std::sqrt(least_)))) : 0;
}

void EntrySolver::solve(Vector* rows, Vector const& in, Vector& out) {
  DeviceGuard const guard(runtime_->index());
  iterate_entries({.rows = by_rows(),
                   .columns = by_columns(),
                   .inverse_a = inverse_a_.data(),
                   .inverse_c = inverse_c_.data(),
                   .of_rows = rows ? written(rows) : nullptr,
                   .in = on_device(in).data(),
                   .between = between_.data(),
                   .right = right_.data(),
                   .direction = direction_.data(),
                   .out = written(&out),
                   .least = least_,
                   .steps = steps_,
                   .arrived = arrived_.data()},
                  runtime_->multiprocessors(), runtime_->stream());
}

}  // namespace monge::cuda
