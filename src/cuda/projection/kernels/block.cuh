// Projection and its gradient for matrices larger than a tile, each in the shared memory of one block. The steps are
// the general ones of device/tile.cuh. A warp sums a row, a thread sums a column; histories lie in global memory. A
// matrix moves 8 n m bytes (backward 12 n m); an iteration takes 2 n m multiply-adds (backward 6 n m).
#pragma once
#include "cuda/projection/device/elements.cuh"
#include "cuda/projection/device/tile.cuh"

namespace monge::cuda {

inline constexpr int kBlockThreads = 256;

/// Data of the half-step of one side: `size` sums of `other_size` terms.
struct BlockSide {
  int size, other_size, stride, other_stride;  // Entry (i, j), j of the other side, is at i stride + j other_stride.
  float const* marginal;
  float *scaling, *weight, *next, *next_weight, *bar, *chain;
  bool warp_per_sum;
};

/// For each i, one thread calls finish(i, sum over j of term(i, j)); or the largest term, with Op Maximum.
template <class Op = Sum, class Term, class Finish>
__device__ __forceinline__ void block_sums(BlockSide const& side, Term&& term, Finish&& finish) {
  int const lanes = side.warp_per_sum ? 32 : 1, lane = static_cast<int>(threadIdx.x) % lanes;
  for (int i = static_cast<int>(threadIdx.x) / lanes; i < side.size; i += kBlockThreads / lanes) {
    float sum = std::is_same_v<Op, Sum> ? 0.0f : -INFINITY;
    for (int j = lane; j < side.other_size; j += lanes) sum = Op::apply(sum, term(i, j));
    for (int mask = lanes / 2; mask > 0; mask >>= 1) sum = Op::apply(sum, __shfl_xor_sync(0xffffffffu, sum, mask));
    if (lane == 0) finish(i, sum);
  }
}

/// Floats from a row of K to the next in shared memory: an odd number, so that a column is spread over all banks.
__host__ __device__ inline int block_stride(int columns) {
  return columns | 1;
}
/// Floats of shared memory: K, d, and for each side scaling, weight, next, next_weight, bar, chain and kept.
__host__ __device__ inline std::int64_t block_floats(int rows, int columns, bool backward) {
  return static_cast<std::int64_t>(rows) * block_stride(columns) * (backward ? 2 : 1) + 7 * (rows + columns);
}

template <bool kBackward>
struct BlockProjection {
  ProjectionArguments const& arguments;
  float *k, *d, *row_kept, *column_kept;
  float* history;  // Of this block. A slot of n + m floats for each pair: its first v, and its u.
  BlockSide rows, columns;
  bool* flag;

  __device__ __forceinline__ void step(BlockSide const& own, BlockSide const& other, bool check) {
    ProjectionArguments const& a = arguments;
    auto const at = [&](int i, int j) { return i * own.stride + j * own.other_stride; };
    if (threadIdx.x == 0) *flag = true;
    __syncthreads();
    if (a.log_domain) {
      block_sums<Maximum>(
          own, [&](int i, int j) { return k[at(i, j)] + other.scaling[j]; },
          [&](int i, float largest) { own.next_weight[i] = fmaxf(largest, kLeastShift); });
      __syncthreads();
      block_sums(
          own, [&](int i, int j) { return fast_exp2((k[at(i, j)] + other.scaling[j]) - own.next_weight[i]); },
          [&](int i, float sum) {
            float const target = own.marginal[i];
            own.next[i] = log2f(target) - own.next_weight[i] - fast_log2(sum + kLeastSum);
            if (check && target > 0 && !(fabsf(fast_exp2(own.scaling[i] - own.next[i]) - 1) <= a.tolerance))
              *flag = false;
          });
    } else {
      block_sums(
          own, [&](int i, int j) { return k[at(i, j)] * fabsf(other.scaling[j]); },
          [&](int i, float sum) {
            float const target = own.marginal[i], dot = sum + kLeastSum, inverse = inverse_or_zero(target);
            if (check && target > 0 && !(fabsf(dot * fabsf(own.scaling[i]) * inverse - 1) <= a.tolerance))
              *flag = false;
            float const rest = a.epsilon * own.weight[i];
            bool const clamped = a.clamp && dot < rest;
            float const q = a.clamp ? (clamped ? rest : dot) : dot + rest;
            float const next = target * fast_reciprocal(q);
            own.next[i] = clamped ? -next : next;
            own.next_weight[i] = q * inverse;
          });
    }
    __syncthreads();
    bool const stop = check && *flag;
    if (!stop) {
      for (int i = static_cast<int>(threadIdx.x); i < own.size; i += kBlockThreads) {
        own.scaling[i] = own.next[i];
        if (!a.log_domain && !a.scaling) own.weight[i] = own.next_weight[i];
      }
    }
    __syncthreads();
    stopped = stop;
  }

  /// Undoes a half-step that made `own_scaling` from `other_scaling`; null means the first scalings.
  __device__ __forceinline__ void back(BlockSide const& own, BlockSide const& other, float const* own_scaling,
                                       float const* other_scaling) {
    ProjectionArguments const& a = arguments;
    auto const at = [&](int i, int j) { return i * own.stride + j * own.other_stride; };
    for (int i = static_cast<int>(threadIdx.x); i < own.size; i += kBlockThreads) {
      float const inverse = inverse_or_zero(own.marginal[i]);
      if (a.log_domain) {
        own.next[i] = own.marginal[i] > 0 ? own.bar[i] * inverse : 0;
        if (own.marginal[i] > 0) own.bar[i] = 0;
      } else {
        float const s = own_scaling[i];
        float const q = fmaf(-(own.bar[i] * s) * s, inverse, own.chain[i]);
        bool const clamped = a.clamp && s < 0;
        bool const flows = a.clamp ? clamped : !a.scaling;
        own.chain[i] = flows ? q * a.epsilon * inverse : 0.0f;
        own.next[i] = clamped ? 0.0f : q;
        own.bar[i] = 0;
      }
    }
    __syncthreads();
    // The sums belong to the other side: its bar_j grows by a sum over i of this side.
    block_sums(
        other,
        [&](int j, int i) {
          int const e = at(i, j);
          if (a.log_domain) {
            if (own.next[i] == 0) return 0.0f;
            float const used = other_scaling != nullptr ? other_scaling[j] : 0.0f;
            float const flow = own.next[i] * fast_exp2(k[e] + used + own_scaling[i]);
            d[e] -= flow;
            return -flow;
          }
          d[e] = fmaf(own.next[i], other_scaling != nullptr ? fabsf(other_scaling[j]) : 1.0f, d[e]);
          return own.next[i] * k[e];
        },
        [&](int j, float sum) { other.bar[j] += sum; });
    __syncthreads();
  }

  __device__ __forceinline__ float entry(int i, int j) const {
    float const value = k[i * rows.stride + j], u = rows.scaling[i], v = columns.scaling[j];
    return arguments.log_domain ? fast_exp2(value + u + v) : fabsf(u) * value * fabsf(v);
  }

  bool stopped = false;

  template <class Visit>
  __device__ __forceinline__ void for_each(int n, int m, Visit&& visit) {
    for (int e = static_cast<int>(threadIdx.x); e < n * m; e += kBlockThreads) visit(e / m, e % m);
  }

  __device__ __forceinline__ void start(std::int64_t matrix) {
    ProjectionArguments const& a = arguments;
    int const n = rows.size, m = columns.size, ld = rows.stride;
    bool const exact = !a.start_positive && !a.start_softmax && !a.start_shifted;
    bool const keeps = exact && (a.epsilon > 0 || a.matrix_epsilon > 0);
    float const scale = a.inverse_temperature * kLog2E;
    for_each(n, m, [&](int i, int j) {
      bool const given = i < a.logit_rows && j < a.logit_columns;
      float const x = given ? load_element(a.logits, matrix * a.logits.batch_stride + i * a.logits.row_stride + j)
                            : a.dustbin_score;
      float value = a.start_positive ? x + a.matrix_epsilon : x * scale;
      if (a.start_positive && a.log_domain) value = value > 0 ? log2f(value) : value == 0 ? -1e38f : value;
      k[i * ld + j] = value;
    });
    for (int i = static_cast<int>(threadIdx.x); i < n + m; i += kBlockThreads) {
      BlockSide const& side = i < n ? rows : columns;
      int const at = i < n ? i : i - n;
      side.scaling[at] = a.log_domain ? 0 : 1;
      side.weight[at] = 1;
      side.bar[at] = side.chain[at] = 0;
    }
    __syncthreads();
    if (!a.start_positive && !(a.log_domain && !a.start_softmax)) {
      BlockSide const& side = exact && a.columns_first ? columns : rows;
      auto const at = [&](int i, int j) { return i * side.stride + j * side.other_stride; };
      block_sums<Maximum>(
          side, [&](int i, int j) { return k[at(i, j)]; },
          [&](int i, float largest) { side.next[i] = fmaxf(largest, keeps ? kKeptShift : kLeastShift); });
      __syncthreads();
      if (a.start_softmax) {
        block_sums(
            side, [&](int i, int j) { return fast_exp2(k[at(i, j)] - side.next[i]); },
            [&](int i, float sum) { side.next_weight[i] = sum + kLeastSum; });
        __syncthreads();
      }
      for_each(n, m, [&](int i, int j) {
        int const own = exact && a.columns_first ? j : i, e = i * ld + j;
        float const shifted = k[e] - side.next[own];
        if (a.log_domain) {
          k[e] = shifted - fast_log2(side.next_weight[own]);
        } else {
          float value = fast_exp2(shifted);
          if (a.start_softmax) value *= fast_reciprocal(side.next_weight[own]);
          k[e] = value + a.matrix_epsilon * (keeps ? fast_exp2(-side.next[own]) : 1.0f);
        }
      });
      if (keeps) {
        for (int i = static_cast<int>(threadIdx.x); i < side.size; i += kBlockThreads)
          side.weight[i] = fast_exp2(-side.next[i]);
      }
    }
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < n; i += kBlockThreads) row_kept[i] = rows.weight[i];
    for (int j = static_cast<int>(threadIdx.x); j < m; j += kBlockThreads) column_kept[j] = columns.weight[j];
    __syncthreads();
  }

  /// Does all half-steps. Returns the number of pairs.
  __device__ __forceinline__ int iterate() {
    ProjectionArguments const& a = arguments;
    int const n = rows.size, m = columns.size;
    bool const checks = a.tolerance > 0;
    if (a.lead) step(columns, rows, false);
    int pair = 0;
    for (; pair < a.pairs; ++pair) {
      float* const slot = history + static_cast<std::int64_t>(pair) * (n + m);
      if (kBackward) {
        for (int j = static_cast<int>(threadIdx.x); j < m; j += kBlockThreads) slot[j] = columns.scaling[j];
      }
      step(rows, columns, checks && !a.columns_first && (pair > 0 || a.lead));
      if (stopped) return pair;
      if (kBackward) {
        for (int i = static_cast<int>(threadIdx.x); i < n; i += kBlockThreads) slot[m + i] = rows.scaling[i];
      }
      step(columns, rows, checks && a.columns_first);
      if (stopped) return pair;
    }
    if (a.trail) step(rows, columns, false);
    return pair;
  }

  __device__ __forceinline__ void adjoint(std::int64_t matrix, int pairs) {
    ProjectionArguments const& a = arguments;
    int const n = rows.size, m = columns.size, ld = rows.stride;
    for_each(n, m, [&](int i, int j) {
      d[i * ld + j] = load_element(a.gradient, matrix * a.gradient.batch_stride + i * a.gradient.row_stride + j);
    });
    __syncthreads();
    auto const flow = [&](int i, int j) { return d[i * ld + j] * entry(i, j); };
    // The gradient in a scaling is the sum of g P, divided by the scaling; in the log domain, the sum itself.
    block_sums(
        rows,
        [&](int i, int j) {
          return a.log_domain ? flow(i, j) : d[i * ld + j] * k[i * ld + j] * fabsf(columns.scaling[j]);
        },
        [&](int i, float sum) { rows.bar[i] = sum; });
    block_sums(
        columns,
        [&](int j, int i) {
          return a.log_domain ? flow(i, j) : d[i * ld + j] * k[i * ld + j] * fabsf(rows.scaling[i]);
        },
        [&](int j, float sum) { columns.bar[j] = sum; });
    __syncthreads();
    for_each(n, m, [&](int i, int j) {
      float const g = d[i * ld + j];
      d[i * ld + j] = a.log_domain ? g * entry(i, j) : g * (fabsf(rows.scaling[i]) * fabsf(columns.scaling[j]));
    });
    __syncthreads();
    if (a.trail) back(rows, columns, rows.scaling, columns.scaling);
    float const* v_after = columns.scaling;
    for (int pair = pairs - 1; pair >= 0; --pair) {
      float const* const slot = history + static_cast<std::int64_t>(pair) * (n + m);
      back(columns, rows, v_after, slot + m);
      back(rows, columns, slot + m, slot);
      v_after = slot;
    }
    if (a.lead) back(columns, rows, v_after, nullptr);
    finish();
  }

  __device__ __forceinline__ float pure(int i, int j) const {
    ProjectionArguments const& a = arguments;
    float const value = k[i * rows.stride + j];
    if (a.log_domain) return a.start_softmax ? fast_exp2(value) : 1.0f;
    if (a.matrix_epsilon <= 0) return value;
    bool const exact = !a.start_softmax && !a.start_shifted;
    float const kept = !exact ? 1.0f : a.columns_first ? column_kept[j] : row_kept[i];
    return fmaxf(fmaf(-a.matrix_epsilon, kept, value), 0.0f);
  }

  __device__ __forceinline__ void finish() {
    ProjectionArguments const& a = arguments;
    int const n = rows.size, m = columns.size, ld = rows.stride;
    bool const shifted = a.start_shifted && !a.log_domain;
    if (a.start_softmax || shifted) {
      block_sums(
          rows, [&](int i, int j) { return gradient_product(d[i * ld + j], a.log_domain ? 1.0f : pure(i, j)); },
          [&](int i, float sum) { rows.next[i] = sum; });
      block_sums<Maximum>(
          rows, [&](int i, int j) { return pure(i, j); },
          [&](int i, float largest) {
            int at = 0;
            while (at < m - 1 && pure(i, at) != largest) ++at;
            rows.next_weight[i] = static_cast<float>(at);
          });
      __syncthreads();
    }
    for_each(n, m, [&](int i, int j) {
      int const e = i * ld + j;
      float value = d[e];
      if (a.start_positive) {
        if (a.log_domain) value *= fast_exp2(fminf(-k[e], 126.0f));
      } else if (a.start_softmax) {
        value =
            a.log_domain ? fmaf(-pure(i, j), rows.next[i], value) : gradient_product(value - rows.next[i], pure(i, j));
      } else if (!a.log_domain) {
        value = gradient_product(value, pure(i, j));
        if (shifted && static_cast<int>(rows.next_weight[i]) == j) value -= rows.next[i];
      }
      d[e] = value * a.inverse_temperature;
    });
    __syncthreads();
  }
};

template <bool kBackward>
__global__ void __launch_bounds__(kBlockThreads)
    project_block_kernel(__grid_constant__ ProjectionArguments const arguments,
                         __grid_constant__ SumTargets const marginals) {
  extern __shared__ float4 shared_memory[];
  __shared__ bool flag;
  int const n = arguments.rows, m = arguments.columns, ld = block_stride(m);
  float* next = reinterpret_cast<float*>(shared_memory);
  auto const take = [&](int count) {
    float* const at = next;
    next += count;
    return at;
  };
  float* const k = take(n * ld);
  float* const d = kBackward ? take(n * ld) : nullptr;
  auto const side = [&](int size, int other, int stride, int other_stride, float const* marginal, bool warp_per_sum) {
    float* const scaling = take(size);
    float* const weight = take(size);
    float* const fresh = take(size);
    float* const fresh_weight = take(size);
    float* const bar = take(size);
    float* const chain = take(size);
    return BlockSide{size,   other, stride,       other_stride, marginal, scaling,
                     weight, fresh, fresh_weight, bar,          chain,    warp_per_sum};
  };
  BlockSide const rows = side(n, m, ld, 1, marginals.a, true), columns = side(m, n, 1, ld, marginals.b, false);
  float* const row_kept = take(n);
  float* const column_kept = take(m);
  float* const history = arguments.history == nullptr
                             ? nullptr
                             : arguments.history + static_cast<std::int64_t>(blockIdx.x) * arguments.pairs * (n + m);
  for (std::int64_t matrix = blockIdx.x; matrix < arguments.batch; matrix += gridDim.x) {
    BlockProjection<kBackward> projection{arguments, k, d, row_kept, column_kept, history, rows, columns, &flag};
    projection.start(matrix);
    int const pairs = projection.iterate();
    if constexpr (kBackward) {
      projection.adjoint(matrix, pairs);
      projection.for_each(arguments.logit_rows, arguments.logit_columns, [&](int i, int j) {
        store_element(arguments.result, matrix * arguments.result.batch_stride + i * arguments.result.row_stride + j,
                      d[i * ld + j]);
      });
      if (arguments.d_dustbin_score != nullptr && threadIdx.x == 0) {
        float sum = d[n * ld - ld + m - 1];
        for (int i = 0; i + 1 < n; ++i) sum += d[i * ld + m - 1];
        for (int j = 0; j + 1 < m; ++j) sum += d[(n - 1) * ld + j];
        arguments.d_dustbin_score[matrix] = sum;
      }
    } else {
      projection.for_each(n, m, [&](int i, int j) {
        store_element(arguments.result, matrix * arguments.result.batch_stride + i * arguments.result.row_stride + j,
                      projection.entry(i, j));
      });
    }
    __syncthreads();
  }
}

}  // namespace monge::cuda
