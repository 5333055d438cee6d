// Gradient of the projection of contiguous float32 matrices of 4 x 4, one matrix a lane, as cross ratios
// (device/ratio.cuh). A lane works on two matrices at once: it makes the steps of one, `ahead`, while it undoes those
// of the previous one, `behind`. The special function unit and the multipliers are then busy at the same time. An
// iteration takes 93 instructions; a matrix moves 192 bytes.
//
// Both matrices share one history. When a pair of steps is undone its slot becomes free, and the pair that is made
// takes it. So the next matrix lies in the slots in reverse order, and the direction changes from matrix to matrix.
//
// The next matrices are prefetched to the L2 cache, not loaded to registers: loads in flight slow the iterations down
// (docs/tuning.md).
#pragma once
#include "cuda/projection/kernels/tile_backward.cuh"

namespace monge::cuda {

/// The grid is persistent and the history lies in shared memory. A matrix that is not narrow goes through
/// differentiate_tile once the lane's part of the history is free. The bound is one on registers, because with one on
/// threads ptxas makes a slower loop.
template <class L, bool kColumnsFirst>
__global__ void __maxnreg__(65536 / kBackwardThreads<L> / 8 * 8)
    project_backward_ratio_kernel(__grid_constant__ ProjectionArguments const arguments) {
  static_assert(L::kLanes == 1 && L::N == 4);
  constexpr int N = L::N, kMatrix = N * N / 4;  // float4s of a matrix.
  using Gradient = CrossRatioGradient<N, kColumnsFirst>;
  using History = TileHistory<L, true, kKeepsBoth<L, ProjectionMode::plain>>;
  History history;
  history.place(nullptr, static_cast<int>(threadIdx.x) / 32 * arguments.team_chunks, 0, 0);
  std::int64_t const threads = std::int64_t{gridDim.x} * blockDim.x, batch = arguments.batch;
  std::int64_t const thread = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  std::int64_t const warp_first = thread - threadIdx.x % 32;
  wait_for_previous_kernel();
  if (warp_first >= batch) return;
  // A lane that has no matrix left repeats its own last one, or the last of the batch, and stores nothing.
  std::int64_t const first = thread < batch ? thread : batch - 1;
  // Rounds of the warp, set by its first lane.
  int const rounds = static_cast<int>((batch - 1 - warp_first) / threads) + 1;
  int const own_rounds = thread < batch ? static_cast<int>((batch - 1 - thread) / threads) + 1 : 0;
  std::int64_t const step = kMatrix * threads;
  float4 const* logits = static_cast<float4 const*>(arguments.logits.data) + kMatrix * first;
  float4 const* given = static_cast<float4 const*>(arguments.gradient.data) + kMatrix * first;
  float4* result = static_cast<float4*>(arguments.result.data) + kMatrix * first - step;
  int const kept = Gradient::kept_pairs(arguments);

  Gradient ahead, behind{};
  float x[N][N], g[N][N];
  load_matrix(logits, x);
  if (own_rounds > 1) logits += step;
  bool ahead_narrow = ahead.start(x, arguments), behind_stored = false;
  float* slot = history.memory();
  int direction = Gradient::kSlot;
  for (int round = 0;; ++round) {
    if (round == 0) {
#pragma unroll 1
      for (int pair = 0; pair < kept; ++pair, slot += direction)
        Gradient::template write<History>(slot, ahead.advance());
    } else if (round == rounds) {
#pragma unroll 1
      for (int pair = 0; pair < kept; ++pair, slot += direction) behind.undo(Gradient::template read<History>(slot));
    } else {
#pragma unroll 2
      for (int pair = 0; pair < kept; ++pair, slot += direction) {
        typename Gradient::Pair const done = Gradient::template read<History>(slot), made = ahead.advance();
        behind.undo(done);
        Gradient::template write<History>(slot, made);
      }
    }
    load_matrix(given, g);
    if (round + 1 < own_rounds) given += step;
    load_matrix(logits, x);
    if (round + 2 < own_rounds) logits += step;
    {
      float d[N][N];
      behind.finish(d);
      if (behind_stored) store_matrix(result, d);
      result += step;
    }
    if (round == rounds) break;
    bool const inside = round < own_rounds;
    if (inside && !ahead_narrow) {
      float wide[N][N];
      load_matrix(
          static_cast<float4 const*>(arguments.logits.data) + (result - static_cast<float4*>(arguments.result.data)),
          wide);
      differentiate_tile<L, ProjectionMode::plain, false>(wide, g, arguments, nullptr, history);
      store_matrix(result, wide);
    }
    direction = -direction;
    slot += direction;
    behind = ahead;
    behind_stored = inside && ahead_narrow;
    ahead_narrow = ahead.start(x, arguments);
    behind.turn(g, arguments.inverse_temperature);
    prefetch(given);
    prefetch(logits);
  }
}

}  // namespace monge::cuda
