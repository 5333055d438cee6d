// The rank-two correction of a matrix by one step and the change of the gradient that it made.
#pragma once
#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include "core/compensated_sum.hpp"

namespace monge {

inline void add(double factor, std::vector<double> const& from, std::vector<double>& to) {
  for (std::size_t k = 0; k < to.size(); ++k) to[k] += factor * from[k];
}

inline double dot(std::vector<double> const& first, std::vector<double> const& second) {
  CompensatedSum sum;
  for (std::size_t k = 0; k < first.size(); ++k) sum.add(first[k] * second[k]);
  return sum.value();
}

/// The update of BFGS, on the inverse of a symmetric positive definite B:
///   B+^-1 = (I - s y^T / <y, s>) B^-1 (I - y s^T / <y, s>) + s s^T / <y, s>,
/// which is positive definite too and has B+^-1 y = s.
class Secant {
 public:
  /// None unless <y, s> > least <y, y>: a step of less curvature than rounding says nothing of the matrix.
  static std::optional<Secant> of(std::vector<double> s, std::vector<double> y, double least) {
    double const ys = dot(y, s);
    if (!(ys > least * dot(y, y))) return std::nullopt;
    return Secant(std::move(s), std::move(y), ys);
  }

  /// z becomes B+^-1 z; solve(z) makes it B^-1 z.
  template <class Solve>
  void apply(Solve const& solve, std::vector<double>& z) const {
    double const along = dot(s_, z) / ys_;
    add(-along, y_, z);
    solve(z);
    add(along - dot(y_, z) / ys_, s_, z);
  }

 private:
  Secant(std::vector<double> s, std::vector<double> y, double ys) : s_(std::move(s)), y_(std::move(y)), ys_(ys) {}

  std::vector<double> s_, y_;
  double ys_;
};

}  // namespace monge
