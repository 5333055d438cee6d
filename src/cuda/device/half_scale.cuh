// The scale for splitting numbers into two fp16 parts.
#pragma once
#include <cmath>

namespace monge::cuda {

/// The power of two that maps `largest` to [2^13, 2^14): high parts are then far from overflow, and low parts of all
/// but very small numbers are normal. 1 for zeros.
__device__ __forceinline__ double half_scale(double largest) {
  return largest > 0 && isfinite(largest) ? ldexp(1.0, 13 - ilogb(largest)) : 1.0;
}

}  // namespace monge::cuda
