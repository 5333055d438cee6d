// A barrier of all blocks of a grid. They must be on the device at once (a cooperative launch). __device__ only.
#pragma once

namespace monge::cuda {

/// All threads of all blocks call this. Their earlier writes to memory become visible to all, past L1. `arrived` starts
/// at 0; this is barrier number `count` of the launch, from 1 on.
__device__ __forceinline__ void grid_barrier(unsigned* arrived, int count) {
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence();
    asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(arrived) : "memory");
    unsigned found;
    do {
      asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(found) : "l"(arrived) : "memory");
    } while (found < static_cast<unsigned>(count) * gridDim.x);
  }
  __syncthreads();
}

}  // namespace monge::cuda
