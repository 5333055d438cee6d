#include "seam/plan_operator.hpp"

#include <monge/error.hpp>

#include "geometry/cost_matrix.hpp"

namespace monge {

PlanEntries& PlanOperator::entries() {
  PlanEntries* const entries = entries_or_null();
  if (!entries) throw Error(ErrorCode::unsupported, "entries: this plan has products only");
  return *entries;
}

PlanPoints& PlanOperator::points() {
  PlanPoints* const points = points_or_null();
  if (!points) throw_no_points();
  return *points;
}

}  // namespace monge
