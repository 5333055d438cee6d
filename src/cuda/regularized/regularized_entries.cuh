// The entries of a regularised plan: costs packed for iterations, values of a plan and its potentials, and reading of
// entries.
//
// MatrixPairs read costs from the caller's matrices; PointPairs compute them wherever they are read.
//
// Tiling: 32 rows x 32 columns of costs at a time pass through shared memory. They are read along the lines of the
//   caller's memory and used with rows on the lanes, in the order of packed entries. For values a block takes 32
//   columns, 4 for each warp: potentials, norms of groups and their sums need no other block.
// Traffic: the caller's matrices once, and the packed entries once; the matrices once more if potentials must be made
//   feasible, and with groups once for each step of Newton's method.
// Numerics: float64 in a fixed order. With groups, the potential of a column is the lowest root t of |[u + t - S]_+|_2
//   = lambda w_g over the groups g. The norm is convex in t: Newton's method, for all groups together, decreases to the
//   root from min S - u + lambda w_g.
#pragma once
#include <cmath>

#include "cuda/device/numerics.cuh"
#include "cuda/device/source.cuh"
#include "cuda/device/strided.cuh"
#include "cuda/geometry/regularized_matrix.cuh"
#include "cuda/regularized/regularized_entries.hpp"
#include "regularized/splitting_rule.hpp"

namespace monge::cuda {

inline constexpr int kEntryRows = 32, kEntryColumns = 32;
inline constexpr int kEntryBlock = 256;
inline constexpr int kEntryWarps = kEntryBlock / 32;
inline constexpr int kWarpColumns = kEntryColumns / kEntryWarps;

using CostTile = double[kEntryRows][kEntryColumns + 1];

/// The row of the problem at a place; negative for padding.
__device__ __forceinline__ int row_at(RowOrder const& order, int place) {
  if (place >= order.size) return -1;
  return order.row ? order.row[place] : place;
}

/// Loads the costs of a tile, +infinity where there is no allowed pair. Between two barriers.
template <class Pairs>
__device__ __forceinline__ void load_costs(RegularizedMatrix const& matrix, RowOrder const& order, int first_row,
                                           int first_column, CostTile& tile) {
  int const lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
#pragma unroll
  for (int k = warp; k < 32; k += kEntryWarps) {
    int const r = matrix.cost.transposed ? lane : k, c = matrix.cost.transposed ? k : lane;
    int const i = row_at(order, first_row + r), j = first_column + c;
    tile[r][c] = i >= 0 && j < matrix.columns ? Pairs::cost(matrix, i, j) : INFINITY;
  }
}

/// X at a place of the order, given S there.
__device__ __forceinline__ double entry_at(RegularizedEntries const& entries, int place, int j, double cost) {
  if (entries.packed) {
    std::int64_t const at = j * entries.pitch + place;
    return entries.scalar == DataType::float32 ? static_cast<double>(static_cast<float const*>(entries.packed)[at])
                                               : static_cast<double const*>(entries.packed)[at];
  }
  return fmax(entries.u[place] + entries.v[j] - cost, 0.0) * entries.inverse_weight;
}
/// X where S is not known. The place is a row of the problem.
template <class Pairs>
__device__ __forceinline__ double entry_at(RegularizedEntries const& entries, int place, int row, int j) {
  return entry_at(entries, place, j, entries.packed ? 0.0 : Pairs::cost(entries.matrix, row, j));
}

/// One block for each tile.
template <class T, class Pairs, class Source>
__global__ void __launch_bounds__(kEntryBlock) pack_costs_kernel(Source const source) {
  __shared__ CostTile tile;
  Slice<PackCostsArguments> const slice = slice_of(source);
  PackCostsArguments const& arguments = slice.arguments;
  start_next_kernel();
  wait_for_previous_kernel();
  int const row_tiles = (static_cast<int>(arguments.pitch) - 1) / kEntryRows + 1;
  int const first_row = slice.block % row_tiles * kEntryRows, first_column = slice.block / row_tiles * kEntryColumns;
  load_costs<Pairs>(arguments.matrix, arguments.order, first_row, first_column, tile);
  __syncthreads();
  int const lane = static_cast<int>(threadIdx.x) % 32;
  bool const has_row = row_at(arguments.order, first_row + lane) >= 0;
  for (int c = static_cast<int>(threadIdx.x) / 32; c < kEntryColumns; c += kEntryWarps) {
    int const j = first_column + c;
    if (j < arguments.matrix.columns && first_row + lane < arguments.pitch)
      static_cast<T*>(arguments.out)[j * arguments.pitch + first_row + lane] =
          static_cast<T>(has_row ? tile[lane][c] : arguments.padding);
  }
}

/// Calls visit(first_row) for each tile of some columns and of the places [begin, end), with its costs in `tile`; for
/// all threads of the block.
template <class Pairs, class Visit>
__device__ __forceinline__ void for_cost_tiles(RegularizedEntries const& entries, int first_column, CostTile& tile,
                                               int begin, int end, Visit const& visit) {
  for (int first_row = begin; first_row < end; first_row += kEntryRows) {
    __syncthreads();
    load_costs<Pairs>(entries.matrix, entries.order, first_row, first_column, tile);
    __syncthreads();
    visit(first_row);
  }
}
template <class Pairs, class Visit>
__device__ __forceinline__ void for_cost_tiles(RegularizedEntries const& entries, int first_column, CostTile& tile,
                                               Visit const& visit) {
  for_cost_tiles<Pairs>(entries, first_column, tile, 0, entries.order.size, visit);
}

/// Calls visit(begin, end, group, whether the group ends here) for the groups in the rows of a tile, or for all rows.
template <class Visit>
__device__ __forceinline__ void for_groups(EntryTerms const& terms, int size, int first_row, Visit const& visit) {
  int const tile_end = min(first_row + kEntryRows, size);
  for (int begin = first_row; begin < tile_end;) {
    int const group = terms.group ? terms.group[begin / kGroupRows] : 0;
    int const group_end = terms.group ? terms.group_begin[group + 1] : size;
    int const end = min(group_end, tile_end);
    visit(begin, end, group, end == group_end);
    begin = end;
  }
}

/// The largest t_j for which u and t are feasible, for the columns of this warp, on all of its lanes.
template <class Pairs>
__device__ __forceinline__ void make_feasible(EvaluateEntriesArguments const& arguments, int first_column,
                                              CostTile& tile, double (&t)[kWarpColumns]) {
  constexpr int kMostSteps = 60;
  constexpr double kLeastStep = 4e-16;
  RegularizedEntries const& entries = arguments.entries;
  EntryTerms const& terms = arguments.terms;
  int const lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  auto const threshold = [&](int group) { return terms.group ? terms.group_lasso * terms.group_weight[group] : 0.0; };
  double least[kWarpColumns];
#pragma unroll
  for (int c = 0; c < kWarpColumns; ++c) t[c] = least[c] = INFINITY;
  for_cost_tiles<Pairs>(entries, first_column, tile, [&](int first_row) {
    int const place = first_row + lane;
    double const u = place < entries.order.size ? arguments.u[place] : 0.0;
    for_groups(terms, entries.order.size, first_row, [&](int begin, int end, int group, bool ends) {
#pragma unroll
      for (int c = 0; c < kWarpColumns; ++c) {
        if (place >= begin && place < end) least[c] = fmin(least[c], tile[lane][warp * kWarpColumns + c] - u);
        if (!ends) continue;
        t[c] = fmin(t[c], -warp_max(-least[c]) + threshold(group));
        least[c] = INFINITY;
      }
    });
  });
  if (!terms.group) return;
  for (int step = 0; step < kMostSteps; ++step) {
    double next[kWarpColumns], sum[kWarpColumns] = {}, squares[kWarpColumns] = {};
#pragma unroll
    for (int c = 0; c < kWarpColumns; ++c) next[c] = t[c];
    for_cost_tiles<Pairs>(entries, first_column, tile, [&](int first_row) {
      int const place = first_row + lane;
      double const u = place < entries.order.size ? arguments.u[place] : 0.0;
      for_groups(terms, entries.order.size, first_row, [&](int begin, int end, int group, bool ends) {
#pragma unroll
        for (int c = 0; c < kWarpColumns; ++c) {
          double const slack = u + t[c] - tile[lane][warp * kWarpColumns + c];
          if (place >= begin && place < end && slack > 0) {
            sum[c] += slack;
            squares[c] += slack * slack;
          }
          if (!ends) continue;
          double const norm = sqrt(warp_sum(squares[c])), slope = warp_sum(sum[c]);
          if (norm > threshold(group)) next[c] = fmin(next[c], t[c] - (norm - threshold(group)) * norm / slope);
          sum[c] = squares[c] = 0;
        }
      });
    });
    bool moved = false;
#pragma unroll
    for (int c = 0; c < kWarpColumns; ++c) {
      moved |= next[c] < t[c] - kLeastStep * (1 + fabs(t[c]));
      t[c] = next[c];
    }
    if (!__syncthreads_or(moved)) break;
  }
}

/// The contribution of an entry to h, without the norm of its group.
__device__ __forceinline__ double entry_term(EntryTerms const& terms, double x) {
  if (terms.slopes.size > 0) return terms.slopes.phi(x);
  double value = terms.quadratic / 2 * x * x;
  if (terms.hypentropy > 0)
    value += terms.hypentropy *
             (x * asinh(x / terms.width) - x * (x / (sqrt(x * x + terms.width * terms.width) + terms.width)));
  return value;
}

/// sup over x >= 0 of z x - entry_term(x), for z > 0.
__device__ __forceinline__ double entry_conjugate(EntryTerms const& terms, double z) {
  if (terms.slopes.size > 0) return terms.slopes.conjugate(z);
  if (terms.hypentropy == 0) return z * z / (2 * terms.quadratic);
  if (terms.quadratic == 0) {
    double const root = sinh(z / terms.hypentropy / 2);
    return terms.hypentropy * terms.width * 2 * root * root;
  }
  EntryProx<double> const inverse{1 / terms.quadratic, terms.hypentropy, terms.width};
  double const x = inverse(z);
  return z * x - entry_term(terms, x);
}

/// The sum of a lane's entries of h* for group lasso with hypentropy, at potentials u and v, as in the CPU's
/// hypentropy_conjugate(). Each group is read once for its norm, once for each step of Newton's method, and once more.
template <class Pairs>
__device__ __forceinline__ double grouped_conjugate(EvaluateEntriesArguments const& arguments, int first_column,
                                                    CostTile& tile, double const (&v)[kWarpColumns]) {
  using Norm = GroupNorm<double>;
  RegularizedEntries const& entries = arguments.entries;
  EntryTerms const& terms = arguments.terms;
  EntryProx<double> const prox{1 / terms.quadratic, terms.hypentropy, terms.width};
  int const lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  double conjugate = 0;
  for (int group = 0, begin = 0; begin < entries.order.size; ++group) {
    int const end = terms.group_begin[group + 1];
    double const threshold = terms.group_lasso * terms.group_weight[group];
    // Calls visit(c, slack) for the positive slacks of the group in this lane's places.
    auto const for_slacks = [&](auto const& visit) {
      for_cost_tiles<Pairs>(entries, first_column, tile, begin, end, [&](int first_row) {
        int const place = first_row + lane;
        if (place >= end) return;
        double const u = arguments.u[place];
#pragma unroll
        for (int c = 0; c < kWarpColumns; ++c) {
          double const slack = u + v[c] - tile[lane][warp * kWarpColumns + c];
          if (slack > 0) visit(c, slack);
        }
      });
    };
    double root[kWarpColumns] = {}, count[kWarpColumns] = {};
    for_slacks([&](int c, double slack) {
      root[c] += slack * slack;
      count[c] += 1;
    });
    bool goes_on = false;
#pragma unroll
    for (int c = 0; c < kWarpColumns; ++c) {
      double const norm = sqrt(warp_sum(root[c]));
      count[c] = warp_sum(count[c]);
      root[c] = norm > threshold ? Norm{prox, threshold}.least(norm, count[c]) : 0.0;
      goes_on |= root[c] > 0 && threshold > 0;
    }
    for (int k = 0; k < Norm::kMostSteps && __syncthreads_or(goes_on); ++k) {
      Norm::Sums sums[kWarpColumns];
      for_slacks([&](int c, double slack) {
        if (!(root[c] > 0)) return;
        EntryProx<double> const of_group = prox.within_group(threshold, root[c]);
        sums[c].add(prox, of_group, of_group(slack));
      });
      goes_on = false;
#pragma unroll
      for (int c = 0; c < kWarpColumns; ++c) {
        Norm::Sums const all{warp_sum(sums[c].squares), warp_sum(sums[c].rises)};
        if (!(root[c] > 0)) continue;
        double const next = Norm{prox, threshold}.next(root[c], all);
        goes_on |= !Norm::is_last(root[c], next);
        if (next > root[c]) root[c] = next;
      }
    }
    for_slacks([&](int c, double slack) {
      if (!(root[c] > 0)) return;
      double const x = (threshold > 0 ? prox.within_group(threshold, root[c]) : prox)(slack);
      conjugate += terms.quadratic / 2 * x * x + terms.hypentropy * (x * (x / (hypot(x, terms.width) + terms.width)));
    });
    begin = end;
  }
  return conjugate;
}

/// One block for each 32 columns.
template <class Pairs>
__global__ void __launch_bounds__(kEntryBlock) entry_values_kernel(EvaluateEntriesArguments const arguments) {
  __shared__ CostTile tile;
  RegularizedEntries const& entries = arguments.entries;
  RegularizedMatrix const& matrix = entries.matrix;
  EntryTerms const& terms = arguments.terms;
  int const lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  int const first_column = static_cast<int>(blockIdx.x) * kEntryColumns;
  int const first_mine = first_column + warp * kWarpColumns;
  double v[kWarpColumns];
  bool const has_conjugate = arguments.bound == DualBound::of_conjugate;
  if (has_conjugate) {
#pragma unroll
    for (int c = 0; c < kWarpColumns; ++c) v[c] = first_mine + c < matrix.columns ? arguments.v[first_mine + c] : 0.0;
  } else {
    make_feasible<Pairs>(arguments, first_column, tile, v);
#pragma unroll
    for (int c = 0; c < kWarpColumns; ++c) {
      if (isinf(v[c])) v[c] = 0;  // A column without allowed pairs.
      if (lane == 0 && first_mine + c < matrix.columns) arguments.v[first_mine + c] = v[c];
    }
  }
  EntryValues found{};
  if (has_conjugate && terms.group && terms.hypentropy > 0)
    found.conjugate = grouped_conjugate<Pairs>(arguments, first_column, tile, v);
  double plan_squares[kWarpColumns] = {}, slack_squares[kWarpColumns] = {};  // Sums of the present group.
  for_cost_tiles<Pairs>(entries, first_column, tile, [&](int first_row) {
    int const place = first_row + lane;
    int const row = row_at(entries.order, place);
    double const u = row >= 0 ? arguments.u[place] : 0.0;
#pragma unroll
    for (int c = 0; c < kWarpColumns; ++c) {
      int const j = first_mine + c;
      if (row < 0 || j >= matrix.columns) continue;
      double const cost = tile[lane][warp * kWarpColumns + c];
      double const x = entry_at(entries, place, j, cost), slack = u + v[c] - cost;
      if (x > 0) {
        double const l1 = matrix.l1_weights.data ? matrix.l1 * l1_weight_at(matrix, row, j) : 0.0;
        found.transport_cost += x * (cost - l1);
        found.regularization += x * l1 + entry_term(terms, x);
        found.nonzeros += 1;
      }
      if (has_conjugate && slack > 0 && !terms.group) found.conjugate += entry_conjugate(terms, slack);
    }
    if (!terms.group) return;
    for_groups(terms, entries.order.size, first_row, [&](int begin, int end, int group, bool ends) {
#pragma unroll
      for (int c = 0; c < kWarpColumns; ++c) {
        int const j = first_mine + c;
        if (place >= begin && place < end && row >= 0 && j < matrix.columns) {
          double const cost = tile[lane][warp * kWarpColumns + c];
          double const x = entry_at(entries, place, j, cost), slack = fmax(u + v[c] - cost, 0.0);
          plan_squares[c] += x * x;
          slack_squares[c] += slack * slack;
        }
        if (!ends) continue;
        double const threshold = terms.group_lasso * terms.group_weight[group];
        double const norm = sqrt(warp_sum(plan_squares[c])), slack_norm = sqrt(warp_sum(slack_squares[c]));
        if (lane == 0) {
          found.regularization += threshold * norm;
          if (has_conjugate && terms.hypentropy == 0 && slack_norm > threshold)
            found.conjugate += (slack_norm - threshold) * (slack_norm - threshold) / (2 * terms.quadratic);
        }
        plan_squares[c] = slack_squares[c] = 0;
      }
    });
  });
  double* const numbers[] = {&found.transport_cost, &found.regularization, &found.conjugate, &found.nonzeros};
  for (double* number : numbers) {
    __syncthreads();  // block_sum() uses the same memory again.
    *number = block_sum<kEntryBlock>(*number);
  }
  if (threadIdx.x == 0) arguments.parts[blockIdx.x] = found;
}

/// One block.
__global__ void __launch_bounds__(kEntryBlock)
    sum_entry_values_kernel(EvaluateEntriesArguments const arguments, int parts) {
  RowOrder const& order = arguments.entries.order;
  int const thread = static_cast<int>(threadIdx.x);
  RegularizedValues sums;
  double nonzeros = 0, conjugate = 0;
  auto const add_point = [&](double marginal, double share, double potential) {
    double const residual = marginal - share;
    sums.residual_squares += residual * residual;
    sums.residual_l1 += fabs(residual);
    if (share > 0) sums.dual += share * potential;  // Potentials of points without mass may be infinite.
  };
  for (int place = thread; place < order.size; place += kEntryBlock) {
    int const row = row_at(order, place);
    if (row < 0) continue;
    double const marginal = arguments.marginal[0][row];
    sums.transported_mass += marginal;
    add_point(marginal, arguments.p[place], arguments.u[place]);
  }
  for (int j = thread; j < arguments.entries.matrix.columns; j += kEntryBlock)
    add_point(arguments.marginal[1][j], arguments.q[j], arguments.v[j]);
  for (int k = thread; k < parts; k += kEntryBlock) {
    EntryValues const part = arguments.parts[k];
    sums.transport_cost += part.transport_cost;
    sums.regularization += part.regularization;
    conjugate += part.conjugate;
    nonzeros += part.nonzeros;
  }
  sums.dual -= conjugate;
  double* const numbers[] = {&sums.transported_mass,
                             &sums.residual_squares,
                             &sums.residual_l1,
                             &sums.transport_cost,
                             &sums.regularization,
                             &sums.dual,
                             &nonzeros};
  for (double* number : numbers) {
    __syncthreads();
    *number = block_sum<kEntryBlock>(*number);
  }
  sums.nonzeros = static_cast<std::int64_t>(nonzeros);
  if (thread == 0) *arguments.result = sums;
}

/// One block for each tile.
template <class Pairs>
__global__ void __launch_bounds__(kEntryBlock)
    dense_entries_kernel(RegularizedEntries const entries, double factor, StridedView const out) {
  __shared__ CostTile tile;
  int const row_tiles = (entries.order.size - 1) / kEntryRows + 1;
  int const lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  int const block = static_cast<int>(blockIdx.x);
  int const first_row = block % row_tiles * kEntryRows, first_column = block / row_tiles * kEntryColumns;
  if (!entries.packed) load_costs<Pairs>(entries.matrix, entries.order, first_row, first_column, tile);
  __syncthreads();
  for (int c = warp; c < kEntryColumns; c += kEntryWarps) {
    int const j = first_column + c;
    if (first_row + lane < entries.order.size && j < entries.matrix.columns)
      tile[lane][c] = factor * entry_at(entries, first_row + lane, j, entries.packed ? 0.0 : tile[lane][c]);
  }
  __syncthreads();
  for (int r = warp; r < kEntryRows; r += kEntryWarps) {
    int const i = row_at(entries.order, first_row + r), j = first_column + lane;
    if (i >= 0 && j < entries.matrix.columns) store_element(out, i * out.stride + j, tile[r][lane]);
  }
}

/// One block for each 32 rows. Each warp takes an eighth of the columns of all of these rows, in order.
template <class Pairs>
__global__ void __launch_bounds__(kEntryBlock) nonzero_entries_kernel(NonzeroArguments const arguments) {
  __shared__ std::int64_t counts[kEntryWarps][kEntryRows];
  RegularizedEntries const& entries = arguments.entries;
  int const lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  int const place = static_cast<int>(blockIdx.x) * kEntryRows + lane, i = row_at(entries.order, place);
  std::int64_t const columns = entries.matrix.columns;
  int const first = static_cast<int>(columns * warp / kEntryWarps);
  int const end = static_cast<int>(columns * (warp + 1) / kEntryWarps);
  std::int64_t count = 0;
  if (i >= 0) {
#pragma unroll 8
    for (int j = first; j < end; ++j) count += entry_at<Pairs>(entries, place, i, j) > 0;
  }
  counts[warp][lane] = count;
  __syncthreads();
  if (i < 0) return;
  std::int64_t before = 0, total = 0;
  for (int w = 0; w < kEntryWarps; ++w) {
    before += w < warp ? counts[w][lane] : 0;
    total += counts[w][lane];
  }
  if (arguments.counts) {
    if (warp == 0) arguments.counts[i] = total;
    return;
  }
  StridedIndices const& row_begin = arguments.row_begin;
  std::int64_t const begin = row_begin.data[i * row_begin.stride];
  if (begin < 0 || begin > arguments.size - total || row_begin.data[(i + 1) * row_begin.stride] != begin + total) {
    atomicMin(reinterpret_cast<long long*>(arguments.first_wrong), static_cast<long long>(i));
    return;
  }
  std::int64_t at = begin + before;
  for (int j = first; j < end; ++j) {
    double const x = entry_at<Pairs>(entries, place, i, j);
    if (!(x > 0)) continue;
    arguments.columns.data[at * arguments.columns.stride] = j;
    store_element(arguments.values, at * arguments.values.stride, arguments.factor * x);
    ++at;
  }
}

inline constexpr int kProductWidth = 8;  // Columns of the values in one block.

/// The products of a point with the values from `first` on, followed by its marginal.
struct PointProduct {
  double sum[kProductWidth + 1];

  __device__ __forceinline__ void add(EntryProductOf const& product, double x, int other, int first) {
    sum[kProductWidth] += x;
    if (x == 0 || !product.values.data) return;
#pragma unroll
    for (int k = 0; k < kProductWidth; ++k) {
      if (first + k < product.width)
        sum[k] += x * load_element(product.values, other * product.values.stride + first + k);
    }
  }
  __device__ __forceinline__ void store(EntryProductOf const& product, int point, int first) const {
    double const marginal = sum[kProductWidth];
    for (int k = 0; k < kProductWidth && first + k < product.width; ++k) {
      double value = product.values.data ? sum[k] : marginal;
      value = !product.averaged ? product.factor * value : marginal > 0 ? value / marginal : 0.0;
      store_element(product.out, point * product.out.stride + first + k, value);
    }
  }
};

/// The blocks of a product with kProductWidth columns of the values: of 32 rows each, or of a column of X for each
/// warp. A grid has these for the first columns of the values, then for the next ones.
__host__ __device__ __forceinline__ unsigned product_blocks(EntryProductOf const& product) {
  bool const of_rows = product.side == Side::rows;
  int const points = of_rows ? product.entries.order.size : product.entries.matrix.columns;
  int const each = of_rows ? kEntryRows : kEntryWarps;
  return static_cast<unsigned>((points - 1) / each + 1);
}

/// Each warp takes every eighth column of X.
template <class Pairs>
__global__ void __launch_bounds__(kEntryBlock) row_products_kernel(EntryProductOf const product) {
  __shared__ double sums[kEntryWarps][kProductWidth + 1][kEntryRows];
  RegularizedEntries const& entries = product.entries;
  int const lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  unsigned const blocks = product_blocks(product);
  int const place = static_cast<int>(blockIdx.x % blocks) * kEntryRows + lane, i = row_at(entries.order, place);
  int const first = static_cast<int>(blockIdx.x / blocks) * kProductWidth;
  PointProduct mine{};
  if (i >= 0) {
#pragma unroll 4
    for (int j = warp; j < entries.matrix.columns; j += kEntryWarps)
      mine.add(product, entry_at<Pairs>(entries, place, i, j), j, first);
  }
#pragma unroll
  for (int k = 0; k <= kProductWidth; ++k) sums[warp][k][lane] = mine.sum[k];
  __syncthreads();
  if (warp > 0 || i < 0) return;
  for (int w = 1; w < kEntryWarps; ++w) {
    for (int k = 0; k <= kProductWidth; ++k) mine.sum[k] += sums[w][k][lane];
  }
  mine.store(product, i, first);
}

/// One warp for each column of X.
template <class Pairs>
__global__ void __launch_bounds__(kEntryBlock) column_products_kernel(EntryProductOf const product) {
  RegularizedEntries const& entries = product.entries;
  int const lane = static_cast<int>(threadIdx.x) % 32;
  unsigned const blocks = product_blocks(product);
  int const j = static_cast<int>(blockIdx.x % blocks) * kEntryWarps + static_cast<int>(threadIdx.x) / 32;
  int const first = static_cast<int>(blockIdx.x / blocks) * kProductWidth;
  if (j >= entries.matrix.columns) return;
  PointProduct mine{};
#pragma unroll 4
  for (int place = lane; place < entries.order.size; place += 32) {
    int const i = row_at(entries.order, place);
    if (i >= 0) mine.add(product, entry_at<Pairs>(entries, place, i, j), i, first);
  }
  for (double& sum : mine.sum) sum = warp_sum(sum);
  if (lane == 0) mine.store(product, j, first);
}

__global__ void __launch_bounds__(kEntryBlock) turn_points_kernel(Operand const points, int size, double* const out) {
  int const i = static_cast<int>(blockIdx.x) * kEntryBlock + static_cast<int>(threadIdx.x);
  if (i >= size) return;
  double const* const point = static_cast<double const*>(points.points) + static_cast<std::int64_t>(i) * points.stride;
  for (int k = 0; k < points.dimension; ++k) out[static_cast<std::int64_t>(k) * size + i] = point[k];
}

__global__ void __launch_bounds__(kEntryBlock)
    store_rows_kernel(RowOrder const order, double const* value, double factor, double shift, StridedView const out) {
  int const place = static_cast<int>(blockIdx.x) * kEntryBlock + static_cast<int>(threadIdx.x);
  int const i = row_at(order, place);
  if (i >= 0) store_element(out, i * out.stride, factor * value[place] + shift);
}

}  // namespace monge::cuda
