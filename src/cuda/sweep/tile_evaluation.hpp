// The sums that evaluate a plan, in double, from one computation of each score of points
// (cuda/sweep/tile_evaluation.cuh).
#pragma once
#include "cuda/launch/arguments.hpp"
#include "cuda/launch/queue.hpp"

namespace monge::cuda {

/// The tiles of all pairs in rectangles, one for each block of the grid.
struct TileEvaluationPlan {
  int row_tiles = 1;      // Tiles below each other in a rectangle, at most.
  int column_tiles = 1;   // Tiles side by side in a rectangle, at most.
  int row_groups = 1;     // Rectangles below each other.
  int column_groups = 1;  // Rectangles side by side.
};

struct TileEvaluationArguments {
  PassArguments scores;  // Only the arguments that determine scores.
  SweepParameters const* parameters = nullptr;
  double const* row_logits = nullptr;     // Padded.
  double const* column_logits = nullptr;  // Padded.
  double* row_sums = nullptr;             // [column_groups][rows.padded_size]
  double* row_costs = nullptr;            // The same layout, sums of entries times -factor score.
  double* column_sums = nullptr;          // [row_groups][columns.padded_size]
  TileEvaluationPlan plan;
};

/// Deals the tiles out to at most `resident_blocks` blocks.
TileEvaluationPlan plan_rectangles(int row_tiles, int column_tiles, int resident_blocks);
TileEvaluationPlan plan_tile_evaluation(PassArguments const& scores, int multiprocessors);
void launch_tile_evaluation(TileEvaluationArguments const& arguments, Queue const& queue);

}  // namespace monge::cuda
