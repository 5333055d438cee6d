// Sums over points for the values of a plan.
#pragma once
#include "core/evaluation.hpp"
#include "cuda/launch/arguments.hpp"
#include "cuda/launch/queue.hpp"

namespace monge::cuda {

/// Sums over some points of a side from which the values of a plan follow.
struct PlanSums {
  SideSums side;
  /// Terms of <C', P>.
  CompensatedSum costs;
  /// Sum of upper bounds of the mass that the marginal of each point lacks.
  CompensatedSum left_out;

  MONGE_HOST_DEVICE void add(PlanSums const& other) {
    side.add(other.side);
    costs.add(other.costs);
    left_out.add(other.left_out);
  }
};
/// The number of parts in which the points of a side are summed.
int plan_sum_parts(int size);

/// Outputs for P 1 and P^T 1; null if not wanted.
struct PlanMarginals {
  double* side[2] = {};
};
struct PlanSumsOutput {
  PlanSums* parts;  // Parts of the rows, then of the columns.
  PlanMarginals marginals;
};

/// Partial sums of the points of a side.
struct PointParts {
  double const* data;
  std::int64_t stride;  // Between parts.
  int count;
};
/// After a kernel that takes each entry once, fused_evaluation or tile_evaluation: partial sums of entries on both
/// sides, and of entries times scores on one side, as parts of C'; the other side has count 0. The norms, the other
/// parts of C', are added here.
struct JoinedSumsArguments {
  PackedSide points[2];
  PointParts marginals[2], costs[2];
  double const* potential[2];
  PlanSumsOutput out;
  // The marginal of a point lacks at most left_out[side][point], of pairs that were left out, plus lack[side] times
  // itself. A null array counts as zeros.
  double const* left_out[2] = {};
  double lack[2] = {};
};
void sum_plan(JoinedSumsArguments const& arguments, Queue const& queue);

}  // namespace monge::cuda
