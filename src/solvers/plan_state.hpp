// What a Plan keeps.
#pragma once
#include <memory>

#include <monge/entropic.hpp>

#include "operators/backend.hpp"

namespace monge {

struct Plan::State {
  Context context;
  std::unique_ptr<PlanOperator> plan;
  std::int64_t dimension;  // Of the points; 0 where the costs have none.
  Report report;
  std::unique_ptr<Vector> scratch[2][2] = {};  // Two vectors of each side, made when first needed.

  Vector& vector(Side side, int which) {
    std::unique_ptr<Vector>& vector = scratch[static_cast<int>(side)][which];
    if (!vector) vector = plan->vectors().make(side);
    return *vector;
  }
};

}  // namespace monge
