// The part of a plan that its largest entries make, as something to solve with.
#pragma once
#include "backend/vectors.hpp"

namespace monge {

class PlanEntries;

/// About the inverse of
///   S = diag(c) - E^T diag(1/a) E,
/// E (n x m) having entries of a plan at pairs that were given once: what preconditions the Schur complement of all of
/// the plan. Made by PlanEntries::entry_solver().
class EntrySolver {
 public:
  virtual ~EntrySolver() = default;
  /// About how many passes over all pairs set() takes, for the number of its pairs to be chosen by.
  virtual double passes() const = 0;
  /// E has the entries of `plan`; a (rows) and c (columns) are >= 0. S is positive definite but for rounding. A point
  /// whose a or c is 0 has no entries. Waits.
  virtual void set(PlanEntries& plan, Vector const& a, Vector const& c) = 0;
  /// The same symmetric positive definite map from one set() to the next; both vectors are of the columns.
  virtual void solve(Vector const& in, Vector& out) = 0;
};

}  // namespace monge
