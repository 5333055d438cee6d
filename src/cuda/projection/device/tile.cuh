// A matrix in the registers of one lane or of a group of lanes, and the half-steps on it. __device__ only.
//
// A team is a warp, or the warps that a large matrix takes; those are a block of their own.
// Lane (p, q) of kRowLanes x kColumnLanes holds an R x C part of K: the p-th R rows of the q-th C columns. Of the
// scalings u and v it holds the entries of those rows and columns. Padding is K = 0. A row step is
//   q_i = sum_j K_ij v_j (+ or max) eps w_i;   u_i = a_i / q_i;   w_i = q_i / a_i      (projection/problem.hpp)
// and a column step the same with rows and columns exchanged.
//
// Each lane sums over its own columns. Then the lanes that share rows exchange: `scatter` completes the sums, each lane
// those of its own share, R / kColumnLanes rows; the lane makes their scalings; `gather` gives all of them to all
// lanes. Where there are more lanes than rows, neighbours have the same share. Lane q holds row r of its part in
// register r ^ (q R / kColumnLanes): its own share comes first, and at each step of an exchange every lane sends the
// same half of its registers. A row lies in one warp. The warps of a team add their column sums through shared memory,
// all of them in the same order, and each goes on with its own copy.
#pragma once
#include "cuda/device/ptx.cuh"
#include "cuda/projection/device/arguments.hpp"

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
__device__ __forceinline__ float inverse_or_zero(float x) {
  return x > 0 ? 1.0f / x : 0.0f;
}

/// d k, but 0 where k is 0: the scalings of a row without mass may have made d infinite.
__device__ __forceinline__ float gradient_product(float d, float k) {
  return k == 0 ? 0.0f : d * k;
}

inline constexpr float kLog2E = 1.44269504f;
inline constexpr float kLeastSum = 1e-37f;  // The scaling of a row without mass is finite: its products with 0 are 0.
inline constexpr float kLeastShift = -1e30f;
inline constexpr float kKeptShift = -40 * kLog2E;  // For eps relative to e^{-s}, which must not overflow.

template <int kR, int kC, int kRowLanes_, int kColumnLanes_>
struct TileLayout {
  static constexpr int R = kR, C = kC, kRowLanes = kRowLanes_, kColumnLanes = kColumnLanes_;
  static constexpr int N = R * kRowLanes, M = C * kColumnLanes, kLanes = kRowLanes * kColumnLanes;
  static constexpr int kWarps = kLanes > 32 ? kLanes / 32 : 1, kThreads = 32 * kWarps;  // Threads of a team.
  static constexpr int kPerTeam = kThreads / kLanes;
  static constexpr int kChunks = R * C / 4;  // Chunks of 16 bytes a lane.
  static constexpr int kWarpRowLanes = kRowLanes / kWarps;
  static constexpr int kOwnRows = R > kColumnLanes ? R / kColumnLanes : 1;  // A lane's share of the sums: rows.
  static constexpr int kOwnColumns = C / kWarpRowLanes;
  static constexpr int kPiece = kOwnColumns < 4 ? kOwnColumns : 4;  // Columns side by side in memory and in registers.
  static_assert(kOwnColumns >= 1 && kPiece >= 2 && 32 % kColumnLanes == 0);
  static_assert(kWarps == 1 || kWarpRowLanes > 1);  // One lane would let every warp add the first term.
  // Register r of lane q holds row r ^ row_twist(q), register c of lane p column c ^ column_twist(p). In general these
  // are q R / kColumnLanes and (p % kWarpRowLanes) kOwnColumns. Layouts that need no division or remainder leave it
  // out, because the compiler, which does not know the ranges of q and p, would not.
  static __host__ __device__ constexpr int row_twist(int q) {
    return R >= kColumnLanes ? q * kOwnRows : q * R / kColumnLanes;
  }
  static __host__ __device__ constexpr int column_twist(int p) {
    return kWarps == 1 ? p * kOwnColumns : p % kWarpRowLanes * kOwnColumns;
  }
  /// The index in shared memory of chunk `at` of a team's matrices. Neither the accesses in memory order nor those of
  /// the lanes to their own parts meet in a bank. Bits are flipped by higher bits, so swizzled(a ^ b) = swizzled(a) ^
  /// swizzled(b).
  static __host__ __device__ constexpr int swizzled(int at) {
    if constexpr (N == 4) return at ^ (at >> 3 & 3);
    if constexpr (N == 8 && kLanes == 1) return at ^ (at >> 4 & 7);
    if constexpr (N == 8 && kLanes > 1) return at ^ (at >> 3 & 6);
    if constexpr (N == 16) return at ^ (at >> 4 & 4);
    if constexpr (N >= 64) return at ^ (at >> 3 & 1);
    return at;
  }
};

/// The place of this lane.
template <class L>
struct TilePlace {
  int matrix, row, column;  // Index among the team's matrices; first row and column of this lane's part.
  int row_twist, column_twist;
  __device__ __forceinline__ TilePlace() {
    int const lane = static_cast<int>(threadIdx.x) % L::kThreads;
    int const p = lane % L::kLanes / L::kColumnLanes, q = lane % L::kColumnLanes;
    matrix = lane / L::kLanes;
    row = p * L::R;
    column = q * L::C;
    row_twist = L::row_twist(q);
    column_twist = L::column_twist(p);
  }
  __device__ __forceinline__ int row_of(int r) const { return row + (r ^ row_twist); }
  __device__ __forceinline__ int column_of(int c) const { return column + (c ^ column_twist); }
};

struct Sum {
  static __device__ __forceinline__ float apply(float x, float y) { return x + y; }
};
struct Maximum {
  static __device__ __forceinline__ float apply(float x, float y) { return fmaxf(x, y); }
};
struct Minimum {
  static __device__ __forceinline__ float apply(float x, float y) { return fminf(x, y); }
};

template <class L>
__device__ __forceinline__ void sync_team() {
  if constexpr (L::kWarps == 1) {
    __syncwarp();
  } else {
    __syncthreads();
  }
}

/// Shared memory in which the warps of a team add up at most kOwnColumns entries a lane.
template <class L>
inline constexpr int kExchangeBytes = L::kWarps > 1 ? 4 * L::kThreads* L::kOwnColumns : 0;

template <class L>
__device__ __forceinline__ float* exchange_memory() {
  __shared__ float memory[kExchangeBytes<L> / 4];
  return memory;
}

/// Combines the first kEntries of lane l of every warp of a team, for each l, in the order of the warps.
template <class L, class Op, int kEntries, int kCount>
__device__ __forceinline__ void over_warps(float (&x)[kCount]) {
  if constexpr (L::kWarps > 1) {
    float* const memory = exchange_memory<L>();
    int const warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int i = 0; i < kEntries; ++i) memory[(warp * kEntries + i) * 32 + lane] = x[i];
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kEntries; ++i) {
      x[i] = memory[i * 32 + lane];
#pragma unroll
      for (int w = 1; w < L::kWarps; ++w) x[i] = Op::apply(x[i], memory[(w * kEntries + i) * 32 + lane]);
    }
    __syncthreads();
  }
}

/// One side of a layout: kRows says whether the rows or the columns.
template <class L, bool kRows>
struct TileSide {
  static constexpr int kCount = kRows ? L::R : L::C;
  static constexpr int kOwn = kRows ? L::kOwnRows : L::kOwnColumns;
  static constexpr int kLanes = kRows ? L::kColumnLanes : L::kWarpRowLanes;  // Lanes of a warp that share a line.
  static constexpr int kStride = kRows ? 1 : L::kColumnLanes;                // Lanes from one of them to the next.

  /// Completes the first kOwn entries; the others are lost.
  template <class Op = Sum, int kTogether = kLanes>
  static __device__ __forceinline__ void scatter(float (&x)[kCount]) {
    if constexpr (kTogether > 1) {
      constexpr int kHalf = kCount * kTogether / (2 * kLanes), kLane = kTogether / 2 * kStride;
#pragma unroll
      for (int i = 0; i < kHalf; ++i) x[i] = Op::apply(x[i], __shfl_xor_sync(0xffffffffu, x[kHalf + i], kLane));
      if constexpr (kHalf == 0) x[0] = Op::apply(x[0], __shfl_xor_sync(0xffffffffu, x[0], kLane));
      scatter<Op, kTogether / 2>(x);
    } else if constexpr (!kRows) {
      over_warps<L, Op, kOwn>(x);
    }
  }
  /// Fills all entries from the first kOwn of each lane.
  template <int kTogether = 2>
  static __device__ __forceinline__ void gather(float (&x)[kCount]) {
    if constexpr (kTogether <= kLanes) {
      constexpr int kHalf = kCount * kTogether / (2 * kLanes);
#pragma unroll
      for (int i = 0; i < kHalf; ++i) x[kHalf + i] = __shfl_xor_sync(0xffffffffu, x[i], kTogether / 2 * kStride);
      gather<kTogether * 2>(x);
    }
  }
  template <class Op = Sum>
  static __device__ __forceinline__ void reduce(float (&x)[kCount]) {
    scatter<Op>(x);
    gather(x);
  }
};

/// The first argument for the rows, the second for the columns.
template <bool kRows, class Rows, class Columns>
__device__ __forceinline__ auto& side_of(Rows& rows, Columns& columns) {
  if constexpr (kRows) {
    return rows;
  } else {
    return columns;
  }
}

/// The result of Op over the x of all lanes of the team, on each of them: an all-reduce.
template <class L, class Op>
__device__ __forceinline__ float over_lanes(float x) {
#pragma unroll
  for (int mask = 1; mask < L::kLanes && mask < 32; mask *= 2) x = Op::apply(x, __shfl_xor_sync(0xffffffffu, x, mask));
  float all[1] = {x};
  over_warps<L, Op, 1>(all);
  return all[0];
}

/// Whether x holds on all lanes of the team, or on any.
template <class L>
__device__ __forceinline__ bool all_of_team(bool x) {
  return L::kWarps == 1 ? __all_sync(0xffffffffu, x) : __syncthreads_and(x);
}
template <class L>
__device__ __forceinline__ bool any_of_team(bool x) {
  return L::kWarps == 1 ? __any_sync(0xffffffffu, x) : __syncthreads_or(x);
}

/// Whether x holds on all lanes of the matrix.
template <class L>
__device__ __forceinline__ bool all_of_matrix(bool x) {
  if constexpr (L::kPerTeam == 1) {
    return all_of_team<L>(x);
  } else {
    constexpr unsigned kAll = 0xffffffffu >> (32 - L::kLanes);
    unsigned const first = threadIdx.x % 32 / L::kLanes * L::kLanes;
    return (__ballot_sync(0xffffffffu, x) >> first & kAll) == kAll;
  }
}

/// Whether x holds on any lane that must take the same branch as this one. A lane that has a matrix to itself takes its
/// own.
template <class L>
__device__ __forceinline__ bool any_lane(bool x) {
  return L::kLanes == 1 ? x : any_of_team<L>(x);
}

/// K, scalings and weights. kPadded: the matrix may be smaller than the tile; `arguments` has its n and m.
template <class L, ProjectionMode kMode, bool kPadded>
struct Tile {
  static constexpr int R = L::R, C = L::C;
  static constexpr bool kPlain = kMode == ProjectionMode::plain;
  static constexpr bool kGuarded = kMode == ProjectionMode::guarded;
  static constexpr bool kLog = kMode == ProjectionMode::log_domain;
  static constexpr bool kGeneral = kMode == ProjectionMode::general || kLog;

  ProjectionArguments const& arguments;
  SumTargets const* marginals;
  TilePlace<L> place;
  float k[R][C];                            // The kernel; in the log domain logits, base 2.
  float u[R], v[C];                         // Scalings; in the log domain potentials, base 2.
  float w[L::kOwnRows], z[L::kOwnColumns];  // Factors of eps, for this lane's share.
  bool done = false;
  int count = 0;

  __device__ __forceinline__ Tile(ProjectionArguments const& a, SumTargets const* m) : arguments(a), marginals(m) {}

  template <bool kRows>
  __device__ __forceinline__ float& at(int own, int other) {
    return kRows ? k[own][other] : k[other][own];
  }
  template <bool kRows>
  __device__ __forceinline__ float at(int own, int other) const {
    return kRows ? k[own][other] : k[other][own];
  }
  __device__ __forceinline__ bool valid(int r, int c) const {
    return !kPadded || (place.row_of(r) < arguments.rows && place.column_of(c) < arguments.columns);
  }
  template <bool kRows>
  __device__ __forceinline__ float marginal(int i) const {
    int const index = kRows ? place.row_of(i) : place.column_of(i);
    if (kPadded && index >= (kRows ? arguments.rows : arguments.columns)) return 0;
    return kRows ? marginals->a[index] : marginals->b[index];
  }
  /// The scaling without its sign, which marks a clamped sum in general steps.
  __device__ __forceinline__ float bare(float scaling) const { return kGeneral && !kLog ? fabsf(scaling) : scaling; }

  template <class Visit>
  static __device__ __forceinline__ void each(Visit&& visit) {
#pragma unroll
    for (int r = 0; r < R; ++r) {
#pragma unroll
      for (int c = 0; c < C; ++c) visit(r, c);
    }
  }

  /// Turns k from logits into K. The contents of padding do not matter.
  __device__ __forceinline__ void start() {
    bool const positive = arguments.start_positive, softmax = arguments.start_softmax;
#pragma unroll
    for (int r = 0; r < R; ++r) u[r] = kLog ? 0 : 1;
#pragma unroll
    for (int c = 0; c < C; ++c) v[c] = kLog ? 0 : 1;
#pragma unroll
    for (int i = 0; i < L::kOwnRows; ++i) w[i] = 1;
#pragma unroll
    for (int j = 0; j < L::kOwnColumns; ++j) z[j] = 1;
    if (kPadded) {
      each([&](int r, int c) {
        if (!valid(r, c)) k[r][c] = positive ? 0 : -INFINITY;
      });
    }
    if (positive) {
      each([&](int r, int c) {
        if (valid(r, c)) k[r][c] += arguments.matrix_epsilon;
        if constexpr (kLog) k[r][c] = k[r][c] > 0 ? log2f(k[r][c]) : k[r][c] == 0 ? -1e38f : k[r][c];
      });
    } else if constexpr (kLog) {
      float const scale = arguments.inverse_temperature * kLog2E;
      each([&](int r, int c) { k[r][c] *= scale; });
      if (softmax) {
        float lse[R];
        logsumexp<true>(lse);
        TileSide<L, true>::gather(lse);
        each([&](int r, int c) { k[r][c] -= lse[r]; });
      }
    } else if (arguments.columns_first && !softmax && !arguments.start_shifted) {
      start_exp<false>();
    } else {
      start_exp<true>();
    }
  }
  /// K = exp(x - s), s the largest of each row or column; for softmax, divided by its sum.
  template <bool kRows>
  __device__ __forceinline__ void start_exp() {
    using Side = TileSide<L, kRows>;
    constexpr int kOthers = kRows ? C : R;
    bool const softmax = arguments.start_softmax;
    bool const keeps = !softmax && !arguments.start_shifted &&
                       (kPlain ? arguments.matrix_epsilon > 0 : arguments.epsilon > 0 || arguments.matrix_epsilon > 0);
    float const scale = arguments.inverse_temperature * kLog2E;
    float const least_shift = keeps ? kKeptShift : kLeastShift;
    float shift[Side::kCount];
#pragma unroll
    for (int i = 0; i < Side::kCount; ++i) {
      shift[i] = at<kRows>(i, 0);
#pragma unroll
      for (int j = 1; j < kOthers; ++j) shift[i] = fmaxf(shift[i], at<kRows>(i, j));
    }
    Side::template reduce<Maximum>(shift);
#pragma unroll
    for (int i = 0; i < Side::kCount; ++i) {
      shift[i] = fmaxf(shift[i] * scale, least_shift);
#pragma unroll
      for (int j = 0; j < kOthers; ++j) {
        float& entry = at<kRows>(i, j);
        entry = fast_exp2(fmaf(entry, scale, -shift[i]));
      }
    }
    float kept[Side::kCount], factor[Side::kCount];
#pragma unroll
    for (int i = 0; i < Side::kCount; ++i) kept[i] = factor[i] = 1;
    if (keeps) {
#pragma unroll
      for (int i = 0; i < Side::kCount; ++i) {
        kept[i] = fast_exp2(-shift[i]);
        if (!kPlain && i < Side::kOwn) side_of<kRows>(w, z)[i < Side::kOwn ? i : 0] = kept[i];
      }
    }
    if (softmax) {
#pragma unroll
      for (int i = 0; i < Side::kCount; ++i) {
        factor[i] = kLeastSum;
#pragma unroll
        for (int j = 0; j < kOthers; ++j) factor[i] += at<kRows>(i, j);
      }
      Side::reduce(factor);
#pragma unroll
      for (int i = 0; i < Side::kCount; ++i) factor[i] = fast_reciprocal(factor[i]);
    }
    if (!softmax && !(arguments.matrix_epsilon > 0)) return;
#pragma unroll
    for (int i = 0; i < Side::kCount; ++i) {
#pragma unroll
      for (int j = 0; j < kOthers; ++j) {
        bool const inside = kRows ? valid(i, j) : valid(j, i);
        at<kRows>(i, j) = fmaf(at<kRows>(i, j), factor[i], inside ? arguments.matrix_epsilon * kept[i] : 0.0f);
      }
    }
  }

  /// The logsumexps of this lane's share, in the first entries of `result`.
  template <bool kRows>
  __device__ __forceinline__ void logsumexp(float (&result)[kRows ? R : C]) {
    using Side = TileSide<L, kRows>;
    constexpr int kOthers = kRows ? C : R;
    auto const& other = side_of<!kRows>(u, v);
    float largest[Side::kCount];
#pragma unroll
    for (int i = 0; i < Side::kCount; ++i) {
      largest[i] = kLeastShift;
#pragma unroll
      for (int j = 0; j < kOthers; ++j) largest[i] = fmaxf(largest[i], at<kRows>(i, j) + other[j]);
    }
    Side::template reduce<Maximum>(largest);
#pragma unroll
    for (int i = 0; i < Side::kCount; ++i) {
      result[i] = kLeastSum;
#pragma unroll
      for (int j = 0; j < kOthers; ++j) result[i] += fast_exp2((at<kRows>(i, j) + other[j]) - largest[i]);
    }
    Side::scatter(result);
#pragma unroll
    for (int i = 0; i < Side::kOwn; ++i) result[i] = largest[i] + fast_log2(result[i]);
  }

  template <bool kRows>
  __device__ __forceinline__ void step(bool check = false) {
    using Side = TileSide<L, kRows>;
    auto& own = side_of<kRows>(u, v);
    auto& weight = side_of<kRows>(w, z);
    float q[Side::kCount];
    if constexpr (kLog) {
      logsumexp<kRows>(q);
    } else {
      auto const& other = side_of<!kRows>(u, v);
#pragma unroll
      for (int i = 0; i < Side::kCount; ++i) {
        q[i] = kLeastSum;
        if constexpr (kGuarded && Side::kLanes == 1) q[i] = fmaf(arguments.epsilon, weight[i], kLeastSum);
      }
      // The last of the lane's own sums comes after the fence, beside the exchange of the others.
      auto const add = [&](bool last) {
#pragma unroll
        for (int j = 0; j < (kRows ? C : R); ++j) {
#pragma unroll
          for (int i = 0; i < Side::kCount; ++i) {
            if ((i == Side::kOwn - 1) == last) q[i] = fmaf(at<kRows>(i, j), bare(other[j]), q[i]);
          }
        }
      };
      add(false);
      if constexpr (L::N > 4) schedule_fence();
      add(true);
      Side::scatter(q);
      if constexpr (kGuarded) {
#pragma unroll
        for (int i = 0; i < Side::kOwn; ++i) {
          if constexpr (Side::kLanes > 1) q[i] = fmaf(arguments.epsilon, weight[i], q[i]);
          weight[i] = arguments.scaling ? weight[i] : q[i];
        }
      }
    }
    if constexpr (!kGeneral) {
#pragma unroll
      for (int i = 0; i < Side::kOwn; ++i) own[i] = fast_reciprocal(q[i]);
      Side::gather(own);
    } else {
      finish<kRows>(q, check);
    }
  }
  /// From sums, or logsumexps, to scalings, with marginals and every eps mode; with `check`, a matrix whose sums are
  /// within the tolerance keeps its scalings.
  template <bool kRows>
  __device__ __forceinline__ void finish(float const (&q)[kRows ? R : C], bool check) {
    using Side = TileSide<L, kRows>;
    auto& own = side_of<kRows>(u, v);
    auto& weight = side_of<kRows>(w, z);
    float next[Side::kCount], next_weight[Side::kOwn], error = 0;
#pragma unroll
    for (int i = 0; i < Side::kOwn; ++i) {
      float const target = marginal<kRows>(i);
      float off = 0;
      if constexpr (kLog) {
        next[i] = log2f(target) - q[i];
        if (check) off = fabsf(fast_exp2(own[i] - next[i]) - 1);
      } else {
        float const inverse = inverse_or_zero(target), rest = arguments.epsilon * weight[i];
        if (check) off = fabsf(fmaf(q[i] * bare(own[i]), inverse, -1.0f));
        bool const clamped = arguments.clamp && q[i] < rest;
        float const divisor = arguments.clamp ? (clamped ? rest : q[i]) : q[i] + rest;
        next[i] = target * fast_reciprocal(divisor);
        if (clamped) next[i] = -next[i];
        next_weight[i] = divisor * inverse;
      }
      if (target > 0) error = off <= 3e38f ? fmaxf(error, off) : INFINITY;
    }
    if (check) {
      float const worst = over_lanes<L, Maximum>(error);
      done = done || worst <= arguments.tolerance;
    }
    Side::gather(next);
    if (done) return;
#pragma unroll
    for (int i = 0; i < Side::kCount; ++i) own[i] = next[i];
    if constexpr (!kLog) {
#pragma unroll
      for (int i = 0; i < Side::kOwn; ++i) weight[i] = arguments.scaling ? weight[i] : next_weight[i];
    }
  }

  /// `to` = the u that a row step makes of the v in `from`. Overwrites u and v of the tile.
  __device__ __forceinline__ void row_scalings(float const (&from)[C], float (&to)[R]) {
#pragma unroll
    for (int c = 0; c < C; ++c) v[c] = from[c];
    step<true>();
#pragma unroll
    for (int r = 0; r < R; ++r) to[r] = u[r];
  }

  /// Does all half-steps. Calls between(pair) after the row step of a pair, with the new u and its v.
  template <class Between>
  __device__ __forceinline__ void iterate(Between&& between) {
    bool const checks = kGeneral && arguments.tolerance > 0;
    if (arguments.lead) step<false>();
#pragma unroll 1
    for (int pair = 0; pair < arguments.pairs; ++pair) {
      step<true>(checks && !arguments.columns_first && (pair > 0 || arguments.lead));
      between(pair);
      step<false>(checks && arguments.columns_first);
      if constexpr (kGeneral) {
        if (!done) ++count;
        if (checks && !any_lane<L>(!done)) break;
      }
    }
    if (arguments.trail) step<true>();
  }

  /// Does the half-steps, except those that would not change the result. A pair of half-steps moves log v, in its
  /// largest entry, no further than the pair before, because half-steps are monotone and homogeneous (Thompson's
  /// metric; Lemmens and Nussbaum, Nonlinear Perron-Frobenius Theory, 2012). A matrix is settled when the pairs that
  /// are left, at the pace of the last few, would move log v by at most 2^-21, and so log P by at most twice that. It
  /// then keeps its scalings while its team goes on. When it settles depends on no other matrix.
  __device__ __forceinline__ void iterate_until_settled() {
    constexpr float kSettled = 0x1p-21f;
    constexpr int kLeastPairs = 16, kFirstLook = 10, kFewPairs = 3;
    int const pairs = arguments.trail ? arguments.pairs : arguments.pairs - 1;
    float kept[L::kOwnColumns];
#pragma unroll
    for (int j = 0; j < L::kOwnColumns; ++j) kept[j] = INFINITY;
    bool settled = false;
    int pair = 0, few = kFewPairs, next = pairs < kLeastPairs ? pairs : kFirstLook;
    if (arguments.lead) step<false>();
    for (;;) {
#pragma unroll 1
      for (; pair < next; ++pair) {
        step<true>();
        step<false>();
      }
      if (pair == pairs) break;
      float const most = kSettled * few * fast_reciprocal(static_cast<float>(pairs - pair));
      bool close = true;
#pragma unroll
      for (int j = 0; j < L::kOwnColumns; ++j) {
        close = close && fabsf(v[j] - kept[j]) <= most * v[j];
        kept[j] = settled ? kept[j] : v[j];
      }
      settled = all_of_matrix<L>(close) || settled;
      if (all_of_team<L>(settled)) break;
      few = max(kFewPairs, pair / 4);
      next = min(pair + few, pairs);
    }
#pragma unroll
    for (int j = 0; j < L::kOwnColumns; ++j) v[j] = settled ? kept[j] : v[j];
    TileSide<L, false>::gather(v);
    step<true>();
    if (!arguments.trail) step<false>();
  }

  __device__ __forceinline__ float entry(int r, int c) const {
    if constexpr (kLog) return fast_exp2(k[r][c] + u[r] + v[c]);
    return bare(u[r]) * k[r][c] * bare(v[c]);
  }
};

}  // namespace monge::cuda
