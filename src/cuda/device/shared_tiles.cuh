// Operands of the tensor-core kernels in shared memory: 128 points x kChunk fp16 coordinates, swizzled.
#pragma once
#include <cuda_fp16.h>

#include "cuda/device/ptx.cuh"
#include "cuda/launch/arguments.hpp"

namespace monge::cuda {

/// Where a block keeps its rows: one chunk holds all coordinates; all chunks stay in shared memory; they pass through
/// it.
enum class RowPlace { single_chunk, resident, streamed };

/// Byte offset of 16-byte vector `vector` of row `row` in a chunk: any 8 rows of one vector lie in different banks.
/// These are also the hardware's swizzles for rows of 32, 64 and 128 bytes.
template <int kChunk>
__device__ __forceinline__ int swizzled_offset(int row, int vector) {
  constexpr int kRowsPerLine = 64 / kChunk;  // Of 128 bytes, which span all banks.
  return row * (2 * kChunk) + 16 * (vector ^ ((row / kRowsPerLine) % (kChunk / 8)));
}

template <class Policy>
__device__ __forceinline__ void copy_part(std::uint32_t shared, __half const* global, int stride) {
  constexpr int kVectors = Policy::kChunk / 8;
#pragma unroll
  for (int v = 0; v < Policy::kColumns * kVectors / Policy::kThreads; ++v) {
    int const index = v * Policy::kThreads + static_cast<int>(threadIdx.x);
    int const row = index / kVectors;
    int const vector = index % kVectors;
    copy_async_16(shared + swizzled_offset<Policy::kChunk>(row, vector),
                  global + static_cast<std::int64_t>(row) * stride + vector * 8);
  }
}

template <class Policy>
__device__ __forceinline__ void copy_chunk(std::uint32_t shared, PackedCloud const& cloud, int row, int coordinate) {
  std::int64_t const offset = static_cast<std::int64_t>(row) * cloud.half_stride + coordinate;
  copy_part<Policy>(shared, static_cast<__half const*>(cloud.high) + offset, cloud.half_stride);
  if constexpr (Policy::kParts == 2) {
    copy_part<Policy>(shared + Policy::kPartBytes, static_cast<__half const*>(cloud.low) + offset, cloud.half_stride);
  }
}

/// 128 logits and then as many factors of the columns from `column` on, by the block's first 64 threads.
template <class Policy>
__device__ __forceinline__ void copy_logits(std::uint32_t shared, SoftminArguments const& arguments, int column) {
  int const vector = static_cast<int>(threadIdx.x);
  if (vector >= 2 * Policy::kColumns / 4) return;
  int const part = vector / (Policy::kColumns / 4);
  copy_async_16(shared + 16 * vector, static_cast<float const*>(arguments.logits) +
                                          static_cast<std::int64_t>(part) * arguments.columns.padded_size + column +
                                          vector % (Policy::kColumns / 4) * 4);
}

}  // namespace monge::cuda
