#include "cuda/sweep/tile_evaluation.hpp"

#include <algorithm>

#include "cuda/launch/occupancy.hpp"
#include "cuda/launch/sizes.hpp"
#include "cuda/sweep/tile_evaluation.cuh"

namespace monge::cuda {
namespace {

/// The start of a row of tiles in a strip takes as long as this fraction of a tile. Each array of sums of a side
/// costs memory, and time at the end: as if the tiles took longer by this fraction.
constexpr double kStart = 0.25, kJoin = 2e-4;

struct Choice {
  Kernel<TileEvaluationArguments> kernel;
  int shared_bytes;
};

template <ScoreForm kForm>
Choice choice_of(int dimension) {
  return {{tile_evaluation_kernel<kForm, One<TileEvaluationArguments>>,
           tile_evaluation_kernel<kForm, Many<TileEvaluationArguments>>},
          TileScores<double, kForm>::shared_bytes(dimension)};
}

Choice choice_of(PassArguments const& scores) {
  int const dimension = scores.rows.dimension;
  switch (scores.form) {
    case ScoreForm::differences:
      return choice_of<ScoreForm::differences>(dimension);
    case ScoreForm::distances:
      return choice_of<ScoreForm::distances>(dimension);
    default:
      return choice_of<ScoreForm::products>(dimension);
  }
}

}  // namespace

TileEvaluationPlan plan_rectangles(int row_tiles, int column_tiles, int resident_blocks) {
  TileEvaluationPlan best;
  double least = 0;
  for (int height = row_tiles; height >= 1; --height) {
    int const row_groups = divided_up(row_tiles, height);
    if (row_groups > std::max(resident_blocks, 1)) break;
    int const width = divided_up(column_tiles, std::clamp(resident_blocks / row_groups, 1, column_tiles));
    int const column_groups = divided_up(column_tiles, width);
    double const tiles = static_cast<double>(height) * width;
    double const time =
        tiles * (1 + kJoin * (row_groups + 2 * column_groups)) + kStart * height * divided_up(width, kStripTiles);
    if (least > 0 && time >= least) continue;
    least = time;
    best = {height, width, row_groups, column_groups};
  }
  return best;
}

/// All blocks are resident at once.
TileEvaluationPlan plan_tile_evaluation(PassArguments const& scores, int multiprocessors) {
  Choice const choice = choice_of(scores);
  occupancy_of(choice.kernel.many, kTileThreads, choice.shared_bytes);
  int const blocks =
      multiprocessors * occupancy_of(choice.kernel.one, kTileThreads, choice.shared_bytes).resident_blocks;
  return plan_rectangles(scores.rows.padded_size / kTileRows, scores.columns.padded_size / kTileColumns, blocks);
}

void launch_tile_evaluation(TileEvaluationArguments const& arguments, Queue const& queue) {
  Choice const choice = choice_of(arguments.scores);
  queue.launch(choice.kernel,
               {.blocks = arguments.plan.row_groups * arguments.plan.column_groups,
                .threads = kTileThreads,
                .shared_bytes = choice.shared_bytes},
               arguments);
}

}  // namespace monge::cuda
