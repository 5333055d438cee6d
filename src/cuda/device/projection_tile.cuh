// A matrix in the registers of one lane or of a group of lanes, and the half-steps and their adjoints on it. __device__
// only.
//
// Lane (p, q) of kRowLanes x kColumnLanes holds rows p R .. and columns q C ..: R x C values of K, R of u, C of v. Sums
// over a row are completed by butterflies over the lanes of one p, which give the same bits on each. Padding is K = 0.
//   row step:  q_i = sum_j K_ij v_j (+ or max) eps w_i;  u_i = a_i / q_i;  w_i = q_i / a_i
//   (core/projection_options.hpp) adjoint:   r_i = -ub_i u_i^2 / a_i + eps / a_i r_i(later);  D += r v';  vb += K' r
#pragma once
#include "cuda/device/ptx.cuh"
#include "cuda/launch/projection.hpp"

namespace monge::cuda {

/// 1 / x to one unit in the last place.
__device__ __forceinline__ float fast_reciprocal(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ __forceinline__ float fast_log2(float x) {
  float y;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

/// d K, 0 where K is: however large the scalings of a row without mass made d.
__device__ __forceinline__ float gradient_product(float d, float k) {
  return k == 0 ? 0.0f : d * k;
}

inline constexpr float kLog2E = 1.44269504f;
inline constexpr float kLeastSum = 1e-37f;  // The scaling of a row without mass is finite: its products with 0 are 0.
inline constexpr float kLeastShift = -1e30f;
inline constexpr float kKeptShift = -40 * kLog2E;  // Where eps is relative to e^{-s}.
inline constexpr float kNarrow = 9.3132257e-10f;   // 2^-30: products of two sums stay in range.

template <int kR, int kC, int kRowLanes_, int kColumnLanes_>
struct TileLayout {
  static constexpr int R = kR, C = kC, kRowLanes = kRowLanes_, kColumnLanes = kColumnLanes_;
  static constexpr int N = R * kRowLanes, M = C * kColumnLanes, kLanes = kRowLanes * kColumnLanes;
  static constexpr int kPerWarp = 32 / kLanes;
  static constexpr int kChunks = R * C / 4;  // 16-byte pieces a lane
  /// Where chunk `at` of a warp's matrices lies in shared memory: neither the linear nor the lane's order conflicts.
  static __device__ __forceinline__ int swizzled(int at) {
    if constexpr (N == 4) return at ^ (at >> 3 & 3);
    if constexpr (N == 8 && kLanes == 1) return at ^ (at >> 4 & 7);
    if constexpr (N == 8 && kLanes == 4) return at ^ (at >> 2 & 4) ^ (at >> 4 & 2);
    if constexpr (N == 16 && kLanes == 4) return at ^ (at >> 5 & 1) ^ (at >> 4 & 4);
    if constexpr (N == 16 && kLanes == 16) return at ^ (at >> 2 & 4);
    if constexpr (N == 32) return at ^ (at >> 6 & 1);
    if constexpr (N == 64) return at ^ (at >> 3 & 1);
    return at;
  }
};

/// The place of this lane.
template <class L>
struct TilePlace {
  int matrix, row, column;  // Of the warp's; first row and column.
  __device__ __forceinline__ TilePlace() {
    int const lane = static_cast<int>(threadIdx.x) % 32;
    matrix = lane / L::kLanes;
    row = lane % L::kLanes / L::kColumnLanes * L::R;
    column = lane % L::kColumnLanes * L::C;
  }
};

template <class L>
__device__ __forceinline__ float over_columns(float value) {
#pragma unroll
  for (int mask = 1; mask < L::kColumnLanes; mask *= 2) value += __shfl_xor_sync(0xffffffffu, value, mask);
  return value;
}
template <class L>
__device__ __forceinline__ float over_rows(float value) {
#pragma unroll
  for (int mask = L::kColumnLanes; mask < L::kLanes; mask *= 2) value += __shfl_xor_sync(0xffffffffu, value, mask);
  return value;
}
template <class L>
__device__ __forceinline__ float max_over_columns(float value) {
#pragma unroll
  for (int mask = 1; mask < L::kColumnLanes; mask *= 2) value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, mask));
  return value;
}
template <class L>
__device__ __forceinline__ float max_over_rows(float value) {
#pragma unroll
  for (int mask = L::kColumnLanes; mask < L::kLanes; mask *= 2)
    value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, mask));
  return value;
}

/// u = 1 / q. A pair shares one reciprocal: the special function unit, not the multiplier, bounds 4 x 4 matrices.
template <int kPairs, int kCount>
__device__ __forceinline__ void reciprocals(float (&u)[kCount], float const (&q)[kCount]) {
#pragma unroll
  for (int p = 0; p < kPairs; ++p) {
    float const r = fast_reciprocal(q[2 * p] * q[2 * p + 1]);
    u[2 * p] = r * q[2 * p + 1];
    u[2 * p + 1] = r * q[2 * p];
  }
#pragma unroll
  for (int i = 2 * kPairs; i < kCount; ++i) u[i] = fast_reciprocal(q[i]);
}

/// K, scalings and, for the adjoint, gradients. kMode as in launch/projection.hpp; kPadded: n and m are the arguments'.
template <class L, ProjectionMode kMode, bool kPadded>
struct Tile {
  static constexpr int R = L::R, C = L::C;
  static constexpr bool kPlain = kMode == ProjectionMode::plain;
  static constexpr bool kGuarded = kMode == ProjectionMode::guarded;
  static constexpr bool kLog = kMode == ProjectionMode::log_domain;
  static constexpr bool kGeneral = kMode == ProjectionMode::general || kLog;

  ProjectionArguments const& arguments;
  ProjectionMarginals const* marginals;
  TilePlace<L> place;
  float k[R][C];                                     // In the log domain: logits, base 2.
  float u[R], v[C];                                  // In the log domain: potentials, base 2.
  float w[R], z[C];                                  // What eps multiplies, of rows and columns.
  float wr[kGuarded ? R : 1], zc[kGuarded ? C : 1];  // Guarded: the part of the sum that stays, eps e^{-s}.
  float chain;                                       // Guarded: eps, or 0 for `scaling`.
  bool done = false;
  int count = 0;

  __device__ __forceinline__ Tile(ProjectionArguments const& a, ProjectionMarginals const* m)
      : arguments(a), marginals(m) {}

  __device__ __forceinline__ bool valid(int r, int c) const {
    return !kPadded || (place.row + r < arguments.rows && place.column + c < arguments.columns);
  }
  __device__ __forceinline__ float a(int r) const {
    if (kPadded && place.row + r >= arguments.rows) return 0;
    return marginals->a[place.row + r];
  }
  __device__ __forceinline__ float b(int c) const {
    if (kPadded && place.column + c >= arguments.columns) return 0;
    return marginals->b[place.column + c];
  }
  static __device__ __forceinline__ float inverse(float x) { return x > 0 ? 1.0f / x : 0.0f; }

  /// k holds logits (padding anything) and becomes K.
  __device__ __forceinline__ void start() {
    bool const positive = arguments.start_positive, softmax = arguments.start_softmax;
    bool const by_columns = arguments.columns_first && !positive && !softmax && !arguments.start_shifted;
    bool const exact_exp = !positive && !softmax && !arguments.start_shifted;
    bool const keeps =
        exact_exp && (kPlain ? arguments.matrix_epsilon > 0 : arguments.epsilon > 0 || arguments.matrix_epsilon > 0);
    float const least = keeps ? kKeptShift : kLeastShift;
    float const scale = arguments.inverse_temperature * kLog2E;
#pragma unroll
    for (int r = 0; r < R; ++r) {
      u[r] = kLog ? 0 : 1;
      w[r] = 1;
    }
#pragma unroll
    for (int c = 0; c < C; ++c) {
      v[c] = kLog ? 0 : 1;
      z[c] = 1;
    }
    if (kPadded) {
#pragma unroll
      for (int r = 0; r < R; ++r) {
#pragma unroll
        for (int c = 0; c < C; ++c)
          if (!valid(r, c)) k[r][c] = positive ? 0 : -INFINITY;
      }
    }
    if (positive) {
#pragma unroll
      for (int r = 0; r < R; ++r) {
#pragma unroll
        for (int c = 0; c < C; ++c) {
          if (valid(r, c)) k[r][c] += arguments.matrix_epsilon;
          if constexpr (kLog) k[r][c] = k[r][c] > 0 ? log2f(k[r][c]) : k[r][c] == 0 ? -1e38f : k[r][c];
        }
      }
    } else if (kLog) {
#pragma unroll
      for (int r = 0; r < R; ++r) {
#pragma unroll
        for (int c = 0; c < C; ++c) k[r][c] *= scale;
      }
      if (softmax) {
#pragma unroll
        for (int r = 0; r < R; ++r) {
          float const lse = row_logsumexp(r);
#pragma unroll
          for (int c = 0; c < C; ++c) k[r][c] -= lse;
        }
      }
    } else if (by_columns) {
#pragma unroll
      for (int c = 0; c < C; ++c) {
        float largest = k[0][c];
#pragma unroll
        for (int r = 1; r < R; ++r) largest = fmaxf(largest, k[r][c]);
        float const s = fmaxf(max_over_rows<L>(largest) * scale, least);
        float const kept = keeps ? fast_exp2(-s) : 1.0f;
        if (!kPlain) z[c] = kept;
#pragma unroll
        for (int r = 0; r < R; ++r) {
          k[r][c] = fast_exp2(fmaf(k[r][c], scale, -s));
          if (keeps && valid(r, c)) k[r][c] = fmaf(arguments.matrix_epsilon, kept, k[r][c]);
        }
      }
    } else {
#pragma unroll
      for (int r = 0; r < R; ++r) {
        float largest = k[r][0];
#pragma unroll
        for (int c = 1; c < C; ++c) largest = fmaxf(largest, k[r][c]);
        float const s = fmaxf(max_over_columns<L>(largest) * scale, least);
#pragma unroll
        for (int c = 0; c < C; ++c) k[r][c] = fast_exp2(fmaf(k[r][c], scale, -s));
        if (softmax) {
          float sum = kLeastSum;
#pragma unroll
          for (int c = 0; c < C; ++c) sum += k[r][c];
          float const factor = fast_reciprocal(over_columns<L>(sum));
#pragma unroll
          for (int c = 0; c < C; ++c) k[r][c] = fmaf(k[r][c], factor, valid(r, c) ? arguments.matrix_epsilon : 0.0f);
        } else if (keeps || arguments.matrix_epsilon > 0) {
          float const kept = keeps ? fast_exp2(-s) : 1.0f;
          if (!kPlain) w[r] = kept;
#pragma unroll
          for (int c = 0; c < C; ++c)
            if (valid(r, c)) k[r][c] = fmaf(arguments.matrix_epsilon, kept, k[r][c]);
        }
      }
    }
    if constexpr (kGuarded) {
      chain = arguments.scaling ? 0 : arguments.epsilon;
#pragma unroll
      for (int r = 0; r < R; ++r) wr[r] = arguments.scaling ? fmaf(arguments.epsilon, w[r], kLeastSum) : kLeastSum;
#pragma unroll
      for (int c = 0; c < C; ++c) zc[c] = arguments.scaling ? fmaf(arguments.epsilon, z[c], kLeastSum) : kLeastSum;
    }
  }

  __device__ __forceinline__ float row_logsumexp(int r) const {
    float largest = kLeastShift;
#pragma unroll
    for (int c = 0; c < C; ++c) largest = fmaxf(largest, k[r][c] + v[c]);
    largest = max_over_columns<L>(largest);
    float sum = 0;
#pragma unroll
    for (int c = 0; c < C; ++c) sum += fast_exp2((k[r][c] + v[c]) - largest);
    return largest + fast_log2(over_columns<L>(sum) + kLeastSum);
  }
  __device__ __forceinline__ float column_logsumexp(int c) const {
    float largest = kLeastShift;
#pragma unroll
    for (int r = 0; r < R; ++r) largest = fmaxf(largest, k[r][c] + u[r]);
    largest = max_over_rows<L>(largest);
    float sum = 0;
#pragma unroll
    for (int r = 0; r < R; ++r) sum += fast_exp2((k[r][c] + u[r]) - largest);
    return largest + fast_log2(over_rows<L>(sum) + kLeastSum);
  }

  /// |u| where a clamped sum is marked by the sign.
  __device__ __forceinline__ float bare(float scaling) const {
    return kGeneral && !kLog ? fabsf(scaling) : scaling;
  }

  template <int kPairs>
  __device__ __forceinline__ void row_step(bool check = false) {
    if constexpr (!kGeneral) {
      float q[R];
#pragma unroll
      for (int r = 0; r < R; ++r) {
        float const rest = kPlain ? kLeastSum : fmaf(chain, w[r], wr[r]);
        q[r] = fmaf(k[r][0], v[0], L::kColumnLanes == 1 ? rest : 0.0f);
#pragma unroll
        for (int c = 1; c < C; ++c) q[r] = fmaf(k[r][c], v[c], q[r]);
        if constexpr (L::kColumnLanes > 1) q[r] = over_columns<L>(q[r]) + rest;
        if constexpr (kGuarded) w[r] = q[r];
      }
      reciprocals<kPairs>(u, q);
    } else {
      float next[R], weight[R], error = 0;
#pragma unroll
      for (int r = 0; r < R; ++r) {
        float const target = a(r);
        if constexpr (kLog) {
          next[r] = log2f(target) - row_logsumexp(r);
          if (check && target > 0) error = fmaxf(error, fabsf(fast_exp2(u[r] - next[r]) - 1));
        } else {
          float dot = 0;
#pragma unroll
          for (int c = 0; c < C; ++c) dot = fmaf(k[r][c], bare(v[c]), dot);
          dot = over_columns<L>(dot) + kLeastSum;
          finish(dot, target, u[r], w[r], check, next[r], weight[r], error);
        }
      }
      float const worst = check ? max_over_rows<L>(error) : 0.0f;
      if (check && !done) done = worst <= arguments.tolerance;
#pragma unroll
      for (int r = 0; r < R; ++r) {
        if (done) continue;
        u[r] = next[r];
        if (!kLog && !arguments.scaling) w[r] = weight[r];
      }
    }
  }
  template <int kPairs>
  __device__ __forceinline__ void column_step(bool check = false) {
    if constexpr (!kGeneral) {
      float q[C];
#pragma unroll
      for (int c = 0; c < C; ++c) {
        float const rest = kPlain ? kLeastSum : fmaf(chain, z[c], zc[c]);
        q[c] = fmaf(k[0][c], u[0], L::kRowLanes == 1 ? rest : 0.0f);
#pragma unroll
        for (int r = 1; r < R; ++r) q[c] = fmaf(k[r][c], u[r], q[c]);
        if constexpr (L::kRowLanes > 1) q[c] = over_rows<L>(q[c]) + rest;
        if constexpr (kGuarded) z[c] = q[c];
      }
      reciprocals<kPairs>(v, q);
    } else {
      float next[C], weight[C], error = 0;
#pragma unroll
      for (int c = 0; c < C; ++c) {
        float const target = b(c);
        if constexpr (kLog) {
          next[c] = log2f(target) - column_logsumexp(c);
          if (check && target > 0) error = fmaxf(error, fabsf(fast_exp2(v[c] - next[c]) - 1));
        } else {
          float dot = 0;
#pragma unroll
          for (int r = 0; r < R; ++r) dot = fmaf(k[r][c], bare(u[r]), dot);
          dot = over_rows<L>(dot) + kLeastSum;
          finish(dot, target, v[c], z[c], check, next[c], weight[c], error);
        }
      }
      float const worst = check ? max_over_columns<L>(error) : 0.0f;
      if (check && !done) done = worst <= arguments.tolerance;
#pragma unroll
      for (int c = 0; c < C; ++c) {
        if (done) continue;
        v[c] = next[c];
        if (!kLog && !arguments.scaling) z[c] = weight[c];
      }
    }
  }
  __device__ __forceinline__ void finish(float dot, float target, float old, float old_weight, bool check, float& next,
                                         float& weight, float& error) const {
    float const inverse_target = inverse(target);
    if (check && target > 0) {
      float const off = fabsf(fmaf(dot * bare(old), inverse_target, -1.0f));
      error = off <= 3e38f ? fmaxf(error, off) : INFINITY;
    }
    float const rest = arguments.epsilon * old_weight;
    bool const clamped = arguments.clamp && dot < rest;
    float const q = arguments.clamp ? (clamped ? rest : dot) : dot + rest;
    next = target * fast_reciprocal(q);
    if (clamped) next = -next;
    weight = q * inverse_target;
  }

  /// All half-steps. before(pair) is called ahead of a pair's row step, between(pair) after it.
  template <int kPairs, class Before, class Between>
  __device__ __forceinline__ void iterate(Before&& before, Between&& between) {
    bool const checks = kGeneral && arguments.tolerance > 0;
    if (arguments.lead) column_step<kPairs>();
#pragma unroll 1
    for (int pair = 0; pair < arguments.pairs; ++pair) {
      before(pair);
      row_step<kPairs>(checks && !arguments.columns_first && (pair > 0 || arguments.lead));
      between(pair);
      column_step<kPairs>(checks && arguments.columns_first);
      if constexpr (kGeneral) {
        if (!done) ++count;
        if (checks && __all_sync(0xffffffffu, done)) break;
      }
    }
    if (arguments.trail) row_step<kPairs>();
  }

  __device__ __forceinline__ float entry(int r, int c) const {
    if constexpr (kLog) return fast_exp2(k[r][c] + u[r] + v[c]);
    return bare(u[r]) * k[r][c] * bare(v[c]);
  }

  __device__ __forceinline__ bool narrow() const {
    float least = k[0][0];
#pragma unroll
    for (int r = 0; r < R; ++r) {
#pragma unroll
      for (int c = 0; c < C; ++c) least = fminf(least, k[r][c]);
    }
    return least >= kNarrow;
  }

  template <class Before, class Between>
  __device__ __forceinline__ void iterate_any(Before&& before, Between&& between) {
    // Per lane, so that a matrix's bits do not depend on its neighbours. Positive input has no bound above.
    if constexpr (L::kLanes == 1 && R == 4 && !kGeneral) {
      if (narrow() && !arguments.start_positive) {
        iterate<kSharedReciprocals>(before, between);
        return;
      }
    }
    iterate<0>(before, between);
  }
#ifndef MONGE_SHARED_RECIPROCALS
#define MONGE_SHARED_RECIPROCALS 1
#endif
  static constexpr int kSharedReciprocals = MONGE_SHARED_RECIPROCALS;
};

}  // namespace monge::cuda
