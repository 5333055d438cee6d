// Projection and its adjoint with a matrix in the registers of one lane or of a few.
//
// Forward: P = diag(u) K diag(v). 8 n m bytes a matrix of float32; 2 n m multiply-adds and n + m reciprocals an
// iteration; at n = 4 and 20 iterations multiplier, special function unit and memory are all within 20 % of each other
// on Hopper. Backward: the scalings are recomputed and kept (4 (R + C) bytes a lane and iteration, in shared memory
// unless that is too small), then the half-steps are undone: 4 n m multiply-adds more an iteration. 12 n m bytes a
// matrix. A warp moves its matrices in 16-byte pieces, in order, through shared memory.
#pragma once
#include <type_traits>

#include "cuda/device/projection_elements.cuh"
#include "cuda/device/projection_tile.cuh"

namespace monge::cuda {

/// This lane's chunks of a warp's matrices in memory order: chunk i of the lane is chunk 32 i + lane of the warp.
template <class L, class Visit>
__device__ __forceinline__ void for_each_chunk(BatchArguments const& view, std::int64_t first, std::int64_t batch,
                                               Visit&& visit) {
  constexpr int kPerMatrix = L::N * L::M / 4, kPerRow = L::M / 4;
  int const lane = static_cast<int>(threadIdx.x) % 32;
  int const lane_matrix = lane / kPerMatrix, lane_row = lane % kPerMatrix / kPerRow, lane_column = lane % kPerRow;
  std::int64_t const offset = (first + lane_matrix) * view.batch_stride + lane_row * view.row_stride + 4 * lane_column;
#pragma unroll
  for (int i = 0; i < L::kChunks; ++i) {
    int const matrix = 32 * i / kPerMatrix, row = 32 * i % kPerMatrix / kPerRow;
    bool const inside = first + lane_matrix + matrix < batch;
    visit(i, offset + matrix * view.batch_stride + row * view.row_stride, inside);
  }
}

template <class L>
__device__ __forceinline__ void fetch(BatchArguments const& view, std::int64_t first, std::int64_t batch,
                                      float4 (&chunk)[L::kChunks]) {
  with_format(view, [&](auto const* data) {
    for_each_chunk<L>(view, first, batch, [&](int i, std::int64_t at, bool inside) {
      chunk[i] = inside ? load_four(data + at) : make_float4(0, 0, 0, 0);
    });
  });
}

template <class L>
__device__ __forceinline__ void to_shared(float4* shared, float4 const (&chunk)[L::kChunks]) {
  int const lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int i = 0; i < L::kChunks; ++i) shared[L::swizzled(32 * i + lane)] = chunk[i];
}

/// The chunk of this lane's row r, columns 4 c ..
template <class L>
__device__ __forceinline__ int tile_chunk(TilePlace<L> const& place, int r, int c) {
  return L::swizzled((place.matrix * L::N + place.row + r) * (L::M / 4) + place.column / 4 + c);
}

template <class L>
__device__ __forceinline__ void from_shared(float (&k)[L::R][L::C], float4 const* shared, TilePlace<L> const& place) {
#pragma unroll
  for (int r = 0; r < L::R; ++r) {
#pragma unroll
    for (int c = 0; c < L::C / 4; ++c) {
      float4 const four = shared[tile_chunk<L>(place, r, c)];
      k[r][4 * c] = four.x;
      k[r][4 * c + 1] = four.y;
      k[r][4 * c + 2] = four.z;
      k[r][4 * c + 3] = four.w;
    }
  }
}

/// value(r, c) of every lane to the warp's matrices.
template <class L, class Value>
__device__ __forceinline__ void write_tile(BatchArguments const& view, std::int64_t first, std::int64_t batch,
                                           float4* shared, TilePlace<L> const& place, Value&& value) {
  __syncwarp();
#pragma unroll
  for (int r = 0; r < L::R; ++r) {
#pragma unroll
    for (int c = 0; c < L::C; c += 4)
      shared[tile_chunk<L>(place, r, c / 4)] =
          make_float4(value(r, c), value(r, c + 1), value(r, c + 2), value(r, c + 3));
  }
  __syncwarp();
  int const lane = static_cast<int>(threadIdx.x) % 32;
  with_format(view, [&](auto* data) {
    for_each_chunk<L>(view, first, batch, [&](int i, std::int64_t at, bool inside) {
      if (inside) store_four(data + at, shared[L::swizzled(32 * i + lane)]);
    });
  });
}

/// Element by element, for shapes and strides that have no 16-byte pieces; outside of rows x columns: `other`.
template <class L>
__device__ __forceinline__ void read_elements(float (&k)[L::R][L::C], BatchArguments const& view, std::int64_t matrix,
                                              bool inside, int rows, int columns, float other,
                                              TilePlace<L> const& place) {
#pragma unroll
  for (int r = 0; r < L::R; ++r) {
#pragma unroll
    for (int c = 0; c < L::C; ++c) {
      int const i = place.row + r, j = place.column + c;
      k[r][c] = inside && i < rows && j < columns
                    ? load_element(view, matrix * view.batch_stride + i * view.row_stride + j)
                    : other;
    }
  }
}
template <class L, class Value>
__device__ __forceinline__ void write_elements(BatchArguments const& view, std::int64_t matrix, bool inside, int rows,
                                               int columns, TilePlace<L> const& place, Value&& value) {
#pragma unroll
  for (int r = 0; r < L::R; ++r) {
#pragma unroll
    for (int c = 0; c < L::C; ++c) {
      int const i = place.row + r, j = place.column + c;
      float const x = value(r, c);
      if (inside && i < rows && j < columns)
        store_element(view, matrix * view.batch_stride + i * view.row_stride + j, x);
    }
  }
}

template <class L>
inline constexpr int kTileBytes = 32 * L::R* L::C * 4;  // Of a warp's staging memory.

/// The kernels of sums that are all 1 get none: 2 KiB of arguments cost time at every launch.
struct NoMarginals {
  __host__ __device__ explicit NoMarginals(ProjectionMarginals const&) {}
};
template <ProjectionMode kMode>
using MarginalsOf = std::conditional_t<kMode == ProjectionMode::plain || kMode == ProjectionMode::guarded, NoMarginals,
                                       ProjectionMarginals>;
__device__ __forceinline__ ProjectionMarginals const* pointer_to(ProjectionMarginals const& marginals) {
  return &marginals;
}
__device__ __forceinline__ ProjectionMarginals const* pointer_to(NoMarginals const&) {
  return nullptr;
}

/// 4 x 4, plain, from the logits to the output, in the form with fewest operations. Dividing K_ij by K_i0 K_0j / K_00
/// makes its first row and column 1, so a half-step has 12 additions or multiply-adds instead of 16; the scalings that
/// start as 1 start as K_0j (or K_i0) instead, and the iterates are the same matrices. No maximum is needed: the
/// differences of the logits are the shift. Only the proportions of a scaling matter, so all but the last are taken
/// with the first entry 1: two reciprocals. run() returns false, having done nothing, where the differences are too
/// large (or not numbers) for that.
struct CrossRatio {
  /// L, base 2: with entries and proportions in [2^-L, 2^L], one of each 1, sums are in [1, 2^(2L + 2)] and their
  /// products fit.
  static constexpr float kLargest = 30;
  float k[3][3];
  float u[4], v[4];

  /// (x0 .. x3) -> sums of one side's half-step.
  template <bool kTransposed>
  __device__ __forceinline__ void sums(float (&q)[4], float const (&x)[4]) const {
    q[0] = (x[0] + x[1]) + (x[2] + x[3]);
#pragma unroll
    for (int i = 0; i < 3; ++i) {
      q[i + 1] = x[0];
#pragma unroll
      for (int j = 0; j < 3; ++j) q[i + 1] = fmaf(kTransposed ? k[j][i] : k[i][j], x[j + 1], q[i + 1]);
    }
  }
  /// x = q_0 / q.
  static __device__ __forceinline__ void proportions(float (&x)[4], float const (&q)[4]) {
    float const t = q[0] * fast_reciprocal(q[1] * q[2]);
    x[0] = 1;
    x[1] = t * q[2];
    x[2] = t * q[1];
    x[3] = q[0] * fast_reciprocal(q[3]);
  }

  __device__ __forceinline__ bool run(float (&x)[4][4], ProjectionArguments const& arguments) {
    float const scale = arguments.inverse_temperature * kLog2E;
    float row[4], column[4], largest = 0;
#pragma unroll
    for (int j = 0; j < 4; ++j) column[j] = (x[0][j] - x[0][0]) * scale;
#pragma unroll
    for (int i = 0; i < 4; ++i) row[i] = x[i][0] * scale;
    float t[3][3];
#pragma unroll
    for (int i = 0; i < 3; ++i) {
#pragma unroll
      for (int j = 0; j < 3; ++j) {
        t[i][j] = fmaf(x[i + 1][j + 1], scale, -(row[i + 1] + column[j + 1]));
        largest = fmaxf(largest, fabsf(t[i][j]));
      }
      largest = fmaxf(largest, fmaxf(fabsf(column[i + 1]), fabsf(row[i + 1] - row[0])));
    }
    // A NaN passes fmaxf; it reaches the result through K. One in the first row or column is looked for.
    float const edge = (row[0] + row[1]) + (row[2] + row[3]) + ((column[1] + column[2]) + column[3]);
    if (!(largest <= kLargest && fabsf(edge) <= 3e38f)) return false;
#pragma unroll
    for (int i = 0; i < 3; ++i) {
#pragma unroll
      for (int j = 0; j < 3; ++j) k[i][j] = fast_exp2(t[i][j]);
    }
    float q[4];
    v[0] = 1;
    if (arguments.columns_first) {
      u[0] = 1;
#pragma unroll
      for (int i = 1; i < 4; ++i) u[i] = fast_exp2(row[i] - row[0]);
      sums<true>(q, u);
      proportions(v, q);
    } else {
#pragma unroll
      for (int j = 1; j < 4; ++j) v[j] = fast_exp2(column[j]);
    }
    int const pairs = arguments.columns_first ? arguments.pairs : arguments.pairs - 1;
#pragma unroll 4
    for (int pair = 0; pair < pairs; ++pair) {
      sums<false>(q, v);
      proportions(u, q);
      sums<true>(q, u);
      proportions(v, q);
    }
    sums<false>(q, v);
    if (!arguments.columns_first) {
      proportions(u, q);
      sums<true>(q, u);
      reciprocals<1>(v, q);
    } else {
      reciprocals<1>(u, q);
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        float const value = u[i] * v[j];
        x[i][j] = i == 0 || j == 0 ? value : value * k[i - 1][j - 1];
      }
    }
    return true;
  }
};

/// Contiguous float32: the addresses of a warp's matrices are one after the other.
template <class L>
__device__ __forceinline__ void project_contiguous_four(ProjectionArguments const& arguments, std::int64_t first,
                                                        float4* shared) {
  using Plain = Tile<L, ProjectionMode::plain, false>;
  int const lane = static_cast<int>(threadIdx.x) % 32;
  std::int64_t const at = first * 4 + lane;
  float4 const* const from = static_cast<float4 const*>(arguments.logits.data) + at;
  float4* const to = static_cast<float4*>(arguments.result.data) + at;
  bool const whole = first + 32 <= arguments.batch;
  int const chunks = whole ? 128 : static_cast<int>(arguments.batch - first) * 4;
  float4 chunk[4];
#pragma unroll
  for (int i = 0; i < 4; ++i)
    chunk[i] = whole || 32 * i + lane < chunks ? __ldcs(from + 32 * i) : make_float4(0, 0, 0, 0);
  to_shared<L>(shared, chunk);
  __syncwarp();
  TilePlace<L> const place;
  float x[4][4];
  from_shared<L>(x, shared, place);
  CrossRatio ratio;
  if (!ratio.run(x, arguments)) {
    Plain tile(arguments, nullptr);
#pragma unroll
    for (int r = 0; r < 4; ++r) {
#pragma unroll
      for (int c = 0; c < 4; ++c) tile.k[r][c] = x[r][c];
    }
    tile.start();
    tile.template iterate<0>([](int) {}, [](int) {});
#pragma unroll
    for (int r = 0; r < 4; ++r) {
#pragma unroll
      for (int c = 0; c < 4; ++c) x[r][c] = tile.entry(r, c);
    }
  }
  __syncwarp();
#pragma unroll
  for (int r = 0; r < 4; ++r) shared[tile_chunk<L>(place, r, 0)] = make_float4(x[r][0], x[r][1], x[r][2], x[r][3]);
  __syncwarp();
#pragma unroll
  for (int i = 0; i < 4; ++i)
    if (whole || 32 * i + lane < chunks) __stcs(to + 32 * i, shared[L::swizzled(32 * i + lane)]);
}

template <class L>
__global__ void __launch_bounds__(128)
    project_contiguous_four_kernel(__grid_constant__ ProjectionArguments const arguments) {
  extern __shared__ float4 shared_memory[];
  int const warp = static_cast<int>(threadIdx.x) / 32;
  std::int64_t const first = (static_cast<std::int64_t>(blockIdx.x) * (blockDim.x / 32) + warp) * 32;
  if (first < arguments.batch)
    project_contiguous_four<L>(arguments, first, shared_memory + warp * (kTileBytes<L> / 16));
}

template <class L, ProjectionMode kMode, bool kAligned>
__global__ void __launch_bounds__(128) project_tile_kernel(__grid_constant__ ProjectionArguments const arguments,
                                                           __grid_constant__ MarginalsOf<kMode> const marginals) {
  extern __shared__ float4 shared_memory[];
  int const warp = static_cast<int>(threadIdx.x) / 32;
  std::int64_t const first = (static_cast<std::int64_t>(blockIdx.x) * (blockDim.x / 32) + warp) * L::kPerWarp;
  if (first >= arguments.batch) return;
  Tile<L, kMode, !kAligned> tile(arguments, pointer_to(marginals));
  auto const nothing = [](int) {};
  if constexpr (kAligned) {
    float4* const shared = shared_memory + warp * (kTileBytes<L> / 16);
    {
      float4 chunk[L::kChunks];
      fetch<L>(arguments.logits, first, arguments.batch, chunk);
      to_shared<L>(shared, chunk);
    }
    __syncwarp();
    from_shared<L>(tile.k, shared, tile.place);
    tile.start();
    tile.iterate_any(nothing, nothing);
    write_tile<L>(arguments.result, first, arguments.batch, shared, tile.place,
                  [&](int r, int c) { return tile.entry(r, c); });
  } else {
    std::int64_t const matrix = first + tile.place.matrix;
    bool const inside = matrix < arguments.batch;
    read_elements<L>(tile.k, arguments.logits, matrix, inside, arguments.logit_rows, arguments.logit_columns,
                     inside ? arguments.dustbin_score : 0.0f, tile.place);
    tile.start();
    tile.iterate_any(nothing, nothing);
    write_elements<L>(arguments.result, matrix, inside, arguments.rows, arguments.columns, tile.place,
                      [&](int r, int c) { return tile.entry(r, c); });
  }
}

/// The adjoint of Tile's steps.
template <class L, ProjectionMode kMode, bool kPadded>
struct TileAdjoint {
  static constexpr int R = L::R, C = L::C;
  static constexpr bool kPlain = kMode == ProjectionMode::plain;
  static constexpr bool kGuarded = kMode == ProjectionMode::guarded;
  static constexpr bool kLog = kMode == ProjectionMode::log_domain;
  static constexpr bool kGeneral = kMode == ProjectionMode::general || kLog;
  using Forward = Tile<L, kMode, kPadded>;

  Forward const& tile;
  float d[R][C];       // Gradient in K; in the log domain in the logits. Comes in as d_out.
  float ub[R], vb[C];  // In the scalings; in the log domain in the potentials.
  float rc[R], cc[C];  // Of the later step's sum, times eps / marginal.

  __device__ __forceinline__ explicit TileAdjoint(Forward const& forward) : tile(forward) {}

  __device__ __forceinline__ void seed() {
#pragma unroll
    for (int r = 0; r < R; ++r) ub[r] = rc[r] = 0;
#pragma unroll
    for (int c = 0; c < C; ++c) vb[c] = cc[c] = 0;
#pragma unroll
    for (int r = 0; r < R; ++r) {
      float const ur = tile.bare(tile.u[r]);
#pragma unroll
      for (int c = 0; c < C; ++c) {
        float const g = d[r][c];
        if constexpr (kLog) {
          d[r][c] = g * tile.entry(r, c);
          ub[r] += d[r][c];
          vb[c] += d[r][c];
        } else {
          float const gk = g * tile.k[r][c], vc = tile.bare(tile.v[c]);
          ub[r] = fmaf(gk, vc, ub[r]);
          vb[c] = fmaf(gk, ur, vb[c]);
          d[r][c] = g * (ur * vc);
        }
      }
    }
    reduce_rows();
    reduce_columns();
  }
  __device__ __forceinline__ void reduce_rows() {
#pragma unroll
    for (int r = 0; r < R; ++r) ub[r] = over_columns<L>(ub[r]);
  }
  __device__ __forceinline__ void reduce_columns() {
#pragma unroll
    for (int c = 0; c < C; ++c) vb[c] = over_rows<L>(vb[c]);
  }

  /// From the gradient in a scaling to that in its sum; keeps what flows to the sum of the step before.
  __device__ __forceinline__ float sum_gradient(float bar, float scaling, float marginal, float& chain,
                                                bool active) const {
    if constexpr (kPlain) {
      return -(bar * scaling) * scaling;
    } else if constexpr (kGuarded) {
      float const q = fmaf(-(bar * scaling), scaling, chain);
      chain = tile.chain * q;
      return q;
    } else {
      float const inverse_marginal = Forward::inverse(marginal);
      float const q = fmaf(-(bar * scaling) * scaling, inverse_marginal, chain);
      bool const clamped = tile.arguments.clamp && scaling < 0;
      bool const flows = tile.arguments.clamp ? clamped : !tile.arguments.scaling;
      if (active) chain = flows ? q * tile.arguments.epsilon * inverse_marginal : 0.0f;
      return active && !clamped ? q : 0.0f;
    }
  }

  /// own: the scalings that the step made; other: those it used.
  __device__ __forceinline__ void column_back(float const (&own)[C], float const (&other)[R], bool active) {
    float sum[R];
#pragma unroll
    for (int r = 0; r < R; ++r) sum[r] = L::kColumnLanes == 1 ? ub[r] : 0;
#pragma unroll
    for (int c = 0; c < C; ++c) {
      if constexpr (kLog) {
        float const target = tile.b(c);
        float const bar = active && target > 0 ? vb[c] : 0.0f;
        float const factor = bar * Forward::inverse(target);
#pragma unroll
        for (int r = 0; r < R; ++r) {
          float const flow = bar == 0 ? 0.0f : factor * fast_exp2(tile.k[r][c] + other[r] + own[c]);
          d[r][c] -= flow;
          sum[r] -= flow;
        }
        vb[c] -= bar;
      } else {
        float const s = sum_gradient(vb[c], own[c], kGeneral ? tile.b(c) : 1.0f, cc[c], active);
        if (active) vb[c] = 0;
#pragma unroll
        for (int r = 0; r < R; ++r) {
          d[r][c] = fmaf(s, tile.bare(other[r]), d[r][c]);
          sum[r] = fmaf(s, tile.k[r][c], sum[r]);
        }
      }
    }
#pragma unroll
    for (int r = 0; r < R; ++r) ub[r] = L::kColumnLanes == 1 ? sum[r] : ub[r] + over_columns<L>(sum[r]);
  }
  __device__ __forceinline__ void row_back(float const (&own)[R], float const (&other)[C], bool active) {
    float sum[C];
#pragma unroll
    for (int c = 0; c < C; ++c) sum[c] = L::kRowLanes == 1 ? vb[c] : 0;
#pragma unroll
    for (int r = 0; r < R; ++r) {
      if constexpr (kLog) {
        float const target = tile.a(r);
        float const bar = active && target > 0 ? ub[r] : 0.0f;
        float const factor = bar * Forward::inverse(target);
#pragma unroll
        for (int c = 0; c < C; ++c) {
          float const flow = bar == 0 ? 0.0f : factor * fast_exp2(tile.k[r][c] + other[c] + own[r]);
          d[r][c] -= flow;
          sum[c] -= flow;
        }
        ub[r] -= bar;
      } else {
        float const q = sum_gradient(ub[r], own[r], kGeneral ? tile.a(r) : 1.0f, rc[r], active);
        if (active) ub[r] = 0;
#pragma unroll
        for (int c = 0; c < C; ++c) {
          d[r][c] = fmaf(q, tile.bare(other[c]), d[r][c]);
          sum[c] = fmaf(q, tile.k[r][c], sum[c]);
        }
      }
    }
#pragma unroll
    for (int c = 0; c < C; ++c) vb[c] = L::kRowLanes == 1 ? sum[c] : vb[c] + over_rows<L>(sum[c]);
  }

  __device__ __forceinline__ float at_start(float x) const {
    return kLog ? 0.0f : x;
  }

  /// load(slot, v, u): the scalings around pair `slot`. `fixed` lanes use the last scalings until their terms die out.
  template <class Load>
  __device__ __forceinline__ void unwind(Load&& load, bool fixed) {
    ProjectionArguments const& arguments = tile.arguments;
    float v_after[C], v_before[C], own_u[R];
#pragma unroll
    for (int c = 0; c < C; ++c) v_after[c] = tile.v[c];
    if (arguments.trail) row_back(tile.u, tile.v, true);
    int pairs = arguments.pairs;
    if constexpr (kGeneral) pairs = __reduce_max_sync(0xffffffffu, static_cast<unsigned>(tile.count));
#pragma unroll 1
    for (int pair = pairs - 1; pair >= 0; --pair) {
      bool const active = !kGeneral || (pair < tile.count && !fixed);
      load(pair, v_before, own_u);
      column_back(v_after, own_u, active);
      row_back(own_u, v_before, active);
#pragma unroll
      for (int c = 0; c < C; ++c) v_after[c] = !kGeneral || active ? v_before[c] : v_after[c];
    }
    if (arguments.lead) {
      float ones[R];
#pragma unroll
      for (int r = 0; r < R; ++r) ones[r] = at_start(1.0f);
      column_back(v_after, ones, !fixed);
    }
    if constexpr (kGeneral) {
      if (!arguments.implicit || !__any_sync(0xffffffffu, fixed)) return;
      bool active = fixed;
      int const most = 10 * (arguments.pairs + 1) + 100;
#pragma unroll 1
      for (int step = 0; step < most && __any_sync(0xffffffffu, active); ++step) {
        float before = 0, after = 0;
#pragma unroll
        for (int r = 0; r < R; ++r) {
#pragma unroll
          for (int c = 0; c < C; ++c) before = fmaxf(before, fabsf(d[r][c] * (kLog ? 1.0f : tile.k[r][c])));
        }
        if (fixed) {
#pragma unroll
          for (int c = 0; c < C; ++c) cc[c] = 0;
#pragma unroll
          for (int r = 0; r < R; ++r) rc[r] = 0;
        }
        column_back(tile.v, tile.u, active);
#pragma unroll
        for (int r = 0; r < R; ++r) rc[r] = 0;
        row_back(tile.u, tile.v, active);
#pragma unroll
        for (int c = 0; c < C; ++c) after = fmaxf(after, fabsf(kLog ? vb[c] : vb[c] * tile.bare(tile.v[c])));
        before = max_over_rows<L>(max_over_columns<L>(before));
        after = max_over_columns<L>(after);
        if (after <= 1e-8f * before || after <= 1e-30f) active = false;
      }
    }
  }

  /// Whether the first side's sums are right, for all lanes of the matrix.
  __device__ __forceinline__ bool converged() const {
    float error = 0;
    if (!tile.arguments.columns_first) {
#pragma unroll
      for (int r = 0; r < R; ++r) {
        float sum = 0;
#pragma unroll
        for (int c = 0; c < C; ++c) sum += tile.entry(r, c);
        sum = over_columns<L>(sum);
        if (tile.a(r) > 0) error = fmaxf(error, sum == sum ? fabsf(sum * Forward::inverse(tile.a(r)) - 1) : 1e30f);
      }
      error = max_over_rows<L>(error);
    } else {
#pragma unroll
      for (int c = 0; c < C; ++c) {
        float sum = 0;
#pragma unroll
        for (int r = 0; r < R; ++r) sum += tile.entry(r, c);
        sum = over_rows<L>(sum);
        if (tile.b(c) > 0) error = fmaxf(error, sum == sum ? fabsf(sum * Forward::inverse(tile.b(c)) - 1) : 1e30f);
      }
      error = max_over_columns<L>(error);
    }
    return error <= tile.arguments.implicit_tolerance;
  }

  /// d: from the gradient in K to that in the input. `kept` e^{-s} of the first side, where eps was added to K.
  __device__ __forceinline__ void finish(float const (&row_kept)[R], float const (&column_kept)[C]) {
    ProjectionArguments const& arguments = tile.arguments;
    bool const positive = arguments.start_positive, softmax = arguments.start_softmax;
    bool const shifted = arguments.start_shifted && !kLog;
    bool const by_columns = arguments.columns_first;
#pragma unroll
    for (int r = 0; r < R; ++r) {
      float sum = 0, largest = -1, pure[C];
#pragma unroll
      for (int c = 0; c < C; ++c) {
        pure[c] = tile.k[r][c];
        if constexpr (kLog) {
          pure[c] = softmax ? fast_exp2(pure[c]) : 1.0f;
          if (positive) d[r][c] *= fast_exp2(fminf(-tile.k[r][c], 126.0f));
          sum += d[r][c];
        } else {
          if (arguments.matrix_epsilon > 0 && !positive) {
            bool const exact = !softmax && !arguments.start_shifted;
            float const kept = !exact ? 1.0f : by_columns ? column_kept[c] : row_kept[r];
            if (tile.valid(r, c)) pure[c] = fmaxf(fmaf(-arguments.matrix_epsilon, kept, pure[c]), 0.0f);
          }
          sum += gradient_product(d[r][c], pure[c]);
          largest = fmaxf(largest, pure[c]);
        }
      }
      if (positive) continue;
      if constexpr (kLog) {
        if (softmax) {
          sum = over_columns<L>(sum);
#pragma unroll
          for (int c = 0; c < C; ++c) d[r][c] = fmaf(-pure[c], sum, d[r][c]);
        }
      } else if (softmax) {
        sum = over_columns<L>(sum);
#pragma unroll
        for (int c = 0; c < C; ++c) d[r][c] = gradient_product(d[r][c] - sum, pure[c]);
      } else {
#pragma unroll
        for (int c = 0; c < C; ++c) d[r][c] = gradient_product(d[r][c], pure[c]);
        if (shifted) {  // The shift's gradient goes to the first of the row's largest.
          sum = over_columns<L>(sum);
          largest = max_over_columns<L>(largest);
          int at = 1 << 20;
#pragma unroll
          for (int c = C - 1; c >= 0; --c)
            if (pure[c] == largest) at = tile.place.column + c;
#pragma unroll
          for (int mask = 1; mask < L::kColumnLanes; mask *= 2) at = min(at, __shfl_xor_sync(0xffffffffu, at, mask));
#pragma unroll
          for (int c = 0; c < C; ++c)
            if (tile.place.column + c == at) d[r][c] -= sum;
        }
      }
    }
    float const scale = arguments.inverse_temperature;
#pragma unroll
    for (int r = 0; r < R; ++r) {
#pragma unroll
      for (int c = 0; c < C; ++c) d[r][c] *= scale;
    }
  }
};

/// Histories: chunk `part` of `slot` for this thread, at [slot][part][thread]. In shared memory the array is named
/// here, for the compiler to see which memory it is: generic addresses cost twice the time.
template <class L, bool kShared>
struct TileHistory {
  static constexpr int kParts = (L::R + L::C) / 4;
  int offset = 0;  // Of shared memory.
  float4* global = nullptr;
  std::int64_t global_threads = 0;
  __device__ __forceinline__ float4& at(int slot, int part) const {
    if constexpr (kShared) {
      extern __shared__ float4 shared_memory[];
      return shared_memory[offset + (slot * kParts + part) * static_cast<int>(blockDim.x)];
    }
    return global[(static_cast<std::int64_t>(slot) * kParts + part) * global_threads];
  }
  __device__ __forceinline__ void place(float* memory, int shared_offset) {
    if constexpr (kShared) {
      offset = shared_offset + static_cast<int>(threadIdx.x);
    } else {
      global_threads = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
      global = reinterpret_cast<float4*>(memory) + static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    }
  }
  template <int kCount>
  __device__ __forceinline__ void keep(int slot, int part, float const (&x)[kCount]) const {
#pragma unroll
    for (int i = 0; i < kCount; i += 4) at(slot, part + i / 4) = make_float4(x[i], x[i + 1], x[i + 2], x[i + 3]);
  }
  template <int kCount>
  __device__ __forceinline__ void recall(int slot, int part, float (&x)[kCount]) const {
#pragma unroll
    for (int i = 0; i < kCount; i += 4) {
      float4 const four = at(slot, part + i / 4);
      x[i] = four.x;
      x[i + 1] = four.y;
      x[i + 2] = four.z;
      x[i + 3] = four.w;
    }
  }
};

/// Everything after d_out is in adjoint.d: shared with the mHC mapping.
template <class L, ProjectionMode kMode, bool kPadded, bool kShared, class Gradient>
__device__ __forceinline__ void differentiate(Tile<L, kMode, kPadded>& tile, TileAdjoint<L, kMode, kPadded>& adjoint,
                                              TileHistory<L, kShared> const& history, Gradient&& gradient) {
  float row_kept[L::R], column_kept[L::C];
  tile.start();
#pragma unroll
  for (int r = 0; r < L::R; ++r) row_kept[r] = kMode == ProjectionMode::plain ? 1.0f : tile.w[r];
#pragma unroll
  for (int c = 0; c < L::C; ++c) column_kept[c] = kMode == ProjectionMode::plain ? 1.0f : tile.z[c];
  tile.iterate_any([&](int pair) { history.keep(pair, 0, tile.v); },
                   [&](int pair) { history.keep(pair, L::C / 4, tile.u); });
  gradient(adjoint.d);
  bool fixed = false;
  if constexpr (kMode == ProjectionMode::general || kMode == ProjectionMode::log_domain)
    fixed = tile.arguments.implicit && adjoint.converged();
  adjoint.seed();
  adjoint.unwind(
      [&](int pair, float(&v)[L::C], float(&u)[L::R]) {
        history.recall(pair, 0, v);
        history.recall(pair, L::C / 4, u);
      },
      fixed);
  adjoint.finish(row_kept, column_kept);
}

/// d_dustbin_score of the warp's matrices: the parts of the last row and column, in a fixed order.
template <class L, class Value>
__device__ __forceinline__ void write_dustbin(ProjectionArguments const& arguments, std::int64_t matrix, bool inside,
                                              TilePlace<L> const& place, Value&& value) {
  float sum = 0;
#pragma unroll
  for (int r = 0; r < L::R; ++r) {
#pragma unroll
    for (int c = 0; c < L::C; ++c) {
      int const i = place.row + r, j = place.column + c;
      if (i < arguments.rows && j < arguments.columns && (i == arguments.rows - 1 || j == arguments.columns - 1))
        sum += value(r, c);
    }
  }
  sum = over_rows<L>(over_columns<L>(sum));
  if (inside && threadIdx.x % L::kLanes == 0) arguments.d_dustbin_score[matrix] = sum;
}

/// A persistent grid: each warp walks through the batch.
template <class L, ProjectionMode kMode, bool kAligned, bool kShared>
__global__ void __launch_bounds__(128)
    project_backward_tile_kernel(__grid_constant__ ProjectionArguments const arguments,
                                 __grid_constant__ MarginalsOf<kMode> const marginals) {
  extern __shared__ float4 shared_memory[];
  int const warp = static_cast<int>(threadIdx.x) / 32, warps = static_cast<int>(blockDim.x) / 32;
  float4* const shared = shared_memory + warp * (kTileBytes<L> / 16);
  TileHistory<L, kShared> history;
  history.place(arguments.history, kAligned ? warps * (kTileBytes<L> / 16) : 0);
  std::int64_t const stride = static_cast<std::int64_t>(gridDim.x) * warps * L::kPerWarp;
  std::int64_t const start = (static_cast<std::int64_t>(blockIdx.x) * warps + warp) * L::kPerWarp;
// Few warps fit beside the histories, so the next matrices are under way while these are worked on.
#ifndef MONGE_PREFETCH
#define MONGE_PREFETCH 1
#endif
  constexpr bool kPrefetch = kAligned && L::kChunks <= 4 && MONGE_PREFETCH;
  float4 chunk[kPrefetch ? L::kChunks : 1], gradient_chunk[kPrefetch ? L::kChunks : 1];
  if constexpr (kPrefetch) {
    if (start < arguments.batch) {
      fetch<L>(arguments.logits, start, arguments.batch, chunk);
      fetch<L>(arguments.gradient, start, arguments.batch, gradient_chunk);
    }
  }
  for (std::int64_t first = start; first < arguments.batch; first += stride) {
    Tile<L, kMode, !kAligned> tile(arguments, pointer_to(marginals));
    TileAdjoint<L, kMode, !kAligned> adjoint(tile);
    if constexpr (kAligned) {
      if constexpr (kPrefetch) {
        to_shared<L>(shared, chunk);
        __syncwarp();
        from_shared<L>(tile.k, shared, tile.place);
        __syncwarp();
        to_shared<L>(shared, gradient_chunk);
        __syncwarp();
        if (first + stride < arguments.batch) {
          fetch<L>(arguments.logits, first + stride, arguments.batch, chunk);
          fetch<L>(arguments.gradient, first + stride, arguments.batch, gradient_chunk);
        }
      } else {
        float4 now[L::kChunks];
        fetch<L>(arguments.logits, first, arguments.batch, now);
        to_shared<L>(shared, now);
        __syncwarp();
        from_shared<L>(tile.k, shared, tile.place);
        __syncwarp();
        fetch<L>(arguments.gradient, first, arguments.batch, now);
        to_shared<L>(shared, now);
        __syncwarp();
      }
      differentiate(tile, adjoint, history, [&](float(&d)[L::R][L::C]) { from_shared<L>(d, shared, tile.place); });
      write_tile<L>(arguments.result, first, arguments.batch, shared, tile.place,
                    [&](int r, int c) { return adjoint.d[r][c]; });
      __syncwarp();
    } else {
      std::int64_t const matrix = first + tile.place.matrix;
      bool const inside = matrix < arguments.batch;
      read_elements<L>(tile.k, arguments.logits, matrix, inside, arguments.logit_rows, arguments.logit_columns,
                       inside ? arguments.dustbin_score : 0.0f, tile.place);
      differentiate(tile, adjoint, history, [&](float(&d)[L::R][L::C]) {
        read_elements<L>(d, arguments.gradient, matrix, inside, arguments.rows, arguments.columns, 0.0f, tile.place);
      });
      write_elements<L>(arguments.result, matrix, inside, arguments.logit_rows, arguments.logit_columns, tile.place,
                        [&](int r, int c) { return adjoint.d[r][c]; });
      if (arguments.d_dustbin_score != nullptr)
        write_dustbin<L>(arguments, matrix, inside, tile.place, [&](int r, int c) { return adjoint.d[r][c]; });
    }
  }
}

}  // namespace monge::cuda
