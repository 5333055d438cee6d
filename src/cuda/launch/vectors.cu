#include "cuda/launch/vectors.hpp"

#include "cuda/kernels/vectors.cuh"
#include "cuda/launch/chained.hpp"

namespace monge::cuda {
namespace {

int blocks_for(int size) {
  return (size - 1) / kVectorThreads + 1;
}

}  // namespace

void set_parameters(SweepParameters* parameters, SweepParameters const& value, cudaStream_t stream) {
  set_parameters_kernel<<<1, 1, 0, stream>>>(parameters, value);
  MONGE_CUDA_TRY(cudaGetLastError());
}

void make_logits(LogitArguments const& arguments, cudaStream_t stream) {
  int const blocks = blocks_for(arguments.cloud.padded_size);
  if (arguments.cloud.scalar == Scalar::float32) {
    launch_chained(make_logits_kernel<float>, blocks, kVectorThreads, 0, stream, arguments);
  } else {
    launch_chained(make_logits_kernel<double>, blocks, kVectorThreads, 0, stream, arguments);
  }
}

int error_parts(int size) {
  return blocks_for(size);
}

void update_potential(UpdateArguments const& arguments, cudaStream_t stream) {
  int const blocks = blocks_for(arguments.sums.cloud.size);
  if (arguments.sums.cloud.scalar == Scalar::float32) {
    launch_chained(update_potential_kernel<float>, blocks, kVectorThreads, 0, stream, arguments);
  } else {
    launch_chained(update_potential_kernel<double>, blocks, kVectorThreads, 0, stream, arguments);
  }
}

void softmin_values(SumArguments const& sums, double* plus, double* mean, cudaStream_t stream) {
  int const blocks = blocks_for(sums.cloud.size);
  if (sums.cloud.scalar == Scalar::float32) {
    softmin_values_kernel<float><<<blocks, kVectorThreads, 0, stream>>>(sums, plus, mean);
  } else {
    softmin_values_kernel<double><<<blocks, kVectorThreads, 0, stream>>>(sums, plus, mean);
  }
  MONGE_CUDA_TRY(cudaGetLastError());
}

void marginal(PackedCloud const& cloud, double const* potential, double const* plus, SweepParameters const* parameters,
              double* out, cudaStream_t stream) {
  marginal_kernel<<<blocks_for(cloud.size), kVectorThreads, 0, stream>>>(cloud, potential, plus, parameters, out);
  MONGE_CUDA_TRY(cudaGetLastError());
}

void load_potential(StridedView const& from, int size, double const* shift, double* potential, cudaStream_t stream) {
  load_potential_kernel<<<blocks_for(size), kVectorThreads, 0, stream>>>(from, size, shift, potential);
  MONGE_CUDA_TRY(cudaGetLastError());
}

void store_vector(StridedView const& to, int size, double const* value, double const* shift, cudaStream_t stream) {
  store_vector_kernel<<<blocks_for(size), kVectorThreads, 0, stream>>>(to, size, value, shift);
  MONGE_CUDA_TRY(cudaGetLastError());
}

void choose_idle(PackedCloud const& cloud, double const* potential, double const* plus, double* out,
                 cudaStream_t stream) {
  choose_idle_kernel<<<blocks_for(cloud.size), kVectorThreads, 0, stream>>>(cloud, potential, plus, out);
  MONGE_CUDA_TRY(cudaGetLastError());
}

}  // namespace monge::cuda
