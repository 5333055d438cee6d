// The prox of the groups in a column of splitting (splitting.cuh): sums over groups whose rows lie in several threads,
// warps or blocks. __device__ only.
#pragma once
#include "cuda/device/cluster.cuh"
#include "cuda/device/numerics.cuh"
#include "cuda/regularized/splitting.hpp"
#include "regularized/splitting_rule.hpp"

namespace monge::cuda {

/// x y with a rounding of its own. A compiler might fuse it with a sum in one kind of iteration and not in another;
/// results would then depend on how a call is split.
__device__ __forceinline__ float rounded_product(float x, float y) {
  return __fmul_rn(x, y);
}
__device__ __forceinline__ double rounded_product(double x, double y) {
  return __dmul_rn(x, y);
}

/// The groups of one thread's vectors. A warp takes 32 kVectors vectors in a row; the lanes lie side by side in each
/// 32. Places count vectors from the first row of the block. Numbers of a group's vectors are summed over 32 vectors,
/// or over a whole warp if it lies in one group. A sum is stored at the place of its first vector.
template <class T, int kVectors>
struct GroupedVectors {
  int begin[kVectors], end[kVectors];  // The group of each vector, as places.
  T threshold[kVectors];
  int place;      // Place of the first vector.
  bool is_whole;  // Whether the warp lies in one group.

  __device__ __forceinline__ GroupedVectors(SplittingArguments const& arguments, int block_begin, int block_end,
                                            int first_row, T scale) {
    constexpr int kPerVector = 16 / sizeof(T);
    int const lane = static_cast<int>(threadIdx.x) % 32;
    place = (first_row - block_begin) / kPerVector;
    int const warp_place = place - lane;
    bool whole = true;
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      int const row = first_row + v * 32 * kPerVector, mine = place + v * 32;
      begin[v] = mine;
      end[v] = mine + 1;
      threshold[v] = 0;
      if (row < block_end) {
        int const group = arguments.group[row / kSplittingRows];
        begin[v] = max(arguments.group_begin[group] - block_begin, 0) / kPerVector;
        end[v] = (min(arguments.group_begin[group + 1], block_end) - block_begin) / kPerVector;
        threshold[v] = scale * static_cast<T>(arguments.group_weight[group]);
      }
      whole = whole && begin[v] <= warp_place && warp_place + 32 * kVectors <= end[v];
    }
    is_whole = __all_sync(0xffffffffu, whole);
  }

  /// Sums a number of each vector and stores the sums at their places.
  __device__ __forceinline__ void leave(T const (&number)[kVectors], T* sums) const {
    int const lane = static_cast<int>(threadIdx.x) % 32;
    if (is_whole) {
      T sum = number[0];
#pragma unroll
      for (int v = 1; v < kVectors; ++v) sum += number[v];
      sum = warp_sum(sum);
      if (lane == 0) sums[place] = sum;
      return;
    }
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      int const mine = place + v * 32;
      T sum = number[v];
#pragma unroll
      for (int distance = 1; distance < 32; distance *= 2) {
        T const other = __shfl_down_sync(0xffffffffu, sum, static_cast<unsigned>(distance));
        if (lane + distance < 32 && mine + distance < end[v]) sum += other;
      }
      if (lane == 0 || mine == begin[v]) sums[mine] = sum;
    }
  }

  /// The sum over a vector's group in this block, from all sums.
  __device__ __forceinline__ T total(int v, T const* sums) const {
    T sum = 0;
    for (int k = begin[v]; k < end[v];) {
      sum += sums[k];
      bool const whole = k % (32 * kVectors) == 0 && k + 32 * kVectors <= end[v];
      k = whole ? k + 32 * kVectors : (k / 32 + 1) * 32;
    }
    return sum;
  }
};

inline constexpr int kMostSplittingCluster = 8;

/// The sum over the blocks of the cluster of a number that the first thread of each holds. `parts` holds one number for
/// each block; two such arrays take turns.
template <class T>
__device__ __forceinline__ T cluster_sum(T value, T* parts) {
#if __CUDA_ARCH__ >= 900
  int const size = cluster_size();
  value = __shfl_sync(0xffffffffu, value, 0);
  if (static_cast<int>(threadIdx.x) < size)
    store_in_cluster(in_block(shared_address(parts + block_of_cluster()), static_cast<int>(threadIdx.x)), value);
  cluster_barrier();
  value = parts[0];
  for (int rank = 1; rank < size; ++rank) value += parts[rank];
#endif
  return value;
}

/// Multiplies the entries of each group in a column by shrink (1 - threshold / norm)_+. `sums` and `parts` are shared
/// memory of this column; threads without rows need no sum of a divided group.
template <class T, int kVectors, int kPerVector>
__device__ __forceinline__ void shrink_groups(T (&value)[kVectors][kPerVector],
                                              GroupedVectors<T, kVectors> const& groups, bool is_divided, T shrink,
                                              T* sums, T* parts) {
  T square[kVectors];
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    square[v] = 0;
#pragma unroll
    for (int e = 0; e < kPerVector; ++e) square[v] = fused(value[v][e], value[v][e], square[v]);
  }
  groups.leave(square, sums);
  __syncthreads();
  T factor = 0;
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    if (v == 0 || groups.begin[v] != groups.begin[v - 1]) {
      T squares = groups.total(v, sums);
      if (v == 0 && is_divided) squares = cluster_sum(squares, parts);
      factor = group_factor(sqrt(squares), groups.threshold[v]) * shrink;
    }
#pragma unroll
    for (int e = 0; e < kPerVector; ++e) value[v][e] = rounded_product(value[v][e], factor);
  }
}

/// Arrays of sums in shared memory that a column or, with hypentropy, a step of Newton's method takes: of threads and
/// of blocks of a cluster. Two sets take turns: threads read one while they write the other.
template <SplittingProx kProx>
inline constexpr int kGroupSums = kProx == SplittingProx::group_hypentropy ? 2 : 1;
template <SplittingProx kProx>
inline constexpr int kClusterSums = kProx == SplittingProx::group_hypentropy ? 3 : 1;

/// Replaces the entries of each group in a column by their prox with hypentropy (GroupNorm in splitting_rule.hpp). The
/// threads of a block, and the blocks of a divided group, take the same number of steps. `turn` is the set in use.
template <class T, int kVectors, int kPerVector, class HasRows>
__device__ __forceinline__ void solve_groups(T (&value)[kVectors][kPerVector],
                                             GroupedVectors<T, kVectors> const& groups, HasRows const& has,
                                             bool is_divided, EntryProx<T> const& prox, T* sums,
                                             T (*parts)[kMostSplittingCluster], int& turn) {
  int const stride = static_cast<int>(blockDim.x) * kVectors;
  // Replaces two numbers of each vector by their totals over the group.
  auto const join = [&](T(&first)[kVectors], T(&second)[kVectors]) {
    turn ^= 1;
    T* const own = sums + turn * 2 * stride;
    groups.leave(first, own);
    groups.leave(second, own + stride);
    __syncthreads();
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      if (v > 0 && groups.begin[v] == groups.begin[v - 1]) {
        first[v] = first[v - 1];
        second[v] = second[v - 1];
        continue;
      }
      first[v] = groups.total(v, own);
      second[v] = groups.total(v, own + stride);
      if (v == 0 && is_divided) {
        first[v] = cluster_sum(first[v], parts[turn * 3]);
        second[v] = cluster_sum(second[v], parts[turn * 3 + 1]);
      }
    }
  };
  T first[kVectors] = {}, second[kVectors] = {}, root[kVectors];
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
#pragma unroll
    for (int e = 0; e < kPerVector; ++e) {
      first[v] = fused(value[v][e], value[v][e], first[v]);
      second[v] += value[v][e] > 0 ? T(1) : T(0);
    }
  }
  join(first, second);
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    T const norm = sqrt(first[v]);
    bool const remains = has(v) && norm > groups.threshold[v];
    root[v] = remains ? GroupNorm<T>{prox, groups.threshold[v]}.least(norm, second[v]) : T(0);
  }
  for (int k = 0; k < GroupNorm<T>::kMostSteps; ++k) {
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      typename GroupNorm<T>::Sums found;
      if (root[v] > 0) {
        EntryProx<T> const of_group = prox.within_group(groups.threshold[v], root[v]);
        for (int e = 0; e < kPerVector; ++e) {
          if (value[v][e] > 0) found.add(prox, of_group, of_group(value[v][e]));
        }
      }
      first[v] = found.squares;
      second[v] = found.rises;
    }
    join(first, second);
    bool goes_on = false;
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      if (!(root[v] > 0)) continue;
      T const next = GroupNorm<T>{prox, groups.threshold[v]}.next(root[v], {first[v], second[v]});
      goes_on |= !GroupNorm<T>::is_last(root[v], next);
      if (next > root[v]) root[v] = next;
    }
    goes_on = __syncthreads_or(goes_on);
    if (is_divided) goes_on = cluster_sum(goes_on ? T(1) : T(0), parts[turn * 3 + 2]) > 0;
    if (!goes_on) break;
  }
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    EntryProx<T> const of_group = prox.within_group(groups.threshold[v], root[v]);
    for (int e = 0; e < kPerVector; ++e) value[v][e] = root[v] > 0 ? of_group(value[v][e]) : T(0);
  }
}

}  // namespace monge::cuda
