// What a regularised solve is given: options, regulariser and marginals, checked.
#pragma once
#include <vector>

#include <monge/regularized.hpp>

#include "backend/backend.hpp"

namespace monge {

void validate(RegularizedOptions const& options);

/// Widths of hypentropy, of mass 1, that iterations hold: x = beta sinh(y), where y of an entry of 1e-10 is above the
/// smallest number and sinh(y) of one of 1 below the largest.
constexpr Bounds widths_of(Precision precision) {
  if (precision == Precision::float32) return {.least = 1e-30, .most = 1e20, .least_open = false, .most_open = false};
  return {.least = 1e-100, .most = 1e100, .least_open = false, .most_open = false};
}

/// A problem whose input has been checked but for the values of matrices and points, which operators check. Shares sum
/// to 1.
struct CheckedRegularizedProblem {
  Geometry geometry;
  std::vector<double> p, q;
  double mass = 1;
  RegularizerTerms terms;
  RegularizedMethod method = RegularizedMethod::splitting;  ///< Not automatic.
  Precision precision = Precision::float32;                 ///< Not automatic.
  std::vector<double> u, v;                                 ///< Warm start in units of C; empty: none.

  RegularizedInput input() const { return {geometry, p, q, mass, terms, method == RegularizedMethod::newton}; }
};

/// Throws Error; unsupported where the method cannot have the terms or the geometry.
CheckedRegularizedProblem checked_problem(Context const& context, RegularizedProblem const& problem,
                                          RegularizedOptions const& options);

}  // namespace monge
