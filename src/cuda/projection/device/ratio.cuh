// A matrix in the registers of one lane, in the form with fewest operations: K_ij = r_i k_ij c_j where k has first row
// and column 1. With u r and v c in the place of u and v the half-steps are
//   q_i = sum_j k_ij v_j,  u_i = 1 / q_i,
// in (N - 1) N additions or multiply-adds instead of N^2, and the iterates are the same matrices; what starts as 1
// starts as r or c. No maximum is needed: the differences of the logits are the shift. For narrow matrices only:
// start() returns false, and what it made is not to be used, where ratios of entries are so large, or not numbers, that
// sums and their products could leave float32; kLargest bounds |log2|.
#pragma once
#include "cuda/projection/device/tile.cuh"

namespace monge::cuda {

/// What is added to the sums: nothing, eps times the sum of the step before, or constants.
enum class Guard { none, denominator, scaling };

template <int N, Guard kGuard>
struct CrossRatio {
  /// Without an eps only the proportions of the scalings matter until the end. One of them is 1 then, which saves
  /// registers to read: these kernels wait for the ports of the register file before anything else (docs/tuning.md).
  static constexpr bool kProportions = N == 4 && kGuard == Guard::none;
  /// With |log2| of ratios up to L, Sinkhorn's iterates are within 2^(2L) of the limit they have: sums are below
  /// 2^(4L + log2 N), and so must be products of two. Proportions start anew in each step, within 2^L: products of two
  /// sums stay below 2^(4L + 4).
  static constexpr float kLargest = kProportions ? 30 : 15;
  /// Whether the order of the sums is kept (schedule_fence), all but the last two: those run beside the reciprocals.
  static constexpr bool kFenced = N > 4;
  static constexpr int kFirst = kFenced ? N - 2 : N;

  float k[N - 1][N - 1];
  float u[N], v[N];
  float w[N], z[N];  // Guarded: what eps multiplies, or the constants.

  template <bool kRows>
  __device__ __forceinline__ float at(int own, int other) const {
    return kRows ? k[own][other] : k[other][own];
  }
  /// Of rows, or columns, kBegin to kEnd.
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
  /// Pairs share a reciprocal, which takes the special function unit as long as 8 instructions the scheduler.
  template <int kBegin = 0, int kEnd = N>
  static __device__ __forceinline__ void invert(float (&x)[N], float const (&q)[N]) {
#pragma unroll
    for (int i = kBegin; i < kEnd; i += 2) {
      float const r = fast_reciprocal(q[i] * q[i + 1]);
      x[i] = r * q[i + 1];
      x[i + 1] = r * q[i];
    }
  }
  /// q_0 / q_i
  static __device__ __forceinline__ void invert_proportions(float (&x)[N], float const (&q)[N]) {
    float const t = q[0] * fast_reciprocal(q[1] * q[2]);
    x[0] = 1;
    x[1] = t * q[2];
    x[2] = t * q[1];
    x[3] = q[0] * fast_reciprocal(q[3]);
  }
  /// kExact: the scalings themselves; what the result is made of must be, on one side.
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

  /// `lead`: the columns go first. Rows are asked for one after the other, for few to be in registers at a time.
  /// kLeaves: before the exponentials where those would be for nothing; faster or slower, as measured.
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
      // The size of a row matters beside an epsilon; without one, that of the first may be any.
      row[i] = kGuard == Guard::none && i == 0 ? 0.0f : (x[0] - (kGuard == Guard::none ? corner : most)) * scale;
      largest = fmaxf(largest, fabsf(row[i]));
#pragma unroll
      for (int j = 1; j < N; ++j) {
        float const exponent = fmaf(x[j] - x[0], scale, i == 0 ? 0.0f : -column[j]);
        (i == 0 ? column[j] : k[i > 0 ? i - 1 : 0][j - 1]) = exponent;
        largest = fmaxf(largest, fabsf(exponent));
      }
    }
    // A NaN passes fmaxf; where x_00 is finite it comes from the logits and reaches the result through k.
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
    if constexpr (kGuard == Guard::none) u[0] = v[0] = 1;  // As the compiler should know.
    return narrow;
  }
  /// K = softmax + eps is there itself.
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

  /// Whether sums are clamped in the first pair of steps, where alone they can be
  /// (ProjectionProblem::clamps_in_first_pair_only): row sums of exponentials shifted by their largest are at least 1.
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
  /// k_ij, of the first row and column too.
  __device__ __forceinline__ float ratio(int i, int j) const {
    return i == 0 || j == 0 ? 1.0f : k[i > 0 ? i - 1 : 0][j > 0 ? j - 1 : 0];
  }
  __device__ __forceinline__ float entry(int i, int j) const {
    return u[i] * v[j] * ratio(i, j);
  }

  /// Logits to their projection; false: nothing is done.
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

/// The gradient of the iterations without eps. With A_i the gradient in log u_i, whose sum is 0 because the scale of u
/// does not matter, and X_j that in log v_j, the step u = 1 / (k v) is undone by
///   B_i = A_i u_i,  S = A_1 + .. + A_{N-1},   D_ij -= B_i v_j,   X_j = v_j (S u_0 - sum_i k_ij B_i),   i, j >= 1
/// where D is the gradient in k: 2 (N - 1)^2 multiply-adds a half-step, instead of 2 N^2. This wants u_0, so the
/// scalings are kept themselves, not as proportions. Each has a reciprocal of its own: sums may be as large as 2^122.
template <int N, bool kColumnsFirst>
struct CrossRatioGradient {
  using Ratio = CrossRatio<N, Guard::none>;
  /// Not in the history but in registers: at 20 iterations that lets 12 warps share a multiprocessor's memory.
  static constexpr int kPairsAside = 2;

  Ratio ratio;
  float d[2][N - 1][N - 1];  // From the column steps and from the row steps: two sums, for two independent chains.
  float gradient[N - 1];     // A or X.
  float after[N];            // The v that the last pair left to undo ended with.

  /// Of a row step and a column step: the v that the first began with and the u that it made of it.
  struct Pair {
    float v[N], u[N];
  };
  /// Pairs in the history. With columns first the first step is not part of a pair.
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

  /// False: the matrix is not narrow, or sums are clamped.
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

  /// own: what the step made of `other`.
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
  /// The last column step: with V the column sums of P o g, P o (g - V) is k o D, and its row sums are the gradient.
  /// Everything that follows is linear in it, so that this is the place for the temperature.
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
  /// From log2 k and the ratios of the first row, at the start, to the logits.
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

  /// x: logits to their gradient; g: the gradient of the output. False: nothing is done.
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
