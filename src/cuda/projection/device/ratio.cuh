// A matrix in the registers of one lane, in the form with the fewest operations. K is written as
//   K_ij = r_i k_ij c_j,   k_i0 = k_0j = 1.
// The scalings absorb r and c: in this file u_i stands for u_i r_i and v_j for v_j c_j, so scalings that would start as
// 1 start as r_i or c_j. The half-steps are then
//   q_i = sum_j k_ij v_j,   u_i = 1 / q_i
// in (N - 1) N additions or multiply-adds instead of N^2, and the iterates are the same matrices. Only differences of
// logits enter, so no row maximum is needed.
//
// This form is for narrow matrices: sums, and products of two sums, must not leave float32. start() returns false if
// |log2| of a ratio of entries is above kLargest or NaN; its results must then not be used.
#pragma once
#include "cuda/projection/device/tile.cuh"

namespace monge::cuda {

/// The term that is added to the sums: none, eps times the sum of the step before, or constants.
enum class Guard { none, denominator, scaling };

template <int N, Guard kGuard>
struct CrossRatio {
  /// Without an eps only the proportions u_i / u_0 and v_j / v_0 matter until the last steps. The first of each is 1,
  /// which saves reads of registers: the ports of the register file are what limits these kernels (docs/tuning.md).
  static constexpr bool kProportions = N == 4 && kGuard == Guard::none;
  /// The largest |log2| of a ratio, L. Sinkhorn's scalings stay within a factor of 2^(2L) of those of the limit. So a
  /// sum is below 2^(4L + log2 N), and a product of two sums must be below 2^128. Proportions start anew in each step,
  /// within 2^L, so products of two of their sums are below 2^(4L + 4).
  static constexpr float kLargest = kProportions ? 30 : 15;
  /// Whether the sums keep the order of the source (schedule_fence). The last two sums come after the fence, beside the
  /// reciprocals of the others.
  static constexpr bool kFenced = N > 4;
  static constexpr int kFirst = kFenced ? N - 2 : N;

  float k[N - 1][N - 1];
  float u[N], v[N];
  float w[N], z[N];  // Factors of eps (denominator), or terms added to the sums (scaling).

  template <bool kRows>
  __device__ __forceinline__ float at(int own, int other) const {
    return kRows ? k[own][other] : k[other][own];
  }
  /// q_i for i in [kBegin, kEnd), of the rows or of the columns.
  template <bool kRows, int kBegin = 0, int kEnd = N>
  __device__ __forceinline__ void sums(float (&q)[N], float const (&x)[N], float const (&weight)[N],
                                       float epsilon) const {
#pragma unroll
    for (int i = kBegin; i < kEnd; ++i) {
      q[i] = x[0];
      if constexpr (kGuard == Guard::denominator) q[i] = fmaf(epsilon, weight[i], x[0]);
      if constexpr (kGuard == Guard::scaling) q[i] = x[0] + weight[i];
    }
    if constexpr (kBegin == 0) {
      float rest = x[N - 2] + x[N - 1];
#pragma unroll
      for (int j = 2; j < N - 2; j += 2) rest += x[j] + x[j + 1];
      q[0] = (q[0] + x[1]) + rest;
    }
#pragma unroll
    for (int j = 1; j < N; ++j) {
#pragma unroll
      for (int i = kBegin > 1 ? kBegin : 1; i < kEnd; ++i) q[i] = fmaf(at<kRows>(i - 1, j - 1), x[j], q[i]);
    }
  }
  /// x = 1 / q. Two sums share a reciprocal: it takes the special function unit as long as 8 instructions take the
  /// scheduler.
  template <int kBegin = 0, int kEnd = N>
  static __device__ __forceinline__ void invert(float (&x)[N], float const (&q)[N]) {
#pragma unroll
    for (int i = kBegin; i < kEnd; i += 2) {
      float const r = fast_reciprocal(q[i] * q[i + 1]);
      x[i] = r * q[i + 1];
      x[i + 1] = r * q[i];
    }
  }
  /// x_i = q_0 / q_i.
  static __device__ __forceinline__ void invert_proportions(float (&x)[N], float const (&q)[N]) {
    float const t = q[0] * fast_reciprocal(q[1] * q[2]);
    x[0] = 1;
    x[1] = t * q[2];
    x[2] = t * q[1];
    x[3] = q[0] * fast_reciprocal(q[3]);
  }
  /// kExact: makes the scalings themselves, not their proportions. The result needs that of one side.
  template <bool kRows, bool kExact = !kProportions>
  __device__ __forceinline__ void step(float epsilon) {
    float(&own)[N] = kRows ? u : v;
    float(&weight)[N] = kRows ? w : z;
    float const(&other)[N] = kRows ? v : u;
    float q[N];
    sums<kRows, 0, kFirst>(q, other, weight, epsilon);
    if constexpr (kFenced) schedule_fence();
    if constexpr (kExact) invert<0, kFirst>(own, q);
    sums<kRows, kFirst, N>(q, other, weight, epsilon);
    if constexpr (kExact) invert<kFirst, N>(own, q);
    if constexpr (!kExact) invert_proportions(own, q);
    if constexpr (kGuard == Guard::denominator) {
#pragma unroll
      for (int i = 0; i < N; ++i) weight[i] = q[i];
    }
  }

  /// From logits to k and the first scalings; false where the matrix is not narrow. `lead`: the columns go first.
  /// `from` is asked for one row after the other, so that few are in registers at a time. kLeaves: a matrix that is not
  /// narrow leaves before the exponentials. Whether that is faster was measured (docs/tuning.md).
  template <bool kLeaves = N == 4 || kGuard != Guard::none, class Get>
  __device__ __forceinline__ bool start(Get const& from, ProjectionArguments const& arguments, bool lead) {
    if constexpr (kGuard != Guard::none) {
      if (arguments.start_softmax) return start_softmax(from, arguments);
    }
    float const scale = arguments.inverse_temperature * kLog2E;
    float corner = 0, largest = 0, row[N], column[N];  // K_i0 = 2^row_i, K_0j = K_00 2^column_j
#pragma unroll
    for (int i = 0; i < N; ++i) {
      float x[N], most = 0;
      from.get_row(i, x);
      if (i == 0) corner = x[0];
      if (kGuard != Guard::none && arguments.start_shifted) {
        most = x[0];
#pragma unroll
        for (int j = 1; j < N; ++j) most = fmaxf(most, x[j]);
      }
      // The size of a row matters only beside an epsilon. Without one, rows are measured against the first.
      row[i] = kGuard == Guard::none && i == 0 ? 0.0f : (x[0] - (kGuard == Guard::none ? corner : most)) * scale;
      largest = fmaxf(largest, fabsf(row[i]));
#pragma unroll
      for (int j = 1; j < N; ++j) {
        float const exponent = fmaf(x[j] - x[0], scale, i == 0 ? 0.0f : -column[j]);
        (i == 0 ? column[j] : k[i > 0 ? i - 1 : 0][j - 1]) = exponent;
        largest = fmaxf(largest, fabsf(exponent));
      }
    }
    // fmaxf drops a NaN. With x_00 finite, one among the other logits reaches the result through k.
    bool const narrow = largest <= kLargest && fabsf(corner) <= 3e38f;
    if (kLeaves && !narrow) return false;
#pragma unroll
    for (int i = 0; i < N - 1; ++i) {
#pragma unroll
      for (int j = 0; j < N - 1; ++j) k[i][j] = fast_exp2(k[i][j]);
    }
    column[0] = 0;
#pragma unroll
    for (int i = 0; i < N; ++i) {
      if (lead) {
        u[i] = fast_exp2(row[i]);
      } else {
        v[i] = fast_exp2(column[i]);
      }
      if constexpr (kGuard != Guard::none) {
        float const factor = kGuard == Guard::scaling ? arguments.epsilon : 1.0f;
        w[i] = factor * fast_exp2(-row[i]);
        z[i] = factor * fast_exp2(-column[i]);
      }
    }
    if constexpr (kGuard == Guard::none) u[0] = v[0] = 1;  // Both are 1; the compiler must know it.
    return narrow;
  }
  /// start() for K = softmax + eps, whose entries are computed before their ratios.
  template <class Get>
  __device__ __forceinline__ bool start_softmax(Get const& from, ProjectionArguments const& arguments) {
    float const scale = arguments.inverse_temperature * kLog2E;
    float least = INFINITY, most = 0;
#pragma unroll
    for (int i = 0; i < N; ++i) {
      float x[N], sum = kLeastSum;
      from.get_row(i, x);
      float shift = x[0];
#pragma unroll
      for (int j = 1; j < N; ++j) shift = fmaxf(shift, x[j]);
      shift = fmaxf(shift * scale, kLeastShift);
#pragma unroll
      for (int j = 0; j < N; ++j) {
        x[j] = fast_exp2(fmaf(x[j], scale, -shift));
        sum += x[j];
      }
      float const factor = fast_reciprocal(sum);
#pragma unroll
      for (int j = 0; j < N; ++j) x[j] = fmaf(x[j], factor, arguments.matrix_epsilon);
      u[i] = x[0];
      w[i] = fast_reciprocal(x[0]);
      least = fminf(least, x[0]);
#pragma unroll
      for (int j = 1; j < N; ++j) {
        float const ratio = i == 0 ? x[j] * w[0] : x[j] * w[i] * z[j];
        if (i == 0) {
          z[j] = fast_reciprocal(ratio);
        } else {
          k[i > 0 ? i - 1 : 0][j - 1] = ratio;
        }
        least = fminf(least, ratio);
        most = fmaxf(most, ratio);
      }
    }
    z[0] = 1;
    if constexpr (kGuard == Guard::scaling) {
#pragma unroll
      for (int i = 0; i < N; ++i) w[i] *= arguments.epsilon, z[i] *= arguments.epsilon;
    }
    constexpr float kMost = 1 << static_cast<int>(kLargest);
    return least >= 1 / kMost && most <= kMost;
  }

  /// Whether a sum of the first pair of steps is clamped; no later one can be
  /// (ProjectionProblem::clamps_in_first_pair_only). Only column sums are looked at: a row of exponentials shifted by
  /// their largest sums to at least 1.
  __device__ __forceinline__ bool clamps(float epsilon) const {
    float q[N], first[N], x[N];
    sums<true>(q, v, w, 0);
    invert(x, q);
    sums<false>(first, x, z, 0);
    float least = INFINITY;
#pragma unroll
    for (int j = 0; j < N; ++j) least = fminf(least, first[j] * v[j]);
    return !(least >= 1.00001f * epsilon);
  }

  __device__ __forceinline__ void iterate(ProjectionArguments const& arguments) {
    float const epsilon = arguments.epsilon;
    int const pairs = arguments.pairs - (kProportions && !arguments.trail ? 1 : 0);
    if (arguments.lead) step<false>(epsilon);
#pragma unroll(N == 4 ? 4 : 2)
    for (int pair = 0; pair < pairs; ++pair) {
      step<true>(epsilon);
      step<false>(epsilon);
    }
    if (arguments.trail) {
      step<true, true>(epsilon);
    } else if constexpr (kProportions) {
      step<true>(epsilon);
      step<false, true>(epsilon);
    }
  }
  /// k_ij, including the first row and column.
  __device__ __forceinline__ float ratio(int i, int j) const {
    return i == 0 || j == 0 ? 1.0f : k[i > 0 ? i - 1 : 0][j > 0 ? j - 1 : 0];
  }
  __device__ __forceinline__ float entry(int i, int j) const {
    return u[i] * v[j] * ratio(i, j);
  }

  /// Projects the logits of `from` to `to`. False: the matrix needs another form, and nothing was written.
  template <class Get, class Put>
  __device__ __forceinline__ bool run(Get const& from, Put const& to, ProjectionArguments const& arguments) {
    if (!start(from, arguments, arguments.lead)) return false;
    if (kGuard == Guard::none && arguments.clamp && clamps(arguments.epsilon)) return false;
    iterate(arguments);
#pragma unroll
    for (int i = 0; i < N; ++i) {
      float x[N];
#pragma unroll
      for (int j = 0; j < N; ++j) x[j] = entry(i, j);
      to.put_row(i, x);
    }
    return true;
  }
};

/// The gradient of the iterations without eps. A_i is the gradient in log u_i, X_j that in log v_j, D_ij that in k_ij.
/// The A_i sum to 0, because the scale of u does not matter, so A_0 is not needed. The step u = 1 / (k v) is undone by
///   B_i = A_i u_i,   S = A_1 + .. + A_{N-1},   D_ij -= B_i v_j,   X_j = v_j (S u_0 - sum_i k_ij B_i),   i, j >= 1
/// in 2 (N - 1)^2 multiply-adds instead of 2 N^2. The formula needs u_0, so the scalings themselves are kept, not their
/// proportions. No two sums share a reciprocal, because one alone may be as large as 2^122.
template <int N, bool kColumnsFirst>
struct CrossRatioGradient {
  using Ratio = CrossRatio<N, Guard::none>;
  /// The last pairs are kept in registers, not in the history. At 20 iterations 12 warps then fit the shared memory of
  /// a multiprocessor.
  static constexpr int kPairsAside = 2;

  Ratio ratio;
  float d[2][N - 1][N - 1];  // D of the column steps and D of the row steps: two sums make two independent chains.
  float gradient[N - 1];     // A or X, without entry 0.
  float after[N];            // The v that the next pair to be undone ended with.

  /// The history of a row step and the column step after it: the v that the row step read and the u that it made.
  struct Pair {
    float v[N], u[N];
  };
  /// Pairs in the history. With columns first `arguments.pairs` leaves out the pair of the first step and the last.
  static __device__ __forceinline__ int kept_pairs(ProjectionArguments const& arguments) {
    return arguments.pairs + kColumnsFirst - kPairsAside;
  }
  /// Floats of a lane's history.
  static std::int64_t history_floats(std::int64_t pairs) { return 2 * N * (pairs - kPairsAside); }
  static constexpr int kSlot = 2 * N * 32;  // Floats from a pair of the history to the next.

  /// Columns first is rows first of the transpose.
  struct Rows {
    float const (&x)[N][N];
    __device__ __forceinline__ void get_row(int i, float (&to)[N]) const {
#pragma unroll
      for (int j = 0; j < N; ++j) to[j] = kColumnsFirst ? x[j][i] : x[i][j];
    }
  };

  /// False: the matrix is not narrow, or a sum is clamped.
  __device__ __forceinline__ bool start(float const (&x)[N][N], ProjectionArguments const& arguments) {
    bool const narrow = ratio.template start<false>(Rows{x}, arguments, false);
    return narrow && !(arguments.clamp && ratio.clamps(arguments.epsilon));
  }

  __device__ __forceinline__ Pair advance() {
    Pair pair;
    float q[N];
    copy(pair.v, ratio.v);
    ratio.template sums<true>(q, ratio.v, ratio.w, 0);
#pragma unroll
    for (int i = 0; i < N; ++i) pair.u[i] = ratio.u[i] = fast_reciprocal(q[i]);
    ratio.template sums<false>(q, ratio.u, ratio.w, 0);
#pragma unroll
    for (int j = 0; j < N; ++j) ratio.v[j] = fast_reciprocal(q[j]);
    return pair;
  }

  /// Undoes one half-step, which made `own` of `other`.
  template <bool kRows>
  __device__ __forceinline__ void back(float const (&own)[N], float const (&other)[N]) {
    float b[N - 1], x[N - 1], sum = gradient[0];
#pragma unroll
    for (int i = 1; i < N - 1; ++i) sum += gradient[i];
#pragma unroll
    for (int i = 0; i < N - 1; ++i) b[i] = gradient[i] * own[i + 1];
#pragma unroll
    for (int j = 0; j < N - 1; ++j) x[j] = sum * own[0];
#pragma unroll
    for (int i = 0; i < N - 1; ++i) {
#pragma unroll
      for (int j = 0; j < N - 1; ++j) x[j] = fmaf(-b[i], ratio.template at<kRows>(i, j), x[j]);
    }
#pragma unroll
    for (int j = 0; j < N - 1; ++j) gradient[j] = x[j] * other[j + 1];
#pragma unroll
    for (int i = 0; i < N - 1; ++i) {
#pragma unroll
      for (int j = 0; j < N - 1; ++j) {
        float& entry = kRows ? d[1][i][j] : d[0][j][i];
        entry = fmaf(-b[i], other[j + 1], entry);
      }
    }
  }
  __device__ __forceinline__ void undo(Pair const& pair) {
    back<false>(after, pair.u);
    back<true>(pair.u, pair.v);
    copy(after, pair.v);
  }
  /// Makes the last pairs and undoes them. g: the gradient of the output.
  __device__ __forceinline__ void turn(float const (&g)[N][N], float inverse_temperature) {
    Pair const last_but_one = advance(), last = advance();
    seed(g, inverse_temperature);
    back<true>(last.u, last.v);
    copy(after, last.v);
    undo(last_but_one);
  }
  /// Undoes the last column step. With V_j = sum_i P_ij g_ij, k o D is P o (g - V) and its row sums are A. All that
  /// follows is linear in them, so they take in the temperature here.
  __device__ __forceinline__ void seed(float const (&g)[N][N], float inverse_temperature) {
#pragma unroll
    for (int j = 0; j < N; ++j) {
      auto const given = [&](int i) { return kColumnsFirst ? g[j][i] : g[i][j]; };
      float sum = ratio.u[0] * given(0);
#pragma unroll
      for (int i = 1; i < N; ++i) sum = fmaf(ratio.u[i] * ratio.ratio(i, j), given(i), sum);
      float const v = ratio.v[j], scaled = v * inverse_temperature, mean = sum * v * scaled;
#pragma unroll
      for (int i = 1; i < N; ++i) {
        float const flow = fmaf(scaled, given(i), -mean);
        gradient[i - 1] = j == 0 ? flow : fmaf(ratio.ratio(i, j), flow, gradient[i - 1]);
        if (j > 0) d[0][i - 1][j > 0 ? j - 1 : 0] = ratio.u[i] * flow, d[1][i - 1][j > 0 ? j - 1 : 0] = 0;
      }
    }
#pragma unroll
    for (int i = 0; i < N - 1; ++i) gradient[i] *= ratio.u[i + 1];
  }
  /// The gradient in the logits, from D and from the gradient in the scalings of the start.
  __device__ __forceinline__ void finish(float (&x)[N][N]) const {
    auto const to = [&](int i, int j) -> float& { return kColumnsFirst ? x[j][i] : x[i][j]; };
    float corner = 0, column[N - 1];
#pragma unroll
    for (int i = 0; i < N - 1; ++i) {
      float row = 0;
#pragma unroll
      for (int j = 0; j < N - 1; ++j) {
        float const value = (d[0][i][j] + d[1][i][j]) * ratio.k[i][j];
        to(i + 1, j + 1) = value;
        row = j == 0 ? value : row + value;
        column[j] = (i == 0 ? gradient[j] : column[j]) - value;
      }
      to(i + 1, 0) = -row;
      corner = i == 0 ? row : corner + row;
    }
#pragma unroll
    for (int j = 0; j < N - 1; ++j) {
      to(0, j + 1) = column[j];
      corner -= gradient[j];
    }
    to(0, 0) = corner;
  }

  /// Turns x from the logits into their gradient; g is the gradient of the output. False: the matrix needs another
  /// form, and x is unchanged.
  template <class History>
  __device__ __forceinline__ bool run(float (&x)[N][N], float const (&g)[N][N], History const& history,
                                      ProjectionArguments const& arguments) {
    int const kept = kept_pairs(arguments);
    if (kept < 0 || !start(x, arguments)) return false;
    float* slot = history.memory();
#pragma unroll 2
    for (int pair = 0; pair < kept; ++pair) {
      write<History>(slot, advance());
      slot += kSlot;
    }
    turn(g, arguments.inverse_temperature);
#pragma unroll 4
    for (int pair = 0; pair < kept; ++pair) {
      slot -= kSlot;
      undo(read<History>(slot));
    }
    finish(x);
    return true;
  }

  template <class History>
  static __device__ __forceinline__ void write(float* slot, Pair const& pair) {
    History::write(slot, pair.v);
    History::write(slot + kSlot / 2, pair.u);
  }
  template <class History>
  static __device__ __forceinline__ Pair read(float const* slot) {
    Pair pair;
    History::read(slot, pair.v);
    History::read(slot + kSlot / 2, pair.u);
    return pair;
  }

 private:
  static __device__ __forceinline__ void copy(float (&to)[N], float const (&from)[N]) {
#pragma unroll
    for (int i = 0; i < N; ++i) to[i] = from[i];
  }
};

}  // namespace monge::cuda
