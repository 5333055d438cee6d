// The largest entries of a whole plan, for the sparse matrices of Newton-like methods.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "seam/plan_operator.hpp"

namespace monge {

struct LargeEntry {
  std::int64_t i, j;
  double value;       ///< > 0
  std::size_t order;  ///< Its place by row, and within a row from the largest down.
};

/// The k largest entries of each row, without zeros, in order. One pass.
std::vector<LargeEntry> largest_of_rows(PlanOperator& plan, std::int64_t k);

/// Keeps the `count` largest, unsorted. Of equal entries the first in order are kept. If the k of largest_of_rows() was
/// large enough, they are the largest of the whole plan.
void keep_largest(std::vector<LargeEntry>& entries, std::size_t count);

/// Pairs of points (rows[k], columns[k]).
struct Pairs {
  std::vector<std::int64_t> rows, columns;
};
Pairs pairs_of(std::vector<LargeEntry> const& entries);

}  // namespace monge
