#include "cuda/launch/pack.hpp"

#include "cuda/kernels/pack.cuh"
#include "cuda/runtime/check.hpp"

namespace monge::cuda {
namespace {

unsigned warps_to_blocks(int warps) {
  constexpr int kWarps = kPackThreads / 32;
  return static_cast<unsigned>((warps - 1) / kWarps + 1);
}

}  // namespace

void survey_points(SurveyArguments const& arguments, int blocks, cudaStream_t stream) {
  survey_points_kernel<<<static_cast<unsigned>(blocks), kPackThreads, 0, stream>>>(arguments);
  MONGE_CUDA_TRY(cudaGetLastError());
}

void pack_points(PackArguments const& arguments, cudaStream_t stream) {
  unsigned const blocks = warps_to_blocks(arguments.padded_size);
  if (arguments.scalar == DataType::float32) {
    pack_points_kernel<float><<<blocks, kPackThreads, 0, stream>>>(arguments);
  } else {
    pack_points_kernel<double><<<blocks, kPackThreads, 0, stream>>>(arguments);
  }
  MONGE_CUDA_TRY(cudaGetLastError());
}

void split_points(SplitArguments const& arguments, cudaStream_t stream) {
  split_points_kernel<<<warps_to_blocks(arguments.padded_size), kPackThreads, 0, stream>>>(arguments);
  MONGE_CUDA_TRY(cudaGetLastError());
}

void move_gauge(GaugeArguments const& arguments, cudaStream_t stream) {
  unsigned const blocks = warps_to_blocks(arguments.size);
  if (arguments.points.scalar == DataType::float32) {
    move_gauge_kernel<float><<<blocks, kPackThreads, 0, stream>>>(arguments);
  } else {
    move_gauge_kernel<double><<<blocks, kPackThreads, 0, stream>>>(arguments);
  }
  MONGE_CUDA_TRY(cudaGetLastError());
}

void convert_matrix(StridedView const& from, int rows, int columns, double* out, int padded_rows, int stride,
                    cudaStream_t stream) {
  constexpr unsigned kBlocks = 1024;
  convert_matrix_kernel<<<kBlocks, kPackThreads, 0, stream>>>(from, rows, columns, out, padded_rows, stride);
  MONGE_CUDA_TRY(cudaGetLastError());
}

}  // namespace monge::cuda
