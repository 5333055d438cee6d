#include "cuda/kernels/softmin_mma.cuh"
#include "cuda/kernels/softmin_wgmma.cuh"
#include "cuda/launch/chained.hpp"
#include "cuda/launch/softmin.hpp"

namespace monge::cuda {
namespace {

/// Values of SoftminPlan::variant.
enum Variant { kMma, kWgmma };

using Kernel = void (*)(SoftminArguments, int, double);

/// The kernel, its threads and shared memory, and the number of chunks, for one pair of clouds.
struct Choice {
  Kernel kernel;
  int threads;
  int shared_bytes;
  int chunks;
  int rows;
  int columns;
};

template <class Shape>
Choice choice_of(Kernel kernel, int chunks) {
  return {kernel, Shape::kThreads, Shape::shared_bytes(chunks), chunks, Shape::kRows, Shape::kColumns};
}

template <int kProducts, int kChunk, int kStages, RowPlace kRowPlace>
Choice mma(int chunks) {
  using Shape = MmaShape<kProducts, kChunk, kStages, kRowPlace>;
  return choice_of<Shape>(softmin_mma<Shape>, chunks);
}

template <int kProducts, int kChunk, int kStages, RowPlace kRowPlace, int kBlocks>
Choice wgmma(int chunks) {
  using Shape = WgmmaShape<kProducts, kChunk, kStages, kRowPlace, kBlocks>;
  return choice_of<Shape>(softmin_wgmma<Shape>, chunks);
}

/// Rows of one chunk where they are so short; else rows that stay in shared memory where they fit; else streamed.
template <int kProducts>
Choice choose_mma(int stride, int shared_limit) {
  constexpr int kChunk = kProducts == 1 ? 64 : 32;
  constexpr int kStages = kProducts == 1 ? 3 : 2;
  if (stride == 16) return mma<kProducts, 16, 3, RowPlace::single_chunk>(1);
  if (stride == 32) return mma<kProducts, 32, 3, RowPlace::single_chunk>(1);
  if (stride == 64) return mma<kProducts, 64, kStages, RowPlace::single_chunk>(1);
  Choice const resident = mma<kProducts, kChunk, kStages, RowPlace::resident>(stride / kChunk);
  if (resident.shared_bytes <= shared_limit) return resident;
  return mma<kProducts, kChunk, 3, RowPlace::streamed>(stride / kChunk);
}

template <int kProducts>
Choice choose_wgmma(int stride, int shared_limit) {
  constexpr int kChunk = kProducts == 1 ? 64 : 32;
  if (stride == 16) return wgmma<kProducts, 16, 3, RowPlace::single_chunk, 2>(1);
  if (stride == 32) return wgmma<kProducts, 32, 3, RowPlace::single_chunk, 2>(1);
  // With three products one block a multiprocessor keeps the tensor cores busy, and two would run out of registers
  // (docs/tuning.md).
  if (stride == 64) {
    constexpr int kBlocks = kProducts == 1 ? 2 : 1;
    return wgmma < kProducts, 64, kBlocks == 2 ? 3 : 4, RowPlace::single_chunk, kBlocks > (1);
  }
  Choice const resident = wgmma<kProducts, kChunk, 4, RowPlace::resident, 1>(stride / kChunk);
  if (resident.shared_bytes <= shared_limit) return resident;
  return wgmma<kProducts, kChunk, 5, RowPlace::streamed, 1>(stride / kChunk);
}

Choice choose(SoftminKernel kernel, int variant, PackedCloud const& rows, int shared_limit) {
  bool const one = kernel == SoftminKernel::one_product;
  int const stride = rows.half_stride;
  if (variant == kWgmma) return one ? choose_wgmma<1>(stride, shared_limit) : choose_wgmma<3>(stride, shared_limit);
  return one ? choose_mma<1>(stride, shared_limit) : choose_mma<3>(stride, shared_limit);
}

/// Whether the code that this device runs has the wgmma kernel. The empty one has a smaller launch bound.
bool have_wgmma(Choice const& choice) {
  cudaFuncAttributes attributes;
  MONGE_CUDA_TRY(cudaFuncGetAttributes(&attributes, choice.kernel));
  return attributes.maxThreadsPerBlock >= choice.threads;
}

}  // namespace

SoftminPlan plan_mma(SoftminKernel kernel, PackedCloud const& rows, PackedCloud const& columns, int multiprocessors) {
  int const limit = device_attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin);
  int const variant = have_wgmma(choose(kernel, kWgmma, rows, limit)) ? kWgmma : kMma;
  Choice const choice = choose(kernel, variant, rows, limit);
  MONGE_CUDA_TRY(cudaFuncSetAttribute(choice.kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, choice.shared_bytes));
  int resident = 1;
  MONGE_CUDA_TRY(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, choice.kernel, choice.threads,
                                                               static_cast<std::size_t>(choice.shared_bytes)));
  SoftminPlan plan;
  plan.kernel = kernel;
  plan.variant = variant;
  plan.work = plan_work(rows.padded_size / choice.rows, choice.rows, columns.padded_size / choice.columns,
                        multiprocessors * resident);
  plan.shared_limit = limit;
  return plan;
}

void launch_mma(SoftminPlan const& plan, SoftminArguments const& arguments, cudaStream_t stream) {
  Choice const choice = choose(plan.kernel, plan.variant, arguments.rows, plan.shared_limit);
  double const product_factor = 2 * arguments.scale / arguments.rows.half_scale / arguments.columns.half_scale;
  launch_chained(choice.kernel, plan.work.grid, choice.threads, choice.shared_bytes, stream, arguments, choice.chunks,
                 product_factor);
}

}  // namespace monge::cuda
