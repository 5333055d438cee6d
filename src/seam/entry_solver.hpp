// A preconditioner made of the largest entries of a plan.
#pragma once
#include <cstdint>

#include "seam/vectors.hpp"

namespace monge {

class PlanEntries;

/// The entries are chosen among this number of the largest of each row.
inline constexpr std::int64_t kEntryCandidates = 32;

/// An approximate inverse of
///   S = diag(c) - E^T diag(1/a) E,
/// where E (n x m) has the entries of a plan at pairs that were chosen once. It preconditions the Schur complement of
/// the whole plan. Made by PlanEntries::entry_solver().
class EntrySolver {
 public:
  virtual ~EntrySolver() = default;
  /// The number of pairs a row, on average, that was allowed.
  virtual double per_row() const = 0;
  /// E has the entries of `plan`; a (rows) and c (columns) are >= 0. S is positive definite up to rounding. A point
  /// whose a or c is 0 has no entries. Waits.
  virtual void set(PlanEntries& plan, Vector const& a, Vector const& c) = 0;
  /// A symmetric positive definite map of vectors of the columns, the same from one set() to the next.
  virtual void solve(Vector const& in, Vector& out) = 0;
};

}  // namespace monge
