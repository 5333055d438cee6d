// Gradient of the projection of contiguous float32 matrices of 4 x 4, a matrix a lane, in the form of cross ratios. Two
// matrices of a lane are under way: the steps of one are made while those of the one before it are undone, which takes
// the special function unit and the multipliers at the same time. 93 instructions an iteration, 192 bytes a matrix.
//
// One history is enough for both. A pair of steps that is undone leaves its slot to one that is made, so that the next
// matrix lies in the slots in reverse; the direction changes from matrix to matrix.
//
// What is needed next is on its way to the L2 cache, not to registers: loads that are under way slow the iterations
// down (docs/tuning.md).
#pragma once
#include "cuda/projection/kernels/tile_backward.cuh"

namespace monge::cuda {

/// A persistent grid; the history is in shared memory. Matrices that are not narrow go through differentiate_tile, with
/// the lane's part of the history, as soon as that holds nothing else. (A bound on registers: with one on threads ptxas
/// makes a slower loop.)
template <class L, bool kColumnsFirst>
__global__ void __maxnreg__(65536 / kBackwardThreads<L> / 8 * 8)
    project_backward_ratio_kernel(__grid_constant__ ProjectionArguments const arguments) {
  static_assert(L::kLanes == 1 && L::N == 4);
  constexpr int N = L::N, kMatrix = N * N / 4;  // float4s of one.
  using Gradient = CrossRatioGradient<N, kColumnsFirst>;
  using History = TileHistory<L, true, kKeepsBoth<L, ProjectionMode::plain>>;
  History history;
  history.place(nullptr, static_cast<int>(threadIdx.x) / 32 * arguments.team_chunks, 0, 0);
  std::int64_t const threads = std::int64_t{gridDim.x} * blockDim.x, batch = arguments.batch;
  std::int64_t const thread = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  std::int64_t const warp_first = thread - threadIdx.x % 32;
  wait_for_previous_kernel();
  if (warp_first >= batch) return;
  // Lanes without a matrix work on the last one for nothing, or on their own last one again.
  std::int64_t const first = thread < batch ? thread : batch - 1;
  int const rounds = static_cast<int>((batch - 1 - warp_first) / threads) + 1;  // Of the warp.
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
