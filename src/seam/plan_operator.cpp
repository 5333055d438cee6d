#include "seam/plan_operator.hpp"

#include "geometry/cost_matrix.hpp"

namespace monge {

PlanPoints& PlanOperator::points() {
  PlanPoints* const points = points_or_null();
  if (!points) throw_no_points();
  return *points;
}

}  // namespace monge
