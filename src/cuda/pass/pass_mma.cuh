// A pass over all pairs on tensor cores: scores t_ij = h_j + c <x'_i, y'_j>, c = 2 s log2(e) / eps, and their results:
//
//   softmin    for each row (reference, sum) with sum = sum_j beta_j 2^(t_ij - reference), in the block's columns
//   product    the same sum with given references and beta_j v_j in place of beta_j
//   entries    kEntryScale beta_j 2^(t_ij - reference_i) to memory, as two fp16 numbers, and their sums
//   logits     t_ij + log2 beta_j - reference_i to memory
//   hadamard   entries in memory times c <x'_i, y'_j>
//
// Products: x' = (high + low) / scale with two fp16 parts and a power of two for the whole cloud, so
//   <x', y'> = high high + high low + low high: three m16n8k16 products keep about 22 bits (kProducts = 3); the first
//   alone keeps 11 (kProducts = 1), which is TF32's rounding at twice its rate.
//
// Tiling: a block takes 128 rows and walks over tiles of 128 columns; 8 warps, each with 32 x 64 scores in registers.
//   Operands pass through shared memory in chunks of kChunk coordinates, copied asynchronously kStages - 1 chunks ahead
//   and swizzled so that ldmatrix meets no bank conflict. With kResidentRows the row chunks stay in shared memory for
//   the whole block. Two blocks share a multiprocessor, so that products of one overlap exponentials of the other.
//
// Per pair: kProducts 2 d flop on the tensor cores; FFMA, FADD, MUFU, FFMA. From L2, per 128 x 128 tile:
//   256 d bytes of columns for each fp16 part, twice that without resident rows. Entries and logits: 4 bytes written a
//   pair, for hadamard 4 read too.
//
// Numerics: sums of 128 terms in float, then compensated. A thread's reference moves only when the sum of a tile shows
//   that it is too low (device/row_sums.cuh). Sums of a row are combined over lanes and warps in a fixed order.
//   kEmptyLogit columns have beta = 0. Two fp16 numbers hold an entry with an error of 2^-22 of the entry or 2^-40 of
//   its row's sum, whichever is larger.
#pragma once
#include "cuda/device/row_sums.cuh"
#include "cuda/device/source.cuh"
#include "cuda/device/work.cuh"
#include "cuda/launch/arguments.hpp"
#include "cuda/pass/shared_tiles.cuh"

namespace monge::cuda {

/// As many buffers of logits as stages: a tile's are not overwritten before its last stage has been read. Streamed rows
/// have more chunks than there are stages, so that copies are at most one tile ahead.
template <int kProducts, int kChunk, int kStages, RowPlace kRowPlace>
using MmaShape = OperandShape<kProducts, kChunk, kStages, kRowPlace, kRowPlace == RowPlace::streamed ? 2 : kStages>;

/// scores += rows columns^T over one chunk, for the 32 x 64 scores of this warp.
template <class Shape>
__device__ __forceinline__ void multiply_chunk(float (&score)[2][8][4], std::uint32_t rows, std::uint32_t columns,
                                               int warp_row, int warp_column) {
  int const lane = static_cast<int>(threadIdx.x) % 32;
  int const a_row = warp_row + lane % 16;
  int const a_vector = lane / 16;
  int const b_row = warp_column + lane / 16 * 8 + lane % 8;
  int const b_vector = lane / 8 % 2;
#pragma unroll
  for (int k = 0; k < Shape::kChunk / 16; ++k) {
    std::uint32_t a[Shape::kParts][2][4];
#pragma unroll
    for (int part = 0; part < Shape::kParts; ++part) {
#pragma unroll
      for (int m = 0; m < 2; ++m) {
        load_matrix_x4(a[part][m], rows + part * Shape::kPartBytes +
                                       swizzled_offset<Shape::kChunk>(a_row + 16 * m, 2 * k + a_vector));
      }
    }
#pragma unroll
    for (int n = 0; n < 4; ++n) {
      int const offset = swizzled_offset<Shape::kChunk>(b_row + 16 * n, 2 * k + b_vector);
      std::uint32_t b[4];
      load_matrix_x4(b, columns + offset);
#pragma unroll
      for (int m = 0; m < 2; ++m) {
        mma_16x8x16(score[m][2 * n], a[0][m], b[0], b[1]);
        mma_16x8x16(score[m][2 * n + 1], a[0][m], b[2], b[3]);
      }
      if constexpr (Shape::kProducts == 3) {
        std::uint32_t low[4];
        load_matrix_x4(low, columns + Shape::kPartBytes + offset);
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

/// Grid arguments.work.grid, Shape::kThreads threads, Shape::shared_bytes(arguments.chunks) of shared memory.
template <class Shape, Pass kPass, class Source>
__global__ void __launch_bounds__(Shape::kThreads, 2) pass_mma(Source const source) {
  extern __shared__ __align__(1024) unsigned char shared[];
  Slice<PassArguments> const slice = slice_of(source);
  PassArguments const& arguments = slice.arguments;
  constexpr int kFlushTiles = 8;
  constexpr bool kStores = has_stores(kPass);
  constexpr bool kSums = has_sums(kPass);
  int const warp = static_cast<int>(threadIdx.x) / 32;
  int const lane = static_cast<int>(threadIdx.x) % 32;
  int const warp_row = warp / 2 * 32;
  int const warp_column = warp % 2 * 64;

  for_each_segment(arguments.work, arguments.rows.padded_size, slice.block, 1, [&](Segment const& segment) {
    OperandStream<Shape, kPass != Pass::hadamard> stream(shared, arguments, segment);
    float const multiplier = stream.start();
#pragma unroll
    for (int s = 0; s < Shape::kStages - 1; ++s) stream.copy_next();

    RowSums<4> sums;
    if constexpr (has_references(kPass))
      load_references(sums.reference, arguments.references, segment.first_row + warp_row + lane / 4);
    for (int tile = 0; tile < segment.tiles; ++tile) {
      float score[2][8][4] = {};
      for (int chunk = 0; chunk < stream.chunks(); ++chunk) {
        copy_async_wait<Shape::kStages - 2>();
        __syncthreads();  // All threads see the chunk, and none still reads the next stage.
        stream.copy_next();
        multiply_chunk<Shape>(score, stream.rows(chunk), stream.columns(), warp_row, warp_column);
        stream.advance();
      }
      float const* const logits = stream.logits(tile) + warp_column;
      if constexpr (kStores) {
        store_tile<kPass, Shape::kColumns>(arguments.entries, segment.first_row + warp_row,
                                           stream.first_column(tile) + warp_column, sums, score, logits, multiplier);
      } else {
        add_tile<kPass, Shape::kColumns>(sums, score, logits, multiplier);
      }
      if (kSums && tile % kFlushTiles == kFlushTiles - 1) sums.flush();
    }
    copy_async_wait<0>();
    if constexpr (kSums) {
      sums.flush();
      // Joins the sums over the four lanes of a row, then over its two warps.
      sums.merge_lanes();
      __syncthreads();
      auto* const exchange = reinterpret_cast<PartialSum<float>*>(shared);
      if (warp_column != 0 && lane % 4 == 0) {
#pragma unroll
        for (int r = 0; r < 4; ++r) exchange[warp_row + 8 * r + lane / 4] = {sums.reference[r], sums.total[r]};
      }
      __syncthreads();
      if (warp_column == 0 && lane % 4 == 0) {
        auto* const out = static_cast<PartialSum<float>*>(arguments.partials) + segment.offset;
#pragma unroll
        for (int r = 0; r < 4; ++r) {
          int const row = warp_row + 8 * r + lane / 4;
          PartialSum<float> const other = exchange[row];
          merge_sums(sums.reference[r], sums.total[r], other.reference, other.sum);
          out[row] = {sums.reference[r], sums.total[r]};
        }
      }
    }
  });
}

}  // namespace monge::cuda
