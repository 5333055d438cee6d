// Operands of the tensor-core kernels in shared memory: chunks of 64 to 256 points x kChunk fp16 coordinates, swizzled,
// which arrive asynchronously through a ring of stages.
#pragma once
#include <cuda_fp16.h>

#include "cuda/device/numerics.cuh"
#include "cuda/device/work.cuh"
#include "cuda/launch/arguments.hpp"

namespace monge::cuda {

/// The rows of a block: one chunk with all coordinates; all chunks in shared memory; or chunks streamed through it.
enum class RowPlace { single_chunk, resident, streamed };

/// Operands of a block of the tensor-core kernels: 128 rows and tiles of 128 or 256 columns. kProducts: products of
/// fp16 parts for a score (cuda/pass/pass_mma.cuh). kChunk: 16, 32 or 64 coordinates. kLogitBuffers: tiles whose logits
/// are in shared memory, from the one being summed to the one that arrives.
template <int kProductsValue, int kChunkValue, int kStagesValue, RowPlace kRowPlace, int kLogitBuffersValue,
          int kColumnsValue = 128>
struct OperandShape {
  static constexpr int kProducts = kProductsValue;
  static constexpr int kChunk = kChunkValue;
  static constexpr int kStages = kStagesValue;
  static constexpr bool kSingleChunk = kRowPlace == RowPlace::single_chunk;
  static constexpr bool kResidentRows = kRowPlace != RowPlace::streamed;
  static constexpr int kLogitBuffers = kLogitBuffersValue;
  static constexpr int kRows = 128;
  static constexpr int kColumns = kColumnsValue;
  static constexpr int kThreads = 256;
  static constexpr int kParts = kProducts == 1 ? 1 : 2;
  static constexpr int kPartBytes = kRows * kChunk * 2;
  static constexpr int kColumnPartBytes = kColumns * kChunk * 2;
  static constexpr int kChunkBytes = kParts * kPartBytes;
  static constexpr int kColumnChunkBytes = kParts * kColumnPartBytes;
  static constexpr int kLogitBytes = 2 * kColumns * 4;
  static constexpr int kStageBytes = kColumnChunkBytes + (kResidentRows ? 0 : kChunkBytes);
  static constexpr int shared_bytes(int chunks) {
    return kLogitBuffers * kLogitBytes + (kResidentRows ? chunks * kChunkBytes : 0) + kStages * kStageBytes;
  }
};

/// Byte offset of 16-byte vector `vector` of row `row` in a chunk. The same vector of any 8 rows lies in different
/// banks. The hardware swizzles rows of 32, 64 and 128 bytes in the same way.
template <int kChunk>
__device__ __forceinline__ int swizzled_offset(int row, int vector) {
  constexpr int kRowsPerLine = 64 / kChunk;  // Rows of 128 bytes, which span all banks.
  return row * (2 * kChunk) + 16 * (vector ^ ((row / kRowsPerLine) % (kChunk / 8)));
}

/// Copies kPoints points of kChunk coordinates each with kThreads threads.
template <int kPoints, int kChunk, int kThreads>
__device__ __forceinline__ void copy_part(std::uint32_t shared, __half const* global, int stride) {
  constexpr int kVectors = kChunk / 8;
#pragma unroll
  for (int v = 0; v < kPoints * kVectors / kThreads; ++v) {
    int const index = v * kThreads + static_cast<int>(threadIdx.x);
    int const row = index / kVectors;
    int const vector = index % kVectors;
    copy_async_16(shared + swizzled_offset<kChunk>(row, vector),
                  global + static_cast<std::int64_t>(row) * stride + vector * 8);
  }
}

/// Copies a chunk of kPoints points from `point` on. Groups of 128 points past the end repeat the last group: their
/// logits are empty.
template <class Shape, int kPoints>
__device__ __forceinline__ void copy_chunk(std::uint32_t shared, Operand const& operand, int point, int coordinate) {
  constexpr int kPartBytes = kPoints * Shape::kChunk * 2, kGroups = kPoints / kRowPadding;
#pragma unroll
  for (int group = 0; group < kGroups; ++group) {
    int const first = group == 0 ? point : min(point + group * kRowPadding, operand.padded_size - kRowPadding);
    std::int64_t const offset = static_cast<std::int64_t>(first) * operand.half_stride + coordinate;
    auto const copy = [&](std::uint32_t to, void const* part) {
      copy_part<kRowPadding, Shape::kChunk, Shape::kThreads>(
          to + group * (kPartBytes / kGroups), static_cast<__half const*>(part) + offset, operand.half_stride);
    };
    copy(shared, operand.high);
    if constexpr (Shape::kParts == 2) copy(shared + kPartBytes, operand.low);
  }
}

/// Copies the logits of a tile of columns from `column` on, then their factors, with the first threads of the block.
/// Columns past the end have empty logits and factors of 0.
template <class Shape>
__device__ __forceinline__ void copy_logits(float* shared, PassArguments const& arguments, int column) {
  constexpr int kVectors = Shape::kColumns / 4;
  int const vector = static_cast<int>(threadIdx.x);
  if (vector >= 2 * kVectors) return;
  void const* const from = vector < kVectors ? arguments.logits : arguments.factors;
  int const first = column + vector % kVectors * 4;
  if (Shape::kColumns == kRowPadding || first < arguments.columns.padded_size) {
    copy_async_16(shared_address(shared + 4 * vector), static_cast<float const*>(from) + first);
  } else {
    float const value = vector < kVectors ? kEmptyLogit<float> : 0.0f;
    *reinterpret_cast<float4*>(shared + 4 * vector) = make_float4(value, value, value, value);
  }
}

/// Streams the chunks of one segment of work, in the order in which kernels read them: the chunks of each tile of
/// columns, each with the chunk of the rows unless rows are resident. The last chunk of a tile brings its logits, if
/// the pass has any. Shared memory: logits and factors of kLogitBuffers tiles, resident row chunks, the stages
/// (columns, then rows).
template <class Shape, bool kLogits>
class OperandStream {
 public:
  __device__ __forceinline__ OperandStream(unsigned char* shared, PassArguments const& arguments,
                                           Segment const& segment)
      : arguments_(arguments),
        segment_(segment),
        logits_(shared),
        resident_(shared_address(shared) + Shape::kLogitBuffers * Shape::kLogitBytes),
        stages_(resident_ + (Shape::kResidentRows ? chunks() * Shape::kChunkBytes : 0)),
        next_column_(first_column(0)) {}

  __device__ __forceinline__ int chunks() const { return Shape::kSingleChunk ? 1 : arguments_.chunks; }

  /// Starts the copies of resident rows, which are constant, and waits for the previous kernel, from which logits and
  /// parameters may come. Returns the factor that makes logits of scores.
  __device__ __forceinline__ float start() const {
    copy_resident_rows();
    start_next_kernel();
    wait_for_previous_kernel();
    return static_cast<float>(arguments_.parameters ? arguments_.factor * arguments_.parameters->log2e_over_eps
                                                    : arguments_.factor);
  }
  /// Starts one group of copies to the next stage. It is empty after the last chunk, so that waits can count groups.
  __device__ __forceinline__ void copy_next() {
    if (next_tile_ < segment_.tiles) {
      std::uint32_t const stage = stages_ + next_stage_ * Shape::kStageBytes;
      int const coordinate = next_chunk_ * Shape::kChunk;
      copy_chunk<Shape, Shape::kColumns>(stage, arguments_.columns, next_column_, coordinate);
      if constexpr (!Shape::kResidentRows)
        copy_chunk<Shape, Shape::kRows>(stage + Shape::kColumnChunkBytes, arguments_.rows, segment_.first_row,
                                        coordinate);
      if (++next_chunk_ == chunks()) {
        if constexpr (kLogits) copy_logits<Shape>(buffer_of(next_tile_), arguments_, next_column_);
        next_chunk_ = 0;
        ++next_tile_;
        next_column_ += Shape::kColumns;
      }
      next_stage_ = after(next_stage_);
    }
    copy_async_commit();
  }

  /// The first column of tile number `tile` of the segment.
  __device__ __forceinline__ int first_column(int tile) const { return (segment_.first_tile + tile) * Shape::kColumns; }
  /// The columns of the stage to be read, and the rows; `chunk` is the chunk in it.
  __device__ __forceinline__ std::uint32_t columns() const { return stages_ + stage_ * Shape::kStageBytes; }
  __device__ __forceinline__ std::uint32_t rows(int chunk) const {
    return Shape::kResidentRows ? resident_ + chunk * Shape::kChunkBytes : columns() + Shape::kColumnChunkBytes;
  }
  __device__ __forceinline__ void advance() { stage_ = after(stage_); }
  /// The logits of tile number `tile` of the segment, then the factors.
  __device__ __forceinline__ float const* logits(int tile) const { return buffer_of(tile); }

 private:
  __device__ __forceinline__ void copy_resident_rows() const {
    if constexpr (Shape::kResidentRows) {
      for (int chunk = 0; chunk < chunks(); ++chunk)
        copy_chunk<Shape, Shape::kRows>(resident_ + chunk * Shape::kChunkBytes, arguments_.rows, segment_.first_row,
                                        chunk * Shape::kChunk);
    }
  }
  __device__ __forceinline__ float* buffer_of(int tile) const {
    return reinterpret_cast<float*>(logits_ + tile % Shape::kLogitBuffers * Shape::kLogitBytes);
  }
  static __device__ __forceinline__ int after(int stage) { return stage + 1 == Shape::kStages ? 0 : stage + 1; }

  PassArguments const& arguments_;
  Segment segment_;
  unsigned char* logits_;
  std::uint32_t resident_, stages_;
  int next_column_;  // First column of the tile being filled.
  int next_tile_ = 0, next_chunk_ = 0, next_stage_ = 0;
  int stage_ = 0;  // The stage to be read.
};

}  // namespace monge::cuda
