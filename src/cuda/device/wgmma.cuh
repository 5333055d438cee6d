// Asynchronous products of Hopper (sm_90a only). A warpgroup is four consecutive warps; all execute each of these.
#pragma once
#include <cstdint>

namespace monge::cuda {

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/// Describes 64 or 128 points x 16 coordinates at `shared`, in a chunk of rows of 2 kChunk bytes with its swizzle.
template <int kChunk>
__device__ __forceinline__ std::uint64_t matrix_descriptor(std::uint32_t shared) {
  constexpr std::uint64_t kSwizzle = kChunk == 64 ? 1 : kChunk == 32 ? 2 : 3;
  constexpr std::uint64_t kEightRows = 8 * 2 * kChunk;  // Bytes between groups of eight rows.
  return (shared & 0x3ffff) >> 4 | std::uint64_t{1} << 16 | (kEightRows >> 4) << 32 | kSwizzle << 62;
}

/// Makes ordinary writes to shared memory, asynchronous copies included, visible to wgmma.
__device__ __forceinline__ void fence_async_proxy() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

__device__ __forceinline__ void wgmma_fence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

__device__ __forceinline__ void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

/// Waits until at most kPending groups are under way. `score` is read afterwards: naming it keeps such reads behind.
template <int kPending>
__device__ __forceinline__ void wgmma_wait(float (&score)[1][16][4]) {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
#pragma unroll
  for (int n = 0; n < 16; ++n) {
#pragma unroll
    for (int k = 0; k < 4; ++k) asm volatile("" : "+f"(score[0][n][k])::"memory");
  }
}

/// score (64 x 128, fp32) = a b^T + (accumulate ? score : 0) for fp16 a (64 x 16) and b (128 x 16), both by descriptor.
__device__ __forceinline__ void wgmma_64x128x16(float (&score)[1][16][4], std::uint64_t a, std::uint64_t b,
                                                int accumulate) {
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.ne.b32 p, %66, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, "
      "%8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, "
      "%24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, "
      "%40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, "
      "%56, %57, %58, %59, %60, %61, %62, %63}, "
      "%64, %65, p, 1, 1, 0, 0;\n"
      "}\n"
      : "+f"(score[0][0][0]), "+f"(score[0][0][1]), "+f"(score[0][0][2]), "+f"(score[0][0][3]), "+f"(score[0][1][0]),
        "+f"(score[0][1][1]), "+f"(score[0][1][2]), "+f"(score[0][1][3]), "+f"(score[0][2][0]), "+f"(score[0][2][1]),
        "+f"(score[0][2][2]), "+f"(score[0][2][3]), "+f"(score[0][3][0]), "+f"(score[0][3][1]), "+f"(score[0][3][2]),
        "+f"(score[0][3][3]), "+f"(score[0][4][0]), "+f"(score[0][4][1]), "+f"(score[0][4][2]), "+f"(score[0][4][3]),
        "+f"(score[0][5][0]), "+f"(score[0][5][1]), "+f"(score[0][5][2]), "+f"(score[0][5][3]), "+f"(score[0][6][0]),
        "+f"(score[0][6][1]), "+f"(score[0][6][2]), "+f"(score[0][6][3]), "+f"(score[0][7][0]), "+f"(score[0][7][1]),
        "+f"(score[0][7][2]), "+f"(score[0][7][3]), "+f"(score[0][8][0]), "+f"(score[0][8][1]), "+f"(score[0][8][2]),
        "+f"(score[0][8][3]), "+f"(score[0][9][0]), "+f"(score[0][9][1]), "+f"(score[0][9][2]), "+f"(score[0][9][3]),
        "+f"(score[0][10][0]), "+f"(score[0][10][1]), "+f"(score[0][10][2]), "+f"(score[0][10][3]),
        "+f"(score[0][11][0]), "+f"(score[0][11][1]), "+f"(score[0][11][2]), "+f"(score[0][11][3]),
        "+f"(score[0][12][0]), "+f"(score[0][12][1]), "+f"(score[0][12][2]), "+f"(score[0][12][3]),
        "+f"(score[0][13][0]), "+f"(score[0][13][1]), "+f"(score[0][13][2]), "+f"(score[0][13][3]),
        "+f"(score[0][14][0]), "+f"(score[0][14][1]), "+f"(score[0][14][2]), "+f"(score[0][14][3]),
        "+f"(score[0][15][0]), "+f"(score[0][15][1]), "+f"(score[0][15][2]), "+f"(score[0][15][3])
      : "l"(a), "l"(b), "r"(accumulate)
      : "memory");
}

#endif

}  // namespace monge::cuda
