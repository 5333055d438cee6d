// The dual of a quadratically regularised plan and the system of its Newton steps.
//
//   z_lk = u_l + v_k - S_lk,  M = [z > 0]    l a line of memory, k a place
//   sums of z, z^2 and M over lines and places
//   ( [D_l M; M^T D_k] ) d = b,  D = count + mu max(count, 1)
//
// Tiling: in a pass a warp takes a line, 32 places at a time; its votes are the words of the line's mask. The mask is
//   then transposed, 32 x 32 bits in a warp: each lane gets a word of one place, and sums z of that place, in chunks of
//   lines. In the system a warp takes a line or a place, and each lane takes words of its mask. If few pairs are
//   active, they are listed first; one block, or a cluster of up to 8, then solves the system, a thread for a point.
// Traffic: a pass reads the costs once, and again where pairs are active, or computes them from points as often; it
//   writes 1/8 byte for each pair twice. A step of conjugate gradients reads both masks, from L2 up to n = 15,000, or
//   the lists, and three vectors. No data go to the host.
// Numerics: float64 in a fixed order. Conjugate gradients solve the Schur complement of the places, with Jacobi
//   preconditioning, in the form with one reduction for each step (Chronopoulos, Gear 1989). Three barriers for each
//   step dominate its time: those of a block cost a tenth of those of the grid, those of a cluster a third.
#pragma once
#include <cooperative_groups.h>

#include <cmath>

#include "cuda/device/cluster.cuh"
#include "cuda/device/numerics.cuh"
#include "cuda/device/ptx.cuh"
#include "cuda/device/scan.cuh"
#include "cuda/geometry/regularized_matrix.cuh"
#include "cuda/regularized/quadratic.hpp"

namespace monge::cuda {

inline constexpr int kQuadraticBlock = 256;
inline constexpr int kQuadraticWarps = kQuadraticBlock / 32;
inline constexpr int kChunkLines = 32 * kQuadraticWarps;
inline constexpr int kWordsInFlight = 8;
inline constexpr int kDirectionBlock = 1024;
inline constexpr int kDirectionWarps = kDirectionBlock / 32;
inline constexpr int kMostDirectionCluster = 8;

/// The source of S without the mask: a matrix of elements T, or points.
template <class T>
struct MatrixInLines {
  QuadraticProblem const& problem;

  /// Reads S of the places place, place + 32, ... of a line, as far as they exist.
  template <int kCount>
  __device__ __forceinline__ void read(int line, int place, double (&scaled)[kCount]) const {
    RegularizedMatrix const& matrix = problem.matrix;
    T const* const costs = static_cast<T const*>(matrix.cost.data) + line * matrix.cost.stride;
    T cost[kCount];
#pragma unroll
    for (int k = 0; k < kCount; ++k) cost[k] = place + 32 * k < problem.size[1] ? costs[place + 32 * k] : T(0);
#pragma unroll
    for (int k = 0; k < kCount; ++k) scaled[k] = scaled_cost(matrix, stored_score<double>(cost[k], matrix.cost.least));
  }
};
struct PointsInLines {
  QuadraticProblem const& problem;

  template <int kCount>
  __device__ __forceinline__ void read(int line, int place, double (&scaled)[kCount]) const {
    read_scaled_costs(problem.matrix, line, place, scaled);
  }
};

template <class LineCosts>
__device__ __forceinline__ double cost_in_line(QuadraticProblem const& problem, int line, int place) {
  double cost[1];
  LineCosts{problem}.read(line, place, cost);
  return cost[0];
}

__device__ __forceinline__ bool is_allowed(RegularizedMatrix const& matrix, int line, int place) {
  if (!matrix.mask.data) return true;
  return matrix.cost.transposed ? mask_at(matrix, place, line) != 0 : mask_at(matrix, line, place) != 0;
}

template <class LineCosts>
__global__ void __launch_bounds__(kQuadraticBlock) quadratic_pass_kernel(QuadraticPassArguments const arguments) {
  QuadraticProblem const& problem = arguments.problem;
  QuadraticState const& state = arguments.state;
  int const lane = static_cast<int>(threadIdx.x) % 32;
  int const line = static_cast<int>(blockIdx.x) * kQuadraticWarps + static_cast<int>(threadIdx.x) / 32;
  if (line >= problem.size[0]) return;
  double const u = state.potential[0][line];
  double sum = 0, squares = 0;
  int count = 0;
  for (int first = 0; first < problem.size[1]; first += 32 * kWordsInFlight) {
    double cost[kWordsInFlight];
    LineCosts{problem}.read(line, first + lane, cost);
    unsigned mine = 0;
#pragma unroll
    for (int k = 0; k < kWordsInFlight; ++k) {
      int const place = first + 32 * k + lane;
      double const z = place < problem.size[1] ? (u + state.potential[1][place]) - cost[k] : -INFINITY;
      bool const active = z > 0 && is_allowed(problem.matrix, line, place);
      if (active) {
        sum += z;
        squares += z * z;
      }
      unsigned const word = __ballot_sync(0xffffffffu, active);
      count += __popc(word);
      if (lane == k) mine = word;
    }
    int const word = first / 32 + lane;
    if (lane < kWordsInFlight && word < problem.words[0])
      state.mask[0][static_cast<std::int64_t>(line) * problem.words[0] + word] = mine;
  }
  sum = warp_sum(sum);
  squares = warp_sum(squares);
  if (lane > 0) return;
  state.sum[0][line] = sum;
  state.squares[line] = squares;
  state.count[0][line] = count;
}

/// Sums `sum` and `count` of each lane over the warps of a block, for the first warp.
__device__ __forceinline__ void sum_warps(double& sum, int& count) {
  __shared__ double sums[kQuadraticWarps][32];
  __shared__ int counts[kQuadraticWarps][32];
  int const lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  sums[warp][lane] = sum;
  counts[warp][lane] = count;
  __syncthreads();
  for (int w = 1; warp == 0 && w < kQuadraticWarps; ++w) {
    sum += sums[w][lane];
    count += counts[w][lane];
  }
}

__device__ __forceinline__ void store_chunk(QuadraticPassArguments const& arguments, int chunk, int place, double sum,
                                            int count) {
  if (threadIdx.x >= 32 || place >= arguments.problem.size[1]) return;
  std::int64_t const at = static_cast<std::int64_t>(chunk) * arguments.problem.size[1] + place;
  arguments.chunk_sum[at] = sum;
  arguments.chunk_count[at] = count;
}

/// One block for each word of the lines and each chunk of lines, chunk after chunk.
template <class LineCosts>
__global__ void __launch_bounds__(kQuadraticBlock) turn_mask_kernel(QuadraticPassArguments const arguments) {
  QuadraticProblem const& problem = arguments.problem;
  QuadraticState const& state = arguments.state;
  int const lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  unsigned const words = static_cast<unsigned>(problem.words[0]);
  int const chunk = static_cast<int>(blockIdx.x / words), word = static_cast<int>(blockIdx.x % words);
  int const place = 32 * word + lane, first_line = chunk * kChunkLines + 32 * warp, line = first_line + lane;
  unsigned const of_line =
      line < problem.size[0] ? state.mask[0][static_cast<std::int64_t>(line) * problem.words[0] + word] : 0u;
  unsigned of_place = 0;
#pragma unroll
  for (int k = 0; k < 32; ++k) {
    unsigned const turned = __ballot_sync(0xffffffffu, (of_line >> k & 1u) != 0);
    if (lane == k) of_place = turned;
  }
  double sum = 0;
  int count = __popc(of_place);
  if (place < problem.size[1]) {
    if (first_line < problem.size[0])
      state.mask[1][static_cast<std::int64_t>(place) * problem.words[1] + first_line / 32] = of_place;
    double const v = state.potential[1][place];
    for (unsigned bits = of_place; bits != 0; bits &= bits - 1) {
      int const l = first_line + __ffs(static_cast<int>(bits)) - 1;
      sum += (state.potential[0][l] + v) - cost_in_line<LineCosts>(problem, l, place);
    }
  }
  sum_warps(sum, count);
  store_chunk(arguments, chunk, place, sum, count);
}

/// Joins the sums of places over the chunks.
__global__ void __launch_bounds__(kQuadraticBlock)
    join_chunks_kernel(QuadraticPassArguments const arguments, int const chunks) {
  int const places = arguments.problem.size[1];
  int const place = static_cast<int>(blockIdx.x) * kQuadraticBlock + static_cast<int>(threadIdx.x);
  if (place >= places) return;
  double sum = 0;
  int count = 0;
  for (int chunk = 0; chunk < chunks; ++chunk) {
    sum += arguments.chunk_sum[static_cast<std::int64_t>(chunk) * places + place];
    count += arguments.chunk_count[static_cast<std::int64_t>(chunk) * places + place];
  }
  arguments.state.sum[1][place] = sum;
  arguments.state.count[1][place] = count;
}

/// One block.
__global__ void __launch_bounds__(kDirectionBlock)
    quadratic_values_kernel(QuadraticProblem const problem, QuadraticState const state, QuadraticValues* const result) {
  double dual = 0, gap = 0, l1 = 0, residual_squares = 0, squares = 0, active = 0;
  for (int side = 0; side < 2; ++side) {
    for (int i = static_cast<int>(threadIdx.x); i < problem.size[side]; i += kDirectionBlock) {
      double const share = problem.share[side][i];
      if (share == 0) continue;
      double const potential = state.potential[side][i], residual = state.sum[side][i] / problem.weight - share;
      dual += share * potential;
      gap += residual * potential;
      l1 += fabs(residual);
      residual_squares += residual * residual;
      if (side == 1) continue;
      squares += state.squares[i];
      active += state.count[0][i];
    }
  }
  auto const total = [](double value) {
    __syncthreads();
    return block_sum<kDirectionBlock>(value);
  };
  dual = total(dual);
  gap = total(gap);
  l1 = total(l1);
  residual_squares = total(residual_squares);
  squares = total(squares);
  active = total(active);
  if (threadIdx.x > 0) return;
  double const penalty = squares / (2 * problem.weight);
  *result = {dual - penalty, penalty, gap, l1, residual_squares, static_cast<std::int64_t>(active)};
}

/// The sum of `vector` over the bits of a mask, on all lanes.
__device__ __forceinline__ double gather(unsigned const* mask, int words, double const* vector) {
  double sum = 0;
  for (int w = static_cast<int>(threadIdx.x) % 32; w < words; w += 32) {
    for (unsigned bits = mask[w]; bits != 0; bits &= bits - 1)
      sum += vector[32 * w + __ffs(static_cast<int>(bits)) - 1];
  }
  return warp_sum(sum);
}

/// The sum of one number for each block, the same on all threads of the grid.
__device__ __forceinline__ double sum_blocks(double const* partial) {
  __shared__ double total;
  __syncthreads();
  if (threadIdx.x < 32) {
    double sum = 0;
    for (unsigned b = threadIdx.x; b < gridDim.x; b += 32) sum += partial[b];
    sum = warp_sum(sum);
    if (threadIdx.x == 0) total = sum;
  }
  __syncthreads();
  return total;
}

/// partial[block] = the sum of `value` over the threads of the block.
__device__ __forceinline__ void store_block_sum(double* partial, double value) {
  __syncthreads();
  double const sum = block_sum<kDirectionBlock>(value);
  if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

/// The start of the list of each point. One block for each side.
__global__ void __launch_bounds__(kDirectionBlock) list_begins_kernel(QuadraticDirectionArguments const arguments) {
  int const side = static_cast<int>(blockIdx.x);
  int* const begin = arguments.begin[side];
  scan_block<kDirectionBlock>(arguments.state.count[side], arguments.problem.size[side],
                              [&](std::int64_t i, int sum) { begin[i + 1] = sum; });
  if (threadIdx.x == 0) begin[0] = 0;
}

/// The lists, from the masks: one warp for each point; blockIdx.y is its side.
__global__ void __launch_bounds__(kQuadraticBlock) list_active_kernel(QuadraticDirectionArguments const arguments) {
  QuadraticProblem const& problem = arguments.problem;
  int const lane = static_cast<int>(threadIdx.x) % 32, side = static_cast<int>(blockIdx.y);
  int const i = static_cast<int>(blockIdx.x) * kQuadraticWarps + static_cast<int>(threadIdx.x) / 32;
  if (i >= problem.size[side]) return;
  int begin = arguments.begin[side][i];
  int const words = problem.words[side];
  unsigned const* const mask = arguments.state.mask[side] + static_cast<std::int64_t>(i) * words;
  for (int first = 0; first < words; first += 32) {
    unsigned const word = first + lane < words ? mask[first + lane] : 0u;
    int end = __popc(word);
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
      int const before = __shfl_up_sync(0xffffffffu, end, step);
      if (lane >= step) end += before;
    }
    int* out = arguments.list[side] + begin + end - __popc(word);
    for (unsigned bits = word; bits != 0; bits &= bits - 1)
      *out++ = 32 * (first + lane) + __ffs(static_cast<int>(bits)) - 1;
    begin += __shfl_sync(0xffffffffu, end, 31);
  }
}

/// A team of all blocks of a cooperative launch, on masks.
class GridTeam {
 public:
  __device__ explicit GridTeam(QuadraticDirectionArguments const& arguments) : arguments_(arguments) {}
  __device__ int thread() const { return static_cast<int>(blockIdx.x * kDirectionBlock + threadIdx.x); }
  __device__ int threads() const { return static_cast<int>(gridDim.x) * kDirectionBlock; }
  __device__ void sync() const { cooperative_groups::this_grid().sync(); }
  /// After a barrier, total(k), k from 0 to 2, is the sum of `value` over all threads.
  __device__ void store(int k, double value) const { store_block_sum(arguments_.partial[k], value); }
  __device__ double total(int k) const { return sum_blocks(arguments_.partial[k]); }
  /// Vectors on places that lines gather in each step, and the reverse.
  __device__ double* of_places() const { return arguments_.of_places; }
  __device__ double* of_lines() const { return arguments_.of_lines; }
  /// Calls visit(i, the sum of `vector` on the other side over the active pairs of i) for the points of a side.
  template <class Visit>
  __device__ __forceinline__ void for_sums(int side, double const* vector, Visit const& visit) const {
    int const words = arguments_.problem.words[side];
    for (int i = thread() / 32; i < arguments_.problem.size[side]; i += threads() / 32) {
      double const sum = gather(arguments_.state.mask[side] + static_cast<std::int64_t>(i) * words, words, vector);
      if (threadIdx.x % 32 == 0) visit(i, sum);
    }
  }

 private:
  QuadraticDirectionArguments const& arguments_;
};

/// A team of one block, or a cluster, on lists. A single block gathers from its shared memory.
template <bool kAlone>
class ListTeam {
 public:
  __device__ explicit ListTeam(QuadraticDirectionArguments const& arguments) : arguments_(arguments) {
    sync();  // A block stores only in blocks that have begun.
  }
  __device__ int thread() const { return rank() * kDirectionBlock + static_cast<int>(threadIdx.x); }
  __device__ int threads() const { return size() * kDirectionBlock; }
  __device__ void sync() const {
#if __CUDA_ARCH__ >= 900
    if constexpr (!kAlone) return cluster_barrier();
#endif
    __syncthreads();
  }
  /// Stores the sum of each warp in all blocks.
  __device__ void store(int k, double value) const {
    value = warp_sum(value);
    int const lane = static_cast<int>(threadIdx.x) % 32, warp = thread() / 32;
#if __CUDA_ARCH__ >= 900
    if constexpr (!kAlone) {
      if (lane < size()) store_in_cluster(in_block(shared_address(&partial(k)[warp]), lane), value);
      return;
    }
#endif
    if (lane == 0) partial(k)[warp] = value;
  }
  __device__ double total(int k) const {
    double sum = 0;
    for (int warp = static_cast<int>(threadIdx.x) % 32; warp < threads() / 32; warp += 32) sum += partial(k)[warp];
    return warp_sum(sum);
  }
  __device__ double* of_places() const {
    return kAlone ? shared() : arguments_.of_places;
  }
  __device__ double* of_lines() const {
    return kAlone ? shared() + arguments_.problem.size[1] : arguments_.of_lines;
  }
  template <class Visit>
  __device__ __forceinline__ void for_sums(int side, double const* vector, Visit const& visit) const {
    int const *const list = arguments_.list[side], *const begin = arguments_.begin[side];
    for (int i = thread(); i < arguments_.problem.size[side]; i += threads()) {
      double sum = 0;
      for (int k = begin[i]; k < begin[i + 1]; ++k) sum += vector[list[k]];
      visit(i, sum);
    }
  }

 private:
  __device__ static int rank() {
#if __CUDA_ARCH__ >= 900
    if constexpr (!kAlone) return block_of_cluster();
#endif
    return 0;
  }
  __device__ static int size() {
#if __CUDA_ARCH__ >= 900
    if constexpr (!kAlone) return cluster_size();
#endif
    return 1;
  }
  static __device__ double* shared() {
    extern __shared__ double gathered[];
    return gathered;
  }
  static __device__ double* partial(int k) {
    __shared__ double partials[3][(kAlone ? 1 : kMostDirectionCluster) * kDirectionWarps];
    return partials[k];
  }
  QuadraticDirectionArguments const& arguments_;
};
using BlockTeam = ListTeam<true>;
using ClusterTeam = ListTeam<false>;

template <class Team>
__global__ void __launch_bounds__(kDirectionBlock, 1)
    quadratic_direction_kernel(QuadraticDirectionArguments const arguments) {
  QuadraticProblem const& problem = arguments.problem;
  QuadraticState const& state = arguments.state;
  Team const team(arguments);
  int const lines = problem.size[0], places = problem.size[1];
  int const thread = team.thread(), threads = team.threads();
  double *const of_places = team.of_places(), *const of_lines = team.of_lines();
  auto const set_point = [&](int side, int i, double& diagonal) {
    double const count = state.count[side][i];
    diagonal = count + arguments.mu * fmax(count, 1.0);
    return arguments.right[side][i] = problem.weight * problem.share[side][i] - state.sum[side][i];
  };

  // Right-hand sides, and the squared norm that the tolerance is relative to.
  double size = 0;
  for (int l = thread; l < lines; l += threads) {
    double diagonal;
    double const right = set_point(0, l, diagonal);
    arguments.inverse[0][l] = 1 / diagonal;
    of_lines[l] = right / diagonal;
    size += right * right;
  }
  for (int k = thread; k < places; k += threads) {
    double const right = set_point(1, k, arguments.diagonal[k]);
    size += right * right;
  }
  team.store(2, size);
  team.sync();
  double gamma = 0, squares = 0;
  // One thread handles a place in both sums.
  team.for_sums(1, arguments.inverse[0],
                [&](int k, double sum) { arguments.inverse[1][k] = 1 / (arguments.diagonal[k] - sum); });
  team.for_sums(1, of_lines, [&](int k, double sum) {
    double const residual = arguments.right[1][k] - sum, inverse = arguments.inverse[1][k];
    arguments.residual[k] = residual;
    of_places[k] = inverse * residual;
    arguments.solution[1][k] = arguments.direction[k] = arguments.image[k] = 0;
    gamma += inverse * residual * residual;
    squares += residual * residual;
  });
  team.store(0, gamma);
  team.store(1, squares);
  team.sync();
  double const target = arguments.tolerance * arguments.tolerance * team.total(2);

  double last_gamma = 0, alpha = 0;
  int iteration = 0;
  for (;; ++iteration) {
    gamma = team.total(0);
    if (iteration == arguments.most || !(team.total(1) > target)) break;
    team.for_sums(0, of_places, [&](int l, double sum) { of_lines[l] = sum * arguments.inverse[0][l]; });
    team.sync();
    double delta = 0;
    team.for_sums(1, of_lines, [&](int k, double sum) {
      double const scaled = of_places[k], product = arguments.diagonal[k] * scaled - sum;
      arguments.product[k] = product;
      delta += scaled * product;
    });
    team.store(2, delta);
    team.sync();
    delta = team.total(2);
    double const beta = iteration > 0 ? gamma / last_gamma : 0;
    double const curvature = iteration > 0 ? delta - beta * gamma / alpha : delta;
    if (!(curvature > 0)) break;
    alpha = gamma / curvature;
    last_gamma = gamma;
    gamma = squares = 0;
    for (int k = thread; k < places; k += threads) {
      double const direction = of_places[k] + beta * arguments.direction[k];
      double const image = arguments.product[k] + beta * arguments.image[k];
      double const residual = arguments.residual[k] - alpha * image, scaled = arguments.inverse[1][k] * residual;
      arguments.direction[k] = direction;
      arguments.image[k] = image;
      arguments.residual[k] = residual;
      of_places[k] = scaled;
      arguments.solution[1][k] += alpha * direction;
      gamma += scaled * residual;
      squares += residual * residual;
    }
    team.store(0, gamma);
    team.store(1, squares);
    team.sync();
  }

  // Solution of the lines, the slope, and p'du + q'dv.
  double slope = 0, linear_rise = 0;
  team.for_sums(0, arguments.solution[1], [&](int l, double sum) {
    double const right = arguments.right[0][l], solution = (right - sum) * arguments.inverse[0][l];
    arguments.solution[0][l] = solution;
    slope += right * solution;
    linear_rise += problem.share[0][l] * solution;
  });
  for (int k = thread; k < places; k += threads) {
    double const solution = arguments.solution[1][k];
    slope += arguments.right[1][k] * solution;
    linear_rise += problem.share[1][k] * solution;
  }
  team.sync();  // All threads have read the totals.
  team.store(0, slope);
  team.store(1, linear_rise);
  team.sync();
  slope = team.total(0);
  linear_rise = team.total(1);
  if (thread == 0) *arguments.result = {slope / problem.weight, linear_rise, iteration};
}

/// One warp for each point of `side`.
template <class LineCosts>
__global__ void __launch_bounds__(kQuadraticBlock)
    idle_potentials_kernel(QuadraticProblem const problem, int const side, double const* const potential,
                           double const* const other, double* const out) {
  int const lane = static_cast<int>(threadIdx.x) % 32;
  int const i = static_cast<int>(blockIdx.x) * kQuadraticWarps + static_cast<int>(threadIdx.x) / 32;
  if (i >= problem.size[side]) return;
  if (problem.share[side][i] != 0) {
    if (lane == 0) out[i] = potential[i];
    return;
  }
  double least = INFINITY;
  for (int k = lane; k < problem.size[1 - side]; k += 32) {
    int const line = side == 0 ? i : k, place = side == 0 ? k : i;
    if (is_allowed(problem.matrix, line, place))
      least = fmin(least, cost_in_line<LineCosts>(problem, line, place) - other[k]);
  }
  least = -warp_max(-least);
  if (lane == 0) out[i] = isinf(least) ? 0.0 : least;
}

}  // namespace monge::cuda
