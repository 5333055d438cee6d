// The state of a RegularizedPlan.
#pragma once
#include <memory>

#include <monge/regularized.hpp>

#include "seam/regularized_operator.hpp"

namespace monge {

struct RegularizedPlan::State {
  Context context;
  std::unique_ptr<RegularizedOperator> found;
  RegularizedReport report;
};

}  // namespace monge
