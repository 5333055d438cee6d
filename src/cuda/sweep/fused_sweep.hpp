// A sweep in float from one read of a cost matrix (cuda/sweep/fused_sweep.cuh).
//
// A line of the matrix in memory is a row of the problem, or a column if the matrix is transposed. The pass leaves the
// sum of each line, from which update_potential() computes the potentials of the lines, and sums over the lines, from
// which update_across() computes the potential of the other side.
#pragma once
#include "cuda/sweep/update.hpp"

namespace monge::cuda {

struct FusedSweepPlan {
  int cluster = 1;   // Blocks that share a line.
  int clusters = 0;  // 0: no kernel fits this matrix or device.
  int threads = 0;
  int shared_bytes = 0;
  friend bool operator==(FusedSweepPlan const&, FusedSweepPlan const&) = default;
};

struct FusedSweepArguments {
  StoredCosts costs;
  double factor = 1;  // Factor of scores, beside log2(e) / eps.
  SweepParameters const* parameters = nullptr;
  int side = 0;  // The side of the lines.
  PackedSide lines;
  double const* potential = nullptr;  // Potentials of the lines.
  LogitArrays logits;                 // Logits of the other side.
  double inverse_mass = 1;
  bool symmetric = false;
  void* line_sums = nullptr;    // PartialSum<float> [lines.padded_size]
  void* across_sums = nullptr;  // float [clusters][across_stride]
  int across_stride = 0;
  int clusters = 0;
  friend bool operator==(FusedSweepArguments const&, FusedSweepArguments const&) = default;
};

FusedSweepPlan plan_fused_sweep(StoredCosts const& costs, int multiprocessors);
void launch_fused_sweep(FusedSweepPlan const& plan, FusedSweepArguments const& arguments, Queue const& queue);

struct AcrossArguments {
  UpdateArguments update;  // sums.partials is across_sums.
  StoredCosts costs;
  double factor;
  LogitArrays lines;  // Logits of the lines, from the potentials that the pass used.
  int clusters;
  double mass;
};
void update_across(AcrossArguments const& arguments, Queue const& queue);

}  // namespace monge::cuda
