#include "cpu/second_order/entry_solver.hpp"

#include <algorithm>
#include <functional>
#include <numbers>
#include <vector>

#include "core/numbers.hpp"

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

struct LargeEntry {
  std::int64_t i, j;
  double value;       // > 0
  std::size_t order;  // By row, and within a row from the largest down.
};

/// The k largest entries of each row, without zeros, in order. One pass.
std::vector<LargeEntry> largest_of_rows(monge::PlanOperator& plan, std::int64_t k) {
  std::int64_t const n = plan.size(Side::rows);
  std::vector<std::int64_t> columns(to_size(n * k));
  std::vector<double> values(columns.size());
  plan.entries().top_k(Side::rows, {columns.data(), n, k, k}, {values.data(), n, k});
  std::vector<LargeEntry> entries;
  for (std::size_t order = 0; order < values.size(); ++order) {
    if (values[order] > 0)
      entries.push_back({static_cast<std::int64_t>(order) / k, columns[order], values[order], order});
  }
  return entries;
}

/// Keeps the `count` largest, unsorted. Of equal entries the first in order are kept.
void keep_largest(std::vector<LargeEntry>& entries, std::size_t count) {
  if (count >= entries.size()) return;
  auto const before = [](LargeEntry const& first, LargeEntry const& second) {
    return first.value != second.value ? first.value > second.value : first.order < second.order;
  };
  std::nth_element(entries.begin(), entries.begin() + static_cast<std::ptrdiff_t>(count), entries.end(), before);
  entries.resize(count);
}

}  // namespace

EntrySolver::EntrySolver(std::int64_t n, std::int64_t m, std::span<std::int64_t const> rows,
                         std::span<std::int64_t const> columns, double per_row, PointOrders const& orders)
    : per_row_(per_row),
      rows_(rows.begin(), rows.end()),
      columns_(columns.begin(), columns.end()),
      entries_(rows.size()),
      factor_(n, m, places(orders, Side::rows, rows), places(orders, Side::columns, columns)) {}

double EntrySolver::pairs() const {
  return factor_.operations() / kOperationsPerPair;
}

void EntrySolver::set(PlanEntries& plan, Vector const& a, Vector const& c) {
  std::int64_t const count = std::ssize(entries_);
  plan.entries_at({rows_.data(), count}, {columns_.data(), count}, MutableVectorView(entries_));
  a_ = positive(on_host(a).values());
  c_ = positive(on_host(c).values());
  has_factor_ = factor_.factor(a_, c_, entries_);
}

void EntrySolver::solve(Vector* rows, Vector const& in, Vector& out) {
  std::vector<double>& of_columns = on_host(out).values();
  if (&in != &out) of_columns = on_host(in).values();
  std::vector<double>& of_rows = rows ? on_host(*rows).values() : of_rows_;
  if (!rows) of_rows.assign(a_.size(), 0.0);
  if (has_factor_) return factor_.solve(of_rows, of_columns);
  std::ranges::transform(of_rows, a_, of_rows.begin(), std::divides<>());
  std::ranges::transform(of_columns, c_, of_columns.begin(), std::divides<>());
}

std::unique_ptr<EntrySolver> largest_entry_solver(monge::PlanOperator& plan, double per_row, double pairs,
                                                  PointOrders const& orders) {
  std::int64_t const n = plan.size(Side::rows), m = plan.size(Side::columns);
  std::vector<LargeEntry> found = largest_of_rows(plan, entry_candidates(per_row, m));
  for (;;) {
    keep_largest(found, static_cast<std::size_t>(per_row * static_cast<double>(n)));
    std::vector<std::int64_t> rows, columns;
    for (LargeEntry const& entry : found) {
      rows.push_back(entry.i);
      columns.push_back(entry.j);
    }
    auto solver = std::make_unique<EntrySolver>(n, m, rows, columns, per_row, orders);
    double const passes = solver->pairs() / pairs;
    if (passes <= kMostPasses || per_row <= kFewestPerRow) return solver;
    per_row /= passes <= kFarTooMany * kMostPasses ? std::numbers::sqrt2 : 2;
  }
}

}  // namespace monge::cpu
