// Clusters of blocks that read and write each other's shared memory, and barriers in it (sm_90 and newer). __device__
// only.
#pragma once
#include <cstdint>

#include "cuda/device/ptx.cuh"

namespace monge::cuda {

#if __CUDA_ARCH__ >= 900

__device__ __forceinline__ int cluster_size() {
  std::uint32_t size;
  asm("mov.u32 %0, %%cluster_nctaid.x;" : "=r"(size));
  return static_cast<int>(size);
}
__device__ __forceinline__ int block_of_cluster() {
  std::uint32_t block;
  asm("mov.u32 %0, %%cluster_ctaid.x;" : "=r"(block));
  return static_cast<int>(block);
}

/// A barrier of all threads in the cluster; their earlier writes to shared memory become visible to all.
__device__ __forceinline__ void cluster_barrier() {
  asm volatile(
      "barrier.cluster.arrive.release.aligned;\n"
      "barrier.cluster.wait.acquire.aligned;" ::
          : "memory");
}

/// The address of this block's `shared` in block number `block` of the cluster.
__device__ __forceinline__ std::uint32_t in_block(std::uint32_t shared, int block) {
  std::uint32_t address;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(address) : "r"(shared), "r"(block));
  return address;
}

/// A phase of the barrier ends after `arrivals` calls of arrive() or expect_bytes() and after all expected bytes.
__device__ __forceinline__ void start_barrier(std::uint32_t barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

/// Threads that wait see this thread's earlier writes to shared memory.
__device__ __forceinline__ void arrive(std::uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

/// Arrives, and delays the end of the phase until `bytes` more bytes have come by send_to_cluster().
__device__ __forceinline__ void expect_bytes(std::uint32_t barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

/// Stores two numbers at an address from in_block(), and tells a barrier of that block when they have arrived. No fence
/// is needed; one for a whole cluster would wait for all earlier writes of this thread.
__device__ __forceinline__ void send_to_cluster(std::uint32_t address, float x, float y, std::uint32_t barrier) {
  asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [%0], {%1, %2}, [%3];" ::"r"(address),
               "f"(x), "f"(y), "r"(barrier)
               : "memory");
}
/// Stores a number at an address from in_block(); visible after cluster_barrier().
__device__ __forceinline__ void store_in_cluster(std::uint32_t address, float value) {
  asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(address), "f"(value) : "memory");
}
__device__ __forceinline__ void store_in_cluster(std::uint32_t address, double value) {
  asm volatile("st.shared::cluster.f64 [%0], %1;" ::"r"(address), "d"(value) : "memory");
}

/// Waits for the end of the phase with this parity: 0 for the first phase of a barrier, 1 for the second, and so on.
__device__ __forceinline__ void wait_at_barrier(std::uint32_t barrier, int parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again;\n"
      "}" ::"r"(barrier),
      "r"(parity)
      : "memory");
}

#endif

}  // namespace monge::cuda
