// PTX instructions without a CUDA C++ function.
#pragma once
#include <cstdint>

namespace monge::cuda {

/// A square root with a relative error of 2^-23; 0 for numbers below the least normal one.
__device__ __forceinline__ float fast_sqrt(float x) {
  float y;
  asm("sqrt.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

/// 2^x to about 2 units in the last place; results below 2^-126 are zero. One instruction.
__device__ __forceinline__ float fast_exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

/// Keeps the compiler from moving instructions across. It would reorder sums of products to finish the first one early;
/// in source order, neighbours share a factor, which saves a register read. (Only profilers count the event.)
__device__ __forceinline__ void schedule_fence() {
  asm volatile("pmevent 0;");
}

/// Starts moving the 64 bytes around `at` to the L2 cache.
__device__ __forceinline__ void prefetch(void const* at) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(at) : "memory");
}

__device__ __forceinline__ std::uint32_t shared_address(void const* pointer) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(pointer));
}

/// Starts copying 16 bytes to shared memory, past L1.
__device__ __forceinline__ void copy_async_16(std::uint32_t shared, void const* global) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared), "l"(global) : "memory");
}

__device__ __forceinline__ void copy_async_commit() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}

/// Waits until at most `kPending` of this thread's groups are in flight.
template <int kPending>
__device__ __forceinline__ void copy_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

/// In a kernel of launch_chained(): lets the next kernel of the stream start blocks where this one leaves room.
__device__ __forceinline__ void start_next_kernel() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/// Waits until the previous kernel has finished and its writes are visible. Every kernel of a chain must call this
/// before it touches data that an earlier kernel writes or reads. It may load constant data before.
__device__ __forceinline__ void wait_for_previous_kernel() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/// Four 8 x 8 matrices of 16-bit elements; lane l gives the address of row l % 8 of matrix l / 8.
__device__ __forceinline__ void load_matrix_x4(std::uint32_t (&fragment)[4], std::uint32_t shared) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(fragment[0]), "=r"(fragment[1]), "=r"(fragment[2]), "=r"(fragment[3])
               : "r"(shared)
               : "memory");
}

/// c += a b for a (16 x 16, fp16), b (16 x 8, fp16), c (16 x 8, fp32).
__device__ __forceinline__ void mma_16x8x16(float (&c)[4], std::uint32_t const (&a)[4], std::uint32_t b0,
                                            std::uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

}  // namespace monge::cuda
