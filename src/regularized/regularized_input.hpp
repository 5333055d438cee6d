// The checked input of a regularised solve: options, regulariser and marginals.
#pragma once
#include <memory>
#include <mutex>
#include <vector>

#include <monge/regularized.hpp>

#include "seam/backend.hpp"

namespace monge {

void validate(RegularizedOptions const& options);

/// The widths beta of hypentropy, at mass 1, that iterations can use. With x = beta sinh(y), y does not underflow for
/// an entry x = 1e-10, and sinh(y) does not overflow for x = 1.
constexpr Bounds widths_of(Precision precision) {
  if (precision == Precision::float32) return {.least = 1e-30, .most = 1e20, .least_open = false, .most_open = false};
  return {.least = 1e-100, .most = 1e100, .least_open = false, .most_open = false};
}

/// A problem with checked input, except for the values of matrices and points, which operators check. Shares sum to 1.
struct CheckedRegularizedProblem {
  Geometry geometry;
  std::vector<double> p, q;
  double mass = 1;
  RegularizerTerms terms;
  RegularizedMethod method = RegularizedMethod::splitting;  ///< Not automatic.
  Precision precision = Precision::float32;                 ///< Not automatic.
  std::vector<double> u, v;                                 ///< Warm start in units of C; empty: none.
  MatrixView plan;                                          ///< Warm start of splitting; empty: none.

  RegularizedInput input() const { return {geometry, p, q, mass, terms, method == RegularizedMethod::newton}; }
};

/// Throws Error; unsupported if the method or the device cannot take the terms. Problems of one solve share `turn`, by
/// which their separable terms are called one at a time.
CheckedRegularizedProblem checked_problem(Context const& context, RegularizedProblem const& problem,
                                          RegularizedOptions const& options, std::shared_ptr<std::mutex> turn);

}  // namespace monge
