// Kernels with one thread for each point of a side or element of a vector. For .cu files.
#pragma once
#include <monge/array.hpp>

#include "cuda/device/ptx.cuh"
#include "cuda/launch/queue.hpp"
#include "cuda/launch/sizes.hpp"

namespace monge::cuda {

template <class Work>
__global__ void __launch_bounds__(kVectorThreads) for_each_point_kernel(int size, Work const work) {
  int const i = static_cast<int>(blockIdx.x) * kVectorThreads + static_cast<int>(threadIdx.x);
  start_next_kernel();
  wait_for_previous_kernel();
  if (i < size) work(i);
}

/// Calls work(i) on the device for each i < size; size >= 1.
template <class Work>
void for_each_point(int size, cudaStream_t stream, Work const& work) {
  launch_chained(for_each_point_kernel<Work>, vector_blocks(size), kVectorThreads, 0, stream, size, work);
}

/// The same with Work<float> or Work<double>, constructed from `arguments`.
template <template <class> class Work, class Arguments>
void for_each_point(DataType scalar, int size, cudaStream_t stream, Arguments const& arguments) {
  if (scalar == DataType::float32) {
    for_each_point(size, stream, Work<float>{arguments});
  } else {
    for_each_point(size, stream, Work<double>{arguments});
  }
}

}  // namespace monge::cuda
