#include "cuda/launch/divided_up.hpp"
#include "cuda/vectors/kernels.hpp"

#include <algorithm>

#include "cuda/launch/chained.hpp"
#include "cuda/launch/divided_up.hpp"
#include "cuda/runtime/check.hpp"
#include "cuda/vectors/kernels.cuh"

namespace monge::cuda {
namespace {

int blocks_for(int size) {
  return divided_up(size, kVectorThreads);
}

}  // namespace

void log_weights(LogWeightArguments const& arguments, Queue const& queue) {
  queue.launch(Kernel<LogWeightArguments>{log_weights_kernel, log_weights_kernel},
               {blocks_for(arguments.size), kVectorThreads}, arguments);
}

void make_logits(LogitArguments const& arguments, Queue const& queue) {
  auto const blocks = [](LogitArguments::OfSide const& side) {
    return side.arrays.logits ? blocks_for(side.points.padded_size) : 0;
  };
  auto const& [rows, columns] = arguments.side;
  DataType const scalar = (rows.arrays.logits ? rows : columns).points.scalar;
  using Logit = Kernel<LogitArguments>;
  queue.launch(scalar == DataType::float32 ? Logit{make_logits_kernel<float>, make_logits_kernel<float>}
                                           : Logit{make_logits_kernel<double>, make_logits_kernel<double>},
               {.blocks = std::max(blocks(rows), blocks(columns)), .threads = kVectorThreads, .rows = 2}, arguments);
}

int error_parts(int size) {
  return blocks_for(size);
}

void update_potential(UpdateArguments const& arguments, Queue const& queue) {
  using Update = Kernel<UpdateArguments>;
  queue.launch(arguments.sums.points.scalar == DataType::float32
                   ? Update{update_potential_kernel<float>, update_potential_kernel<float>}
                   : Update{update_potential_kernel<double>, update_potential_kernel<double>},
               {blocks_for(arguments.sums.points.size), kVectorThreads}, arguments);
}

void translate(TranslationArguments const& arguments, Queue const& queue) {
  using Translation = Kernel<TranslationArguments>;
  auto const& [rows, columns] = arguments.side;
  LaunchShape const shape{
      .blocks = blocks_for(std::max(rows.points.size, columns.points.size)), .threads = kVectorThreads, .rows = 2};
  queue.launch(Translation{log_mean_parts_kernel, log_mean_parts_kernel}, shape, arguments);
  queue.launch(Translation{translate_kernel, translate_kernel}, shape, arguments);
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

int plan_sum_parts(int size) {
  return sum_parts(size);
}

void sum_plan(PlanSumsArguments const& arguments, Queue const& queue) {
  using Sum = Kernel<PlanSumsArguments>;
  int const parts = sum_parts(arguments.sums[0].points.size) + sum_parts(arguments.sums[1].points.size);
  queue.launch(arguments.sums[0].points.scalar == DataType::float32
                   ? Sum{sum_plan_kernel<SoftminPoints<float>>, sum_plan_kernel<SoftminPoints<float>>}
                   : Sum{sum_plan_kernel<SoftminPoints<double>>, sum_plan_kernel<SoftminPoints<double>>},
               {parts, kSumThreads}, arguments);
}

void sum_plan(JoinedSumsArguments const& arguments, Queue const& queue) {
  int const parts = sum_parts(arguments.points[0].size) + sum_parts(arguments.points[1].size);
  queue.launch(Kernel<JoinedSumsArguments>{sum_plan_kernel<JoinedPoints>, sum_plan_kernel<JoinedPoints>},
               {parts, kSumThreads}, arguments);
}

void load_vector(StridedView const& from, int size, int width, double const* shift, double* to, cudaStream_t stream) {
  load_vector_kernel<<<blocks_for(size), kVectorThreads, 0, stream>>>(from, size, width, shift, to);
  MONGE_CUDA_TRY(cudaGetLastError());
}

void store_vector(StridedView const& to, int size, int width, double const* value, double const* shift,
                  cudaStream_t stream) {
  store_vector_kernel<<<blocks_for(size), kVectorThreads, 0, stream>>>(to, size, width, value, shift);
  MONGE_CUDA_TRY(cudaGetLastError());
}

void choose_idle(PackedSide const& points, double const* potential, double const* plus,
                 SweepParameters const* parameters, double* out, cudaStream_t stream) {
  choose_idle_kernel<<<blocks_for(points.size), kVectorThreads, 0, stream>>>(points, potential, plus, parameters, out);
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

void combine(CombineArguments const& arguments, Queue const& queue) {
  queue.launch(Kernel<CombineArguments>{combine_kernel, combine_kernel}, {blocks_for(arguments.size), kVectorThreads},
               arguments);
}

void reciprocal(int size, double const* in, double* out, cudaStream_t stream) {
  reciprocal_kernel<<<blocks_for(size), kVectorThreads, 0, stream>>>(size, in, out);
  MONGE_CUDA_TRY(cudaGetLastError());
}

void row_dots(int rows, int width, double const* first, double const* second, double* out, cudaStream_t stream) {
  constexpr int kRows = kVectorThreads / 32;
  row_dots_kernel<<<divided_up(rows, kRows), kVectorThreads, 0, stream>>>(rows, width, first, second, out);
  MONGE_CUDA_TRY(cudaGetLastError());
}

void weight_terms(WeightTermArguments const& arguments, cudaStream_t stream) {
  weight_terms_kernel<<<blocks_for(arguments.points.size), kVectorThreads, 0, stream>>>(arguments);
  MONGE_CUDA_TRY(cudaGetLastError());
}

void slopes(SlopeArguments const& arguments, cudaStream_t stream) {
  slopes_kernel<<<blocks_for(arguments.size), kVectorThreads, 0, stream>>>(arguments);
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
