// For tests that call CUDA themselves.
#pragma once
#include <cuda_runtime_api.h>

#include <stdexcept>

namespace monge::oracle {

inline void check(cudaError_t error) {
  if (error != cudaSuccess) throw std::runtime_error(cudaGetErrorString(error));
}

}  // namespace monge::oracle
