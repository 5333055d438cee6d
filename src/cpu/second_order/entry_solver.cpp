#include "cpu/second_order/entry_solver.hpp"

#include <algorithm>
#include <numbers>
#include <vector>

#include "core/numbers.hpp"
#include "second_order/largest_entries.hpp"

namespace monge::cpu {
namespace {

/// Operations of a factorisation in the time that a pass takes for one pair (two nanoseconds).
constexpr double kOperationsPerPair = 2;
/// The limit of EntrySolver::pairs() in passes, kept wherever more than kFewestPerRow pairs a row are chosen. More fill
/// saves fewer products than it costs (bench/notes/second_order.md). Above kFarTooMany times the limit half of the
/// pairs go at once, since an order of elimination takes as long as a pass.
constexpr double kMostPasses = 2, kFewestPerRow = 1, kFarTooMany = 4;

std::vector<double> positive(std::span<double const> diagonal) {
  std::vector<double> result(diagonal.begin(), diagonal.end());
  std::replace(result.begin(), result.end(), 0.0, 1.0);
  return result;
}

std::vector<std::int64_t> places(PointOrders const& orders, Side side, std::span<std::int64_t const> points) {
  std::vector<std::int64_t> result;
  for (std::int64_t const point : points) result.push_back(orders.place(side, point));
  return result;
}

}  // namespace

EntrySolver::EntrySolver(std::int64_t n, std::int64_t m, std::span<std::int64_t const> rows,
                         std::span<std::int64_t const> columns, double per_row, PointOrders const& orders)
    : per_row_(per_row),
      rows_(rows.begin(), rows.end()),
      columns_(columns.begin(), columns.end()),
      entries_(rows.size()),
      factor_(n, m, places(orders, Side::rows, rows), places(orders, Side::columns, columns)),
      of_rows_(to_size(n)) {}

double EntrySolver::pairs() const {
  return factor_.operations() / kOperationsPerPair;
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

std::unique_ptr<EntrySolver> largest_entry_solver(monge::PlanOperator& plan, double per_row, double pairs,
                                                  PointOrders const& orders) {
  std::int64_t const n = plan.size(Side::rows), m = plan.size(Side::columns);
  std::vector<LargeEntry> found = largest_of_rows(plan, std::min(m, kEntryCandidates));
  for (;;) {
    keep_largest(found, to_size(per_row * static_cast<double>(n)));
    Pairs const chosen = pairs_of(found);
    auto solver = std::make_unique<EntrySolver>(n, m, chosen.rows, chosen.columns, per_row, orders);
    double const passes = solver->pairs() / pairs;
    if (passes <= kMostPasses || per_row <= kFewestPerRow) return solver;
    per_row /= passes <= kFarTooMany * kMostPasses ? std::numbers::sqrt2 : 2;
  }
}

}  // namespace monge::cpu
