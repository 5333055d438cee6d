#include "second_order/largest_entries.hpp"

#include <algorithm>

#include "core/numbers.hpp"

namespace monge {

std::vector<LargeEntry> largest_of_rows(PlanOperator& plan, std::int64_t k) {
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

void keep_largest(std::vector<LargeEntry>& entries, std::size_t count) {
  if (count >= entries.size()) return;
  auto const before = [](LargeEntry const& first, LargeEntry const& second) {
    return first.value != second.value ? first.value > second.value : first.order < second.order;
  };
  std::nth_element(entries.begin(), entries.begin() + static_cast<std::ptrdiff_t>(count), entries.end(), before);
  entries.resize(count);
}

Pairs pairs_of(std::vector<LargeEntry> const& entries) {
  Pairs pairs;
  for (LargeEntry const& entry : entries) {
    pairs.rows.push_back(entry.i);
    pairs.columns.push_back(entry.j);
  }
  return pairs;
}

}  // namespace monge
