// A regularised problem on its way from input to plan, whatever the method.
#pragma once
#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "core/stopwatch.hpp"
#include "regularized/regularized_input.hpp"

namespace monge {

/// Gaps are relative to at least this value times CostScale::gap_unit, so that a value of 0 can be certified. Float32
/// rounds costs by 6e-8 of their range.
constexpr double least_gap_unit(Precision precision) {
  return precision == Precision::float32 ? 1e-3 : 1e-6;
}

/// The errors of values, relative as tolerances are.
struct RegularizedErrors {
  double residual;  ///< |(X 1 - p, X^T 1 - q)|_2 over |(p, q)|_2
  double gap;       ///< |primal - dual| over |primal|, of costs that begin at 0
};

struct RegularizedRun {
  CheckedRegularizedProblem problem;
  std::shared_ptr<RegularizedCosts const> costs{};
  std::unique_ptr<RegularizedOperator> found{};
  RegularizedReport report{};

  /// |(p, q)|_2 of the shares.
  double marginal_norm() const {
    double squares = 0;
    for (std::vector<double> const* side : {&problem.p, &problem.q}) {
      for (double const share : *side) squares += share * share;
    }
    return std::sqrt(squares);
  }
  RegularizedErrors errors_of(RegularizedValues const& values) const;
  /// Advice for a solve that ends short because costs differ too much; empty for others.
  std::string advice() const;
  /// Fills in the values of the report.
  void report_values(RegularizedValues const& values);
  /// Whether the errors of the criterion are within the tolerance.
  static bool is_within(RegularizedErrors const& errors, RegularizedOptions const& options) {
    return errors.residual <= options.tolerance &&
           (options.criterion == RegularizedCriterion::residual || errors.gap <= options.tolerance);
  }
};

}  // namespace monge
