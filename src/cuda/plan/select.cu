#include "cuda/plan/select.hpp"

#include "cuda/launch/queue.hpp"
#include "cuda/launch/sizes.hpp"
#include "cuda/plan/select.cuh"
#include "cuda/runtime/check.hpp"

namespace monge::cuda {
void log_factors(PackedSide const& points, float const* beta, void* out, cudaStream_t stream) {
  int const blocks = divided_up(points.padded_size, kSelectThreads);
  if (points.scalar == DataType::float32) {
    log_factors_kernel<<<blocks, kSelectThreads, 0, stream>>>(points, beta, static_cast<float*>(out));
  } else {
    log_factors_kernel<<<blocks, kSelectThreads, 0, stream>>>(points, beta, static_cast<double*>(out));
  }
  MONGE_CUDA_TRY(cudaGetLastError());
}

std::int64_t top_k_scratch(DataType scalar, int k) {
  if (k <= kFewest) return 0;
  return sorted_size(k) *
         static_cast<std::int64_t>(scalar == DataType::float32 ? sizeof(Candidate<float>) : sizeof(Candidate<double>));
}

void top_k(TopKArguments const& arguments, cudaStream_t stream) {
  auto const kernel = arguments.rows.scalar == DataType::float32 ? top_k_kernel<float> : top_k_kernel<double>;
  launch_chained(kernel, arguments.rows.count, kSelectThreads, 0, stream, arguments);
}

void entries_above(AboveArguments const& arguments, cudaStream_t stream) {
  auto const kernel =
      arguments.rows.scalar == DataType::float32 ? entries_above_kernel<float> : entries_above_kernel<double>;
  launch_chained(kernel, arguments.rows.count, kSelectThreads, 0, stream, arguments);
}

void all_entries(LogRows const& rows, int columns, StridedView const& out, cudaStream_t stream) {
  auto const kernel = rows.scalar == DataType::float32 ? all_entries_kernel<float> : all_entries_kernel<double>;
  launch_chained(kernel, rows.count, kSelectThreads, 0, stream, rows, columns, out);
}

void running_sums(std::int64_t const* in, std::int64_t size, StridedIndices const& out, cudaStream_t stream) {
  running_counts_kernel<<<1, kScanThreads, 0, stream>>>(in, size, out);
  MONGE_CUDA_TRY(cudaGetLastError());
}

void running_sums(double const* values, std::int64_t size, double* sums, cudaStream_t stream) {
  running_sums_kernel<<<1, kScanThreads, 0, stream>>>(values, size, sums);
  MONGE_CUDA_TRY(cudaGetLastError());
}

void draw_rows(SampleArguments const& arguments, cudaStream_t stream) {
  int const blocks = divided_up(arguments.count, kSelectThreads);
  draw_rows_kernel<<<blocks, kSelectThreads, 0, stream>>>(arguments);
  MONGE_CUDA_TRY(cudaGetLastError());
  running_sums(arguments.row_draws, arguments.rows, {arguments.draw_begin, 1}, stream);
  order_draws_kernel<<<blocks, kSelectThreads, 0, stream>>>(arguments);
  MONGE_CUDA_TRY(cudaGetLastError());
}

void draw_columns(SampleArguments const& arguments, LogRows const& rows, double* tiles, cudaStream_t stream) {
  auto const kernel = rows.scalar == DataType::float32 ? draw_columns_kernel<float> : draw_columns_kernel<double>;
  launch_chained(kernel, rows.count, kSelectThreads, 0, stream, arguments, rows, tiles);
}

}  // namespace monge::cuda
