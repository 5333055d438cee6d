// Sums over lanes of a warp that each have several values.
#pragma once

namespace monge::cuda {

/// Halves of the lanes exchange halves of the values, until a lane has kLeft, in value[0] to value[kLeft - 1]. They are
/// the sums over all kCount / kLeft lanes that have met, so no addition is wasted.
template <int kLeft, int kCount>
__device__ __forceinline__ void add_halves(double (&value)[kCount]) {
  int const lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int half = kCount / 2, mask = 16; half >= kLeft; half /= 2, mask /= 2) {
    bool const upper = (lane & mask) != 0;
#pragma unroll
    for (int k = 0; k < half; ++k) {
      double const given = upper ? value[k] : value[k + half], kept = upper ? value[k + half] : value[k];
      value[k] = kept + __shfl_xor_sync(0xffffffffu, given, mask);
    }
  }
}

}  // namespace monge::cuda
