#include "cpu/entry_solver.hpp"

#include <algorithm>
#include <vector>

namespace monge::cpu {
namespace {

/// Of a factorisation, in the time that a pass takes for a pair: two nanoseconds.
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
      factor_(n, m, rows, columns),
      of_rows_(static_cast<std::size_t>(n)) {}

double EntrySolver::passes() const {
  return factor_.operations() / (kOperationsPerPair * pairs_);
}

void EntrySolver::set(std::span<double const> a, std::span<double const> c, std::span<double const> entries) {
  std::vector<double> const of_rows = positive(a), of_columns = positive(c);
  if (factor_.factor(of_rows, of_columns, entries)) return;
  // Rounding has made it singular: the diagonal is positive definite.
  factor_.factor(of_rows, of_columns, std::vector<double>(entries.size()));
}

void EntrySolver::solve(Vector const& in, Vector& out) {
  std::fill(of_rows_.begin(), of_rows_.end(), 0.0);
  std::vector<double>& of_columns = on_host(out).values();
  if (&in != &out) of_columns = on_host(in).values();
  factor_.solve(of_rows_, of_columns);
}

}  // namespace monge::cpu
