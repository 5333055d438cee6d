// Softmin half-step on Hopper's asynchronous tensor cores: the formula and the numerics of kernels/softmin_mma.cuh.
//
// Tiling: a block of two warpgroups takes 128 rows, 64 each, and walks over tiles of 128 columns. Both operands (wgmma
//   m64n128k16) come from shared memory, columns through a ring of kStages chunks.
//   kBlocks = 1: a thread has two sets of 64 accumulators; while the tensor cores fill one with the next tile, the
//     thread sums the exponentials of the other, so products and exponentials overlap within each warp.
//   kBlocks = 2: one set; two blocks share a multiprocessor and overlap with each other.
//
// Per pair: kProducts 2 d flop on the tensor cores; FFMA, FADD, MUFU, FFMA. From L2, per 128 x 128 tile: 256 d bytes of
//   columns for each fp16 part, twice that without resident rows.
//
// Only code for sm_90a has a body; elsewhere the launch bound says so (have_wgmma() in launch/softmin_mma.cu).
#pragma once
#include "cuda/device/row_sums.cuh"
#include "cuda/device/shared_tiles.cuh"
#include "cuda/device/wgmma.cuh"
#include "cuda/device/work.cuh"

namespace monge::cuda {

template <int kProducts, int kChunk, int kStages, RowPlace kRowPlace, int kBlocksValue>
struct WgmmaShape : OperandShape<kProducts, kChunk, kStages, kRowPlace, 4> {
  static constexpr int kBlocks = kBlocksValue;  // On a multiprocessor.
  // A stage is filled again after the barrier of the first or, with two sets, the second chunk after its own. With two
  // a thread may still sum one tile while the columns of the second after the next arrive: hence 4 buffers of logits.
  static constexpr int kAhead = kBlocks == 1 ? 2 : 1;
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define MONGE_WGMMA_THREADS 256
#else
#define MONGE_WGMMA_THREADS 32
#endif

/// Grid arguments.work.grid, Shape::kThreads threads, Shape::shared_bytes(chunks) of shared memory.
template <class Shape>
__global__ void __launch_bounds__(MONGE_WGMMA_THREADS, Shape::kBlocks)
    softmin_wgmma(SoftminArguments const arguments, int chunk_count, double product_factor) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ __align__(1024) unsigned char shared[];
  constexpr int kFlushTiles = 4;
  int const warp = static_cast<int>(threadIdx.x) / 32;
  int const lane = static_cast<int>(threadIdx.x) % 32;
  int const group = warp / 4;

  for_each_segment(
      arguments.work, arguments.rows.padded_size, [&](int first_row, int first_tile, int tiles, std::int64_t offset) {
        OperandStream<Shape> stream(shared, arguments, chunk_count, first_row, first_tile, tiles);
        stream.copy_resident_rows();
        // The rows never change; logits and parameters may be the work of the kernel before.
        start_next_kernel();
        wait_for_previous_kernel();
        float const multiplier = static_cast<float>(product_factor * arguments.parameters->log2e_over_eps);
#pragma unroll
        for (int s = 0; s < Shape::kStages - Shape::kAhead; ++s) stream.copy_next();

        // Starts the products of one chunk. The stage that is filled meanwhile was read kAhead chunks ago: each thread
        // has waited for those products before it came to the barrier.
        auto const start_chunk = [&](float(&score)[1][16][4], int chunk) {
          copy_async_wait<Shape::kStages - 1 - Shape::kAhead>();
          fence_async_proxy();
          __syncthreads();
          stream.copy_next();
          std::uint32_t const columns = stream.columns();
          std::uint32_t const rows = stream.rows(chunk) + group * (Shape::kPartBytes / 2);
          wgmma_fence();
#pragma unroll
          for (int k = 0; k < Shape::kChunk / 16; ++k) {
            std::uint64_t const a = matrix_descriptor<Shape::kChunk>(rows + 32 * k);
            std::uint64_t const b = matrix_descriptor<Shape::kChunk>(columns + 32 * k);
            wgmma_64x128x16(score, a, b, chunk > 0 || k > 0);
            if constexpr (Shape::kProducts == 3) {
              std::uint64_t const a_low = matrix_descriptor<Shape::kChunk>(rows + Shape::kPartBytes + 32 * k);
              std::uint64_t const b_low = matrix_descriptor<Shape::kChunk>(columns + Shape::kPartBytes + 32 * k);
              wgmma_64x128x16(score, a, b_low, 1);
              wgmma_64x128x16(score, a_low, b, 1);
            }
          }
          wgmma_commit();
          stream.advance();
        };

        RowSums<2> sums;
        int summed = 0;
        auto const add = [&](float const(&score)[1][16][4]) {
          add_tile<Shape::kColumns>(sums, score, stream.logits(summed), multiplier);
          if (++summed % kFlushTiles == 0) sums.flush();
        };
        // The products of one tile, and meanwhile the exponentials of the one before.
        auto const step = [&](float(&next)[1][16][4], float(&previous)[1][16][4]) {
          start_chunk(next, 0);
          wgmma_wait<1>(previous);
          // One chunk alone would keep the tensor cores busy for only a part of the time that the exponentials take.
          if constexpr (!Shape::kSingleChunk) start_chunk(next, 1);
          add(previous);
          if constexpr (!Shape::kSingleChunk) wgmma_wait<1>(previous);
          for (int chunk = 2; chunk < stream.chunks(); ++chunk) {
            start_chunk(next, chunk);
            wgmma_wait<1>(previous);
          }
        };

        if constexpr (Shape::kBlocks == 2) {
          float score[1][16][4] = {};
          for (int tile = 0; tile < tiles; ++tile) {
            for (int chunk = 0; chunk < stream.chunks(); ++chunk) {
              start_chunk(score, chunk);
              wgmma_wait<0>(score);
            }
            add(score);
          }
        } else {
          float even[1][16][4] = {}, odd[1][16][4] = {};
          for (int chunk = 0; chunk < stream.chunks(); ++chunk) {
            start_chunk(even, chunk);
            wgmma_wait<1>(odd);
          }
          int tile = 1;
          for (; tile + 1 < tiles; tile += 2) {
            step(odd, even);
            step(even, odd);
          }
          if (tile < tiles) {
            step(odd, even);
            wgmma_wait<0>(odd);
            add(odd);
          } else {
            wgmma_wait<0>(even);
            add(even);
          }
        }
        copy_async_wait<0>();
        sums.flush();
        sums.merge_lanes();
        if (lane % 4 == 0) {
          auto* const out = static_cast<PartialSum<float>*>(arguments.partials) + offset;
#pragma unroll
          for (int r = 0; r < 2; ++r) out[16 * warp + 8 * r + lane / 4] = {sums.reference[r], sums.total[r]};
        }
      });
#endif
}

#undef MONGE_WGMMA_THREADS

}  // namespace monge::cuda
