#include "cuda/vectors/kernels.cuh"

#include <algorithm>

#include "cuda/launch/queue.hpp"
#include "cuda/runtime/check.hpp"

namespace monge::cuda {

void load_vector(StridedView const& from, int size, int width, double const* shift, double* to, cudaStream_t stream) {
  load_vector_kernel<<<vector_blocks(size), kVectorThreads, 0, stream>>>(from, size, width, shift, to);
  MONGE_CUDA_TRY(cudaGetLastError());
}

void store_vector(StridedView const& to, int size, int width, double const* value, double const* shift,
                  cudaStream_t stream) {
  store_vector_kernel<<<vector_blocks(size), kVectorThreads, 0, stream>>>(to, size, width, value, shift);
  MONGE_CUDA_TRY(cudaGetLastError());
}

void combine(CombineArguments const& arguments, Queue const& queue) {
  queue.launch(Kernel<CombineArguments>{combine_kernel, combine_kernel},
               {vector_blocks(arguments.size), kVectorThreads}, arguments);
}

void reciprocal(int size, double const* in, double* out, cudaStream_t stream) {
  reciprocal_kernel<<<vector_blocks(size), kVectorThreads, 0, stream>>>(size, in, out);
  MONGE_CUDA_TRY(cudaGetLastError());
}

void row_dots(int rows, int width, double const* first, double const* second, double* out, cudaStream_t stream) {
  constexpr int kRows = kVectorThreads / 32;
  row_dots_kernel<<<divided_up(rows, kRows), kVectorThreads, 0, stream>>>(rows, width, first, second, out);
  MONGE_CUDA_TRY(cudaGetLastError());
}

int reduction_parts(int size) {
  constexpr int kMostParts = 256;
  return std::min(vector_blocks(size), kMostParts);
}

void dots(DotArguments const& arguments, cudaStream_t stream) {
  dots_kernel<<<reduction_parts(arguments.size), kVectorThreads, 0, stream>>>(arguments);
  MONGE_CUDA_TRY(cudaGetLastError());
}

void exp_difference(ExpDifferenceArguments const& arguments, cudaStream_t stream) {
  exp_difference_kernel<<<vector_blocks(arguments.size), kVectorThreads, 0, stream>>>(arguments);
  MONGE_CUDA_TRY(cudaGetLastError());
}

void place_columns(PlaceArguments const& arguments, cudaStream_t stream) {
  place_columns_kernel<<<vector_blocks(arguments.size), kVectorThreads, 0, stream>>>(arguments);
  MONGE_CUDA_TRY(cudaGetLastError());
}

void norms(int size, double const* vector, double* partials, cudaStream_t stream) {
  norms_kernel<<<reduction_parts(size), kVectorThreads, 0, stream>>>(size, vector, partials);
  MONGE_CUDA_TRY(cudaGetLastError());
}

}  // namespace monge::cuda
