// Many sweeps of a small problem in one launch (cuda/entropic/resident_sweep.cuh).
#pragma once
#include <optional>

#include "cuda/launch/queue.hpp"
#include "cuda/sweep/update.hpp"

namespace monge::cuda {

/// The scores of all pairs in tiles, one for each block, which are on the device at once. Numbers of rows and columns.
struct ResidentSweepPlan {
  DataType scalar = DataType::float32;
  ScoreForm form = ScoreForm::products;
  int tile[2] = {};   // Rows and columns of a tile.
  int tiles[2] = {};  // Tiles below each other and side by side.
  int shared_bytes = 0;
  int most_blocks = 0;  // Blocks of a launch for many problems: as many as the device holds at once.

  int blocks() const { return tiles[0] * tiles[1]; }
  /// Whether the blocks of both can share one grid.
  bool goes_with(ResidentSweepPlan const& other) const {
    return scalar == other.scalar && form == other.form && shared_bytes == other.shared_bytes;
  }
};

struct ResidentSweepArguments {
  PassArguments scores;  // Only the arguments that determine scores.
  SweepParameters parameters;
  struct OfSide {
    PackedSide points;
    double* potential;
    void* partials;  // PartialSum [2][tiles of the other side][points.padded_size]; of a self problem, of rows only.
    double* errors;  // Two sums for each tile of the side.
  };
  OfSide side[2];  // Rows, columns; of a self problem equal but for the potential.
  int tile[2], tiles[2];
  bool is_self, symmetric;
  int count;          // Sweeps.
  unsigned* arrived;  // Blocks that have come to barriers, in all launches,
  unsigned arrivals;  // and their number before this launch.

  unsigned blocks() const { return static_cast<unsigned>(tiles[0] * tiles[1]); }
  /// All arrivals of this launch.
  unsigned new_arrivals() const { return blocks() * static_cast<unsigned>(count) * (is_self || symmetric ? 1 : 2); }
};

static_assert(sizeof(ResidentSweepArguments) % 4 == 0);

/// Null if the scores do not fit in the shared memory of the device, or before Generation::sm_90.
std::optional<ResidentSweepPlan> plan_resident_sweep(PassArguments const& scores, int multiprocessors);
/// The sweeps of one problem.
void launch_resident_sweeps(ResidentSweepPlan const& plan, ResidentSweepArguments const& arguments,
                            cudaStream_t stream);
/// The sweeps of many problems, whose plans differ in the number of tiles alone. `table` has an entry for each of their
/// `tiles` tiles, problem after problem. As many problems are at work as the device holds.
void launch_resident_sweeps(ResidentSweepPlan const& plan, BlockOfMany const* table, int tiles, cudaStream_t stream);

}  // namespace monge::cuda
