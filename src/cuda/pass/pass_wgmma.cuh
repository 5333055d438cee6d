// A pass over all pairs on Hopper's asynchronous tensor cores: formulas and numerics of cuda/pass/pass_mma.cuh.
//
// Tiling: a block of two warpgroups takes 128 rows, 64 each, and walks over tiles of 128 columns. Both operands (wgmma
//   m64n128k16) come from shared memory, columns through a ring of kStages chunks.
//   kBlocks = 1: a thread has two sets of 64 accumulators. While the tensor cores fill one with the next tile, the
//     thread takes the exponentials of the other, so products and exponentials overlap within each warp.
//   kBlocks = 2: one set; two blocks on a multiprocessor overlap with each other.
//   Tiles of 256 columns, for long vectors: one set of 128. Per product they take 3/4 of the copies to shared memory
//   and 5/6 of its reads, which take about as long as the products; the exponentials do not overlap.
//
// Per pair: kProducts 2 d flop on the tensor cores; FFMA, FADD, MUFU, FFMA. From L2, per 128 x 128 tile: 256 d bytes of
//   columns for each fp16 part, twice that without resident rows.
//
// Generation::sm_90a alone; the kernel is empty before.
#pragma once
#include "cuda/device/row_sums.cuh"
#include "cuda/device/source.cuh"
#include "cuda/device/wgmma.cuh"
#include "cuda/device/work.cuh"
#include "cuda/pass/shared_tiles.cuh"

namespace monge::cuda {

template <int kProducts, int kChunk, int kStages, RowPlace kRowPlace, int kBlocksValue, int kColumns>
struct WgmmaShape : OperandShape<kProducts, kChunk, kStages, kRowPlace, 4, kColumns> {
  static constexpr int kBlocks = kBlocksValue;  // Blocks on a multiprocessor.
  static constexpr bool kWide = kColumns > 128;
  // The stage of a chunk is refilled at the barrier of the chunk kAhead later. If kAhead is 2, a thread may still sum
  // one tile while logits of the third tile after it arrive: hence 4 buffers of logits.
  static constexpr int kAhead = kBlocks == 1 ? 2 : 1;
};

/// Grid arguments.work.grid, Shape::kThreads threads, Shape::shared_bytes(arguments.chunks) of shared memory.
template <class Shape, Pass kPass, class Source>
__global__ void __launch_bounds__(Shape::kThreads, Shape::kBlocks) pass_wgmma(Source const source) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ __align__(1024) unsigned char shared[];
  Slice<PassArguments> const slice = slice_of(source);
  PassArguments const& arguments = slice.arguments;
  constexpr int kFlushTiles = 4;
  constexpr bool kStores = has_stores(kPass);
  constexpr bool kSums = has_sums(kPass);
  int const warp = static_cast<int>(threadIdx.x) / 32;
  int const lane = static_cast<int>(threadIdx.x) % 32;
  int const group = warp / 4;

  for_each_segment(arguments.work, arguments.rows.padded_size, slice.block, slice.count, [&](Segment const& segment) {
    OperandStream<Shape, kPass != Pass::hadamard> stream(shared, arguments, segment);
    float const multiplier = stream.start();
#pragma unroll
    for (int s = 0; s < Shape::kStages - Shape::kAhead; ++s) stream.copy_next();

    // Starts the products of one chunk. The stage that is filled meanwhile was read kAhead chunks ago: before the
    // barrier each thread has waited for those products.
    auto const start_chunk = [&](auto& score, int chunk) {
      copy_async_wait<Shape::kStages - 1 - Shape::kAhead>();
      fence_async_proxy();
      __syncthreads();
      stream.copy_next();
      std::uint32_t const rows = stream.rows(chunk) + group * (Shape::kPartBytes / 2);
      start_products<Shape>(score, rows, stream.columns(), chunk > 0);
      stream.advance();
    };

    // Blocks of the plan that one block takes together leave the same sums as alone, one after the other.
    WorkPlan const& work = arguments.work;
    auto const end_of = [&](int owner) {
      return static_cast<int>(min(work.first_tile(owner + 1) - segment.tile, static_cast<std::int64_t>(segment.tiles)));
    };
    int owner = segment.owner, part_begin = 0, part_end = kOfMany<Source> ? end_of(owner) : segment.tiles;
    auto* out = static_cast<PartialSum<float>*>(arguments.partials) + segment.offset;

    RowSums<2> sums;
    auto const store_sums = [&] {
      sums.flush();
      sums.merge_lanes();
      if (lane % 4 > 0) return;
#pragma unroll
      for (int r = 0; r < 2; ++r) out[16 * warp + 8 * r + lane / 4] = {sums.reference[r], sums.total[r]};
    };
    if constexpr (has_references(kPass))
      load_references(sums.reference, arguments.references, segment.first_row + 16 * warp + lane / 4);
    int taken = 0;
    auto const take = [&](auto const& score) {
      if constexpr (kStores) {
        store_tile<kPass, Shape::kColumns>(arguments.entries, segment.first_row + 16 * warp, stream.first_column(taken),
                                           sums, score, stream.logits(taken), multiplier);
      } else {
        add_tile<kPass, Shape::kColumns>(sums, score, stream.logits(taken), multiplier);
      }
      ++taken;
      if (kSums && (taken - part_begin) % kFlushTiles == 0) sums.flush();
      if constexpr (kOfMany<Source>) {
        if (taken < part_end || taken == segment.tiles) return;
        store_sums();
        sums = RowSums<2>();
        out += arguments.rows.padded_size;
        part_begin = part_end;
        part_end = end_of(++owner);
      }
    };
    // Products of one tile, with the exponentials of the previous one meanwhile.
    auto const step = [&](float(&next)[1][16][4], float(&previous)[1][16][4]) {
      start_chunk(next, 0);
      wgmma_wait<1>(previous);
      // One chunk would keep the tensor cores busy for only a part of the time of the exponentials.
      if constexpr (!Shape::kSingleChunk) start_chunk(next, 1);
      take(previous);
      if constexpr (!Shape::kSingleChunk) wgmma_wait<1>(previous);
      for (int chunk = 2; chunk < stream.chunks(); ++chunk) {
        start_chunk(next, chunk);
        wgmma_wait<1>(previous);
      }
    };

    if constexpr (Shape::kWide) {
      float score[1][32][4] = {};
      for (int tile = 0; tile < segment.tiles; ++tile) {
        for (int chunk = 0; chunk < stream.chunks(); ++chunk) {
          start_chunk(score, chunk);
          wgmma_wait<1>();
        }
        wgmma_wait<0>(score);
        take(score);
      }
    } else if constexpr (Shape::kBlocks == 2) {
      float score[1][16][4] = {};
      for (int tile = 0; tile < segment.tiles; ++tile) {
        for (int chunk = 0; chunk < stream.chunks(); ++chunk) {
          start_chunk(score, chunk);
          wgmma_wait<0>(score);
        }
        take(score);
      }
    } else {
      float even[1][16][4] = {}, odd[1][16][4] = {};
      for (int chunk = 0; chunk < stream.chunks(); ++chunk) {
        start_chunk(even, chunk);
        wgmma_wait<1>(odd);
      }
      int tile = 1;
      for (; tile + 1 < segment.tiles; tile += 2) {
        step(odd, even);
        step(even, odd);
      }
      if (tile < segment.tiles) {
        step(odd, even);
        wgmma_wait<0>(odd);
        take(odd);
      } else {
        wgmma_wait<0>(even);
        take(even);
      }
    }
    copy_async_wait<0>();
    if constexpr (kSums) store_sums();
  });
#endif
}

}  // namespace monge::cuda
