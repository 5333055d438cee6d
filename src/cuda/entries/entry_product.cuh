// Products of entries of a plan with values, on tensor cores: S = E V for E (rows x points) and V^T (width x points).
// Each number is the sum of two fp16 numbers, high and low.
//
// Products: high high + high low + low high, about 22 bits, as for the scores (cuda/pass/pass_mma.cuh).
//
// Tiling: a block takes 128 rows and kTile columns of V and walks over chunks of points, which arrive in a ring of
//   stages. The chunks of all (row block, column tile) pairs form one sequence, dealt out in equal parts (WorkPlan,
//   with chunks in place of column tiles). Blocks that share a pair leave partial sums; store_values() joins them.
//
// Traffic: 4 bytes for each entry and each kTile columns of V; V comes from L2.
//
// Numerics: tensor cores truncate when they add. Each chunk's products are therefore added to the sums of earlier
//   chunks by ordinary float additions.
#pragma once
#include "cuda/device/wgmma.cuh"
#include "cuda/entries/entry_product.hpp"
#include "cuda/pass/pass_mma.cuh"
#include "cuda/pass/shared_tiles.cuh"

namespace monge::cuda {

/// kAhead: the stage of a chunk is refilled at the barrier of the chunk kAhead later.
template <int kTileValue, int kChunkValue, int kStagesValue, int kAheadValue>
struct EntryProductShape {
  static constexpr int kProducts = 3;
  static constexpr int kParts = 2;
  static constexpr int kRows = 128;
  static constexpr int kTile = kTileValue;
  static constexpr int kChunk = kChunkValue;
  static constexpr int kStages = kStagesValue;
  static constexpr int kAhead = kAheadValue;
  static constexpr int kThreads = 256;
  static constexpr int kPartBytes = kRows * kChunk * 2;
  static constexpr int kColumnPartBytes = kTile * kChunk * 2;
  static constexpr int kStageBytes = 2 * (kPartBytes + kColumnPartBytes);
  static constexpr int kSharedBytes = kStages * kStageBytes;
};

/// The chunks of one segment of work. A stage holds rows high and low, then columns high and low.
template <class Shape>
class EntryStream {
 public:
  __device__ __forceinline__ EntryStream(unsigned char* shared, EntryProductArguments const& arguments,
                                         Segment const& segment)
      : arguments_(arguments),
        first_row_(segment.first_row / Shape::kRows / arguments.column_tiles * Shape::kRows),
        first_column_(segment.first_row / Shape::kRows % arguments.column_tiles * Shape::kTile),
        next_(segment.first_tile),
        end_(next_ + segment.tiles),
        stages_(shared_address(shared)) {
#pragma unroll
    for (int s = 0; s < Shape::kStages - Shape::kAhead; ++s) copy_next();
  }

  /// Waits for the next chunk, then for all threads: none may still read the stage that copy_next() fills.
  __device__ __forceinline__ void arrive() {
    copy_async_wait<Shape::kStages - 1 - Shape::kAhead>();
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    fence_async_proxy();
#endif
    __syncthreads();
    copy_next();
  }
  __device__ __forceinline__ std::uint32_t rows() const {
    return stages_ + stage_ * Shape::kStageBytes;
  }
  __device__ __forceinline__ std::uint32_t columns() const {
    return rows() + 2 * Shape::kPartBytes;
  }
  __device__ __forceinline__ void advance() {
    stage_ = after(stage_);
  }

 private:
  static __device__ __forceinline__ int after(int stage) {
    return stage + 1 == Shape::kStages ? 0 : stage + 1;
  }

  /// Starts one group of copies. The group is empty after the last chunk, so that waits can count groups.
  __device__ __forceinline__ void copy_next() {
    if (next_ < end_) {
      std::uint32_t const to = stages_ + next_stage_ * Shape::kStageBytes;
      copy<Shape::kRows>(to, to + Shape::kPartBytes, arguments_.rows, first_row_);
      copy<Shape::kTile>(to + 2 * Shape::kPartBytes, to + 2 * Shape::kPartBytes + Shape::kColumnPartBytes,
                         arguments_.columns, first_column_);
      ++next_;
      next_stage_ = after(next_stage_);
    }
    copy_async_commit();
  }
  template <int kPoints>
  __device__ __forceinline__ void copy(std::uint32_t high, std::uint32_t low, Operand const& from, int row) const {
    std::int64_t const offset = static_cast<std::int64_t>(row) * from.half_stride + next_ * Shape::kChunk;
    copy_part<kPoints, Shape::kChunk, Shape::kThreads>(high, static_cast<__half const*>(from.high) + offset,
                                                       from.half_stride);
    copy_part<kPoints, Shape::kChunk, Shape::kThreads>(low, static_cast<__half const*>(from.low) + offset,
                                                       from.half_stride);
  }

  EntryProductArguments const& arguments_;
  int first_row_, first_column_, next_, end_;
  std::uint32_t stages_;
  int next_stage_ = 0, stage_ = 0;
};

/// total += part.
template <int kRowTiles, int kColumnTiles>
__device__ __forceinline__ void add_part(float (&total)[kRowTiles][kColumnTiles][4],
                                         float const (&part)[kRowTiles][kColumnTiles][4]) {
#pragma unroll
  for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
    for (int n = 0; n < kColumnTiles; ++n) {
#pragma unroll
      for (int k = 0; k < 4; ++k) total[m][n][k] += part[m][n][k];
    }
  }
}

/// Stores the sums of a warp whose part of the block's sums begins at (`row`, `column`).
template <class Shape, int kRowTiles, int kColumnTiles>
__device__ __forceinline__ void store_part(float* partials, Segment const& segment, int row, int column,
                                           float const (&total)[kRowTiles][kColumnTiles][4]) {
  int const lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int r = 0; r < 2 * kRowTiles; ++r) {
    float* const out = partials + (segment.offset + row + 8 * r + lane / 4) * Shape::kTile + column + lane % 4 * 2;
#pragma unroll
    for (int n = 0; n < kColumnTiles; ++n)
      *reinterpret_cast<float2*>(out + 8 * n) = make_float2(total[r / 2][n][r % 2 * 2], total[r / 2][n][r % 2 * 2 + 1]);
  }
}

/// Grid arguments.work.grid, Shape::kThreads threads, Shape::kSharedBytes of shared memory.
template <class Shape>
__global__ void __launch_bounds__(Shape::kThreads, 1) entry_product_mma(EntryProductArguments const arguments) {
  static_assert(Shape::kTile == 128 && Shape::kAhead == 1);
  extern __shared__ __align__(1024) unsigned char shared[];
  int const warp = static_cast<int>(threadIdx.x) / 32;
  int const warp_row = warp / 2 * 32, warp_column = warp % 2 * 64;
  start_next_kernel();
  wait_for_previous_kernel();
  int const block = static_cast<int>(blockIdx.x);
  for_each_segment(arguments.work, arguments.work.row_blocks * Shape::kRows, block, 1, [&](Segment const& segment) {
    EntryStream<Shape> stream(shared, arguments, segment);
    float total[2][8][4] = {};
    for (int chunk = 0; chunk < segment.tiles; ++chunk) {
      stream.arrive();
      float part[2][8][4] = {};
      multiply_chunk<Shape>(part, stream.rows(), stream.columns(), warp_row, warp_column);
      stream.advance();
      add_part(total, part);
    }
    copy_async_wait<0>();
    store_part<Shape>(arguments.partials, segment, warp_row, warp_column, total);
  });
}

/// The same product with wgmma, for Generation::sm_90a; empty for older ones.
template <class Shape>
__global__ void __launch_bounds__(Shape::kThreads, 1) entry_product_wgmma(EntryProductArguments const arguments) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  static_assert(Shape::kAhead == 2);
  extern __shared__ __align__(1024) unsigned char shared[];
  constexpr int kColumnTiles = Shape::kTile / 8;
  int const warp = static_cast<int>(threadIdx.x) / 32;
  start_next_kernel();
  wait_for_previous_kernel();
  int const block = static_cast<int>(blockIdx.x);
  for_each_segment(arguments.work, arguments.work.row_blocks * Shape::kRows, block, 1, [&](Segment const& segment) {
    EntryStream<Shape> stream(shared, arguments, segment);
    float total[1][kColumnTiles][4] = {}, even[1][kColumnTiles][4] = {}, odd[1][kColumnTiles][4] = {};
    auto const start = [&](float(&part)[1][kColumnTiles][4]) {
      stream.arrive();
      start_products<Shape>(part, stream.rows() + warp / 4 * (Shape::kPartBytes / 2), stream.columns(), false);
      stream.advance();
    };
    // Chunks in pairs: the first is added while the tensor cores multiply the second. No product is in flight between
    // iterations; otherwise the compiler would copy its registers.
    int chunk = 0;
    for (; chunk + 1 < segment.tiles; chunk += 2) {
      start(even);
      start(odd);
      wgmma_wait<1>(even);
      add_part(total, even);
      wgmma_wait<0>(odd);
      add_part(total, odd);
    }
    if (chunk < segment.tiles) {
      start(even);
      wgmma_wait<0>(even);
      add_part(total, even);
    }
    copy_async_wait<0>();
    store_part<Shape>(arguments.partials, segment, 16 * warp, 0, total);
  });
#endif
}

}  // namespace monge::cuda
