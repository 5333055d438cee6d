// The value that the tolerance bounds.
#pragma once
#include <algorithm>
#include <cmath>

#include <monge/entropic.hpp>

#include "core/evaluation.hpp"

namespace monge {

/// Relative, as the tolerance is: `mass` is the larger of the totals of a and b or, where penalties let
/// the plan have less, the plan's.
inline double criterion_value(Criterion criterion, Evaluation const& evaluation, double eps, double mass) {
  double const error = (evaluation.row_error + evaluation.column_error) / mass;
  switch (criterion) {
    case Criterion::l1:
      break;
    case Criterion::gradient:
      return evaluation.gradient_norm / mass;
    case Criterion::gap:
      // <f, r - a> + <g, c - b> is 0 for g = 0 and exact rows, however poor the plan. The dual is off by the second
      // order of the error, so the value is at least the error squared.
      return std::max(std::abs(evaluation.gap) / std::max(std::abs(evaluation.primal), eps * mass), error * error);
  }
  return error;
}

}  // namespace monge
