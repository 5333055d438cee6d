// The scale at which numbers become two fp16 parts.
#pragma once
#include <cmath>

namespace monge::cuda {

/// The power of two that takes a largest number to [2^13, 2^14): the high parts are then far from overflow and the low
/// parts of all but very small numbers are normal. 1 for zeros.
__device__ __forceinline__ double half_scale(double largest) {
  return largest > 0 && isfinite(largest) ? ldexp(1.0, 13 - ilogb(largest)) : 1.0;
}

}  // namespace monge::cuda
