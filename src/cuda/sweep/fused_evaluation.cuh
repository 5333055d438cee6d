// Sums of the entries of a plan, and of entries times costs, in double, from one read of a cost matrix.
//
//   P_ij = 2^(h_i + h_j + c (C_ij - least))     h_i + h_j with the constants that logits leave out
//   r_i = sum_j P_ij,   c_j = sum_i P_ij,   sum_i P_ij (C_ij - least) for each place j of the lines i in memory
//
// The potentials belong to the plan. The exponentials need no reference: an overflow is an infinite entry of P.
//
// Tiling: a warp takes a strip of 128 places and a group of lines. Each lane takes the same four places of all lines.
//   Sums over the lines stay in registers. Sums over the places are joined in the warp, eight lines at a time: halves
//   of the lanes exchange halves of the lines, so no addition is wasted. Each warp leaves its sums in memory, and
//   sum_plan_kernel adds them in order. Each lane copies its own costs to a ring in shared memory, eight lines ahead,
//   so no barrier waits for memory.
//
// Per pair: 9 double operations of the exponential and 6 more (difference, two for the exponent, three sums); 4 or 8
//   bytes of memory; a hundredth of that for the sums.
//
// Numerics: all in double. The longest sequential sums run over the lines of a group. The terms of <C', P> are not
//   negative, so they do not cancel.
#pragma once
#include "cuda/device/numerics.cuh"
#include "cuda/device/source.cuh"
#include "cuda/device/stored.cuh"
#include "cuda/sweep/add_halves.cuh"
#include "cuda/sweep/fused_evaluation.hpp"

namespace monge::cuda {

inline constexpr int kEvaluationWarps = 4;  // Warps of a block.
inline constexpr int kLanePlaces = 4;
inline constexpr int kStripPlaces = 32 * kLanePlaces;
inline constexpr int kBatchLines = 8;
static_assert(kRowPadding % kStripPlaces == 0 && kRowPadding % kBatchLines == 0, "Logits are padded to whole strips.");

/// A score, or 2^1023 if it is infinite: its exponential and the product of both are then 0. Scores are not negative.
__device__ __forceinline__ double finite_score(double score) {
  constexpr int kLargest = 0x7fe00000;  // The upper 32 bits of 2^1023.
  return __hiloint2double(min(__double2hiint(score), kLargest), __double2loint(score));
}

/// Sums over the lanes of a warp: lane k returns the sum of value[k / 4].
__device__ __forceinline__ double lane_sums(double (&value)[kBatchLines]) {
  static_assert(kBatchLines == 8);
  add_halves<1>(value);
  double sum = value[0];
#pragma unroll
  for (int mask = 2; mask > 0; mask /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, mask);
  return sum;
}

template <class S, class Source>
__global__ void __launch_bounds__(32 * kEvaluationWarps, 4) fused_evaluation_kernel(Source const source) {
  constexpr int kPerVector = 16 / sizeof(S), kVectors = kLanePlaces / kPerVector;
  __shared__ alignas(16) S ring[kEvaluationWarps][kBatchLines][kStripPlaces];
  __shared__ Powers<double>::Table table;
  Slice<FusedEvaluationArguments> const slice = slice_of(source);
  FusedEvaluationArguments const& arguments = slice.arguments;
  StoredCosts const& costs = arguments.costs;
  int const lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  int const part = slice.block * kEvaluationWarps + warp;
  int const group = part / arguments.plan.strips, strip = part % arguments.plan.strips;
  start_next_kernel();
  Powers<double> const powers(table);
  __syncthreads();
  if (group >= arguments.plan.groups) return;

  int const first = group * arguments.plan.group_lines;
  int const end = min(first + arguments.plan.group_lines, costs.lines());
  int const size = costs.line_size();
  auto const place_of = [&](int c) {
    return strip * kStripPlaces + c / kPerVector * 32 * kPerVector + lane * kPerVector + c % kPerVector;
  };
  // A stage of the ring holds one line of a batch. Each lane reads only its own part.
  auto const staged = [&](int stage, int c) { return &ring[warp][stage][place_of(c) - strip * kStripPlaces]; };
  // Copies the lane's costs of the next line.
  S const* next_cost = static_cast<S const*>(costs.data) + first * costs.stride + place_of(0);
  bool const whole = costs.aligned && place_of(kLanePlaces - 1) < size;
  auto const fetch = [&](int stage, int line) {
    if (line < end) {
      std::uint32_t const to = shared_address(staged(stage, 0));
#pragma unroll
      for (int c = 0; c < kLanePlaces; ++c) {
        int const from = place_of(c) - place_of(0);
        if (whole) {
          if (c % kPerVector == 0) copy_async_16(to + from * static_cast<int>(sizeof(S)), next_cost + from);
        } else if (place_of(c) < size) {
          copy_async<sizeof(S)>(to + from * static_cast<int>(sizeof(S)), next_cost + from);
        }
      }
      next_cost += costs.stride;
    }
    copy_async_commit();
  };
  // The matrix is constant. Logits and parameters may come from the previous kernel.
#pragma unroll
  for (int stage = 0; stage < kBatchLines; ++stage) {
#pragma unroll
    for (int c = 0; c < kLanePlaces; ++c) {
      if (first + stage >= end || place_of(c) >= size) *staged(stage, c) = static_cast<S>(INFINITY);
    }
    fetch(stage, first + stage);
  }
  wait_for_previous_kernel();

  SweepParameters const& parameters = *arguments.parameters;
  double const factor = arguments.factor * parameters.log2e_over_eps;
  double const constant = (parameters.constant[0] + parameters.constant[1]) * parameters.log2e_over_eps;
  double logit[kLanePlaces], sum[kLanePlaces] = {}, cost_sum[kLanePlaces] = {};
#pragma unroll
  for (int c = 0; c < kLanePlaces; ++c) logit[c] = arguments.place_logits[place_of(c)];
  // Each lane holds the logit of one line of a batch. Padding completes the last batch with lines of zero weight.
  auto const line_logit = [&](int line) { return arguments.line_logits[line + lane % kBatchLines] + constant; };
  double next = line_logit(first);
#pragma unroll 1
  for (int line = first; line < end; line += kBatchLines) {
    double const logits = next;
    if (line + kBatchLines < end) next = line_logit(line + kBatchLines);
    double line_sum[kBatchLines];
#pragma unroll
    for (int stage = 0; stage < kBatchLines; ++stage) {
      copy_async_wait<kBatchLines - 1>();
      S cost[kVectors][kPerVector];
#pragma unroll
      for (int v = 0; v < kVectors; ++v) load_16_bytes(cost[v], staged(stage, v * kPerVector));
      double const of_line = __shfl_sync(0xffffffffu, logits, stage);
      line_sum[stage] = 0;
      double score[kLanePlaces], exponent[kLanePlaces], entry[kLanePlaces];
      int largest = 0;
#pragma unroll
      for (int c = 0; c < kLanePlaces; ++c) {
        score[c] = stored_score<double>(cost[c / kPerVector][c % kPerVector], costs.least);
        exponent[c] = fused(factor, score[c], of_line + logit[c]);
        largest = max(largest, upper_half_of_size(exponent[c]));
        entry[c] = powers.normal(exponent[c]);
      }
      if (largest >= kExponentLimit) {  // Rare.
#pragma unroll
        for (int c = 0; c < kLanePlaces; ++c) {
          score[c] = finite_score(score[c]);
          entry[c] = in_range(exponent[c], entry[c]);
        }
      }
#pragma unroll
      for (int c = 0; c < kLanePlaces; ++c) {
        line_sum[stage] += entry[c];
        sum[c] += entry[c];
        cost_sum[c] = fused(entry[c], score[c], cost_sum[c]);
      }
      fetch(stage, line + kBatchLines + stage);
    }
    double const total = lane_sums(line_sum);
    std::int64_t const at = static_cast<std::int64_t>(strip) * arguments.line_stride + line;
    if (lane % 4 == 0) arguments.line_sums[at + lane / 4] = total;
  }
#pragma unroll
  for (int c = 0; c < kLanePlaces; ++c) {
    std::int64_t const at = static_cast<std::int64_t>(group) * arguments.place_stride + place_of(c);
    arguments.place_sums[at] = sum[c];
    arguments.place_costs[at] = -arguments.factor * cost_sum[c];
  }
}

}  // namespace monge::cuda
