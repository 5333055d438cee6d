// The sums that evaluate a plan, in double, from one read of a cost matrix (cuda/sweep/fused_evaluation.cuh).
#pragma once
#include "cuda/launch/arguments.hpp"
#include "cuda/launch/queue.hpp"

namespace monge::cuda {

struct FusedEvaluationPlan {
  int strips = 1;       // Parts of a line, of 128 places each.
  int groups = 1;       // Groups of lines.
  int group_lines = 1;  // Lines of a group, at most.
};

struct FusedEvaluationArguments {
  StoredCosts costs;
  double factor = 1;  // Factor of scores, beside log2(e) / eps.
  SweepParameters const* parameters = nullptr;
  double const* line_logits = nullptr;   // Logits of the lines in memory, padded.
  double const* place_logits = nullptr;  // Logits of the places of a line, padded.
  double* line_sums = nullptr;           // [strips][line_stride]
  double* place_sums = nullptr;          // [groups][place_stride]
  double* place_costs = nullptr;         // [groups][place_stride], sums of entries times -factor score
  int line_stride = 0, place_stride = 0;
  FusedEvaluationPlan plan;
};

FusedEvaluationPlan plan_fused_evaluation(StoredCosts const& costs, int multiprocessors);
void launch_fused_evaluation(FusedEvaluationArguments const& arguments, Queue const& queue);

}  // namespace monge::cuda
