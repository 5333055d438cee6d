#include "cuda/plan/frozen.cuh"

#include <algorithm>

#include "cuda/launch/queue.hpp"
#include "cuda/runtime/check.hpp"

namespace monge::cuda {

void freeze_rows(FreezeArguments const& arguments, cudaStream_t stream) {
  int const blocks = vector_blocks(arguments.points.padded_size);
  if (arguments.points.scalar == DataType::float32) {
    freeze_rows_kernel<float><<<blocks, kVectorThreads, 0, stream>>>(arguments);
  } else {
    freeze_rows_kernel<double><<<blocks, kVectorThreads, 0, stream>>>(arguments);
  }
  MONGE_CUDA_TRY(cudaGetLastError());
}

void scale_factors(PackedSide const& points, void const* beta, StridedView const& v, VectorScale const& scale,
                   void* factors, cudaStream_t stream) {
  constexpr int kMostBlocks = 128;
  launch_chained(largest_kernel, std::min(vector_blocks(points.size), kMostBlocks), kVectorThreads, 0, stream,
                 points.size, v, scale.largest);
  auto const launch = [&]<class T>(T*) {
    launch_chained(scale_factors_kernel<T>, vector_blocks(points.padded_size), kVectorThreads, 0, stream, points,
                   static_cast<T const*>(beta), v, scale.largest, static_cast<T*>(factors));
  };
  points.scalar == DataType::float32 ? launch(static_cast<float*>(nullptr)) : launch(static_cast<double*>(nullptr));
}

void finish_product(FinishArguments const& arguments, cudaStream_t stream) {
  PackedSide const& points = arguments.sums.points;
  auto const kernel = points.scalar == DataType::float32 ? finish_product_kernel<float> : finish_product_kernel<double>;
  launch_chained(kernel, vector_blocks(points.size), kVectorThreads, 0, stream, arguments);
}

void row_sums(SumArguments const& sums, double* out, cudaStream_t stream) {
  auto const kernel = sums.points.scalar == DataType::float32 ? row_sums_kernel<float> : row_sums_kernel<double>;
  launch_chained(kernel, vector_blocks(sums.points.size), kVectorThreads, 0, stream, sums, out);
}

void weight_terms(WeightTermArguments const& arguments, cudaStream_t stream) {
  weight_terms_kernel<<<vector_blocks(arguments.points.size), kVectorThreads, 0, stream>>>(arguments);
  MONGE_CUDA_TRY(cudaGetLastError());
}

void slopes(SlopeArguments const& arguments, cudaStream_t stream) {
  slopes_kernel<<<vector_blocks(arguments.size), kVectorThreads, 0, stream>>>(arguments);
  MONGE_CUDA_TRY(cudaGetLastError());
}

}  // namespace monge::cuda
