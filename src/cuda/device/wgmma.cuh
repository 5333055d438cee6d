// Asynchronous products of Hopper (sm_90a only). A warpgroup is four consecutive warps, which all call each function.
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

/// Makes ordinary writes to shared memory, and asynchronous copies, visible to wgmma.
__device__ __forceinline__ void fence_async_proxy() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

__device__ __forceinline__ void wgmma_fence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

__device__ __forceinline__ void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

/// Waits until at most kPending groups are in flight. Naming `score` keeps later reads of it behind the wait.
template <int kPending, int kColumnTiles>
__device__ __forceinline__ void wgmma_wait(float (&score)[1][kColumnTiles][4]) {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
#pragma unroll
  for (int n = 0; n < kColumnTiles; ++n) {
#pragma unroll
    for (int k = 0; k < 4; ++k) asm volatile("" : "+f"(score[0][n][k])::"memory");
  }
}

// clang-format off
#define MONGE_FOUR(n) \
  "+f"(score[0][n][0]), "+f"(score[0][n][1]), "+f"(score[0][n][2]), "+f"(score[0][n][3])
#define MONGE_EIGHT_TILES(n) \
  MONGE_FOUR(n), MONGE_FOUR(n + 1), MONGE_FOUR(n + 2), MONGE_FOUR(n + 3), \
  MONGE_FOUR(n + 4), MONGE_FOUR(n + 5), MONGE_FOUR(n + 6), MONGE_FOUR(n + 7)
#define MONGE_FIRST_32 \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define MONGE_SECOND_32 \
  "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
  "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define MONGE_THIRD_32 \
  "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, " \
  "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define MONGE_FOURTH_32 \
  "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, " \
  "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"

/// score (64 x 128, fp32) = a b^T + (accumulate ? score : 0) for fp16 a (64 x 16) and b (128 x 16), both by descriptor.
__device__ __forceinline__ void wgmma_multiply(float (&score)[1][16][4], std::uint64_t a, std::uint64_t b,
                                               int accumulate) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {" MONGE_FIRST_32 ", " MONGE_SECOND_32 "}, "
      "%64, %65, p, 1, 1, 0, 0;\n}\n"
      : MONGE_EIGHT_TILES(0), MONGE_EIGHT_TILES(8)
      : "l"(a), "l"(b), "r"(accumulate)
      : "memory");
}

/// wgmma_multiply() for b (64 x 16).
__device__ __forceinline__ void wgmma_multiply(float (&score)[1][8][4], std::uint64_t a, std::uint64_t b,
                                               int accumulate) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {" MONGE_FIRST_32 "}, "
      "%32, %33, p, 1, 1, 0, 0;\n}\n"
      : MONGE_EIGHT_TILES(0)
      : "l"(a), "l"(b), "r"(accumulate)
      : "memory");
}

/// wgmma_multiply() for b (256 x 16).
__device__ __forceinline__ void wgmma_multiply(float (&score)[1][32][4], std::uint64_t a, std::uint64_t b,
                                               int accumulate) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %130, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16 {" MONGE_FIRST_32 ", " MONGE_SECOND_32 ", "
      MONGE_THIRD_32 ", " MONGE_FOURTH_32 "}, "
      "%128, %129, p, 1, 1, 0, 0;\n}\n"
      : MONGE_EIGHT_TILES(0), MONGE_EIGHT_TILES(8), MONGE_EIGHT_TILES(16), MONGE_EIGHT_TILES(24)
      : "l"(a), "l"(b), "r"(accumulate)
      : "memory");
}

#undef MONGE_FOUR
#undef MONGE_EIGHT_TILES
#undef MONGE_FIRST_32
#undef MONGE_SECOND_32
#undef MONGE_THIRD_32
#undef MONGE_FOURTH_32
// clang-format on

/// Waits as above, while no score may be read yet.
template <int kPending>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

/// Starts score = rows columns^T + (accumulate ? score : 0) over one chunk of Shape::kChunk coordinates, from the fp16
/// parts in shared memory: high high; with three products also high low and low high. They form one group.
template <class Shape, int kColumnTiles>
__device__ __forceinline__ void start_products(float (&score)[1][kColumnTiles][4], std::uint32_t rows,
                                               std::uint32_t columns, bool accumulate) {
  wgmma_fence();
#pragma unroll
  for (int k = 0; k < Shape::kChunk / 16; ++k) {
    std::uint64_t const a = matrix_descriptor<Shape::kChunk>(rows + 32 * k);
    std::uint64_t const b = matrix_descriptor<Shape::kChunk>(columns + 32 * k);
    wgmma_multiply(score, a, b, accumulate || k > 0);
    if constexpr (Shape::kProducts == 3) {
      std::uint64_t const a_low = matrix_descriptor<Shape::kChunk>(rows + Shape::kPartBytes + 32 * k);
      std::uint64_t const b_low = matrix_descriptor<Shape::kChunk>(columns + Shape::kColumnPartBytes + 32 * k);
      wgmma_multiply(score, a, b_low, 1);
      wgmma_multiply(score, a_low, b, 1);
    }
  }
  wgmma_commit();
}

#endif

}  // namespace monge::cuda
