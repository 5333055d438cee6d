#include "cuda/runtime/steps.hpp"

#include "cuda/runtime/check.hpp"

namespace monge::cuda {
namespace {

__global__ void step_kernel(std::uint32_t* on_device, std::uint32_t* on_host) {
  *static_cast<std::uint32_t volatile*>(on_host) = ++*on_device;
}

}  // namespace

StepCount::StepCount() : on_host_(1) {
  on_host_[0] = 0;
  MONGE_CUDA_TRY(cudaMalloc(&on_device_, sizeof(std::uint32_t)));
  MONGE_CUDA_TRY(cudaMemset(on_device_, 0, sizeof(std::uint32_t)));
}

void StepCount::add(cudaStream_t stream) const {
  step_kernel<<<1, 1, 0, stream>>>(on_device_, on_host_.data());
  MONGE_CUDA_TRY(cudaGetLastError());
}

}  // namespace monge::cuda
