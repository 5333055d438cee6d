#include "cuda/geometry/pack.hpp"

#include <algorithm>

#include "cuda/geometry/pack.cuh"
#include "cuda/launch/sizes.hpp"
#include "cuda/runtime/check.hpp"

namespace monge::cuda {
namespace {

/// The larger number of blocks of the two clouds.
template <class Blocks>
LaunchShape shape_of(CloudPair const& clouds, Blocks const& blocks) {
  LaunchShape shape{.blocks = 0, .threads = kPackThreads, .rows = clouds.count};
  for (int c = 0; c < clouds.count; ++c) shape.blocks = std::max(shape.blocks, blocks(clouds.cloud[c]));
  return shape;
}

/// One block for each cloud.
LaunchShape shape_of(CloudPair const& clouds) {
  return shape_of(clouds, [](CloudArguments const&) { return 1; });
}

using Packing = Kernel<CloudPair>;

}  // namespace

void make_features(FeatureArguments const& arguments, Queue const& queue) {
  queue.launch(Kernel<FeatureArguments>{make_features_kernel, make_features_kernel},
               {.blocks = divided_up(arguments.size, kPackRows), .threads = kPackThreads}, arguments);
}

int survey_blocks(int size) {
  constexpr int kLeastRows = 32, kMostBlocks = 1024;
  return std::min(divided_up(size, kLeastRows), kMostBlocks);
}

int pack_blocks(int padded_size) {
  return divided_up(padded_size, kPackRows);
}

void survey_points(CloudPair const& clouds, Queue const& queue) {
  queue.launch(Packing{survey_points_kernel, survey_points_kernel},
               shape_of(clouds, [](CloudArguments const& cloud) { return cloud.survey_blocks; }), clouds);
  queue.launch(Packing{join_survey_kernel, join_survey_kernel}, shape_of(clouds), clouds);
}

void pack_points(CloudPair const& clouds, Queue const& queue) {
  CloudArguments const& first = clouds.cloud[0];
  LaunchShape const shape =
      shape_of(clouds, [](CloudArguments const& cloud) { return pack_blocks(cloud.packed.padded_size); });
  queue.launch(first.packed.scalar == DataType::float32
                   ? Packing{pack_points_kernel<float>, pack_points_kernel<float>}
                   : Packing{pack_points_kernel<double>, pack_points_kernel<double>},
               shape, clouds);
  if (first.row_findings) queue.launch(Packing{measure_points_kernel, measure_points_kernel}, shape_of(clouds), clouds);
  if (first.packed.high) queue.launch(Packing{split_points_kernel, split_points_kernel}, shape, clouds);
}

void move_gauge(GaugeArguments const& arguments, cudaStream_t stream) {
  unsigned const blocks = static_cast<unsigned>(divided_up(arguments.size, kPackRows));
  if (arguments.points.scalar == DataType::float32) {
    move_gauge_kernel<float><<<blocks, kPackThreads, 0, stream>>>(arguments);
  } else {
    move_gauge_kernel<double><<<blocks, kPackThreads, 0, stream>>>(arguments);
  }
  MONGE_CUDA_TRY(cudaGetLastError());
}

void order_logits(float* logits, std::int64_t size, cudaStream_t stream) {
  std::int64_t const groups = size / 16;
  order_logits_kernel<<<divided_up(groups, kPackThreads), kPackThreads, 0, stream>>>(logits, groups);
  MONGE_CUDA_TRY(cudaGetLastError());
}

void convert_matrix(StridedView const& from, int rows, int columns, double* out, int padded_rows, int stride,
                    cudaStream_t stream) {
  constexpr unsigned kBlocks = 1024;
  convert_matrix_kernel<<<kBlocks, kPackThreads, 0, stream>>>(from, rows, columns, out, padded_rows, stride);
  MONGE_CUDA_TRY(cudaGetLastError());
}

}  // namespace monge::cuda
