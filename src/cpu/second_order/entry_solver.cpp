#include "cpu/second_order/entry_solver.hpp"

#include <algorithm>
#include <vector>

#include "plan/plan_operator.hpp"

namespace monge::cpu {
namespace {

/// Operations of a factorisation in the time that a pass takes for one pair (two nanoseconds).
constexpr double kOperationsPerPair = 2;

std::vector<double> positive(std::span<double const> diagonal) {
  std::vector<double> result(diagonal.begin(), diagonal.end());
  std::replace(result.begin(), result.end(), 0.0, 1.0);
  return result;
}

}  // namespace

EntrySolver::EntrySolver(std::int64_t n, std::int64_t m, std::span<std::int64_t const> rows,
                         std::span<std::int64_t const> columns)
    : pairs_(static_cast<double>(n) * static_cast<double>(m)),
      rows_(rows.begin(), rows.end()),
      columns_(columns.begin(), columns.end()),
      entries_(rows.size()),
      factor_(n, m, rows, columns),
      of_rows_(static_cast<std::size_t>(n)) {}

double EntrySolver::passes() const {
  return factor_.operations() / (kOperationsPerPair * pairs_);
}

void EntrySolver::set(PlanEntries& plan, Vector const& a, Vector const& c) {
  std::int64_t const count = std::ssize(entries_);
  plan.entries_at({rows_.data(), count}, {columns_.data(), count}, MutableVectorView(entries_));
  diagonal_ = positive(on_host(c).values());
  has_factor_ = factor_.factor(positive(on_host(a).values()), diagonal_, entries_);
}

void EntrySolver::solve(Vector const& in, Vector& out) {
  std::vector<double>& of_columns = on_host(out).values();
  if (&in != &out) of_columns = on_host(in).values();
  if (has_factor_) {
    std::fill(of_rows_.begin(), of_rows_.end(), 0.0);
    factor_.solve(of_rows_, of_columns);
  } else {
    for (std::size_t j = 0; j < of_columns.size(); ++j) of_columns[j] /= diagonal_[j];
  }
}

}  // namespace monge::cpu
