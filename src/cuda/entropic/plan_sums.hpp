// Sums over points that the values of a plan are made of.
#pragma once
#include "core/evaluation.hpp"
#include "cuda/launch/arguments.hpp"
#include "cuda/launch/queue.hpp"

namespace monge::cuda {

/// What the values of a plan are made of: sums over some points of a side.
struct PlanSums {
  SideSums side;
  /// What <C', P> is the sum of.
  CompensatedSum costs;

  MONGE_HOST_DEVICE void add(PlanSums const& other) {
    side.add(other.side);
    costs.add(other.costs);
  }
};
/// In how many parts the points of a side are summed.
int plan_sum_parts(int size);

/// P 1 and P^T 1; null: not wanted.
struct PlanMarginals {
  double* side[2] = {};
};
struct PlanSumsOutput {
  PlanSums* parts;  // Of the rows, then of the columns.
  PlanMarginals marginals;
};

/// After a pass for each side, that of the rows with moments. With h the constant of g, which is large beside C' where
/// masses differ much, and t without h, <C', P> is the sum of
/// r_i (norm_i - eps ln2 sum_j w_ij (t_ij - log2 b_j)), w the softmax of the row, and of c_j (g_j - h).
struct PlanSumsArguments {
  SumArguments sums[2];
  double const* potential[2];
  PlanSumsOutput out;
};
void sum_plan(PlanSumsArguments const& arguments, Queue const& queue);

/// Numbers of the points of a side in parts, one after the other.
struct PointParts {
  double const* data;
  std::int64_t stride;  // From part to part.
  int count;
};
/// After a fused evaluation, whose sums of entries and costs these are; costs may be no parts.
struct JoinedSumsArguments {
  PackedSide points[2];
  PointParts marginals[2], costs[2];
  double const* potential[2];
  PlanSumsOutput out;
};
void sum_plan(JoinedSumsArguments const& arguments, Queue const& queue);

}  // namespace monge::cuda
