#include "cuda/vectors/kernels.hpp"

#include <algorithm>

#include "cuda/device/numerics.cuh"
#include "cuda/device/points.cuh"
#include "cuda/device/source.cuh"
#include "cuda/device/strided.cuh"
#include "cuda/runtime/check.hpp"

namespace monge::cuda {
namespace {

/// out_i = the sum of the terms, in order.
template <class Source>
__global__ void __launch_bounds__(kVectorThreads) combine_kernel(Source const source) {
  auto const [arguments, block, count] = slice_of(source);
  int const i = block * kVectorThreads + static_cast<int>(threadIdx.x);
  start_next_kernel();
  wait_for_previous_kernel();
  if (i >= arguments.size) return;
  double sum = 0;
  for (int k = 0; k < arguments.count; ++k) {
    CombineArguments::Term const& term = arguments.terms[k];
    double const of_vector = term.vector ? term.vector[i] : 1.0;
    sum += term.factor * (term.times ? of_vector * term.times[i / term.step] : of_vector);
  }
  arguments.out[i] = sum;
}

/// One warp for each row.
__global__ void __launch_bounds__(kVectorThreads)
    row_dots_kernel(int rows, int width, double const* first, double const* second, double* out) {
  int const warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  int const i = static_cast<int>(blockIdx.x) * (kVectorThreads / 32) + warp;
  if (i >= rows) return;
  std::int64_t const row = static_cast<std::int64_t>(i) * width;
  double sum = 0;
  for (int p = lane; p < width; p += 32) sum += first[row + p] * second[row + p];
  for (int mask = 16; mask > 0; mask /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, mask);
  if (lane == 0) out[i] = sum;
}

/// Partial sums of several inner products: partials[k * gridDim.x + block].
__global__ void __launch_bounds__(kVectorThreads) dots_kernel(__grid_constant__ DotArguments const arguments) {
  for (int k = 0; k < arguments.count; ++k) {
    double sum = 0;
    for (int i = static_cast<int>(blockIdx.x) * kVectorThreads + static_cast<int>(threadIdx.x); i < arguments.size[k];
         i += static_cast<int>(gridDim.x) * kVectorThreads)
      sum += arguments.first[k][i] * arguments.second[k][i];
    double const total = block_sum<kVectorThreads>(sum);
    if (threadIdx.x == 0) arguments.partials[k * gridDim.x + blockIdx.x] = total;
    __syncthreads();
  }
}

/// Partial VectorNorms of block k at partials[4 k]: the sums of |v| and of v^2, the least v and the largest. Grid:
/// reduction_parts(size).
__global__ void __launch_bounds__(kVectorThreads) norms_kernel(int size, double const* vector, double* partials) {
  double absolute = 0, square = 0, least = vector[0], largest = vector[0];
  for (int i = static_cast<int>(blockIdx.x) * kVectorThreads + static_cast<int>(threadIdx.x); i < size;
       i += static_cast<int>(gridDim.x) * kVectorThreads) {
    double const value = vector[i];
    absolute += fabs(value);
    square += value * value;
    least = fmin(least, value);
    largest = fmax(largest, value);
  }
  double* const out = partials + 4 * blockIdx.x;
  absolute = block_sum<kVectorThreads>(absolute);
  __syncthreads();  // block_sum() uses the same memory again.
  square = block_sum<kVectorThreads>(square);
  __shared__ double of_warp[2][kVectorThreads / 32];
  least = -warp_max(-least);
  largest = warp_max(largest);
  if (threadIdx.x % 32 == 0) {
    of_warp[0][threadIdx.x / 32] = least;
    of_warp[1][threadIdx.x / 32] = largest;
  }
  __syncthreads();
  if (threadIdx.x > 0) return;
  for (int w = 1; w < kVectorThreads / 32; ++w) {
    least = fmin(least, of_warp[0][w]);
    largest = fmax(largest, of_warp[1][w]);
  }
  out[0] = absolute;
  out[1] = square;
  out[2] = least;
  out[3] = largest;
}

}  // namespace

void load_vector(StridedView const& from, int size, int width, double const* shift, double* to, cudaStream_t stream) {
  for_each_point(size, stream, [=] __device__(int i) {
    double const value = from.data ? load_element(from, i / width * from.stride + i % width) : 0.0;
    to[i] = value - (shift ? shift[i] : 0.0);
  });
}

void store_vector(StridedView const& to, int size, int width, double const* value, double const* shift,
                  cudaStream_t stream) {
  for_each_point(size, stream, [=] __device__(int i) {
    store_element(to, i / width * to.stride + i % width, shift ? value[i] + shift[i] : value[i]);
  });
}

void combine(CombineArguments const& arguments, Queue const& queue) {
  queue.launch(Kernel<CombineArguments>{combine_kernel, combine_kernel},
               {vector_blocks(arguments.size), kVectorThreads}, arguments);
}

void reciprocal(int size, double const* in, double* out, cudaStream_t stream) {
  for_each_point(size, stream, [=] __device__(int i) { out[i] = reciprocal_or_zero(in[i]); });
}

void exp_difference(int size, double const* weight, double const* first, double const* second, double scale,
                    double* out, cudaStream_t stream) {
  for_each_point(size, stream, [=] __device__(int i) {
    out[i] = weight[i] > 0 ? weight[i] * exp((first[i] - second[i]) / scale) : 0.0;
  });
}

void place_columns(int size, int width, double const* vector, double factor, double* out, int stride,
                   cudaStream_t stream) {
  for_each_point(size, stream,
                 [=] __device__(int e) { out[std::int64_t{e / width} * stride + e % width] = factor * vector[e]; });
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
  dots_kernel<<<arguments.parts, kVectorThreads, 0, stream>>>(arguments);
  MONGE_CUDA_TRY(cudaGetLastError());
}

void norms(int size, double const* vector, double* partials, cudaStream_t stream) {
  norms_kernel<<<reduction_parts(size), kVectorThreads, 0, stream>>>(size, vector, partials);
  MONGE_CUDA_TRY(cudaGetLastError());
}

}  // namespace monge::cuda
