// Sums over the columns for points of few coordinates, on the FMA pipes.
//
//   For each row i: (reference, sum) with sum = sum_j beta_j 2^(t_ij - reference),  t_ij = h_j + c |x'_i - y'_j|^2 or
//   h_j + c |x'_i - y'_j| (kForm), c = -s log2(e) / eps, over the block's part of the columns. Differences are exact to
//   rounding, so near points lose nothing to cancellation. Pass::product takes given references, and beta_j v_j in
//   place of beta_j.
//
// Tiling: a thread owns kRowsPerThread rows, in registers; a block of 128 threads walks over tiles of 64 columns in
//   shared memory (two buffers), which all its threads read at the same address.
//
// Per pair: d FADD, d FFMA, then FFMA, FADD, MUFU, FFMA; a distance takes a second MUFU. Device memory: the two clouds
// once; everything else is L2.
//
// Numerics: sums of one tile in float, then compensated. Pass::softmin takes no maximum: if the sum of a group of
//   columns shows that a reference is too low, the reference moves and the group is summed again. kEmptyLogit columns
//   have beta = 0.
#pragma once
#include "cuda/device/numerics.cuh"
#include "cuda/device/source.cuh"
#include "cuda/device/work.cuh"
#include "cuda/launch/arguments.hpp"

namespace monge::cuda {

template <int kDimension>
struct DifferencePolicy {
  static constexpr int kThreads = 128;
  static constexpr int kRowsPerThread = 4;
  static constexpr int kRows = kThreads * kRowsPerThread;
  static constexpr int kColumns = 64;                      // Columns of a tile: each of the first 64 threads loads one.
  static constexpr int kGroup = 8;                         // Columns between checks of the references.
  static constexpr int kBlocks = kDimension <= 4 ? 6 : 4;  // Blocks on a multiprocessor, at least.
  static constexpr int kStride = kDimension <= 2 ? kDimension : kDimension <= 4 ? 4 : 8;  // Floats of a packed point.
};

/// kStride floats as one or two vector loads.
template <int kStride>
__device__ __forceinline__ void load_point(float (&point)[kStride], float const* from) {
  if constexpr (kStride == 1) {
    point[0] = *from;
  } else if constexpr (kStride == 2) {
    float2 const v = *reinterpret_cast<float2 const*>(from);
    point[0] = v.x, point[1] = v.y;
  } else {
#pragma unroll
    for (int k = 0; k < kStride; k += 4) {
      float4 const v = *reinterpret_cast<float4 const*>(from + k);
      point[k] = v.x, point[k + 1] = v.y, point[k + 2] = v.z, point[k + 3] = v.w;
    }
  }
}

/// Grid arguments.work.grid.
template <int kDimension, ScoreForm kForm, Pass kPass, class Source>
__global__ void __launch_bounds__(DifferencePolicy<kDimension>::kThreads, DifferencePolicy<kDimension>::kBlocks)
    pass_difference(Source const source) {
  using Policy = DifferencePolicy<kDimension>;
  constexpr int kStride = Policy::kStride;
  constexpr int kPerThread = Policy::kRowsPerThread;
  __shared__ __align__(16) float shared_points[2][Policy::kColumns * kStride];
  __shared__ float2 shared_logits[2][Policy::kColumns];
  Slice<PassArguments> const slice = slice_of(source);
  PassArguments const& arguments = slice.arguments;
  int const thread = static_cast<int>(threadIdx.x);
  int const padded_rows = arguments.rows.padded_size;
  auto const* const row_points = static_cast<float const*>(arguments.rows.points);
  auto const* const column_points = static_cast<float const*>(arguments.columns.points);
  auto const* const logits = static_cast<float const*>(arguments.logits);
  auto const* const factors = static_cast<float const*>(arguments.factors);
  start_next_kernel();
  wait_for_previous_kernel();
  float const factor = static_cast<float>(arguments.factor * arguments.parameters->log2e_over_eps);

  for_each_segment(arguments.work, padded_rows, slice.block, 1, [&](Segment const& segment) {
    // Rows past the end repeat the last row and are not stored.
    auto const row_of = [&](int r) { return min(segment.first_row + thread + r * Policy::kThreads, padded_rows - 1); };
    float x[kPerThread][kStride];
    float reference[kPerThread], total[kPerThread], compensation[kPerThread];
#pragma unroll
    for (int r = 0; r < kPerThread; ++r) {
      load_point<kStride>(x[r], row_points + static_cast<std::int64_t>(row_of(r)) * kStride);
      reference[r] =
          kPass == Pass::product ? static_cast<float const*>(arguments.references)[row_of(r)] : kEmptyLogit<float>;
      total[r] = compensation[r] = 0;
    }

    float next_point[kStride];
    float2 next_logit;
    bool const loads = thread < Policy::kColumns;
    auto const fetch = [&](int tile) {
      if (!loads) return;
      int const column = (segment.first_tile + tile) * Policy::kColumns + thread;
      load_point<kStride>(next_point, column_points + static_cast<std::int64_t>(column) * kStride);
      next_logit = make_float2(logits[column], factors[column]);
    };
    if (segment.tiles > 0) fetch(0);
    for (int tile = 0; tile < segment.tiles; ++tile) {
      int const buffer = tile % 2;
      if (loads) {
#pragma unroll
        for (int k = 0; k < kStride; ++k) shared_points[buffer][thread * kStride + k] = next_point[k];
        shared_logits[buffer][thread] = next_logit;
      }
      // Slower threads may still read the other buffer. This one has been free since the last barrier.
      __syncthreads();
      if (tile + 1 < segment.tiles) fetch(tile + 1);

      float const* const points = shared_points[buffer];
      float2 const* const tile_logits = shared_logits[buffer];
      // Calls visit(r, t, beta) for each row and each column of the group that starts at `begin`.
      auto const for_pairs = [&](int begin, auto&& visit) {
#pragma unroll
        for (int c = 0; c < Policy::kGroup; ++c) {
          float y[kStride];
          load_point<kStride>(y, points + (begin + c) * kStride);
          float2 const logit = tile_logits[begin + c];
#pragma unroll
          for (int r = 0; r < kPerThread; ++r) {
            float square = 0;
#pragma unroll
            for (int k = 0; k < kDimension; ++k) {
              float const difference = x[r][k] - y[k];
              square = fmaf(difference, difference, square);
            }
            float const score = kForm == ScoreForm::distances ? fast_sqrt(square) : square;
            visit(r, fmaf(factor, score, logit.x), logit.y);
          }
        }
      };
      float sum[kPerThread] = {};
      for (int group = 0; group < Policy::kColumns; group += Policy::kGroup) {
        float group_sum[kPerThread];
        auto const make = [&] {
#pragma unroll
          for (int r = 0; r < kPerThread; ++r) group_sum[r] = 0;
          for_pairs(group, [&](int r, float t, float beta) {
            group_sum[r] = fmaf(beta, fast_exp2(t - reference[r]), group_sum[r]);
          });
        };
        auto const raise = [&] {
          float largest[kPerThread];
#pragma unroll
          for (int r = 0; r < kPerThread; ++r) largest[r] = reference[r];
          for_pairs(group, [&](int r, float t, float) { largest[r] = fmaxf(largest[r], t); });
#pragma unroll
          for (int r = 0; r < kPerThread; ++r) {
            float const shrink = fast_exp2(reference[r] - largest[r]);
            sum[r] *= shrink;
            total[r] *= shrink;
            compensation[r] *= shrink;
            reference[r] = largest[r];
          }
        };
        sum_and_raise<has_references(kPass)>(group_sum, make, raise);
#pragma unroll
        for (int r = 0; r < kPerThread; ++r) sum[r] += group_sum[r];
      }
#pragma unroll
      for (int r = 0; r < kPerThread; ++r) compensated_add(total[r], compensation[r], sum[r]);
    }

    auto* const out = static_cast<PartialSum<float>*>(arguments.partials) + segment.offset;
#pragma unroll
    for (int r = 0; r < kPerThread; ++r) {
      int const row = segment.first_row + thread + r * Policy::kThreads;
      if (row < padded_rows) out[row - segment.first_row] = {reference[r], total[r]};
    }
  });
}

}  // namespace monge::cuda
