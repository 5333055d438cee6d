// The rank-two correction of a matrix from one step and the change of the gradient along it.
#pragma once
#include <optional>
#include <utility>

#include "second_order/vector_pairs.hpp"

namespace monge {

/// The update of BFGS, on the inverse of a symmetric positive definite B:
///   B+^-1 = (I - s y^T / <y, s>) B^-1 (I - y s^T / <y, s>) + s s^T / <y, s>,
/// which is positive definite too and has B+^-1 y = s.
class Secant {
 public:
  /// None unless <y, s> > least <y, y>: a smaller curvature may be rounding.
  static std::optional<Secant> of(PairOperations const& pairs, VectorPair s, VectorPair y, double least) {
    auto const [ys, yy] = pairs.dots({{&y, &s}, {&y, &y}});
    if (!(ys > least * yy)) return std::nullopt;
    return Secant(pairs, std::move(s), std::move(y), ys);
  }

  /// Replaces z by B+^-1 z; solve(z) replaces it by B^-1 z.
  template <class Solve>
  void apply(Solve const& solve, VectorPair const& z) const {
    double const along = pairs_.dot(s_, z) / ys_;
    pairs_.combine({{1, &z}, {-along, &y_}}, z);
    solve(z);
    pairs_.combine({{1, &z}, {along - pairs_.dot(y_, z) / ys_, &s_}}, z);
  }

 private:
  Secant(PairOperations const& pairs, VectorPair s, VectorPair y, double ys)
      : pairs_(pairs), s_(std::move(s)), y_(std::move(y)), ys_(ys) {}

  PairOperations pairs_;
  VectorPair s_, y_;
  double ys_;
};

}  // namespace monge
