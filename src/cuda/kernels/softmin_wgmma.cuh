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

template <int kProductsValue, int kChunkValue, int kStagesValue, RowPlace kRowPlace, int kBlocksValue>
struct WgmmaPolicy {
  static constexpr int kBlocks = kBlocksValue;  // On a multiprocessor.
  // A stage is filled again after the barrier of the first or, with two sets, the second chunk after its own.
  static constexpr int kAhead = kBlocks == 1 ? 2 : 1;
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
  // A thread may still sum one tile while the columns of the second after the next arrive.
  static constexpr int kLogitBuffers = 4;
  static constexpr int kStageBytes = (kResidentRows ? 1 : 2) * kChunkBytes;
  static constexpr int shared_bytes(int chunks) {
    return kLogitBuffers * kLogitBytes + (kResidentRows ? chunks * kChunkBytes : 0) + kStages * kStageBytes;
  }
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define MONGE_WGMMA_THREADS 256
#else
#define MONGE_WGMMA_THREADS 32
#endif

/// Grid arguments.work.grid, Policy::kThreads threads, Policy::shared_bytes(chunks) of shared memory.
template <class Policy>
__global__ void __launch_bounds__(MONGE_WGMMA_THREADS, Policy::kBlocks)
    softmin_wgmma(SoftminArguments const arguments, int chunk_count, double product_factor) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ __align__(1024) unsigned char shared[];
  constexpr int kChunk = Policy::kChunk;
  constexpr int kFlushTiles = 4;
  int const chunks = Policy::kSingleChunk ? 1 : chunk_count;
  int const warp = static_cast<int>(threadIdx.x) / 32;
  int const lane = static_cast<int>(threadIdx.x) % 32;
  int const group = warp / 4;

  // Logits and factors of some tiles, resident row chunks, then the stages: column chunk, row chunk unless resident.
  std::uint32_t const resident = shared_address(shared) + Policy::kLogitBuffers * Policy::kLogitBytes;
  std::uint32_t const stages = resident + (Policy::kResidentRows ? chunks * Policy::kChunkBytes : 0);

  for_each_segment(
      arguments.work, arguments.rows.padded_size, [&](int first_row, int first_tile, int tiles, std::int64_t offset) {
        int next_tile = 0, next_chunk = 0, next_stage = 0;
        auto const copy_next = [&] {
          if (next_tile < tiles) {
            std::uint32_t const stage = stages + next_stage * Policy::kStageBytes;
            int const column = (first_tile + next_tile) * Policy::kColumns;
            copy_chunk<Policy>(stage, arguments.columns, column, next_chunk * kChunk);
            if constexpr (!Policy::kResidentRows) {
              copy_chunk<Policy>(stage + Policy::kChunkBytes, arguments.rows, first_row, next_chunk * kChunk);
            }
            if (++next_chunk == chunks) {
              copy_logits<Policy>(shared_address(shared) + next_tile % Policy::kLogitBuffers * Policy::kLogitBytes,
                                  arguments, column);
              next_chunk = 0;
              ++next_tile;
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
        for (int s = 0; s < Policy::kStages - Policy::kAhead; ++s) copy_next();

        int stage_index = 0;
        // Starts the products of one chunk. The stage that is filled meanwhile was read kAhead chunks ago: each thread
        // has waited for those products before it came to the barrier.
        auto const start_chunk = [&](float(&score)[1][16][4], int chunk) {
          copy_async_wait<Policy::kStages - 1 - Policy::kAhead>();
          fence_async_proxy();
          __syncthreads();
          copy_next();
          std::uint32_t const stage = stages + stage_index * Policy::kStageBytes;
          std::uint32_t const rows =
              (Policy::kResidentRows ? resident + chunk * Policy::kChunkBytes : stage + Policy::kChunkBytes) +
              group * (Policy::kPartBytes / 2);
          wgmma_fence();
#pragma unroll
          for (int k = 0; k < kChunk / 16; ++k) {
            std::uint64_t const a = matrix_descriptor<kChunk>(rows + 32 * k);
            std::uint64_t const b = matrix_descriptor<kChunk>(stage + 32 * k);
            wgmma_64x128x16(score, a, b, chunk > 0 || k > 0);
            if constexpr (Policy::kProducts == 3) {
              std::uint64_t const a_low = matrix_descriptor<kChunk>(rows + Policy::kPartBytes + 32 * k);
              std::uint64_t const b_low = matrix_descriptor<kChunk>(stage + Policy::kPartBytes + 32 * k);
              wgmma_64x128x16(score, a, b_low, 1);
              wgmma_64x128x16(score, a_low, b, 1);
            }
          }
          wgmma_commit();
          stage_index = stage_index + 1 == Policy::kStages ? 0 : stage_index + 1;
        };

        RowSums<2> sums;
        int summed = 0;
        auto const add = [&](float const(&score)[1][16][4]) {
          auto const* const logits =
              reinterpret_cast<float const*>(shared + summed % Policy::kLogitBuffers * Policy::kLogitBytes);
          add_tile<Policy::kColumns>(sums, score, logits, multiplier);
          if (++summed % kFlushTiles == 0) sums.flush();
        };
        // The products of one tile, and meanwhile the exponentials of the one before.
        auto const step = [&](float(&next)[1][16][4], float(&previous)[1][16][4]) {
          start_chunk(next, 0);
          wgmma_wait<1>(previous);
          // One chunk alone would keep the tensor cores busy for only a part of the time that the exponentials take.
          if constexpr (!Policy::kSingleChunk) start_chunk(next, 1);
          add(previous);
          if constexpr (!Policy::kSingleChunk) wgmma_wait<1>(previous);
          for (int chunk = 2; chunk < chunks; ++chunk) {
            start_chunk(next, chunk);
            wgmma_wait<1>(previous);
          }
        };

        if constexpr (Policy::kBlocks == 2) {
          float score[1][16][4] = {};
          for (int tile = 0; tile < tiles; ++tile) {
            for (int chunk = 0; chunk < chunks; ++chunk) {
              start_chunk(score, chunk);
              wgmma_wait<0>(score);
            }
            add(score);
          }
        } else {
          float even[1][16][4] = {}, odd[1][16][4] = {};
          for (int chunk = 0; chunk < chunks; ++chunk) {
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
