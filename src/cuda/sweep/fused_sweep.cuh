// A whole sweep from one read of a cost matrix.
//
//   For each line i of the memory (a row of the problem, or a column if the matrix is transposed)
//     (reference_i, sum_i) with sum_i = sum_j beta_j 2^(t_ij - reference_i),   t_ij = h_j + c (C_ij - least),
//   which gives f+_i and the line's new potential; and for each j across the lines
//     q_j = sum_i 2^(t_ij - reference_i) w_i,   w_i = a_i / (M sum_i) exp((f_i - f+_i) / eps),
//   with the new f_i (the old one if symmetric), so that c_j = M beta_j q_j is the plan's marginal after the line's
//   update: g+_j = g_j - eps log(c_j / b_j) costs no second exponential (docs/math.md, section 3).
//
// Tiling: a cluster of blocks takes every clusters-th line. Each thread takes the same 12 places of all its lines, with
//   q_j in registers and h_j and beta_j in shared memory. Each thread copies its own costs to a ring in shared memory,
//   so no barrier waits for memory. The exponentials of a thread are relative to its largest logit and stay in
//   registers until w_i is known. One warp of each block joins the sums of a line and computes w_i while the other
//   warps work on the next line. They meet at barriers in shared memory, where blocks of a cluster write to each other.
//
// Per pair: one exponential, FADD, FFMA, FMNMX, FADD, FFMA, FFMA. Device memory: the matrix once. L2: one number for
//   each place and cluster, written and read.
//
// Numerics: q_j is summed in float over the lines of a cluster and in double over the clusters. After a plain step the
//   terms of q_j are at most a_i / M, so q_j does not overflow. If w_i is too large, as with a poor warm start, q_j
//   becomes infinite. If q_j is infinite, or so small that terms below float's smallest number may count,
//   update_across_kernel computes g+_j from all pairs of place j.
#pragma once
#include "cuda/device/cluster.cuh"
#include "cuda/device/source.cuh"
#include "cuda/device/stored.cuh"
#include "cuda/sweep/fused_sweep.hpp"
#include "cuda/sweep/potential.cuh"

namespace monge::cuda {

inline constexpr int kMostWarps = 16;  // Warps of a block that compute exponentials; one more joins.
inline constexpr int kMostCluster = 8;
inline constexpr int kMostThreadBytes = 400;  // 200 KiB a block.

/// kVectors: groups of 16 bytes that a thread takes of each line.
template <class S, int kVectors>
struct FusedSweepPolicy {
  static constexpr int kPerVector = 16 / sizeof(S);
  static constexpr int kPlaces = kVectors * kPerVector;  // Places of a line, for each thread.
  /// Bytes of a thread in shared memory: a stage of the ring, logits and factors, and all together.
  static constexpr int kStageBytes = kVectors * 16;
  static constexpr int kLogitBytes = kPlaces * 2 * static_cast<int>(sizeof(float));
  static constexpr int kStages = kLogitBytes + 4 * kStageBytes <= kMostThreadBytes ? 4 : 3;
  static constexpr int kThreadBytes = kLogitBytes + kStages * kStageBytes;
};

/// Lines in flight between the warps. Three suffice: a warp writes for line k + 3 only after all warps have read line
/// k, because each first waits for the weight of line k + 1. Four make k % kLineSlots cheap.
inline constexpr int kLineSlots = 4;

/// A larger w_i becomes infinite. This bounds the terms that are lost to underflow.
inline constexpr double kLargestLineWeight = 65536;

struct LineWeight {
  float reference;
  float weight;
};

struct LineMessages {
  PartialSum<float> parts[kLineSlots][kMostCluster * kMostWarps];  // Parts of each warp of the cluster.
  LineWeight weight[kLineSlots];
  std::uint64_t summed[kLineSlots];   // Barriers: all parts have arrived.
  std::uint64_t weighed[kLineSlots];  // Barriers: the weight has arrived.
};

#if __CUDA_ARCH__ >= 900

/// Whether the cluster is one block, whose warps can use ordinary barriers.
__device__ __forceinline__ bool is_alone() {
  return cluster_size() == 1;
}

/// The data of a line that, with its sum, determine its weight.
struct LineConstants {
  double norm, weight, shift, old;
  __device__ __forceinline__ LineConstants(FusedSweepArguments const& arguments, int line)
      : norm(arguments.lines.norm[line]),
        weight(arguments.lines.weight[line]),
        shift(isinf(arguments.lines.penalty) ? 0.0 : arguments.lines.shift[line]),
        old(arguments.potential[line]) {}
};

/// w_i: the factor of the exponentials of line i, relative to its reference, in the sums across the lines.
__device__ __forceinline__ double line_weight(FusedSweepArguments const& arguments, SweepParameters const& parameters,
                                              LineConstants const& constants, float reference, double sum) {
  if (constants.weight == 0) return 0;
  double weight = constants.weight * arguments.inverse_mass / sum;
  // A plain step to a constraint gives f = f+.
  if (arguments.symmetric || parameters.relaxation != 1 || !isinf(arguments.lines.penalty)) {
    double const plus = softmin_value(constants.norm, parameters, arguments.side, reference, sum);
    UpdateRule const rule{parameters.eps, arguments.lines.penalty, parameters.relaxation};
    double const used = arguments.symmetric ? constants.old : rule.next(constants.old, plus, constants.shift);
    weight *= exp((used - plus) / parameters.eps);
  }
  return weight < kLargestLineWeight ? weight : static_cast<double>(INFINITY);
}

/// Work of the joining warp: for each line, joins the sums of all warps of the cluster and computes the weight.
__device__ __forceinline__ void weigh_lines(FusedSweepArguments const& arguments, LineMessages& messages,
                                            int first_line, int line_step, int count, int parts) {
  int const lane = static_cast<int>(threadIdx.x) % 32;
  bool const stores = block_of_cluster() == 0 && lane == 0;
  SweepParameters const parameters = *arguments.parameters;
  LineConstants next(arguments, first_line);
  for (int k = 0; k < count; ++k) {
    int const line = first_line + k * line_step, slot = k % kLineSlots;
    LineConstants const constants = next;
    if (k + 1 < count) next = LineConstants(arguments, line + line_step);
    if (lane == 0 && !is_alone())
      expect_bytes(shared_address(&messages.summed[slot]), parts * static_cast<int>(sizeof(PartialSum<float>)));
    wait_at_barrier(shared_address(&messages.summed[slot]), k / kLineSlots % 2);
    float reference = kLowestReference<float>;
    for (int p = lane; p < parts; p += 32) reference = fmax(reference, messages.parts[slot][p].reference);
    reference = warp_max(reference);
    double sum = 0;
    for (int p = lane; p < parts; p += 32) {
      PartialSum<float> const part = messages.parts[slot][p];
      sum += static_cast<double>(part.sum) * static_cast<double>(fast_exp2(part.reference - reference));
    }
    // The precision that update_potential() reads.
    float const rounded = static_cast<float>(warp_sum(sum));
    float const weight =
        static_cast<float>(line_weight(arguments, parameters, constants, reference, static_cast<double>(rounded)));
    if (lane == 0) {
      messages.weight[slot] = {reference, weight};
      arrive(shared_address(&messages.weighed[slot]));
    }
    if (stores) static_cast<PartialSum<float>*>(arguments.line_sums)[line] = {reference, rounded};
  }
}

/// Work of the other warps: each thread sums its places over the lines of its cluster.
template <class S, int kVectors>
__device__ __forceinline__ void sum_lines(FusedSweepArguments const& arguments, LineMessages& messages,
                                          unsigned char* ring, int first_line, int line_step, int count) {
  using Policy = FusedSweepPolicy<S, kVectors>;
  constexpr int kPlaces = Policy::kPlaces, kPerVector = Policy::kPerVector, kStages = Policy::kStages;
  StoredCosts const& costs = arguments.costs;
  int const thread = static_cast<int>(threadIdx.x), lane = thread % 32;
  int const threads = static_cast<int>(blockDim.x) - 32, warps = threads / 32;
  int const size = costs.line_size();
  int const first_place = block_of_cluster() * threads * kPlaces + thread * kPerVector,
            vector_step = threads * kPerVector;
  auto const* const data = static_cast<S const*>(costs.data);
  auto const place_of = [&](int c) { return first_place + c / kPerVector * vector_step + c % kPerVector; };

  // Each thread reads only its own part; the 16 bytes of all threads lie side by side.
  auto* const mine = reinterpret_cast<S*>(ring) + thread * kPerVector;
  auto* const logits = reinterpret_cast<float*>(ring + kStages * Policy::kStageBytes * threads) + thread * 4;
  float* const factors = logits + kPlaces * threads;
  auto const fetch = [&](int k) {
    if (k < count) {
      S const* const line = data + (first_line + static_cast<std::int64_t>(k) * line_step) * costs.stride;
      S* const stage = mine + k % kStages * kVectors * vector_step;
#pragma unroll
      for (int v = 0; v < kVectors; ++v) {
        int const place = first_place + v * vector_step;
        std::uint32_t const to = shared_address(stage + v * vector_step);
        if (costs.aligned && place + kPerVector <= size) {
          copy_async_16(to, line + place);
        } else {
#pragma unroll
          for (int e = 0; e < kPerVector; ++e) {
            if (place + e < size) copy_async<sizeof(S)>(to + e * static_cast<int>(sizeof(S)), line + place + e);
          }
        }
      }
    }
    copy_async_commit();
  };
#pragma unroll
  for (int c = 0; c < kPlaces; ++c) {
    if (place_of(c) >= size) {  // No copy ever writes these.
      for (int s = 0; s < kStages; ++s)
        mine[(s * kVectors + c / kPerVector) * vector_step + c % kPerVector] = static_cast<S>(INFINITY);
    }
  }
  // The matrix is constant. Logits and parameters may come from the previous kernel.
#pragma unroll
  for (int k = 0; k < kStages - 1; ++k) fetch(k);
  wait_for_previous_kernel();

  float const factor = static_cast<float>(arguments.factor * arguments.parameters->log2e_over_eps);
  float across[kPlaces];
#pragma unroll
  for (int c = 0; c < kPlaces; ++c) {
    int const place = place_of(c), to = c / 4 * 4 * threads + c % 4;
    bool const there = place < size;
    logits[to] = there ? static_cast<float const*>(arguments.logits.logits)[place] : kEmptyLogit<float>;
    factors[to] = there ? arguments.logits.factors[place] : 0;
    across[c] = 0;
  }

  // Computes the exponentials of line k relative to `reference` and sends their sum to the joining warps.
  auto const make = [&](int k, float(&term)[kPlaces], float& reference) {
    fetch(k + kStages - 1);
    copy_async_wait<kStages - 1>();
    S const* const stage = mine + k % kStages * kVectors * vector_step;
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      S cost[kPerVector];
      load_16_bytes(cost, stage + v * vector_step);
#pragma unroll
      for (int e = 0; e < kPerVector; ++e)
        term[v * kPerVector + e] = factor * stored_score<float>(cost[e], costs.least);
    }
    reference = kLowestReference<float>;
#pragma unroll
    for (int c = 0; c < kPlaces; c += 4) {
      float logit[4];
      load_16_bytes(logit, logits + c * threads);
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        term[c + e] += logit[e];
        reference = fmax(reference, term[c + e]);
      }
    }
    float sum = 0;
#pragma unroll
    for (int c = 0; c < kPlaces; c += 4) {
      float beta[4];
      load_16_bytes(beta, factors + c * threads);
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        term[c + e] = fast_exp2(term[c + e] - reference);
        sum += beta[e] * term[c + e];
      }
    }
    float const largest = warp_max(reference);
    sum = warp_sum(sum * fast_exp2(reference - largest));
    int const slot = k % kLineSlots;
    if (lane == 0) {
      int const part = block_of_cluster() * warps + thread / 32;
      if (is_alone()) {
        messages.parts[slot][part] = {largest, sum};
        arrive(shared_address(&messages.summed[slot]));
      } else {
        for (int rank = 0; rank < cluster_size(); ++rank) {
          send_to_cluster(in_block(shared_address(&messages.parts[slot][part]), rank), largest, sum,
                          in_block(shared_address(&messages.summed[slot]), rank));
        }
      }
    }
  };
  auto const add = [&](int k, float const(&term)[kPlaces], float reference) {
    int const slot = k % kLineSlots;
    wait_at_barrier(shared_address(&messages.weighed[slot]), k / kLineSlots % 2);
    LineWeight const line = messages.weight[slot];
    float const weight = line.weight * fast_exp2(reference - line.reference);
#pragma unroll
    for (int c = 0; c < kPlaces; ++c) across[c] += weight * term[c];
  };
  float even[kPlaces], odd[kPlaces], even_reference, odd_reference;
  make(0, even, even_reference);
  int k = 1;
  for (; k + 1 < count; k += 2) {
    make(k, odd, odd_reference);
    add(k - 1, even, even_reference);
    make(k + 1, even, even_reference);
    add(k, odd, odd_reference);
  }
  if (k < count) {
    make(k, odd, odd_reference);
    add(k - 1, even, even_reference);
    add(k, odd, odd_reference);
  } else {
    add(k - 1, even, even_reference);
  }

  float* const out =
      static_cast<float*>(arguments.across_sums) + static_cast<std::int64_t>(first_line) * arguments.across_stride;
#pragma unroll
  for (int c = 0; c < kPlaces; ++c) {
    if (place_of(c) < size) out[place_of(c)] = across[c];
  }
}

#endif

/// Grid: clusters of blocks, at most one cluster for each line. Threads: a multiple of 32, and 32 more. For
/// Generation::sm_90 and newer; empty for older ones.
template <class S, int kVectors, class Source>
__global__ void __launch_bounds__(32 * (kMostWarps + 1)) fused_sweep_kernel(Source const source) {
#if __CUDA_ARCH__ >= 900
  extern __shared__ __align__(16) unsigned char ring[];
  __shared__ __align__(16) LineMessages messages;
  Slice<FusedSweepArguments> const slice = slice_of(source);
  FusedSweepArguments const& arguments = slice.arguments;
  int const warps = static_cast<int>(blockDim.x) / 32 - 1;
  int const parts = warps * cluster_size();
  start_next_kernel();
  if (threadIdx.x == 0) {
    for (int slot = 0; slot < kLineSlots; ++slot) {
      start_barrier(shared_address(&messages.summed[slot]), is_alone() ? warps : 1);
      start_barrier(shared_address(&messages.weighed[slot]), 1);
    }
  }
  cluster_barrier();
  int const clusters = arguments.clusters;
  int const first_line = slice.block / cluster_size();
  int const count = (arguments.costs.lines() - 1 - first_line) / clusters + 1;
  if (static_cast<int>(threadIdx.x) / 32 == warps) {
    wait_for_previous_kernel();
    weigh_lines(arguments, messages, first_line, clusters, count, parts);
  } else {
    sum_lines<S, kVectors>(arguments, messages, ring, first_line, clusters, count);
  }
  // A block must not exit while another may still write to its shared memory.
  cluster_barrier();
#endif
}

inline constexpr int kAcrossColumns = 128;
inline constexpr int kAcrossGroups = 8;

/// A smaller sum across `lines` lines may have lost terms that count: each line may lose max(1, w_i) times float's
/// smallest number.
__device__ __forceinline__ double smallest_across(int lines) {
  return lines * 0x1p-85;
}

/// The logarithm of the sum of a place's terms over the lines of a group, as reference and sum, from the costs.
__device__ __forceinline__ void softmin_across(AcrossArguments const& arguments, SweepParameters const& parameters,
                                               int place, int group, float& reference, double& sum) {
  constexpr int kBatch = 8;
  int const lines = arguments.costs.lines();
  float const factor = static_cast<float>(arguments.factor * parameters.log2e_over_eps);
  reference = kLowestReference<float>;
  sum = 0;
  for (int first = group; first < lines; first += kAcrossGroups * kBatch) {
    float term[kBatch], next = reference;
#pragma unroll
    for (int k = 0; k < kBatch; ++k) {
      int const line = first + k * kAcrossGroups;
      term[k] = line < lines ? static_cast<float const*>(arguments.lines.logits)[line] +
                                   factor * stored_score<float>(arguments.costs, line, place)
                             : kEmptyLogit<float>;
      next = fmax(next, term[k]);
    }
    sum *= static_cast<double>(fast_exp2(reference - next));
#pragma unroll
    for (int k = 0; k < kBatch; ++k) {
      int const line = first + k * kAcrossGroups;
      if (line >= lines) continue;
      double const beta = static_cast<double>(arguments.lines.factors[line]);
      sum += beta * static_cast<double>(fast_exp2(term[k] - next));
    }
    reference = next;
  }
}

/// The potential of the side across the lines, from the sums of the clusters. A block takes 128 places. The 8 threads
/// of a place share the clusters, and share the lines if the sum cannot be trusted.
template <class Source>
__global__ void __launch_bounds__(kAcrossColumns* kAcrossGroups) update_across_kernel(Source const source) {
  Slice<AcrossArguments> const slice = slice_of(source);
  AcrossArguments const& arguments = slice.arguments;
  __shared__ double sums[kAcrossGroups][kAcrossColumns];
  __shared__ float references[kAcrossGroups][kAcrossColumns];
  __shared__ bool lost[kAcrossColumns];
  UpdateArguments const& update = arguments.update;
  PackedSide const& points = update.sums.points;
  int const column = static_cast<int>(threadIdx.x) % kAcrossColumns;
  int const group = static_cast<int>(threadIdx.x) / kAcrossColumns;
  int const place = slice.block * kAcrossColumns + column;
  bool const real = place < points.size;
  start_next_kernel();
  wait_for_previous_kernel();
  SweepParameters const parameters = *update.sums.parameters;

  double sum = 0;
  if (real) {
    auto const* const from = static_cast<float const*>(update.sums.partials) + place;
#pragma unroll 8
    for (int cluster = group; cluster < arguments.clusters; cluster += kAcrossGroups)
      sum += static_cast<double>(from[static_cast<std::int64_t>(cluster) * points.padded_size]);
  }
  sums[group][column] = sum;
  __syncthreads();
  ErrorSums error;
  double plus = 0;
  if (group == 0) {
    for (int g = 1; g < kAcrossGroups; ++g) sum += sums[g][column];
    lost[column] = false;
    if (real && points.weight[place] > 0) {
      // c_j / b_j up to the rounding of h_j, which `factor` corrects.
      double const ratio = sum * arguments.mass / points.weight[place];
      double const factor = static_cast<double>(update.arrays.factors[place]);
      lost[column] = !(sum > smallest_across(arguments.costs.lines()) && sum < INFINITY);
      plus = update.potential[place] - parameters.eps_ln2 * log2(ratio * factor);
    }
  }
  bool const any_lost = __syncthreads_or(group == 0 && lost[column]);
  if (any_lost) {
    if (lost[column]) {
      float reference;
      softmin_across(arguments, parameters, place, group, reference, sum);
      references[group][column] = reference;
      sums[group][column] = sum;
    }
    __syncthreads();
    if (group == 0 && lost[column]) {
      float reference = references[0][column];
      for (int g = 1; g < kAcrossGroups; ++g) reference = fmax(reference, references[g][column]);
      sum = 0;
      for (int g = 0; g < kAcrossGroups; ++g)
        sum += sums[g][column] * static_cast<double>(fast_exp2(references[g][column] - reference));
      plus = softmin_value(points.norm[place], parameters, update.sums.side, reference, sum);
    }
  }
  if (group == 0 && real) {
    PointConstants const constants(points, place);
    error = update_point<float>(update, parameters, constants, place, update.potential[place], plus);
  }
  store_errors<kAcrossColumns * kAcrossGroups>(error, update.errors + 2 * slice.block);
}

}  // namespace monge::cuda
