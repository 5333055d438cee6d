// The largest entries of all of a plan: what the sparse matrices of Newton-like methods are made of.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "plan/plan_operator.hpp"

namespace monge {

struct LargeEntry {
  std::int64_t i, j;
  double value;      ///< > 0
  std::size_t rank;  ///< Row by row, and in a row from the largest on.
};

/// Of each row the k largest, less those that are 0, by rank. One pass.
std::vector<LargeEntry> largest_of_rows(PlanOperator& plan, std::int64_t k);

/// Keeps the `count` largest, of equal ones those of lower rank, in no order. If k was enough, these are the largest of
/// the whole plan.
void keep_largest(std::vector<LargeEntry>& entries, std::size_t count);

/// Pairs of points, k by k.
struct Pairs {
  std::vector<std::int64_t> rows, columns;
};
Pairs pairs_of(std::vector<LargeEntry> const& entries);

}  // namespace monge
