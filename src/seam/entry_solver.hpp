// Approximate solutions of the dual's linear systems, made of the largest entries of a plan.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>

#include "seam/vectors.hpp"

namespace monge {

class PlanEntries;

/// The entries of an EntrySolver are chosen among this number of the largest of each row.
inline std::int64_t entry_candidates(double per_row, std::int64_t columns) {
  double const wanted = std::max(32.0, std::ceil(4 * per_row));
  return std::min(static_cast<std::int64_t>(wanted), columns);
}

/// An approximate inverse of
///   B = [ diag(a)  E ; E^T  diag(c) ]   and of its Schur complement   S = diag(c) - E^T diag(1/a) E,
/// where E (n x m) has the entries of a plan at pairs that were chosen once. S preconditions the Schur complement of
/// the whole plan. Made by PlanEntries::entry_solver().
class EntrySolver {
 public:
  virtual ~EntrySolver() = default;
  /// The number of pairs a row, on average, that was allowed.
  virtual double per_row() const = 0;
  /// E has the entries of `plan`; a (rows) and c (columns) are >= 0. S is positive definite up to rounding. A point
  /// whose a or c is 0 has no entries. Waits.
  virtual void set(PlanEntries& plan, Vector const& a, Vector const& c) = 0;
  /// With `rows`: (rows, out) becomes B^-1 (rows, in). Without: out = S^-1 in. Either is a symmetric positive definite
  /// map, the same from one set() to the next; `out` may be `in`.
  virtual void solve(Vector* rows, Vector const& in, Vector& out) = 0;
};

}  // namespace monge
