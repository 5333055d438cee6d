#include "cuda/launch/pack.hpp"

#include <algorithm>

#include "cuda/kernels/pack.cuh"
#include "cuda/runtime/check.hpp"

namespace monge::cuda {
namespace {

int blocks_for(int rows) {
  return (rows - 1) / kPackRows + 1;
}

template <class Size>
dim3 grid_for(CloudPair const& clouds, Size const& blocks) {
  int most = 0;
  for (int c = 0; c < clouds.count; ++c) most = std::max(most, blocks(clouds.cloud[c]));
  return {static_cast<unsigned>(most), static_cast<unsigned>(clouds.count)};
}

}  // namespace

int survey_blocks(int size) {
  constexpr int kLeastRows = 32, kMostBlocks = 1024;
  return std::min((size - 1) / kLeastRows + 1, kMostBlocks);
}

int pack_blocks(int padded_size) {
  return blocks_for(padded_size);
}

void survey_points(CloudPair const& clouds, cudaStream_t stream) {
  dim3 const grid = grid_for(clouds, [](CloudArguments const& cloud) { return cloud.survey_blocks; });
  survey_points_kernel<<<grid, kPackThreads, 0, stream>>>(clouds);
  join_survey_kernel<<<dim3(1, grid.y), kPackThreads, 0, stream>>>(clouds);
  MONGE_CUDA_TRY(cudaGetLastError());
}

void pack_points(CloudPair const& clouds, cudaStream_t stream) {
  CloudArguments const& first = clouds.cloud[0];
  dim3 const grid = grid_for(clouds, [](CloudArguments const& cloud) { return blocks_for(cloud.packed.padded_size); });
  if (first.packed.scalar == DataType::float32) {
    pack_points_kernel<float><<<grid, kPackThreads, 0, stream>>>(clouds);
  } else {
    pack_points_kernel<double><<<grid, kPackThreads, 0, stream>>>(clouds);
  }
  if (first.row_findings) measure_points_kernel<<<dim3(1, grid.y), kPackThreads, 0, stream>>>(clouds);
  if (first.packed.high) split_points_kernel<<<grid, kPackThreads, 0, stream>>>(clouds);
  MONGE_CUDA_TRY(cudaGetLastError());
}

void move_gauge(GaugeArguments const& arguments, cudaStream_t stream) {
  unsigned const blocks = static_cast<unsigned>(blocks_for(arguments.size));
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
