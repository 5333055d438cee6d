#include "cuda/launch/average.hpp"

#include "cuda/kernels/average.cuh"
#include "cuda/runtime/check.hpp"

namespace monge::cuda {
namespace {

template <class T, bool kDifference>
void launch(AverageArguments const& arguments, cudaStream_t stream) {
  constexpr int kBytes = sizeof(AverageShared<T>);
  MONGE_CUDA_TRY(
      cudaFuncSetAttribute(average_kernel<T, kDifference>, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes));
  dim3 const grid(static_cast<unsigned>(arguments.rows.padded_size / kTileRows),
                  static_cast<unsigned>((arguments.width - 1) / kTileColumns + 1));
  average_kernel<T, kDifference><<<grid, kTileThreads, kBytes, stream>>>(arguments);
  MONGE_CUDA_TRY(cudaGetLastError());
}

}  // namespace

void average(AverageArguments const& arguments, cudaStream_t stream) {
  bool const difference = arguments.rows.dimension <= kLargestDifferenceDimension;
  if (arguments.rows.scalar == Scalar::float32) {
    difference ? launch<float, true>(arguments, stream) : launch<float, false>(arguments, stream);
  } else {
    difference ? launch<double, true>(arguments, stream) : launch<double, false>(arguments, stream);
  }
}

}  // namespace monge::cuda
