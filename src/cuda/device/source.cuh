// The arguments and the work of a block in a launch for one problem or for many. __device__ only.
#pragma once
#include <cstdint>

#include "cuda/device/ptx.cuh"
#include "cuda/launch/queue.hpp"

namespace monge::cuda {

/// The work of a block: the arguments of its problem, and `count` of the problem's blocks from number `block` on.
template <class Arguments>
struct Slice {
  Arguments const& arguments;
  int block, count;
};

template <class Source>
inline constexpr bool kOfMany = false;
template <class Arguments>
inline constexpr bool kOfMany<Many<Arguments>> = true;

/// The slice of the block with number `at`, by default of this block.
template <class Arguments>
__device__ __forceinline__ Slice<Arguments> slice_of(One<Arguments> const& source, unsigned at = blockIdx.x) {
  return {source.arguments, static_cast<int>(at), 1};
}

/// Copies the arguments to shared memory, which is about as fast as kernel parameters. The table is older than the
/// chain of kernels, so this need not wait for the previous kernel. The next call of a block uses the same memory.
template <class Arguments>
__device__ __forceinline__ Slice<Arguments> slice_of(Many<Arguments> const& source, unsigned at = blockIdx.x) {
  static_assert(sizeof(Arguments) % sizeof(std::uint32_t) == 0);
  constexpr int kWords = static_cast<int>(sizeof(Arguments) / sizeof(std::uint32_t));
  __shared__ alignas(Arguments) std::uint32_t words[kWords];
  BlockOfMany const mine = source.blocks[at];
  for (int k = static_cast<int>(threadIdx.x); k < kWords; k += static_cast<int>(blockDim.x))
    words[k] = static_cast<std::uint32_t const*>(mine.arguments)[k];
  __syncthreads();
  return {reinterpret_cast<Arguments const&>(words), mine.block, mine.count};
}

}  // namespace monge::cuda
