// The half-steps of Tile undone, in registers. D, ub and vb are the gradients in K, u and v. Undoing a row step is
//   r_i = -ub_i u_i^2 / a_i + c_i;   D += r v';   vb += K' r;   c_i = eps r_i / a_i
// r_i is the gradient in the sum of row i. The new c_i is the gradient that it passes on to the same sum one row step
// earlier. For a column step rows and columns are exchanged. A lane holds the gradients in its own share.
#pragma once
#include <algorithm>

#include "cuda/projection/device/ratio.cuh"

namespace monge::cuda {

/// The scalings that the half-steps made, kept for the way back. A pair of half-steps has one slot. It holds the v that
/// the pair began with and, if kBoth, the u that its row step made; without kBoth that u is computed again. Each lane
/// writes its own share in chunks of 16 bytes: the first chunks of all lanes of the team come first, then the second
/// ones. The history is in shared memory if kShared: memory() then names the array itself, for the compiler to know
/// that. Otherwise it is in global memory, or in shared memory where there is no global one.
template <class L, bool kShared, bool kBoth_ = true>
struct TileHistory {
  static constexpr bool kBoth = kBoth_;
  static constexpr int kSlot = (L::kOwnColumns + (kBoth ? L::kOwnRows : 0) + 3) / 4 * 4;  // Floats of a lane in a slot.
  int offset = 0;  // Start of this lane's part of shared memory, in floats.
  float* any = nullptr;

  /// Chunks of 16 bytes that a team needs: for the steps of Tile and, at 4 x 4, for those of CrossRatioGradient, which
  /// uses the same memory.
  static std::int64_t chunks(ProjectionArguments const& arguments) {
    std::int64_t const pairs = std::int64_t{arguments.pairs} + (arguments.lead ? 1 : 0);
    std::int64_t const ratios = L::N == 4 ? CrossRatioGradient<4, false>::history_floats(pairs) : 0;
    return L::kThreads / 4 * std::max(kSlot * pairs, ratios);
  }
  __device__ __forceinline__ void place(float* global_memory, int shared_chunk, std::int64_t team_of_grid,
                                        std::int64_t history_chunks) {
    int const lane = static_cast<int>(threadIdx.x) % L::kThreads;
    offset = 4 * (shared_chunk + lane);
    if constexpr (!kShared) {
      bool const is_global = global_memory != nullptr;
      any = is_global ? global_memory + 4 * (team_of_grid * history_chunks + lane) : shared();
    }
  }
  __device__ __forceinline__ float* shared() const {
    extern __shared__ float4 shared_memory[];
    return reinterpret_cast<float*>(shared_memory) + offset;
  }
  /// This lane's first chunk.
  __device__ __forceinline__ float* memory() const { return kShared ? shared() : any; }
  template <int kCount>
  static __device__ __forceinline__ void write(float* at, float const (&x)[kCount]) {
    static_assert(kCount % 4 == 0);
#pragma unroll
    for (int i = 0; i < kCount; i += 4)
      *reinterpret_cast<float4*>(at + L::kThreads * i) = make_float4(x[i], x[i + 1], x[i + 2], x[i + 3]);
  }
  template <int kCount>
  static __device__ __forceinline__ void read(float const* at, float (&x)[kCount]) {
    static_assert(kCount % 4 == 0);
#pragma unroll
    for (int i = 0; i < kCount; i += 4) {
      float4 const four = *reinterpret_cast<float4 const*>(at + L::kThreads * i);
      x[i] = four.x, x[i + 1] = four.y, x[i + 2] = four.z, x[i + 3] = four.w;
    }
  }
  __device__ __forceinline__ void keep(int pair, float const (&v)[L::C], float const (&u)[L::R]) const {
    float x[kSlot];
#pragma unroll
    for (int i = 0; i < kSlot; ++i) x[i] = i < L::kOwnColumns ? v[i % L::C] : u[(i - L::kOwnColumns) % L::R];
    write(memory() + std::int64_t{L::kThreads * kSlot} * pair, x);
  }
  __device__ __forceinline__ void recall(int pair, float (&v)[L::C], float (&u)[L::R]) const {
    float x[kSlot];
    read(memory() + std::int64_t{L::kThreads * kSlot} * pair, x);
#pragma unroll
    for (int j = 0; j < L::kOwnColumns; ++j) v[j] = x[j];
#pragma unroll
    for (int i = 0; i < L::kOwnRows && kBoth; ++i) u[i] = x[(L::kOwnColumns + i) % kSlot];
    TileSide<L, false>::gather(v);
    if constexpr (kBoth) TileSide<L, true>::gather(u);
  }
};

template <class L, ProjectionMode kMode, bool kPadded>
struct TileAdjoint {
  static constexpr int R = L::R, C = L::C;
  static constexpr bool kPlain = kMode == ProjectionMode::plain;
  static constexpr bool kLog = kMode == ProjectionMode::log_domain;
  static constexpr bool kGeneral = kMode == ProjectionMode::general || kLog;
  using Forward = Tile<L, kMode, kPadded>;

  Forward& tile;
  float (&d)[R][C];                           // First d_out, then the gradient in K (log domain: in the logits).
  float ub[L::kOwnRows], vb[L::kOwnColumns];  // Gradients in u and v (log domain: in the potentials).
  float rc[L::kOwnRows], cc[L::kOwnColumns];  // c of the rows and of the columns.

  __device__ __forceinline__ TileAdjoint(Forward& forward, float (&gradient)[R][C]) : tile(forward), d(gradient) {}

  template <bool kRows>
  __device__ __forceinline__ float& at(int own, int other) {
    return kRows ? d[own][other] : d[other][own];
  }

  __device__ __forceinline__ void seed() {
    float rows[R], columns[C];
#pragma unroll
    for (int r = 0; r < R; ++r) rows[r] = 0;
#pragma unroll
    for (int c = 0; c < C; ++c) columns[c] = 0;
    Forward::each([&](int r, int c) {
      float const g = d[r][c];
      if constexpr (kLog) {
        d[r][c] = g * tile.entry(r, c);
        rows[r] += d[r][c];
        columns[c] += d[r][c];
      } else {
        float const gk = g * tile.k[r][c], ur = tile.bare(tile.u[r]), vc = tile.bare(tile.v[c]);
        rows[r] = fmaf(gk, vc, rows[r]);
        columns[c] = fmaf(gk, ur, columns[c]);
        d[r][c] = g * (ur * vc);
      }
    });
    TileSide<L, true>::scatter(rows);
    TileSide<L, false>::scatter(columns);
#pragma unroll
    for (int i = 0; i < L::kOwnRows; ++i) ub[i] = rows[i], rc[i] = 0;
#pragma unroll
    for (int j = 0; j < L::kOwnColumns; ++j) vb[j] = columns[j], cc[j] = 0;
  }

  /// From the gradient in a scaling to the gradient in its sum, r_i. Stores the next c_i. In the log domain the result
  /// is minus the gradient in the logsumexp, over the marginal.
  template <bool kRows>
  __device__ __forceinline__ float sum_gradient(int i, float scaling, bool active) {
    float& bar = side_of<kRows>(ub, vb)[i];
    float& chain = side_of<kRows>(rc, cc)[i];
    float const given = bar;
    if constexpr (kPlain) {
      bar = 0;
      return -(given * scaling) * scaling;
    } else if constexpr (kLog) {
      float const target = tile.template marginal<kRows>(i);
      if (!active || !(target > 0)) return 0;
      bar = 0;
      return given * inverse_or_zero(target);
    } else if constexpr (!kGeneral) {
      bar = 0;
      float const q = fmaf(-(given * scaling), scaling, chain);
      chain = tile.arguments.scaling ? 0.0f : tile.arguments.epsilon * q;
      return q;
    } else {
      if (!active) return 0;
      float const inverse = inverse_or_zero(tile.template marginal<kRows>(i));
      float const q = fmaf(-(given * scaling) * scaling, inverse, chain);
      bool const clamped = tile.arguments.clamp && scaling < 0;
      bool const flows = tile.arguments.clamp ? clamped : !tile.arguments.scaling;
      bar = 0;
      chain = flows ? q * tile.arguments.epsilon * inverse : 0.0f;
      return clamped ? 0.0f : q;
    }
  }

  /// Undoes one half-step: `own` are the scalings that it made, `other` those that it used.
  template <bool kRows>
  __device__ __forceinline__ void back(float const (&own)[kRows ? R : C], float const (&other)[kRows ? C : R],
                                       bool active) {
    using Own = TileSide<L, kRows>;
    using Other = TileSide<L, !kRows>;
    float q[Own::kCount], sum[Other::kCount];
#pragma unroll
    for (int i = 0; i < Own::kOwn; ++i) q[i] = sum_gradient<kRows>(i, own[i], active);
    Own::gather(q);
    auto& bar = side_of<!kRows>(ub, vb);
#pragma unroll
    for (int j = 0; j < Other::kCount; ++j) sum[j] = Other::kLanes == 1 ? bar[j % Other::kOwn] : 0;
    auto const add = [&](bool last) {
#pragma unroll
      for (int i = 0; i < Own::kCount; ++i) {
#pragma unroll
        for (int j = 0; j < Other::kCount; ++j) {
          if ((j == Other::kOwn - 1) != last) continue;
          float const k = tile.template at<kRows>(i, j);
          if constexpr (kLog) {
            float const flow = q[i] == 0 ? 0.0f : q[i] * fast_exp2(k + other[j] + own[i]);
            at<kRows>(i, j) -= flow;
            sum[j] -= flow;
          } else {
            at<kRows>(i, j) = fmaf(q[i], tile.bare(other[j]), at<kRows>(i, j));
            sum[j] = fmaf(q[i], k, sum[j]);
          }
        }
      }
    };
    add(false);
    if constexpr (L::N > 4) schedule_fence();
    add(true);
    Other::scatter(sum);
#pragma unroll
    for (int j = 0; j < Other::kOwn; ++j) bar[j] = Other::kLanes == 1 ? sum[j] : bar[j] + sum[j];
  }

  /// Undoes all half-steps. Lanes that are `fixed` instead undo one pair at the last scalings again and again until the
  /// terms vanish, which gives the gradient of the limit.
  template <class History>
  __device__ __forceinline__ void unwind(History const& history, bool fixed) {
    ProjectionArguments const& arguments = tile.arguments;
    float v_after[C], v_before[C], own_u[R];
#pragma unroll
    for (int c = 0; c < C; ++c) v_after[c] = tile.v[c];
    if (arguments.trail) back<true>(tile.u, tile.v, true);
    int pairs = arguments.pairs;
    if constexpr (kGeneral)
      pairs = L::kLanes == 1 || L::kPerTeam == 1 ? tile.count
                                                 : __reduce_max_sync(0xffffffffu, static_cast<unsigned>(tile.count));
#pragma unroll 1
    for (int pair = pairs - 1; pair >= 0; --pair) {
      bool const active = !kGeneral || (pair < tile.count && !fixed);
      history.recall(pair, v_before, own_u);
      if constexpr (!History::kBoth) tile.row_scalings(v_before, own_u);
      back<false>(v_after, own_u, active);
      back<true>(own_u, v_before, active);
#pragma unroll
      for (int c = 0; c < C; ++c) v_after[c] = active ? v_before[c] : v_after[c];
    }
    if (arguments.lead) {
      float start[R];
#pragma unroll
      for (int r = 0; r < R; ++r) start[r] = kLog ? 0.0f : 1.0f;
      back<false>(v_after, start, !fixed);
    }
    if constexpr (kGeneral) {
      if (arguments.implicit && any_lane<L>(fixed)) unwind_limit(fixed);
    }
  }
  __device__ __forceinline__ void unwind_limit(bool active) {
    int const most = 10 * (tile.arguments.pairs + 1) + 100;
    bool const fixed = active;
#pragma unroll 1
    for (int step = 0; step < most && any_lane<L>(active); ++step) {
      float before = 0, after = 0;
      Forward::each([&](int r, int c) { before = fmaxf(before, fabsf(d[r][c] * (kLog ? 1.0f : tile.k[r][c]))); });
      if (fixed) {
#pragma unroll
        for (int j = 0; j < L::kOwnColumns; ++j) cc[j] = 0;
#pragma unroll
        for (int i = 0; i < L::kOwnRows; ++i) rc[i] = 0;
      }
      back<false>(tile.v, tile.u, active);
#pragma unroll
      for (int i = 0; i < L::kOwnRows; ++i) rc[i] = 0;
      back<true>(tile.u, tile.v, active);
#pragma unroll
      for (int j = 0; j < L::kOwnColumns; ++j) after = fmaxf(after, fabsf(kLog ? vb[j] : vb[j] * tile.bare(tile.v[j])));
      before = over_lanes<L, Maximum>(before);
      after = over_lanes<L, Maximum>(after);
      if (after <= 1e-8f * before || after <= 1e-30f) active = false;
    }
  }

  /// Whether the sums of the side that goes first are within the implicit tolerance; all lanes of a matrix agree.
  __device__ __forceinline__ bool converged() const {
    return tile.arguments.columns_first ? converged<false>() : converged<true>();
  }
  template <bool kRows>
  __device__ __forceinline__ bool converged() const {
    using Side = TileSide<L, kRows>;
    float sum[Side::kCount], error = 0;
#pragma unroll
    for (int i = 0; i < Side::kCount; ++i) {
      sum[i] = 0;
#pragma unroll
      for (int j = 0; j < (kRows ? C : R); ++j) sum[i] += kRows ? tile.entry(i, j) : tile.entry(j, i);
    }
    Side::scatter(sum);
#pragma unroll
    for (int i = 0; i < Side::kOwn; ++i) {
      float const target = tile.template marginal<kRows>(i);
      float const off = fabsf(sum[i] * inverse_or_zero(target) - 1);
      if (target > 0) error = fmaxf(error, sum[i] == sum[i] ? off : 1e30f);
    }
    return over_lanes<L, Maximum>(error) <= tile.arguments.implicit_tolerance;
  }

  /// Turns d from the gradient in K into the gradient in the input. row_kept and column_kept hold e^{-s}, s the shift
  /// of the side that goes first; they are read where an eps was added to K.
  __device__ __forceinline__ void finish(float const (&row_kept)[R], float const (&column_kept)[C]) {
    ProjectionArguments const& arguments = tile.arguments;
    bool const softmax = arguments.start_softmax, shifted = arguments.start_shifted && !kLog;
    float const scale = arguments.inverse_temperature;
    if (arguments.start_positive) {
      Forward::each([&](int r, int c) {
        if constexpr (kLog) d[r][c] *= fast_exp2(fminf(-tile.k[r][c], 126.0f));
        d[r][c] *= scale;
      });
      return;
    }
    // K without the added eps.
    auto const pure = [&](int r, int c) {
      if constexpr (kLog) return softmax ? fast_exp2(tile.k[r][c]) : 1.0f;
      if (!(arguments.matrix_epsilon > 0) || !tile.valid(r, c)) return tile.k[r][c];
      float const kept = softmax || arguments.start_shifted ? 1.0f
                         : arguments.columns_first          ? column_kept[c]
                                                            : row_kept[r];
      return fmaxf(fmaf(-arguments.matrix_epsilon, kept, tile.k[r][c]), 0.0f);
    };
    float sum[R], largest[R];
#pragma unroll
    for (int r = 0; r < R; ++r) {
      sum[r] = 0;
      largest[r] = -1;
#pragma unroll
      for (int c = 0; c < C; ++c) {
        float const k = pure(r, c);
        if (!kLog && !softmax) d[r][c] = gradient_product(d[r][c], k);
        sum[r] += !kLog && softmax ? gradient_product(d[r][c], k) : d[r][c];
        largest[r] = fmaxf(largest[r], k);
      }
    }
    if (softmax) {
      TileSide<L, true>::reduce(sum);
      Forward::each([&](int r, int c) {
        d[r][c] = kLog ? fmaf(-pure(r, c), sum[r], d[r][c]) : gradient_product(d[r][c] - sum[r], pure(r, c));
      });
    } else if (shifted) {  // The shift is the row's largest: the first such entry gets its gradient.
      TileSide<L, true>::reduce(sum);
      TileSide<L, true>::template reduce<Maximum>(largest);
      float at[R];
#pragma unroll
      for (int r = 0; r < R; ++r) at[r] = 1e9f;
      Forward::each([&](int r, int c) {
        if (pure(r, c) == largest[r]) at[r] = fminf(at[r], static_cast<float>(tile.place.column_of(c)));
      });
      TileSide<L, true>::template reduce<Minimum>(at);
      Forward::each([&](int r, int c) {
        if (static_cast<float>(tile.place.column_of(c)) == at[r]) d[r][c] -= sum[r];
      });
    }
    Forward::each([&](int r, int c) { d[r][c] *= scale; });
  }
};

}  // namespace monge::cuda
