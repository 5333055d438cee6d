#include "cuda/launch/generation.hpp"

#include <algorithm>

#include "cuda/runtime/check.hpp"

namespace monge::cuda {
namespace {

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define MONGE_GENERATION_THREADS 128
#elif __CUDA_ARCH__ >= 900
#define MONGE_GENERATION_THREADS 64
#else
#define MONGE_GENERATION_THREADS 32
#endif

/// Its launch bound tells the host the generation of the code that the device runs.
__global__ void __launch_bounds__(MONGE_GENERATION_THREADS) generation_kernel() {}

Generation generation_of_code() {
  cudaFuncAttributes attributes;
  MONGE_CUDA_TRY(cudaFuncGetAttributes(&attributes, generation_kernel));
  int const threads = attributes.maxThreadsPerBlock;
  return threads >= 128 ? Generation::sm_90a : threads >= 64 ? Generation::sm_90 : Generation::sm_80;
}

}  // namespace

Generation generation() {
  thread_local int known_device = -1;  // The device of the last call, which most calls ask about again.
  thread_local Generation known{};
  int device = 0;
  MONGE_CUDA_TRY(cudaGetDevice(&device));
  if (device != known_device) {
    known = generation_of_code();
    known_device = device;
  }
  return std::min(known, newest_generation);
}

int most_shared_bytes() {
  int const bytes = device_attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin);
  return newest_generation == Generation::sm_80 ? std::min(bytes, kLeastSharedBytes) : bytes;
}

}  // namespace monge::cuda
