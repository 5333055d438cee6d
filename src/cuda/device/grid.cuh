// Barriers of blocks that are on the device at once (a cooperative launch). __device__ only.
#pragma once

namespace monge::cuda {

/// All threads of some blocks call this. Their earlier writes to memory become visible to all of them, past L1. Each
/// call of a block adds 1 to `arrived`; the barrier opens at `target`. Both may wrap around.
__device__ __forceinline__ void barrier_of_blocks(unsigned* arrived, unsigned target) {
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence();
    asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(arrived) : "memory");
    unsigned found;
    do {
      asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(found) : "l"(arrived) : "memory");
    } while (static_cast<int>(found - target) < 0);
  }
  __syncthreads();
}

/// The same for all blocks of the grid. `arrived` starts at 0; this is barrier number `count` of the launch, from 1 on.
__device__ __forceinline__ void grid_barrier(unsigned* arrived, int count) {
  barrier_of_blocks(arrived, static_cast<unsigned>(count) * gridDim.x);
}

}  // namespace monge::cuda
