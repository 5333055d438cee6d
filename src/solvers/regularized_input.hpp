// What a regularised solve is given: options, regulariser and marginals, checked.
#pragma once
#include <vector>

#include <monge/regularized.hpp>

#include "operators/backend.hpp"

namespace monge {

void validate(RegularizedOptions const& options);

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

  RegularizedInput input() const { return {geometry, p, q, mass, terms, precision}; }
};

/// Throws Error; unsupported where the method cannot have the terms or the geometry.
CheckedRegularizedProblem checked_problem(Context const& context, RegularizedProblem const& problem,
                                          RegularizedOptions const& options);

}  // namespace monge
