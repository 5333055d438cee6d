// Element access to the caller's vectors and matrices: for packing and copying, never inside a loop over pairs.
#pragma once
#include "cuda/launch/arguments.hpp"

namespace monge::cuda {

__device__ __forceinline__ double load_element(StridedView const& view, std::int64_t index) {
  return view.scalar == DataType::float32 ? static_cast<double>(static_cast<float const*>(view.data)[index])
                                          : static_cast<double const*>(view.data)[index];
}

__device__ __forceinline__ void store_element(StridedView const& view, std::int64_t index, double value) {
  if (view.scalar == DataType::float32) {
    static_cast<float*>(view.data)[index] = static_cast<float>(value);
  } else {
    static_cast<double*>(view.data)[index] = value;
  }
}

}  // namespace monge::cuda
