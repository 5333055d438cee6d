// Running sums in one block: __device__ only.
#pragma once
#include <bit>
#include <cstdint>
#include <type_traits>

namespace monge::cuda {

/// Calls store(i, in[0] + ... + in[i]), by one block; terms are >= 0. Rounded sums never decrease, and zero terms leave
/// them unchanged. To this end, sums within the right half of a group of threads are rounded before the sum of the left
/// half is added to them; groups have 2, 4, 8, ... threads.
template <int kThreads, class In, class Store>
__device__ void scan_block(In const& in, std::int64_t size, Store const& store) {
  using T = std::remove_cvref_t<decltype(in[size])>;
  constexpr int kLevels = std::bit_width(static_cast<unsigned>(kThreads)) - 1;
  static_assert(kThreads == 1 << kLevels);
  __shared__ T sums[kThreads];
  int const thread = static_cast<int>(threadIdx.x);
  std::int64_t const begin = size * thread / kThreads, end = size * (thread + 1) / kThreads;
  T sum = 0;
#pragma unroll 8
  for (std::int64_t i = begin; i < end; ++i) sum += in[i];
  sums[thread] = sum;
  T left[kLevels];
#pragma unroll
  for (int level = 0; level < kLevels; ++level) {
    __syncthreads();
    bool const is_right = thread >> level & 1;
    left[level] = is_right ? sums[(thread >> level << level) - 1] : T(0);
    if (is_right) sums[thread] += left[level];
  }
  sum = 0;
  for (std::int64_t i = begin; i < end; ++i) {
    sum += in[i];
    T total = sum;
#pragma unroll
    for (int level = 0; level < kLevels; ++level) total += left[level];
    store(i, total);
  }
}

}  // namespace monge::cuda
