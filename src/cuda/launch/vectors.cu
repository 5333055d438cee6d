#include "cuda/launch/vectors.hpp"

#include <algorithm>

#include "cuda/kernels/vectors.cuh"
#include "cuda/launch/chained.hpp"

namespace monge::cuda {
namespace {

int blocks_for(int size) {
  return (size - 1) / kVectorThreads + 1;
}

}  // namespace

void make_logits(LogitArguments const& arguments, cudaStream_t stream) {
  auto const blocks = [](LogitArguments::OfSide const& side) {
    return side.arrays.logits ? blocks_for(side.points.padded_size) : 0;
  };
  auto const& [rows, columns] = arguments.side;
  dim3 const grid(static_cast<unsigned>(std::max(blocks(rows), blocks(columns))), 2);
  DataType const scalar = (rows.arrays.logits ? rows : columns).points.scalar;
  auto const kernel = scalar == DataType::float32 ? make_logits_kernel<float> : make_logits_kernel<double>;
  launch_chained(kernel, grid, kVectorThreads, 0, stream, arguments);
}

int error_parts(int size) {
  return blocks_for(size);
}

void update_potential(UpdateArguments const& arguments, cudaStream_t stream) {
  int const blocks = blocks_for(arguments.sums.points.size);
  if (arguments.sums.points.scalar == DataType::float32) {
    launch_chained(update_potential_kernel<float>, blocks, kVectorThreads, 0, stream, arguments);
  } else {
    launch_chained(update_potential_kernel<double>, blocks, kVectorThreads, 0, stream, arguments);
  }
}

void softmin_values(SumArguments const& sums, SoftminValues const& out, cudaStream_t stream) {
  int const blocks = blocks_for(sums.points.size);
  if (sums.points.scalar == DataType::float32) {
    softmin_values_kernel<float><<<blocks, kVectorThreads, 0, stream>>>(sums, out);
  } else {
    softmin_values_kernel<double><<<blocks, kVectorThreads, 0, stream>>>(sums, out);
  }
  MONGE_CUDA_TRY(cudaGetLastError());
}

void sum_plan(PlanSumsArguments const& arguments, cudaStream_t stream) {
  bool const is_float = arguments.sums[0].points.scalar == DataType::float32;
  launch_chained(is_float ? sum_plan_kernel<float> : sum_plan_kernel<double>, 2, kSumThreads, 0, stream, arguments);
}

void load_vector(StridedView const& from, int size, double const* shift, double* to, cudaStream_t stream) {
  load_vector_kernel<<<blocks_for(size), kVectorThreads, 0, stream>>>(from, size, shift, to);
  MONGE_CUDA_TRY(cudaGetLastError());
}

void store_vector(StridedView const& to, int size, double const* value, double const* shift, cudaStream_t stream) {
  store_vector_kernel<<<blocks_for(size), kVectorThreads, 0, stream>>>(to, size, value, shift);
  MONGE_CUDA_TRY(cudaGetLastError());
}

void choose_idle(PackedSide const& points, double const* potential, double const* plus, double* out,
                 cudaStream_t stream) {
  choose_idle_kernel<<<blocks_for(points.size), kVectorThreads, 0, stream>>>(points, potential, plus, out);
  MONGE_CUDA_TRY(cudaGetLastError());
}

void freeze_rows(FreezeArguments const& arguments, cudaStream_t stream) {
  int const blocks = blocks_for(arguments.points.padded_size);
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
  launch_chained(largest_kernel, std::min(blocks_for(points.size), kMostBlocks), kVectorThreads, 0, stream, points.size,
                 v, scale.largest);
  auto const launch = [&]<class T>(T*) {
    launch_chained(scale_factors_kernel<T>, blocks_for(points.padded_size), kVectorThreads, 0, stream, points,
                   static_cast<T const*>(beta), v, scale.largest, static_cast<T*>(factors));
  };
  points.scalar == DataType::float32 ? launch(static_cast<float*>(nullptr)) : launch(static_cast<double*>(nullptr));
}

void finish_product(FinishArguments const& arguments, cudaStream_t stream) {
  PackedSide const& points = arguments.sums.points;
  auto const kernel = points.scalar == DataType::float32 ? finish_product_kernel<float> : finish_product_kernel<double>;
  launch_chained(kernel, blocks_for(points.size), kVectorThreads, 0, stream, arguments);
}

void row_sums(SumArguments const& sums, double* out, cudaStream_t stream) {
  auto const kernel = sums.points.scalar == DataType::float32 ? row_sums_kernel<float> : row_sums_kernel<double>;
  launch_chained(kernel, blocks_for(sums.points.size), kVectorThreads, 0, stream, sums, out);
}

void combine(CombineArguments const& arguments, cudaStream_t stream) {
  combine_kernel<<<blocks_for(arguments.size), kVectorThreads, 0, stream>>>(arguments);
  MONGE_CUDA_TRY(cudaGetLastError());
}

void reciprocal(int size, double const* in, double* out, cudaStream_t stream) {
  reciprocal_kernel<<<blocks_for(size), kVectorThreads, 0, stream>>>(size, in, out);
  MONGE_CUDA_TRY(cudaGetLastError());
}

int dot_parts(int size) {
  constexpr int kMostParts = 256;
  return std::min(blocks_for(size), kMostParts);
}

void dots(DotArguments const& arguments, cudaStream_t stream) {
  dots_kernel<<<dot_parts(arguments.size), kVectorThreads, 0, stream>>>(arguments);
  MONGE_CUDA_TRY(cudaGetLastError());
}

}  // namespace monge::cuda
