// The gradient of a projection of a matrix larger than a tile. Undoing a pair of half-steps takes the work and the
// launches of the pair (kernels/large.cuh). The gradient in K is a sum over half-steps of products of a row and a
// column vector. The vectors are kept, and the last launch makes the sum: 4 n m multiply-adds or exponentials a pair.
#pragma once
#include "cuda/projection/device/large.cuh"

namespace monge::cuda::large {

/// From the gradient in a scaling (log domain: in a potential) to the gradient in its sum; device/adjoint.cuh.
template <bool kLog>
__device__ __forceinline__ float sum_gradient(ProjectionArguments const& a, float target, float bar, float scaling,
                                              float& chain) {
  float const inverse = inverse_or_zero(target);
  if constexpr (kLog) return target > 0 ? bar * inverse : 0.0f;
  float const q = fmaf(-(bar * scaling) * scaling, inverse, chain);
  bool const clamped = a.clamp && scaling < 0;
  chain = (a.clamp ? clamped : !a.scaling) ? q * a.epsilon * inverse : 0.0f;
  return clamped ? 0.0f : q;
}

/// Undoes the row step of a pair. The kernel computes the gradients in the row sums of this step, and from them their
/// contribution to the gradients in v. With `seeds` the kernel starts from the gradient in P: this gives the gradients
/// in the last u and v, and the row step to undo is the trailing one, if there is one.
template <bool kLog>
__global__ void __launch_bounds__(kThreads)
    unsweep(__grid_constant__ LargeArguments const arguments, int pair, bool seeds) {
  extern __shared__ float4 shared_memory[];
  __shared__ float of_rows[2][2][kWarps];  // r and u.
  ProjectionArguments const& a = arguments.problem;
  LargeMatrix const matrix(arguments);
  int const m = arguments.shape.columns, thread = static_cast<int>(threadIdx.x), warp = thread / 32;
  float* const q = reinterpret_cast<float*>(shared_memory);
  float *const sums = q + m, *const v = sums + m, *const v_after = v + m;
  wait_for_previous_kernel();
  int const pairs = pairs_done(arguments, matrix);
  if (seeds) pair = pairs;
  if (!seeds && pair >= pairs) return;
  for (int j = thread; j < m; j += kThreads) {
    q[j] = seeds || j >= a.columns ? 0.0f : matrix.q(pair + 1)[j];
    sums[j] = 0;
    v[j] = j < a.columns ? (kLog ? matrix.v(pair)[j] : fabsf(matrix.v(pair)[j])) : 0.0f;
    if (kLog) v_after[j] = seeds || j >= a.columns ? 0.0f : matrix.v(pair + 1)[j];
  }
  __syncthreads();
  std::int64_t const from = (arguments.first + arguments.matrix()) * a.gradient.batch_stride;
  int const made = seeds && !a.trail ? pair : pair + 1;  // The state of u.
  int const first = arguments.block() * kStrip, last = min(first + kStrip, a.rows);
  for (int top = first, turn = 0; top < last; top += kWarps, turn ^= 1) {
    if (int const i = top + warp; i < last) {
      float const* const row = matrix.k + static_cast<std::int64_t>(i) * m;
      float const u = matrix.u(made)[i];
      float sum = 0;
      if (seeds) {
        for (int j = thread % 32; j < a.columns; j += 32)
          sum = fmaf(load_element(a.gradient, from + i * a.gradient.row_stride + j),
                     kLog ? fast_exp2(row[j] + u + v[j]) : row[j] * v[j], sum);
      } else if constexpr (kLog) {
        along(row, m, [&](float k, int j) { sum -= q[j] == 0 ? 0.0f : q[j] * fast_exp2(k + u + v_after[j]); });
      } else {
        along(row, m, [&](float k, int j) { sum = fmaf(q[j], k, sum); });
      }
      sum = warp_sum(sum);
      if (thread % 32 == 0) {
        if (!seeds && pair == pairs - 1 && !a.trail) sum += matrix.row_bar[i];
        float r = 0;
        if (seeds && !a.trail) {
          matrix.row_bar[i] = sum;
        } else {
          r = sum_gradient<kLog>(a, marginals_of(arguments, true)[i], sum, u, matrix.row_chain[i]);
          matrix.r(made)[i] = r;
        }
        of_rows[turn][0][warp] = r;
        of_rows[turn][1][warp] = kLog ? u : fabsf(u);
      }
    }
    __syncthreads();
    int const count = min(kWarps, last - top);
    for (int j = thread; j < a.columns; j += kThreads) {
      float const* const column = matrix.k + static_cast<std::int64_t>(top) * m + j;
      float x[kWarps], sum = sums[j];
#pragma unroll
      for (int i = 0; i < kWarps; ++i) x[i] = i < count ? column[i * m] : 0.0f;
#pragma unroll
      for (int i = 0; i < kWarps; ++i) {
        if (i >= count) continue;
        float const r = of_rows[turn][0][i], u = of_rows[turn][1][i];
        float const power = kLog && (seeds || r != 0) ? fast_exp2(x[i] + u + v[j]) : 0.0f;
        if (seeds) {
          float const g = load_element(a.gradient, from + (top + i) * a.gradient.row_stride + j);
          sum = fmaf(g, kLog ? power : x[i] * u, sum);
        }
        sum = kLog ? fmaf(-r, power, sum) : fmaf(r, x[i], sum);
      }
      sums[j] = sum;
    }
  }
  float* const partial = matrix.partial + std::int64_t{2} * arguments.block() * m;
  for (int j = thread; j < a.columns; j += kThreads) partial[j] = sums[j];
}

/// The gradients in the column sums of the step that made v of state `pair` (with `seeds`: of the last state).
template <bool kLog>
__global__ void __launch_bounds__(kThreads)
    uncombine(__grid_constant__ LargeArguments const arguments, int pair, bool seeds) {
  ProjectionArguments const& a = arguments.problem;
  LargeMatrix const matrix(arguments);
  int const m = arguments.shape.columns,
            j = arguments.block() * static_cast<int>(blockDim.x) + static_cast<int>(threadIdx.x);
  wait_for_previous_kernel();
  int const pairs = pairs_done(arguments, matrix);
  if (seeds) pair = pairs;
  if (j >= a.columns || (!seeds && pair >= pairs) || (pair == 0 && !a.lead)) return;
  float sum = 0;
#pragma unroll 8
  for (int s = 0; s < arguments.shape.strips; ++s) sum += matrix.partial[2 * s * m + j];
  matrix.q(pair)[j] =
      sum_gradient<kLog>(a, marginals_of(arguments, false)[j], sum, matrix.v(pair)[j], matrix.column_chain[j]);
}

/// The gradient in K of kWarps rows from `top` on, from the vectors of all half-steps, to rows of m numbers of `d`.
template <bool kLog>
__device__ __forceinline__ void gather_entries(LargeArguments const& arguments, LargeMatrix const& matrix, int top,
                                               float* d) {
  ProjectionArguments const& a = arguments.problem;
  int const m = arguments.shape.columns;
  int const pairs = pairs_done(arguments, matrix), end = pairs + (a.trail ? 1 : 0);
  std::int64_t const batch = arguments.first + arguments.matrix();
  // Rows past the end read the padding of vectors and the last row of K; nothing is stored.
  for (int j = static_cast<int>(threadIdx.x); j < a.columns; j += kThreads) {
    float sum[kWarps], k[kWarps];
#pragma unroll
    for (int i = 0; i < kWarps; ++i) {
      int const row = min(top + i, a.rows - 1);
      float const u = matrix.u(end)[row], v = matrix.v(pairs)[j];
      k[i] = matrix.k[static_cast<std::int64_t>(row) * m + j];
      sum[i] = load_element(a.gradient, batch * a.gradient.batch_stride + row * a.gradient.row_stride + j) *
               (kLog ? fast_exp2(k[i] + u + v) : fabsf(u) * fabsf(v));
    }
    for (int s = a.lead ? 0 : 1; s <= end; ++s) {
      float const q = s <= pairs ? matrix.q(s)[j] : 0.0f, v = s <= pairs ? matrix.v(s)[j] : 0.0f;
      float const v_before = s > 0 ? matrix.v(s - 1)[j] : 0.0f;
      float u[kWarps], r[kWarps];
#pragma unroll
      for (int i = 0; i < kWarps; i += 4) {
        float4 const of_u = *reinterpret_cast<float4 const*>(matrix.u(s) + top + i);
        float4 const of_r = *reinterpret_cast<float4 const*>(matrix.r(s) + top + i);
        u[i] = of_u.x, u[i + 1] = of_u.y, u[i + 2] = of_u.z, u[i + 3] = of_u.w;
        r[i] = s > 0 ? of_r.x : 0, r[i + 1] = s > 0 ? of_r.y : 0, r[i + 2] = s > 0 ? of_r.z : 0;
        r[i + 3] = s > 0 ? of_r.w : 0;
      }
#pragma unroll
      for (int i = 0; i < kWarps; ++i) {
        if constexpr (kLog) {
          if (q != 0) sum[i] = fmaf(-q, fast_exp2(k[i] + u[i] + v), sum[i]);
          if (r[i] != 0) sum[i] = fmaf(-r[i], fast_exp2(k[i] + u[i] + v_before), sum[i]);
        } else {
          sum[i] = fmaf(r[i], fabsf(v_before), fmaf(q, fabsf(u[i]), sum[i]));
        }
      }
    }
#pragma unroll
    for (int i = 0; i < kWarps; ++i) d[i * m + j] = sum[i];
  }
}

/// The gradient in the logits of kWarps rows: first that in K, from the vectors of all half-steps.
template <bool kLog>
__global__ void __launch_bounds__(kThreads) gather(__grid_constant__ LargeArguments const arguments) {
  extern __shared__ float4 shared_memory[];
  ProjectionArguments const& a = arguments.problem;
  LargeMatrix const matrix(arguments);
  int const m = arguments.shape.columns, thread = static_cast<int>(threadIdx.x), lane = thread % 32;
  float* const d = reinterpret_cast<float*>(shared_memory);
  wait_for_previous_kernel();
  int const top = arguments.block() * kWarps, count = min(kWarps, a.rows - top);
  std::int64_t const batch = arguments.first + arguments.matrix();
  gather_entries<kLog>(arguments, matrix, top, d);
  __syncthreads();
  int const mine = thread / 32, i = top + mine;
  if (mine >= count) return;
  float const* const row = matrix.k + static_cast<std::int64_t>(i) * m;
  float* const of_row = d + mine * m;
  // K without the added epsilon.
  auto const pure = [&](int j) {
    if constexpr (kLog) return a.start_softmax ? fast_exp2(row[j]) : 1.0f;
    if (!(a.matrix_epsilon > 0)) return row[j];
    float const kept = a.start_softmax || a.start_shifted ? 1.0f
                       : a.columns_first                  ? matrix.column_kept[j]
                                                          : matrix.row_kept[i];
    return fmaxf(fmaf(-a.matrix_epsilon, kept, row[j]), 0.0f);
  };
  bool const shifted = a.start_shifted && !kLog;
  float sum = 0, largest = -1, at = 1e9f;
  if (a.start_softmax || shifted) {
    for (int j = lane; j < a.columns; j += 32) {
      sum += gradient_product(of_row[j], kLog ? 1.0f : pure(j));
      largest = fmaxf(largest, pure(j));
    }
    sum = warp_sum(sum);
    largest = warp_max(largest);
    for (int j = lane; j < a.columns; j += 32)
      if (pure(j) == largest) at = fminf(at, static_cast<float>(j));
    at = -warp_max(-at);
  }
  bool const dustbin = a.d_dustbin_score != nullptr;
  float of_dustbin = 0;
  std::int64_t const to = batch * a.result.batch_stride + i * a.result.row_stride;
  for (int j = lane; j < a.columns; j += 32) {
    float value = of_row[j];
    if (a.start_positive) {
      if (kLog) value *= fast_exp2(fminf(-row[j], 126.0f));
    } else if (a.start_softmax) {
      value = kLog ? fmaf(-pure(j), sum, value) : gradient_product(value - sum, pure(j));
    } else if (!kLog) {
      value = gradient_product(value, pure(j));
      if (shifted && static_cast<int>(at) == j) value -= sum;
    }
    value *= a.inverse_temperature;
    if (i < a.logit_rows && j < a.logit_columns) {
      store_element(a.result, to + j, value);
    } else {
      of_dustbin += value;
    }
  }
  if (!dustbin) return;
  of_dustbin = warp_sum(of_dustbin);
  if (lane == 0) matrix.row_bar[i] = of_dustbin;
}

/// The derivative by the score of the dustbin, one warp a matrix.
__global__ void gather_dustbin(__grid_constant__ LargeArguments const arguments) {
  LargeMatrix const matrix(arguments);
  wait_for_previous_kernel();
  float sum = 0;
  for (int i = static_cast<int>(threadIdx.x); i < arguments.problem.rows; i += 32) sum += matrix.row_bar[i];
  sum = warp_sum(sum);
  if (threadIdx.x == 0) arguments.problem.d_dustbin_score[arguments.first + arguments.matrix()] = sum;
}

}  // namespace monge::cuda::large
