#include "cuda/entropic/update.cuh"

#include <algorithm>

#include "cuda/launch/queue.hpp"
#include "cuda/runtime/check.hpp"

namespace monge::cuda {

void log_weights(LogWeightArguments const& arguments, Queue const& queue) {
  queue.launch(Kernel<LogWeightArguments>{log_weights_kernel, log_weights_kernel},
               {vector_blocks(arguments.size), kVectorThreads}, arguments);
}

void make_logits(LogitArguments const& arguments, Queue const& queue) {
  auto const blocks = [](LogitArguments::OfSide const& side) {
    return side.arrays.logits ? vector_blocks(side.points.padded_size) : 0;
  };
  auto const& [rows, columns] = arguments.side;
  DataType const scalar = (rows.arrays.logits ? rows : columns).points.scalar;
  using Logit = Kernel<LogitArguments>;
  queue.launch(scalar == DataType::float32 ? Logit{make_logits_kernel<float>, make_logits_kernel<float>}
                                           : Logit{make_logits_kernel<double>, make_logits_kernel<double>},
               {.blocks = std::max(blocks(rows), blocks(columns)), .threads = kVectorThreads, .rows = 2}, arguments);
}

int error_parts(int size) {
  return vector_blocks(size);
}

void update_potential(UpdateArguments const& arguments, Queue const& queue) {
  using Update = Kernel<UpdateArguments>;
  queue.launch(arguments.sums.points.scalar == DataType::float32
                   ? Update{update_potential_kernel<float>, update_potential_kernel<float>}
                   : Update{update_potential_kernel<double>, update_potential_kernel<double>},
               {vector_blocks(arguments.sums.points.size), kVectorThreads}, arguments);
}

void translate(TranslationArguments const& arguments, Queue const& queue) {
  using Translation = Kernel<TranslationArguments>;
  auto const& [rows, columns] = arguments.side;
  LaunchShape const shape{
      .blocks = vector_blocks(std::max(rows.points.size, columns.points.size)), .threads = kVectorThreads, .rows = 2};
  queue.launch(Translation{log_mean_parts_kernel, log_mean_parts_kernel}, shape, arguments);
  queue.launch(Translation{translate_kernel, translate_kernel}, shape, arguments);
}

void softmin_values(SumArguments const& sums, SoftminValues const& out, cudaStream_t stream) {
  int const blocks = vector_blocks(sums.points.size);
  if (sums.points.scalar == DataType::float32) {
    softmin_values_kernel<float><<<blocks, kVectorThreads, 0, stream>>>(sums, out);
  } else {
    softmin_values_kernel<double><<<blocks, kVectorThreads, 0, stream>>>(sums, out);
  }
  MONGE_CUDA_TRY(cudaGetLastError());
}

void choose_idle(PackedSide const& points, double const* potential, double const* plus,
                 SweepParameters const* parameters, double* out, cudaStream_t stream) {
  choose_idle_kernel<<<vector_blocks(points.size), kVectorThreads, 0, stream>>>(points, potential, plus, parameters,
                                                                                out);
  MONGE_CUDA_TRY(cudaGetLastError());
}

}  // namespace monge::cuda
