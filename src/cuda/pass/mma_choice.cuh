// The body of choose_mma(), for the files that compile the kernels of one pass each.
#pragma once
#include "cuda/pass/mma_choice.hpp"
#include "cuda/pass/pass_mma.cuh"
#include "cuda/pass/pass_wgmma.cuh"

namespace monge::cuda {
namespace {

/// In a batch one block may do the work of so many blocks of the plan. It overlaps the exponentials of a tile with the
/// products of the next tile, and starts once.
constexpr int kMostMerged = 8;

template <class Shape>
PassKernel kernel_of(Kernel<PassArguments> const& kernel, int chunks, int merged) {
  return {kernel, Shape::kThreads, Shape::shared_bytes(chunks), Shape::kRows, Shape::kColumns, chunks, merged};
}

template <Pass kPass, int kProducts, int kChunk, int kStages, RowPlace kRowPlace>
PassKernel mma(int chunks) {
  using Shape = MmaShape<kProducts, kChunk, kStages, kRowPlace>;
  Kernel<PassArguments> kernel{pass_mma<Shape, kPass, One<PassArguments>>, nullptr};
  if constexpr (kPass == Pass::softmin) kernel.many = pass_mma<Shape, kPass, Many<PassArguments>>;
  return kernel_of<Shape>(kernel, chunks, 1);
}

template <Pass kPass, int kProducts, int kChunk, int kStages, RowPlace kRowPlace, int kBlocks, int kColumns = 128>
PassKernel wgmma(int chunks) {
  using Shape = WgmmaShape<kProducts, kChunk, kStages, kRowPlace, kBlocks, kColumns>;
  Kernel<PassArguments> kernel{pass_wgmma<Shape, kPass, One<PassArguments>>, nullptr};
  if constexpr (kPass == Pass::softmin) kernel.many = pass_wgmma<Shape, kPass, Many<PassArguments>>;
  return kernel_of<Shape>(kernel, chunks, kMostMerged);
}

template <Pass kPass, int kProducts, int kChunk>
PassKernel choose_mma_sync(int stride, int shared_limit) {
  constexpr int kStages = kProducts == 1 ? 3 : 2;
  if (stride == 16) return mma<kPass, kProducts, 16, 3, RowPlace::single_chunk>(1);
  if (stride == 32) return mma<kPass, kProducts, 32, 3, RowPlace::single_chunk>(1);
  if (stride == 64) return mma<kPass, kProducts, 64, kStages, RowPlace::single_chunk>(1);
  PassKernel const resident = mma<kPass, kProducts, kChunk, kStages, RowPlace::resident>(stride / kChunk);
  if (resident.shared_bytes <= shared_limit) return resident;
  static_assert(MmaShape<kProducts, kChunk, 3, RowPlace::streamed>::shared_bytes(1) + kArgumentBytes <=
                kLeastSharedBytes);
  return mma<kPass, kProducts, kChunk, 3, RowPlace::streamed>(stride / kChunk);
}

template <Pass kPass, int kProducts, int kChunk>
PassKernel choose_wgmma(int stride, int shared_limit) {
  // If the rows are one short chunk, sums leave registers for two blocks on a multiprocessor; tiles that are stored as
  // entries do not. With three products of 64 coordinates, one block keeps the tensor cores busy.
  constexpr int kShort = has_stores(kPass) ? 1 : 2;
  constexpr int kLong = !has_stores(kPass) && kProducts == 1 ? 2 : 1;
  constexpr int kShortStages = kShort == 2 ? 3 : 4;
  constexpr int kLongStages = kLong == 2 ? 3 : 4;
  if (stride == 16) return wgmma<kPass, kProducts, 16, kShortStages, RowPlace::single_chunk, kShort>(1);
  if (stride == 32) return wgmma<kPass, kProducts, 32, kShortStages, RowPlace::single_chunk, kShort>(1);
  if (stride == 64) return wgmma<kPass, kProducts, 64, kLongStages, RowPlace::single_chunk, kLong>(1);
  PassKernel const resident = wgmma<kPass, kProducts, kChunk, 4, RowPlace::resident, 1>(stride / kChunk);
  if (resident.shared_bytes <= shared_limit) return resident;
  // Stored entries have no columns past the padding, so their tiles must not be wider than it. One product is no faster
  // with wide tiles.
  if constexpr (has_stores(kPass) || kProducts == 1) {
    return wgmma<kPass, kProducts, kChunk, 5, RowPlace::streamed, 1>(stride / kChunk);
  } else {
    return wgmma<kPass, kProducts, kChunk, 4, RowPlace::streamed, 1, 256>(stride / kChunk);
  }
}

}  // namespace

template <Pass kPass, int kProducts>
PassKernel choose_mma(Generation generation, int half_stride, int shared_limit) {
  auto const choose = [&]<int kChunk>() {
    return generation == Generation::sm_90a ? choose_wgmma<kPass, kProducts, kChunk>(half_stride, shared_limit)
                                            : choose_mma_sync<kPass, kProducts, kChunk>(half_stride, shared_limit);
  };
  // One product takes longer chunks where they have no padding.
  if constexpr (kProducts == 1) {
    if (half_stride % 64 == 0) return choose.template operator()<64>();
  }
  return choose.template operator()<32>();
}

}  // namespace monge::cuda
