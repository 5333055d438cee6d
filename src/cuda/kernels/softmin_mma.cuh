// Softmin half-step on tensor cores.
//
//   For each row i: (reference, sum) with sum = sum_j beta_j 2^(t_ij - reference),  t_ij = h_j + c <x'_i, y'_j>,
//   c = 2 s log2(e) / eps, over the columns of this block's part.
//
// Products: x' = (high + low) / scale with two fp16 parts and a power of two for the whole cloud, so
//   <x', y'> = high high + high low + low high: three m16n8k16 products keep about 22 bits (kProducts = 3); the first
//   alone keeps 11 (kProducts = 1), which is TF32's rounding at twice its rate.
//
// Tiling: a block takes 128 rows and walks over tiles of 128 columns; 8 warps, each with 32 x 64 scores in registers.
//   Operands pass through shared memory in chunks of kChunk coordinates, copied asynchronously kStages - 1 chunks ahead
//   and swizzled so that ldmatrix meets no bank conflict. The row chunks stay in shared memory for the whole block
//   (kResidentRows) where they fit. Two blocks share a multiprocessor, so that products of one overlap exponentials of
//   the other.
//
// Per pair: kProducts 2 d flop on the tensor cores; FFMA, FADD, MUFU, FFMA. From L2, per 128 x 128 tile:
//   256 d bytes of columns for each fp16 part, twice that without resident rows.
//
// Numerics: sums of 128 terms in float, then compensated. A thread's reference moves only when the sum of a tile shows
//   that it is too low (device/row_sums.cuh); rows are combined over lanes and warps in a fixed order. kEmptyLogit columns
//   have beta = 0.
#pragma once
#include "cuda/device/row_sums.cuh"
#include "cuda/device/shared_tiles.cuh"
#include "cuda/device/work.cuh"
#include "cuda/launch/arguments.hpp"

namespace monge::cuda {

template <int kProductsValue, int kChunkValue, int kStagesValue, RowPlace kRowPlace>
struct MmaPolicy {
  static constexpr int kProducts = kProductsValue;
  static constexpr int kChunk = kChunkValue;  // Coordinates: 16, 32 or 64.
  static constexpr int kStages = kStagesValue;
  static constexpr bool kSingleChunk = kRowPlace == RowPlace::single_chunk;
  static constexpr bool kResidentRows = kRowPlace != RowPlace::streamed;
  static constexpr int kRows = 128;
  static constexpr int kColumns = 128;
  static constexpr int kThreads = 256;
  static constexpr int kParts = kProducts == 1 ? 1 : 2;
  static constexpr int kPartBytes = kRows * kChunk * 2;
  static constexpr int kChunkBytes = kParts * kPartBytes;
  static constexpr int kLogitBytes = 2 * kColumns * 4;
  static constexpr int kStageBytes = (kResidentRows ? 1 : 2) * kChunkBytes + kLogitBytes;
  static constexpr int shared_bytes(int chunks) {
    return (kResidentRows ? chunks * kChunkBytes : 0) + kStages * kStageBytes;
  }
};

/// scores += rows columns^T over one chunk, for this warp's 32 x 64 scores.
template <class Policy>
__device__ __forceinline__ void multiply_chunk(float (&score)[2][8][4], std::uint32_t rows, std::uint32_t columns,
                                               int warp_row, int warp_column) {
  int const lane = static_cast<int>(threadIdx.x) % 32;
  int const a_row = warp_row + lane % 16;
  int const a_vector = lane / 16;
  int const b_row = warp_column + lane / 16 * 8 + lane % 8;
  int const b_vector = lane / 8 % 2;
#pragma unroll
  for (int k = 0; k < Policy::kChunk / 16; ++k) {
    std::uint32_t a[Policy::kParts][2][4];
#pragma unroll
    for (int part = 0; part < Policy::kParts; ++part) {
#pragma unroll
      for (int m = 0; m < 2; ++m) {
        load_matrix_x4(a[part][m], rows + part * Policy::kPartBytes +
                                       swizzled_offset<Policy::kChunk>(a_row + 16 * m, 2 * k + a_vector));
      }
    }
#pragma unroll
    for (int n = 0; n < 4; ++n) {
      int const offset = swizzled_offset<Policy::kChunk>(b_row + 16 * n, 2 * k + b_vector);
      std::uint32_t b[4];
      load_matrix_x4(b, columns + offset);
#pragma unroll
      for (int m = 0; m < 2; ++m) {
        mma_16x8x16(score[m][2 * n], a[0][m], b[0], b[1]);
        mma_16x8x16(score[m][2 * n + 1], a[0][m], b[2], b[3]);
      }
      if constexpr (Policy::kProducts == 3) {
        std::uint32_t low[4];
        load_matrix_x4(low, columns + Policy::kPartBytes + offset);
#pragma unroll
        for (int m = 0; m < 2; ++m) {
          mma_16x8x16(score[m][2 * n], a[1][m], b[0], b[1]);
          mma_16x8x16(score[m][2 * n + 1], a[1][m], b[2], b[3]);
        }
#pragma unroll
        for (int m = 0; m < 2; ++m) {
          mma_16x8x16(score[m][2 * n], a[0][m], low[0], low[1]);
          mma_16x8x16(score[m][2 * n + 1], a[0][m], low[2], low[3]);
        }
      }
    }
  }
}

/// Grid arguments.work.grid, Policy::kThreads threads, Policy::shared_bytes(chunks) of shared memory.
template <class Policy>
__global__ void __launch_bounds__(Policy::kThreads, 2)
    softmin_mma(SoftminArguments const arguments, int chunk_count, double product_factor) {
  extern __shared__ __align__(1024) unsigned char shared[];
  constexpr int kChunk = Policy::kChunk;
  constexpr int kFlushTiles = 8;
  int const chunks = Policy::kSingleChunk ? 1 : chunk_count;
  int const warp = static_cast<int>(threadIdx.x) / 32;
  int const lane = static_cast<int>(threadIdx.x) % 32;
  int const warp_row = warp / 2 * 32;
  int const warp_column = warp % 2 * 64;

  // Resident row chunks, then the stages: column chunk, row chunk unless resident, logits and factors.
  std::uint32_t const resident = shared_address(shared);
  int const stages_offset = Policy::kResidentRows ? chunks * Policy::kChunkBytes : 0;
  constexpr int kLogitOffset = Policy::kStageBytes - Policy::kLogitBytes;

  for_each_segment(
      arguments.work, arguments.rows.padded_size, [&](int first_row, int first_tile, int tiles, std::int64_t offset) {
        int next_tile = 0;
        int next_chunk = 0;
        int next_stage = 0;
        auto const copy_next = [&] {
          if (next_tile < tiles) {
            std::uint32_t const stage = resident + stages_offset + next_stage * Policy::kStageBytes;
            int const column = (first_tile + next_tile) * Policy::kColumns;
            copy_chunk<Policy>(stage, arguments.columns, column, next_chunk * kChunk);
            if constexpr (!Policy::kResidentRows) {
              copy_chunk<Policy>(stage + Policy::kChunkBytes, arguments.rows, first_row, next_chunk * kChunk);
            }
            if (next_chunk == chunks - 1) {
              copy_logits<Policy>(stage + kLogitOffset, arguments, column);
              next_chunk = 0;
              ++next_tile;
            } else {
              ++next_chunk;
            }
            next_stage = next_stage + 1 == Policy::kStages ? 0 : next_stage + 1;
          }
          copy_async_commit();
        };

        if constexpr (Policy::kResidentRows) {
          for (int chunk = 0; chunk < chunks; ++chunk) {
            copy_chunk<Policy>(resident + chunk * Policy::kChunkBytes, arguments.rows, first_row, chunk * kChunk);
          }
        }
        // The rows never change; logits and parameters may be the work of the kernel before.
        start_next_kernel();
        wait_for_previous_kernel();
        float const multiplier = static_cast<float>(product_factor * arguments.parameters->log2e_over_eps);
#pragma unroll
        for (int s = 0; s < Policy::kStages - 1; ++s) copy_next();

        RowSums<4> sums;
        int stage_index = 0;
        for (int tile = 0; tile < tiles; ++tile) {
          float score[2][8][4] = {};
          for (int chunk = 0; chunk < chunks; ++chunk) {
            copy_async_wait<Policy::kStages - 2>();
            __syncthreads();  // The chunk is here for all, and nobody still reads the stage that is filled next.
            copy_next();
            std::uint32_t const stage = resident + stages_offset + stage_index * Policy::kStageBytes;
            std::uint32_t const rows =
                Policy::kResidentRows ? resident + chunk * Policy::kChunkBytes : stage + Policy::kChunkBytes;
            multiply_chunk<Policy>(score, rows, stage, warp_row, warp_column);
            if (chunk == chunks - 1) {
              auto const* tile_logits = reinterpret_cast<float const*>(
                  shared + stages_offset + stage_index * Policy::kStageBytes + kLogitOffset);
              add_tile<Policy::kColumns>(sums, score, tile_logits + warp_column, multiplier);
            }
            stage_index = stage_index + 1 == Policy::kStages ? 0 : stage_index + 1;
          }
          if (tile % kFlushTiles == kFlushTiles - 1) sums.flush();
        }
        sums.flush();

        // Over the four lanes of a row, then over its two warps.
        sums.merge_lanes();
        copy_async_wait<0>();
        __syncthreads();
        auto* const exchange = reinterpret_cast<PartialSum<float>*>(shared);
        if (warp_column != 0 && lane % 4 == 0) {
#pragma unroll
          for (int r = 0; r < 4; ++r) exchange[warp_row + 8 * r + lane / 4] = {sums.reference[r], sums.total[r]};
        }
        __syncthreads();
        if (warp_column == 0 && lane % 4 == 0) {
          auto* const out = static_cast<PartialSum<float>*>(arguments.partials) + offset;
#pragma unroll
          for (int r = 0; r < 4; ++r) {
            int const row = warp_row + 8 * r + lane / 4;
            PartialSum<float> const other = exchange[row];
            merge_sums(sums.reference[r], sums.total[r], other.reference, other.sum);
            out[row] = {sums.reference[r], sums.total[r]};
          }
        }
      });
}

}  // namespace monge::cuda
