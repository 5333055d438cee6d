// A whole sweep from one read of a cost matrix.
//
//   For each line i of the memory (a row of the problem, or a column if the matrix is transposed)
//     (reference_i, sum_i) with sum_i = sum_j beta_j 2^(t_ij - reference_i),   t_ij = h_j + c (C_ij - least),
//   which gives f+_i and the line's new potential; and for each j across the lines
//     q_j = sum_i 2^(t_ij - reference_i) w_i,   w_i = a_i / (M sum_i) exp((f_i - f+_i) / eps),
//   with the new f_i (the old one if symmetric), so that c_j = M beta_j q_j is the plan's marginal after the line's
//   update: g+_j = g_j - eps log(c_j / b_j) costs no second exponential (docs/math.md, section 3).
//
// Tiling: a cluster of blocks has every clusters-th line, four at a time. Each of its threads has the same 8 to 16
// places
//   of all of them, whose q_j stay in registers, h_j and beta_j in shared memory. Lines come through a ring in shared
//   memory, copied by the thread that reads them, so no barrier waits for memory. A thread's exponentials are relative
//   to its own largest logit and stay in registers until w_i is known: one warp of each block joins the sums of the
//   four lines, eight lanes a line, and makes their weights. The blocks of a cluster send each other their sums.
//   Meanwhile a second block of the multiprocessor has the pipes.
//
// Per pair: one exponential, FADD, FFMA, FMNMX, FADD, FFMA, FFMA. Device memory: the matrix once. L2: one number for
//   each place and cluster, written and read.
//
// Numerics: q_j runs in T over the lines of a cluster, in double over the clusters. With the new potential of a plain
//   step the terms of q_j are at most a_i / M, so it does not overflow; a w_i that is too large (a stray potential)
//   makes the q_j infinite. Where q_j is that, or so small that the terms which are lost below T's smallest number may
//   count, update_across_kernel makes g+_j from the logits of its own line of pairs.
#pragma once
#include <algorithm>

#include "cuda/device/cluster.cuh"
#include "cuda/device/exp2.cuh"
#include "cuda/device/potential.cuh"
#include "cuda/device/source.cuh"
#include "cuda/device/stored.cuh"
#include "cuda/launch/fused_sweep.hpp"

namespace monge::cuda {

inline constexpr int kMostWarps = 7;  // Of a block; and one that joins. Two such blocks leave 128 registers a thread.
inline constexpr int kMostCluster = 8;
inline constexpr int kGroupLines = 4;         // At a time.
inline constexpr int kMostThreadBytes = 480;  // Of shared memory, which two blocks share.

/// kVectors: of 16 bytes of a line, a thread.
template <class S, class T, int kVectors>
struct FusedSweepPolicy {
  static constexpr int kPerVector = 16 / sizeof(S);
  static constexpr int kPlaces = kVectors * kPerVector;  // Of a thread.
  static constexpr bool kHasFactors = sizeof(T) == 4;
  /// In shared memory: a line of the ring; the logits and factors of the places; and all of it.
  static constexpr int kLineBytes = kVectors * 16;
  static constexpr int kLogitBytes = kPlaces * static_cast<int>(sizeof(T)) * (kHasFactors ? 2 : 1);
  static constexpr int kRingLines = std::min((kMostThreadBytes - kLogitBytes) / kLineBytes, 8);
  static constexpr int kThreadBytes = kLogitBytes + kRingLines * kLineBytes;
};

/// w_i above this is taken for infinite: it bounds what the terms that are lost to underflow may be.
inline constexpr double kLargestLineWeight = 65536;

template <class T>
struct LineWeight {
  T reference;
  T weight;
};

/// Between the warps of a cluster, for one group of lines and the next: a warp has the weights of a group before it
/// adds to the sums of the next, so all blocks have read those of the group before.
template <class T>
struct alignas(16) LineMessages {
  PartialSum<T> blocks[2][kMostCluster][kGroupLines];  // Of the blocks of a cluster.
  PartialSum<T> warps[2][kGroupLines][kMostWarps];     // Of this block.
  LineWeight<T> weight[2][kGroupLines];
  std::uint64_t summed[2];   // Barriers: the sums of the warps are there;
  std::uint64_t joined[2];   // those of the other blocks are;
  std::uint64_t weighed[2];  // the weights are.
};

#if __CUDA_ARCH__ >= 900

/// What a line's weight follows from, beside its sum.
struct LineConstants {
  double norm, weight, old;
  __device__ __forceinline__ LineConstants(FusedSweepArguments const& arguments, int line)
      : norm(arguments.lines.norm[line]), weight(arguments.lines.weight[line]), old(arguments.potential[line]) {}
};

/// w_i: what the exponentials of line i, relative to its reference, count in the sums across.
template <class T>
__device__ __forceinline__ double line_weight(FusedSweepArguments const& arguments, SweepParameters const& parameters,
                                              LineConstants const& constants, T reference, double sum) {
  if (constants.weight == 0) return 0;
  double weight = constants.weight * arguments.inverse_mass / sum;
  if (arguments.symmetric || parameters.relaxation != 1) {
    double const plus = softmin_value(constants.norm, parameters, arguments.side, reference, sum);
    double const u = (plus - constants.old) / parameters.eps;
    weight *= exp(arguments.symmetric ? -u : (safe_relaxation(u, parameters.relaxation) - 1) * u);
  }
  return weight < kLargestLineWeight ? weight : static_cast<double>(INFINITY);
}

/// The maxima (or sums) of kGroupLines values over the lanes of a warp: lanes 8 g to 8 g + 7 get that of value g.
template <class T, class Join>
__device__ __forceinline__ T reduce_group(T const (&value)[kGroupLines], Join&& join) {
  int const lane = static_cast<int>(threadIdx.x) % 32;
  bool const upper = lane & 16, second = lane & 8;
  auto const exchange = [&](T keep, T give, int mask) { return join(keep, __shfl_xor_sync(0xffffffffu, give, mask)); };
  T const first = exchange(upper ? value[2] : value[0], upper ? value[0] : value[2], 16);
  T const other = exchange(upper ? value[3] : value[1], upper ? value[1] : value[3], 16);
  T result = exchange(second ? other : first, second ? first : other, 8);
#pragma unroll
  for (int mask = 4; mask > 0; mask /= 2) result = exchange(result, result, mask);
  return result;
}

/// (reference, sum) of a line from those of up to eight parts, one a lane, for all eight lanes of the line.
template <class T>
__device__ __forceinline__ PartialSum<T> join_parts(PartialSum<T> const* part, int stride, int count) {
  int const lane = static_cast<int>(threadIdx.x) % 8;
  PartialSum<T> const mine = lane < count ? part[lane * stride] : PartialSum<T>{kLowestReference<T>, T(0)};
  T reference = mine.reference;
#pragma unroll
  for (int mask = 4; mask > 0; mask /= 2) reference = fmax(reference, __shfl_xor_sync(0xffffffffu, reference, mask));
  T sum = mine.sum * exp2_of_loss(mine.reference - reference);
#pragma unroll
  for (int mask = 4; mask > 0; mask /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, mask);
  return {reference, sum};
}

/// The warp that joins: sums of all warps of the cluster to weights, group after group. Eight lanes have a line.
template <class T>
__device__ __forceinline__ void weigh_lines(FusedSweepArguments const& arguments, LineMessages<T>& messages,
                                            int first_line, int line_step, int count, int warps) {
  static_assert(kMostWarps <= 8 && kMostCluster <= 8);
  int const lane = static_cast<int>(threadIdx.x) % 32, g = lane / 8;
  int const cluster = cluster_size(), rank = cluster_rank();
  auto const line_of = [&](int k) { return first_line + min(k + g, count - 1) * line_step; };
  SweepParameters const parameters = *arguments.parameters;
  LineConstants next(arguments, line_of(0));
  for (int k = 0, group = 0; k < count; k += kGroupLines, ++group) {
    int const line = line_of(k), slot = group % 2, parity = group / 2 % 2;
    LineConstants const constants = next;
    if (k + kGroupLines < count) next = LineConstants(arguments, line_of(k + kGroupLines));
    wait_at_barrier(shared_address(&messages.summed[slot]), parity);
    PartialSum<T> sum = join_parts(messages.warps[slot][g], 1, warps);
    if (cluster > 1) {
      auto& blocks = messages.blocks[slot];
      constexpr int kBytes = sizeof(blocks[0]);
      std::uint32_t const barrier = shared_address(&messages.joined[slot]);
      if (lane % 8 == 0) blocks[rank][g] = sum;
      __syncwarp();
      if (lane < cluster && lane != rank) send_to_block(shared_address(blocks[rank]), kBytes, barrier, lane);
      if (lane == 0) expect_bytes(barrier, (cluster - 1) * kBytes);
      wait_at_barrier(barrier, parity);
      sum = join_parts(&blocks[0][g], kGroupLines, cluster);
    }
    bool const there = k + g < count;
    double const weight =
        there ? line_weight(arguments, parameters, constants, sum.reference, static_cast<double>(sum.sum)) : 0.0;
    if (lane % 8 == 0) messages.weight[slot][g] = {sum.reference, static_cast<T>(weight)};
    __syncwarp();
    if (lane == 0) arrive(shared_address(&messages.weighed[slot]));
    if (lane % 8 == 0 && there && rank == 0) static_cast<PartialSum<T>*>(arguments.line_sums)[line] = sum;
  }
}

/// A thread's places of the lines of its cluster.
template <class S, class T, int kVectors>
__device__ __forceinline__ void sum_lines(FusedSweepArguments const& arguments, LineMessages<T>& messages,
                                          unsigned char* shared, int first_line, int line_step, int count) {
  using Policy = FusedSweepPolicy<S, T, kVectors>;
  constexpr int kPlaces = Policy::kPlaces, kPerVector = Policy::kPerVector, kRingLines = Policy::kRingLines;
  constexpr int kPerLogitVector = 16 / sizeof(T);
  StoredCosts const& costs = arguments.costs;
  int const thread = static_cast<int>(threadIdx.x), lane = thread % 32;
  int const threads = static_cast<int>(blockDim.x) - 32;
  int const size = costs.line_size();
  int const vector_step = threads * kPerVector, logit_step = threads * kPerLogitVector;
  int const first_place = cluster_rank() * threads * kPlaces + thread * kPerVector;
  auto const place_of = [&](int c) { return first_place + c / kPerVector * vector_step + c % kPerVector; };
  // Of the vectors that are copied as such; those past the end of the line are not copied at all.
  int const whole = costs.aligned ? size - kPerVector : -1;

  // All of it is a thread's own, 16 bytes of each thread side by side.
  auto* const ring = reinterpret_cast<S*>(shared) + thread * kPerVector;
  auto* const logits =
      reinterpret_cast<T*>(shared + kRingLines * Policy::kLineBytes * threads) + thread * kPerLogitVector;
  T* const factors = logits + kPlaces * threads;  // Where there are any.
  auto const fetch = [&](int k) {
    if (k < count) {
      S const* const line = static_cast<S const*>(costs.data) +
                            (first_line + static_cast<std::int64_t>(k) * line_step) * costs.stride + first_place;
      S* const to = ring + k % kRingLines * kVectors * vector_step;
#pragma unroll
      for (int v = 0; v < kVectors; ++v) {
        int const place = first_place + v * vector_step;
        std::uint32_t const address = shared_address(to + v * vector_step);
        if (place <= whole) {
          copy_async_16(address, line + v * vector_step);
        } else {
#pragma unroll
          for (int e = 0; e < kPerVector; ++e) {
            if (place + e < size)
              copy_async<sizeof(S)>(address + e * static_cast<int>(sizeof(S)), line + v * vector_step + e);
          }
        }
      }
    }
    copy_async_commit();
  };
#pragma unroll
  for (int c = 0; c < kPlaces; ++c) {
    if (place_of(c) >= size) {  // Nothing is ever copied there.
      for (int s = 0; s < kRingLines; ++s)
        ring[(s * kVectors + c / kPerVector) * vector_step + c % kPerVector] = static_cast<S>(INFINITY);
    }
  }
  // The matrix never changes; logits and parameters may be the work of the kernel before.
#pragma unroll
  for (int k = 0; k < kRingLines; ++k) fetch(k);
  wait_for_previous_kernel();

  T const factor = static_cast<T>(arguments.factor * arguments.parameters->log2e_over_eps);
  T across[kPlaces];
#pragma unroll
  for (int c = 0; c < kPlaces; ++c) {
    int const place = place_of(c), to = c / kPerLogitVector * logit_step + c % kPerLogitVector;
    bool const there = place < size;
    logits[to] = there ? static_cast<T const*>(arguments.logits.logits)[place] : kEmptyLogit<T>;
    if constexpr (Policy::kHasFactors) factors[to] = there ? arguments.logits.factors[place] : 0;
    across[c] = 0;
  }

  for (int k = 0, group = 0; k < count; k += kGroupLines, ++group) {
    // Exponentials relative to the thread's references.
    T term[kGroupLines][kPlaces], reference[kGroupLines], sum[kGroupLines];
#pragma unroll
    for (int g = 0; g < kGroupLines; ++g) {
      reference[g] = kLowestReference<T>;
      sum[g] = 0;
      if (k + g < count) {
        copy_async_wait<kRingLines - 1>();
        S const* const from = ring + (k + g) % kRingLines * kVectors * vector_step;
#pragma unroll
        for (int v = 0; v < kVectors; ++v) {
          S cost[kPerVector];
          load_16_bytes(cost, from + v * vector_step);
#pragma unroll
          for (int e = 0; e < kPerVector; ++e)
            term[g][v * kPerVector + e] = factor * stored_score<T>(cost[e], costs.least);
        }
        fetch(k + g + kRingLines);
#pragma unroll
        for (int v = 0; v < kPlaces / kPerLogitVector; ++v) {
          T logit[kPerLogitVector];
          load_16_bytes(logit, logits + v * logit_step);
#pragma unroll
          for (int e = 0; e < kPerLogitVector; ++e) {
            T& t = term[g][v * kPerLogitVector + e];
            t += logit[e];
            reference[g] = fmax(reference[g], t);
          }
        }
#pragma unroll
        for (int v = 0; v < kPlaces / kPerLogitVector; ++v) {
          T beta[kPerLogitVector];
          if constexpr (Policy::kHasFactors) load_16_bytes(beta, factors + v * logit_step);
#pragma unroll
          for (int e = 0; e < kPerLogitVector; ++e) {
            T& t = term[g][v * kPerLogitVector + e];
            t = exp2_of_loss(t - reference[g]);
            sum[g] += Policy::kHasFactors ? beta[e] * t : t;
          }
        }
      } else {
#pragma unroll
        for (int c = 0; c < kPlaces; ++c) term[g][c] = 0;
      }
    }
    // To those who join: relative to the warp's reference.
    int const slot = group % 2;
    T const largest = reduce_group(reference, [](T x, T y) { return fmax(x, y); });
#pragma unroll
    for (int g = 0; g < kGroupLines; ++g)
      sum[g] *= exp2_of_loss(reference[g] - __shfl_sync(0xffffffffu, largest, 8 * g));
    T const total = reduce_group(sum, [](T x, T y) { return x + y; });
    if (lane % 8 == 0) messages.warps[slot][lane / 8][thread / 32] = {largest, total};
    __syncwarp();
    if (lane == 0) arrive(shared_address(&messages.summed[slot]));
    wait_at_barrier(shared_address(&messages.weighed[slot]), group / 2 % 2);
#pragma unroll
    for (int g = 0; g < kGroupLines; ++g) {
      LineWeight<T> const line = messages.weight[slot][g];
      T const weight = line.weight * exp2_of_loss(reference[g] - line.reference);
#pragma unroll
      for (int c = 0; c < kPlaces; ++c) across[c] += weight * term[g][c];
    }
  }

  T* const out =
      static_cast<T*>(arguments.across_sums) + static_cast<std::int64_t>(first_line) * arguments.across_stride;
#pragma unroll
  for (int c = 0; c < kPlaces; ++c) {
    if (place_of(c) < size) out[place_of(c)] = across[c];
  }
}

#define MONGE_FUSED_SWEEP_THREADS 32 * (kMostWarps + 1)
#else
#define MONGE_FUSED_SWEEP_THREADS 32
#endif

/// Grid: clusters of blocks, at most one a line. A multiple of 32 threads and as many more; only code for sm_90 and
/// newer has a body; elsewhere the launch bound says so.
template <class S, class T, int kVectors, class Source>
__global__ void __launch_bounds__(MONGE_FUSED_SWEEP_THREADS, 2) fused_sweep_kernel(Source const source) {
#if __CUDA_ARCH__ >= 900
  extern __shared__ __align__(16) unsigned char shared[];
  __shared__ __align__(16) LineMessages<T> messages;
  Share<FusedSweepArguments> const share = share_of(source);
  FusedSweepArguments const& arguments = share.arguments;
  int const warps = static_cast<int>(blockDim.x) / 32 - 1;
  start_next_kernel();
  if (threadIdx.x == 0) {
    for (int slot = 0; slot < 2; ++slot) {
      start_barrier(shared_address(&messages.summed[slot]), warps);
      start_barrier(shared_address(&messages.joined[slot]), 1);
      start_barrier(shared_address(&messages.weighed[slot]), 1);
    }
  }
  cluster_barrier();
  int const clusters = arguments.clusters;
  int const first_line = share.block / cluster_size();
  int const count = (arguments.costs.lines() - 1 - first_line) / clusters + 1;
  if (static_cast<int>(threadIdx.x) / 32 == warps) {
    wait_for_previous_kernel();
    weigh_lines(arguments, messages, first_line, clusters, count, warps);
  } else {
    sum_lines<S, T, kVectors>(arguments, messages, shared, first_line, clusters, count);
  }
  // No block goes while another may still write to it.
  cluster_barrier();
#endif
}
#undef MONGE_FUSED_SWEEP_THREADS

inline constexpr int kAcrossColumns = 128;
inline constexpr int kAcrossGroups = 8;

/// Below this a sum across `lines` lines may have lost terms that count. Each line loses less than its weight, or 1,
/// times T's smallest number.
template <class T>
__device__ __forceinline__ double smallest_across(int lines) {
  return lines * (sizeof(T) == 4 ? 0x1p-85 : 0x1p-950);
}

/// The logarithm of the sum of a place's terms over the lines of a group, in two parts, pair by pair.
template <class T>
__device__ __forceinline__ void softmin_across(AcrossArguments const& arguments, SweepParameters const& parameters,
                                               int place, int group, T& reference, double& sum) {
  constexpr int kBatch = 8;
  int const lines = arguments.costs.lines();
  T const factor = static_cast<T>(arguments.factor * parameters.log2e_over_eps);
  reference = kLowestReference<T>;
  sum = 0;
  for (int first = group; first < lines; first += kAcrossGroups * kBatch) {
    T term[kBatch], next = reference;
#pragma unroll
    for (int k = 0; k < kBatch; ++k) {
      int const line = first + k * kAcrossGroups;
      term[k] = line < lines ? static_cast<T const*>(arguments.lines.logits)[line] +
                                   factor * stored_score<T>(arguments.costs, line, place)
                             : kEmptyLogit<T>;
      next = fmax(next, term[k]);
    }
    sum *= static_cast<double>(exp2_of_loss(reference - next));
#pragma unroll
    for (int k = 0; k < kBatch; ++k) {
      int const line = first + k * kAcrossGroups;
      if (line >= lines) continue;
      double const beta = sizeof(T) == 4 ? static_cast<double>(arguments.lines.factors[line]) : 1.0;
      sum += beta * static_cast<double>(exp2_of_loss(term[k] - next));
    }
    reference = next;
  }
}

/// The potential of the side across the lines, from the sums of the clusters, 128 places a block. 8 threads a place
/// share its clusters; where the sum is not to be trusted, its lines.
template <class T, class Source>
__global__ void __launch_bounds__(kAcrossColumns* kAcrossGroups) update_across_kernel(Source const source) {
  Share<AcrossArguments> const share = share_of(source);
  AcrossArguments const& arguments = share.arguments;
  __shared__ double sums[kAcrossGroups][kAcrossColumns];
  __shared__ T references[kAcrossGroups][kAcrossColumns];
  __shared__ bool lost[kAcrossColumns];
  UpdateArguments const& update = arguments.update;
  PackedSide const& points = update.sums.points;
  int const column = static_cast<int>(threadIdx.x) % kAcrossColumns;
  int const group = static_cast<int>(threadIdx.x) / kAcrossColumns;
  int const place = share.block * kAcrossColumns + column;
  bool const real = place < points.size;
  start_next_kernel();
  wait_for_previous_kernel();
  SweepParameters const parameters = *update.sums.parameters;

  double sum = 0;
  if (real) {
    auto const* const from = static_cast<T const*>(update.sums.partials) + place;
#pragma unroll 8
    for (int cluster = group; cluster < arguments.clusters; cluster += kAcrossGroups)
      sum += static_cast<double>(from[static_cast<std::int64_t>(cluster) * points.padded_size]);
  }
  sums[group][column] = sum;
  __syncthreads();
  double error = 0, plus = 0;
  if (group == 0) {
    for (int g = 1; g < kAcrossGroups; ++g) sum += sums[g][column];
    lost[column] = false;
    if (real && points.weight[place] > 0) {
      // c_j / b_j, were it not for the rounding of h_j.
      double const ratio = sum * arguments.mass / points.weight[place];
      double const factor = sizeof(T) == 4 ? static_cast<double>(update.arrays.factors[place]) : 1.0;
      lost[column] = !(sum > smallest_across<T>(arguments.costs.lines()) && sum < INFINITY);
      plus = update.potential[place] - parameters.eps_ln2 * log2(ratio * factor);
    }
  }
  bool const any_lost = __syncthreads_or(group == 0 && lost[column]);
  if (any_lost) {
    if (lost[column]) {
      T reference;
      softmin_across(arguments, parameters, place, group, reference, sum);
      references[group][column] = reference;
      sums[group][column] = sum;
    }
    __syncthreads();
    if (group == 0 && lost[column]) {
      T reference = references[0][column];
      for (int g = 1; g < kAcrossGroups; ++g) reference = fmax(reference, references[g][column]);
      sum = 0;
      for (int g = 0; g < kAcrossGroups; ++g)
        sum += sums[g][column] * static_cast<double>(exp2_of_loss(references[g][column] - reference));
      plus = softmin_value(points.norm[place], parameters, update.sums.side, reference, sum);
    }
  }
  if (group == 0 && real) {
    PointConstants const constants(points, place);
    error = update_point<T>(update, parameters, constants, place, update.potential[place], plus);
  }
  double const total = block_sum<kAcrossColumns * kAcrossGroups>(error);
  if (threadIdx.x == 0) update.errors[share.block] = total;
}

}  // namespace monge::cuda
