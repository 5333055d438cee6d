// The steps of a stream, counted in host memory while the stream works.
#pragma once
#include <cstdint>

#include <cuda_runtime_api.h>

#include "cuda/runtime/runtime.hpp"

namespace monge::cuda {

/// A count of the current device. It serves graphs too, which repeat their steps.
class StepCount {
 public:
  StepCount();
  ~StepCount() { cudaFree(on_device_); }
  StepCount(StepCount const&) = delete;
  StepCount& operator=(StepCount const&) = delete;

  /// Enqueues one step.
  void add(cudaStream_t stream) const;
  /// The steps that are done.
  std::uint32_t done() const { return *static_cast<std::uint32_t volatile*>(on_host_.data()); }

 private:
  PinnedArray<std::uint32_t> on_host_;
  std::uint32_t* on_device_ = nullptr;
};

}  // namespace monge::cuda
