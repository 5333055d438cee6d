// A preconditioner made of the largest entries of a plan.
#pragma once
#include "backend/vectors.hpp"

namespace monge {

class PlanEntries;

/// An approximate inverse of
///   S = diag(c) - E^T diag(1/a) E,
/// where E (n x m) has the entries of a plan at pairs that were given once. It preconditions the Schur complement of
/// the whole plan. Made by PlanEntries::entry_solver().
class EntrySolver {
 public:
  virtual ~EntrySolver() = default;
  /// The approximate cost of set() in passes over all pairs, by which callers choose the number of entries.
  virtual double passes() const = 0;
  /// E has the entries of `plan`; a (rows) and c (columns) are >= 0. S is positive definite up to rounding. A point
  /// whose a or c is 0 has no entries. Waits.
  virtual void set(PlanEntries& plan, Vector const& a, Vector const& c) = 0;
  /// A symmetric positive definite map of vectors of the columns, the same from one set() to the next.
  virtual void solve(Vector const& in, Vector& out) = 0;
};

}  // namespace monge
