// The sums that evaluate a plan, in double, from one read of a cost matrix (cuda/entropic/fused_evaluation.cuh).
#pragma once
#include "cuda/launch/arguments.hpp"
#include "cuda/launch/queue.hpp"

namespace monge::cuda {

struct FusedEvaluationPlan {
  int strips = 1;       // Of the places of a line.
  int groups = 1;       // Of lines.
  int group_lines = 1;  // At most.
};

struct FusedEvaluationArguments {
  StoredCosts costs;
  double factor = 1;  // Of a score, times log2(e) / eps.
  SweepParameters const* parameters = nullptr;
  double const* line_logits = nullptr;   // Padded, of the lines of the matrix in memory
  double const* place_logits = nullptr;  // and of the places of each.
  double* line_sums = nullptr;           // [strips][line_stride]
  double* place_sums = nullptr;          // [groups][place_stride]
  double* place_costs = nullptr;         // The same: the entries times -factor score.
  int line_stride = 0, place_stride = 0;
  FusedEvaluationPlan plan;
};

FusedEvaluationPlan plan_fused_evaluation(StoredCosts const& costs, int multiprocessors);
void launch_fused_evaluation(FusedEvaluationArguments const& arguments, Queue const& queue);

}  // namespace monge::cuda
