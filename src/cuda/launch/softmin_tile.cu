#include "cuda/kernels/softmin_tile.cuh"

#include "cuda/launch/chained.hpp"
#include "cuda/launch/softmin.hpp"

namespace monge::cuda {
namespace {

using Kernel = void (*)(SoftminArguments);

Kernel kernel_for(PackedCloud const& rows, bool moments) {
  bool const difference = rows.dimension <= kLargestDifferenceDimension;
  if (rows.scalar == Scalar::float64) {
    if (difference) return moments ? softmin_tile<double, true, true> : softmin_tile<double, true, false>;
    return moments ? softmin_tile<double, false, true> : softmin_tile<double, false, false>;
  }
  // Without moments float has faster kernels.
  return difference ? softmin_tile<float, true, true> : softmin_tile<float, false, true>;
}

}  // namespace

SoftminPlan plan_tile(PackedCloud const& rows, PackedCloud const& columns, bool moments, int multiprocessors) {
  int resident = 1;
  MONGE_CUDA_TRY(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, kernel_for(rows, moments), kTileThreads, 0));
  SoftminPlan plan;
  plan.kernel = SoftminKernel::tile;
  plan.work = plan_work(rows.padded_size / kTileRows, kTileRows, columns.padded_size / kTileColumns,
                        multiprocessors * resident);
  return plan;
}

void launch_tile(SoftminPlan const& plan, SoftminArguments const& arguments, cudaStream_t stream) {
  Kernel const kernel = kernel_for(arguments.rows, arguments.moments != nullptr);
  launch_chained(kernel, plan.work.grid, kTileThreads, 0, stream, arguments);
}

}  // namespace monge::cuda
