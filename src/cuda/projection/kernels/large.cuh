// The projection of a matrix larger than a tile. One launch makes a row step and a column step of all matrices from one
// read: a block takes a strip of rows. Each of its warps makes the scaling of a row; then each thread adds the rows to
// its columns, which come from the L1 cache. A second launch adds the strips and makes the scalings of the columns.
//
// A pair of half-steps moves 4 n m bytes. It takes 2 n m multiply-adds, or 2 n m exponentials in the log domain.
#pragma once
#include "cuda/projection/device/large.cuh"

namespace monge::cuda::large {

struct Piece {
  static constexpr int kSize = 960;
  float values[kSize];
};
__global__ void place_marginals(__grid_constant__ Piece const piece, float* to, int count) {
  wait_for_previous_kernel();
  for (int i = static_cast<int>(threadIdx.x); i < count; i += kThreads) to[i] = piece.values[i];
}

/// K of the logits, a warp a row, and the first state.
__global__ void __launch_bounds__(kThreads) start_rows(__grid_constant__ LargeArguments const arguments) {
  ProjectionArguments const& a = arguments.problem;
  LargeMatrix const matrix(arguments);
  int const m = arguments.shape.columns, lane = static_cast<int>(threadIdx.x) % 32;
  wait_for_previous_kernel();
  float const neutral = a.log_domain ? 0.0f : 1.0f;
  int const thread = arguments.block() * kThreads + static_cast<int>(threadIdx.x);
  for (int j = thread; j < m; j += arguments.blocks * kThreads) {
    matrix.v(0)[j] = neutral;
    matrix.column_weight[j] = matrix.column_kept[j] = 1;
    matrix.column_chain[j] = 0;
  }
  for (int pair = thread; pair < arguments.shape.marks; pair += arguments.blocks * kThreads) matrix.moved[pair] = 0;
  int const i = thread / 32;
  if (i >= a.rows) return;
  float* const row = matrix.k + static_cast<std::int64_t>(i) * m;
  std::int64_t const from = (arguments.first + arguments.matrix()) * a.logits.batch_stride + i * a.logits.row_stride;
  float const scale = a.inverse_temperature * kLog2E;
  float largest = -INFINITY;
  for (int j = lane; j < m; j += 32) {
    float value = a.log_domain || !a.start_positive ? -INFINITY : 0.0f;
    if (j < a.columns) {
      float const x = i < a.logit_rows && j < a.logit_columns ? load_element(a.logits, from + j) : a.dustbin_score;
      value = a.start_positive ? x + a.matrix_epsilon : x * scale;
      if (a.start_positive && a.log_domain) value = value > 0 ? log2f(value) : value == 0 ? -1e38f : value;
    }
    largest = fmaxf(largest, value);
    row[j] = value;
  }
  bool const keeps = keeps_shifts(a) && !shifts_columns(a);
  float const shift = fmaxf(warp_max(largest), keeps ? kKeptShift : kLeastShift);
  if (a.start_softmax || !(a.start_positive || a.log_domain || shifts_columns(a))) {
    float inverse = 1, log_sum = 0;
    if (a.start_softmax) {
      float sum = 0;
      for (int j = lane; j < m; j += 32) sum += fast_exp2(row[j] - shift);
      sum = warp_sum(sum) + kLeastSum;
      inverse = fast_reciprocal(sum);
      log_sum = fast_log2(sum);
    }
    float const added = a.matrix_epsilon * (keeps ? fast_exp2(-shift) : 1.0f);
    for (int j = lane; j < m; j += 32) {
      if (a.log_domain) {
        row[j] = row[j] - shift - log_sum;
      } else {
        row[j] = j < a.columns ? fmaf(fast_exp2(row[j] - shift), inverse, added) : 0.0f;
      }
    }
  }
  if (lane > 0) return;
  matrix.u(0)[i] = neutral;
  matrix.row_weight[i] = matrix.row_kept[i] = keeps ? fast_exp2(-shift) : 1.0f;
  matrix.row_chain[i] = 0;
}

/// Shifts and powers of 32 columns, where start_rows left logits.
__global__ void __launch_bounds__(kThreads) start_columns(__grid_constant__ LargeArguments const arguments) {
  ProjectionArguments const& a = arguments.problem;
  LargeMatrix const matrix(arguments);
  int const m = arguments.shape.columns, lane = static_cast<int>(threadIdx.x) % 32;
  int const warp = static_cast<int>(threadIdx.x) / 32, j = arguments.block() * 32 + lane;
  __shared__ float of_warp[kWarps][32];
  wait_for_previous_kernel();
  float largest = -INFINITY;
#pragma unroll 8
  for (int i = warp; i < a.rows; i += kWarps)
    largest = fmaxf(largest, j < m ? matrix.k[static_cast<std::int64_t>(i) * m + j] : 0.0f);
  of_warp[warp][lane] = largest;
  __syncthreads();
  for (int w = 0; w < kWarps; ++w) largest = fmaxf(largest, of_warp[w][lane]);
  if (j >= m) return;
  bool const keeps = keeps_shifts(a);
  float const shift = fmaxf(largest, keeps ? kKeptShift : kLeastShift), kept = keeps ? fast_exp2(-shift) : 1.0f;
#pragma unroll 8
  for (int i = warp; i < a.rows; i += kWarps) {
    float& entry = matrix.k[static_cast<std::int64_t>(i) * m + j];
    entry = j < a.columns ? fast_exp2(entry - shift) + a.matrix_epsilon * kept : 0.0f;
  }
  if (warp == 0) matrix.column_weight[j] = matrix.column_kept[j] = kept;
}

/// The new scaling of a row or column from its sum. In the log domain the sum is 2^largest `sum`. `old` is the scaling
/// of the previous step. `weight`, the factor of epsilon, is read as the previous step left it and then updated.
/// `within` becomes whether the sum is within the tolerance of its target.
template <bool kLog>
__device__ __forceinline__ float scaling_of(ProjectionArguments const& a, float target, float sum, float largest,
                                            float old, float& weight, bool& within) {
  if constexpr (kLog) {
    float const next = log2f(target) - largest - fast_log2(sum + kLeastSum);
    within = !(target > 0) || fabsf(fast_exp2(old - next) - 1) <= a.tolerance;
    return next;
  } else {
    float const dot = sum + kLeastSum, inverse = inverse_or_zero(target), rest = a.epsilon * weight;
    within = !(target > 0) || fabsf(dot * fabsf(old) * inverse - 1) <= a.tolerance;
    bool const clamped = a.clamp && dot < rest;
    float const sum_used = a.clamp ? (clamped ? rest : dot) : dot + rest, next = target * fast_reciprocal(sum_used);
    if (!a.scaling) weight = sum_used * inverse;
    return clamped ? -next : next;
  }
}

/// Makes the row scalings of state pair + 1 from the column scalings of state `pair`, then the column sums that these
/// row scalings give. The leading column step needs column sums alone: `rows` is false. The trailing row step needs row
/// scalings alone: `columns` is false.
template <bool kLog>
__global__ void __launch_bounds__(kThreads)
    sweep(__grid_constant__ LargeArguments const arguments, int pair, bool rows, bool columns) {
  extern __shared__ float4 shared_memory[];
  __shared__ float of_rows[2][kWarps];
  ProjectionArguments const& a = arguments.problem;
  LargeMatrix const matrix(arguments);
  int const m = arguments.shape.columns, thread = static_cast<int>(threadIdx.x), warp = thread / 32;
  float* const v = reinterpret_cast<float*>(shared_memory);
  float *const sums = v + m, *const tops = sums + m;  // Sums of the columns; in the log domain relative to 2^top.
  wait_for_previous_kernel();
  if (!columns) pair = pairs_done(arguments, matrix);
  if (columns && stopped_before(arguments, matrix, pair)) return;
  for (int j = thread; j < m; j += kThreads) {
    v[j] = j < a.columns ? matrix.v(pair)[j] : 0.0f;
    sums[j] = 0;
    if (kLog) tops[j] = kLeastShift;
  }
  __syncthreads();
  bool const checks = a.tolerance > 0 && !a.columns_first && columns;
  int const first = arguments.block() * kStrip, last = min(first + kStrip, a.rows);
  for (int top = first, turn = 0; top < last; top += kWarps, turn ^= 1) {
    if (int const i = top + warp; i < last) {
      float const* const row = matrix.k + static_cast<std::int64_t>(i) * m;
      float const old = matrix.u(rows ? pair : 0)[i];
      float next = old;
      if (rows) {
        float sum = 0, largest = -INFINITY;
        if constexpr (kLog) {
          along(row, m, [&](float k, int j) { largest = fmaxf(largest, k + v[j]); });
          largest = fmaxf(warp_max(largest), kLeastShift);
          along(row, m, [&](float k, int j) { sum += fast_exp2((k + v[j]) - largest); });
        } else {
          along(row, m, [&](float k, int j) { sum = fmaf(k, fabsf(v[j]), sum); });
        }
        sum = warp_sum(sum);
        float weight = matrix.row_weight[i];
        bool within = true;
        next = scaling_of<kLog>(a, marginals_of(arguments, true)[i], sum, largest, old, weight, within);
        if (thread % 32 == 0) {
          matrix.u(pair + 1)[i] = next;
          matrix.row_weight[i] = weight;
          if (checks && !(within && (pair > 0 || a.lead))) matrix.moved[pair] = 1;
        }
      }
      if (thread % 32 == 0) of_rows[turn][warp] = kLog ? next : fabsf(next);
    }
    __syncthreads();
    if (!columns) continue;
    int const count = min(kWarps, last - top);
    for (int j = thread; j < m; j += kThreads) {
      float const* const column = matrix.k + static_cast<std::int64_t>(top) * m + j;
      float x[kWarps];
#pragma unroll
      for (int i = 0; i < kWarps; ++i) x[i] = i < count ? column[i * m] : (kLog ? -INFINITY : 0.0f);
      if constexpr (kLog) {
        float const before = tops[j];
        float largest = before, sum = 0;
#pragma unroll
        for (int i = 0; i < kWarps; ++i) {
          if (i < count) x[i] += of_rows[turn][i];
          largest = fmaxf(largest, x[i]);
        }
#pragma unroll
        for (int i = 0; i < kWarps; ++i) sum += fast_exp2(x[i] - largest);
        sums[j] = fmaf(sums[j], fast_exp2(before - largest), sum);
        tops[j] = largest;
      } else {
        float sum = sums[j];
#pragma unroll
        for (int i = 0; i < kWarps; ++i) sum = fmaf(x[i], i < count ? of_rows[turn][i] : 0.0f, sum);
        sums[j] = sum;
      }
    }
  }
  if (!columns) return;
  float* const partial = matrix.partial + std::int64_t{2} * arguments.block() * m;
  for (int j = thread; j < m; j += kThreads) {
    partial[j] = sums[j];
    if (kLog) partial[m + j] = tops[j];
  }
}

/// The scalings of the columns from the sums of the strips. `lead`: of state 0, else of state pair + 1.
template <bool kLog>
__global__ void __launch_bounds__(kThreads)
    combine(__grid_constant__ LargeArguments const arguments, int pair, bool lead) {
  ProjectionArguments const& a = arguments.problem;
  LargeMatrix const matrix(arguments);
  int const m = arguments.shape.columns,
            j = arguments.block() * static_cast<int>(blockDim.x) + static_cast<int>(threadIdx.x);
  wait_for_previous_kernel();
  if (j >= a.columns) return;
  if (!lead && stopped_before(arguments, matrix, a.columns_first ? pair : pair + 1)) return;
  float const* const partial = matrix.partial + j;
  float sum = 0, largest = kLeastShift;
  if constexpr (kLog) {
#pragma unroll 8
    for (int s = 0; s < arguments.shape.strips; ++s) largest = fmaxf(largest, partial[(2 * s + 1) * m]);
#pragma unroll 8
    for (int s = 0; s < arguments.shape.strips; ++s)
      sum = fmaf(partial[2 * s * m], fast_exp2(partial[(2 * s + 1) * m] - largest), sum);
  } else {
#pragma unroll 8
    for (int s = 0; s < arguments.shape.strips; ++s) sum += partial[2 * s * m];
  }
  float weight = matrix.column_weight[j];
  bool within = true;
  float const next = scaling_of<kLog>(a, marginals_of(arguments, false)[j], sum, largest, matrix.v(lead ? 0 : pair)[j],
                                      weight, within);
  matrix.v(lead ? 0 : pair + 1)[j] = next;
  matrix.column_weight[j] = weight;
  if (a.tolerance > 0 && a.columns_first && !lead && !within) matrix.moved[pair] = 1;
}

/// P of the last state.
__global__ void __launch_bounds__(kThreads) store_plan(__grid_constant__ LargeArguments const arguments) {
  ProjectionArguments const& a = arguments.problem;
  LargeMatrix const matrix(arguments);
  wait_for_previous_kernel();
  int const pairs = pairs_done(arguments, matrix), m = arguments.shape.columns;
  int const i = arguments.block() * kWarps + static_cast<int>(threadIdx.x) / 32;
  if (i >= a.rows) return;
  float const u = matrix.u(pairs + (a.trail ? 1 : 0))[i];
  float const *const v = matrix.v(pairs), *const row = matrix.k + static_cast<std::int64_t>(i) * m;
  std::int64_t const to = (arguments.first + arguments.matrix()) * a.result.batch_stride + i * a.result.row_stride;
  for (int j = static_cast<int>(threadIdx.x) % 32; j < a.columns; j += 32)
    store_element(a.result, to + j, a.log_domain ? fast_exp2(row[j] + u + v[j]) : fabsf(u) * row[j] * fabsf(v[j]));
}

}  // namespace monge::cuda::large
