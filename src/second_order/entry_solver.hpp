// The part of a plan that its largest entries make, as something to solve with.
#pragma once
#include <span>

#include "backend/vectors.hpp"

namespace monge {

/// About the inverse of
///   S = diag(c) - E^T diag(1/a) E,
/// E (n x m) having entries of a plan at pairs that were given once: what preconditions the Schur complement of all of
/// the plan. Made by EntropicOperator::entry_solver().
class EntrySolver {
 public:
  virtual ~EntrySolver() = default;
  /// About how many passes over all pairs set() takes, for the number of its pairs to be chosen by.
  virtual double passes() const = 0;
  /// a (n) and c (m) are >= 0, `entries` those of the pairs. S is positive definite but for rounding. A point whose a
  /// or c is 0 has no entries; out is in there.
  virtual void set(std::span<double const> a, std::span<double const> c, std::span<double const> entries) = 0;
  /// The same symmetric positive definite map from one set() to the next; both vectors are of the columns.
  virtual void solve(Vector const& in, Vector& out) = 0;
};

}  // namespace monge
