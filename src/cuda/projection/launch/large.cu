// Projection and its gradient for matrices larger than a tile. A matrix lies in memory, and one launch makes a row step
// and a column step of all matrices from one read: a block takes a strip of rows. Each of its warps makes the scaling
// of a row; then each thread adds the rows to its columns, which come from the L1 cache. A second launch adds the
// strips and makes the scalings of the columns.
//
// A pair of half-steps moves 4 n m bytes. It takes 2 n m multiply-adds, or 2 n m exponentials in the log domain;
// undoing it takes the same. The gradient in K is a sum over half-steps of products of a row and a column vector. The
// vectors are kept, and the last launch makes the sum: 4 n m multiply-adds or exponentials a pair.
#include <algorithm>

#include "core/numbers.hpp"
#include "cuda/device/numerics.cuh"
#include "cuda/projection/device/elements.cuh"
#include "cuda/projection/device/tile.cuh"
#include "cuda/projection/launch/tile.cuh"

namespace monge::cuda {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / 32;
constexpr int kStrip = 32;             // Rows of a block. Fewer would move more partial sums.
constexpr int kBufferBytes = 1 << 28;  // Bytes of the matrices that are worked on together.

/// A part of the batch, with `blocks` blocks a matrix. State s of a matrix is its scalings u, v after s pairs.
struct LargeArguments {
  ProjectionArguments problem;
  LargeShape shape;
  float* memory;       // The marginals, then shape.matrix floats for each matrix.
  std::int64_t first;  // Matrix of the batch.
  int blocks;

  __device__ __forceinline__ int block() const { return static_cast<int>(blockIdx.x) % blocks; }
  __device__ __forceinline__ int matrix() const { return static_cast<int>(blockIdx.x) / blocks; }
};

__device__ __forceinline__ float* marginals_of(LargeArguments const& a, bool rows) {
  return a.memory + (rows ? 0 : a.shape.rows);
}

/// The memory of the matrix of this block.
struct LargeMatrix {
  float *k, *partial, *states, *gradients;
  float *row_weight, *row_kept, *row_chain, *row_bar, *column_weight, *column_kept, *column_chain;
  int* moved;  // For each pair: 1 if it was done, because a sum was not within the tolerance.

  __device__ __forceinline__ explicit LargeMatrix(LargeArguments const& a) : shape_(a.shape) {
    int const n = a.shape.rows, m = a.shape.columns;
    float* next = a.memory + n + m + a.matrix() * a.shape.matrix;
    auto const take = [&](std::int64_t count) {
      float* const at = next;
      next += count;
      return at;
    };
    k = take(static_cast<std::int64_t>(a.problem.rows) * m);
    partial = take(std::int64_t{2} * a.shape.strips * m);
    states = take(static_cast<std::int64_t>(a.shape.slots) * (n + m));
    row_weight = take(n);
    row_kept = take(n);
    row_chain = take(n);
    row_bar = take(n);
    column_weight = take(m);
    column_kept = take(m);
    column_chain = take(m);
    moved = reinterpret_cast<int*>(take(a.shape.marks));
    gradients = next;
  }
  __device__ __forceinline__ float* u(int state) const { return states + at(state); }
  __device__ __forceinline__ float* v(int state) const { return u(state) + shape_.rows; }
  /// Gradients in the sums that made u and v of a state.
  __device__ __forceinline__ float* r(int state) const { return gradients + at(state); }
  __device__ __forceinline__ float* q(int state) const { return r(state) + shape_.rows; }

 private:
  LargeShape const& shape_;
  __device__ __forceinline__ std::int64_t at(int state) const {
    return static_cast<std::int64_t>(state % shape_.slots) * (shape_.rows + shape_.columns);
  }
};

/// Whether the matrix stopped before this pair.
__device__ __forceinline__ bool stopped_before(LargeArguments const& a, LargeMatrix const& matrix, int pair) {
  return a.problem.tolerance > 0 && pair > 0 && matrix.moved[pair - 1] == 0;
}
/// The pairs done. All threads of the block call it.
__device__ __forceinline__ int pairs_done(LargeArguments const& a, LargeMatrix const& matrix) {
  if (!(a.problem.tolerance > 0)) return a.problem.pairs;
  int count = 0;
  for (int first = 0; first < a.problem.pairs; first += kThreads) {
    int const pair = first + static_cast<int>(threadIdx.x);
    count += __syncthreads_count(pair < a.problem.pairs && matrix.moved[pair] != 0);
  }
  return count;
}

/// Calls visit(k, j) with each entry of a row of K, padding included, and its column, by all lanes of a warp.
template <class Visit>
__device__ __forceinline__ void along(float const* row, int columns, Visit&& visit) {
#pragma unroll 4
  for (int j = 4 * (static_cast<int>(threadIdx.x) % 32); j < columns; j += 128) {
    float4 const four = *reinterpret_cast<float4 const*>(row + j);
    visit(four.x, j), visit(four.y, j + 1), visit(four.z, j + 2), visit(four.w, j + 3);
  }
}

struct Piece {
  static constexpr int kSize = 960;
  float values[kSize];
};
__global__ void place_marginals(__grid_constant__ Piece const piece, float* to, int count) {
  wait_for_previous_kernel();
  for (int i = static_cast<int>(threadIdx.x); i < count; i += kThreads) to[i] = piece.values[i];
}

__device__ __forceinline__ bool keeps_shifts(ProjectionArguments const& a) {
  bool const exact = !a.start_positive && !a.start_softmax && !a.start_shifted;
  return exact && (a.epsilon > 0 || a.matrix_epsilon > 0);
}
/// Whether K is shifted by columns (start_columns); otherwise start_rows makes it.
__host__ __device__ inline bool shifts_columns(ProjectionArguments const& a) {
  return a.columns_first && !a.log_domain && !a.start_positive && !a.start_softmax && !a.start_shifted;
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

/// The gradient in the logits of kWarps rows: first that in K, from the vectors of all half-steps.
template <bool kLog>
__global__ void __launch_bounds__(kThreads) gather(__grid_constant__ LargeArguments const arguments) {
  extern __shared__ float4 shared_memory[];
  ProjectionArguments const& a = arguments.problem;
  LargeMatrix const matrix(arguments);
  int const m = arguments.shape.columns, thread = static_cast<int>(threadIdx.x), lane = thread % 32;
  float* const d = reinterpret_cast<float*>(shared_memory);
  wait_for_previous_kernel();
  int const pairs = pairs_done(arguments, matrix), end = pairs + (a.trail ? 1 : 0);
  int const top = arguments.block() * kWarps, count = min(kWarps, a.rows - top);
  std::int64_t const batch = arguments.first + arguments.matrix();
  // Rows past the end read the padding of vectors and the last row of K; nothing is stored.
  for (int j = thread; j < a.columns; j += kThreads) {
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

/// Launches on one part of the batch.
struct Part {
  LargeArguments arguments;
  int matrices;
  cudaStream_t stream;

  template <class Kernel, class... More>
  void operator()(Kernel kernel, int blocks, int threads, int bytes, More... more) const {
    LargeArguments given = arguments;
    given.blocks = blocks;
    launch_chained(kernel, blocks * matrices, threads, bytes, stream, given, more...);
  }
};

template <bool kLog>
void run(Part const& part, bool backward) {
  ProjectionArguments const& a = part.arguments.problem;
  LargeShape const& shape = part.arguments.shape;
  constexpr int kSmall = 64;  // Threads of the blocks that add up strips: few columns are many blocks.
  int const column_blocks = (a.columns + kSmall - 1) / kSmall, row_blocks = (a.rows + kWarps - 1) / kWarps;
  int const bytes = 4 * shape.columns, forward_bytes = bytes * (kLog ? 3 : 2), backward_bytes = bytes * (kLog ? 4 : 3);
  part(start_rows, row_blocks, kThreads, 0);
  if (shifts_columns(a)) part(start_columns, (shape.columns + 31) / 32, kThreads, 0);
  auto const step = [&](int pair, bool rows, bool columns) {
    part(sweep<kLog>, shape.strips, kThreads, forward_bytes, pair, rows, columns);
    if (columns) part(combine<kLog>, column_blocks, kSmall, 0, pair, !rows);
  };
  if (a.lead) step(0, false, true);
  for (int pair = 0; pair < a.pairs; ++pair) step(pair, true, true);
  if (a.trail) step(a.pairs, true, false);
  if (!backward) return part(store_plan, row_blocks, kThreads, 0);
  auto const unstep = [&](int pair, bool seeds) {
    part(unsweep<kLog>, shape.strips, kThreads, backward_bytes, pair, seeds);
    part(uncombine<kLog>, (a.columns + kThreads - 1) / kThreads, kThreads, 0, pair, seeds);
  };
  unstep(a.pairs, true);
  for (int pair = a.pairs - 1; pair >= 0; --pair) unstep(pair, false);
  allow_shared(gather<kLog>, kWarps * bytes);
  part(gather<kLog>, row_blocks, kThreads, kWarps * bytes);
  if (a.d_dustbin_score != nullptr) part(gather_dustbin, 1, 32, 0);
}

}  // namespace

LargeShape large_shape(ProjectionArguments const& arguments, bool backward) {
  auto const padded = [](int size, int to) { return (size + to - 1) / to * to; };
  LargeShape shape;
  shape.rows = padded(arguments.rows, kWarps);  // gather() reads kWarps rows of a vector at once.
  shape.columns = padded(arguments.columns, 4);
  shape.strips = (arguments.rows + kStrip - 1) / kStrip;
  shape.slots = backward ? arguments.pairs + 2 : 2;
  shape.marks = arguments.tolerance > 0 ? padded(arguments.pairs, 4) : 0;
  std::int64_t const vectors = static_cast<std::int64_t>(shape.slots) * (shape.rows + shape.columns);
  shape.matrix = (static_cast<std::int64_t>(arguments.rows) + 2 * shape.strips) * shape.columns +
                 vectors * (backward ? 2 : 1) + 4 * shape.rows + 3 * shape.columns + shape.marks;
  shape.matrices = static_cast<int>(
      std::min({arguments.batch, std::int64_t{1} << 14, std::max<std::int64_t>(1, kBufferBytes / 4 / shape.matrix)}));
  return shape;
}

void project_large(ProjectionArguments const& arguments, std::vector<float> const& a, std::vector<float> const& b,
                   float* memory, bool backward, cudaStream_t stream) {
  LargeShape const shape = large_shape(arguments, backward);
  std::vector<float> marginals(to_size(shape.rows + shape.columns));
  std::copy(a.begin(), a.end(), marginals.begin());
  std::copy(b.begin(), b.end(), marginals.begin() + shape.rows);
  for (std::size_t first = 0; first < marginals.size(); first += Piece::kSize) {
    Piece piece;
    int const count = static_cast<int>(std::min<std::size_t>(Piece::kSize, marginals.size() - first));
    std::copy_n(marginals.begin() + static_cast<std::ptrdiff_t>(first), count, piece.values);
    launch_chained(place_marginals, 1, kThreads, 0, stream, piece, memory + first, count);
  }
  for (std::int64_t first = 0; first < arguments.batch; first += shape.matrices) {
    int const matrices = static_cast<int>(std::min<std::int64_t>(shape.matrices, arguments.batch - first));
    Part const part{{arguments, shape, memory, first, 0}, matrices, stream};
    arguments.log_domain ? run<true>(part, backward) : run<false>(part, backward);
  }
}

}  // namespace monge::cuda
