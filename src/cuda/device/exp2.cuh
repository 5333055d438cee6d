// 2^x of numbers that are not positive, as sums relative to their largest term need it. __device__ only.
#pragma once
#include "cuda/device/ptx.cuh"

namespace monge::cuda {

__device__ __forceinline__ float exp2_of_loss(float x) {
  return fast_exp2(x);
}

/// For x <= 0, -infinity included: to two units in the last place, and 0 below 2^-1021. Unlike exp2() it has no branch,
/// so a thread works at several at once. The polynomial, of degree 11, is the best one on [-1/2, 1/2] in the Chebyshev
/// sense; it is off by 3e-18.
__device__ __forceinline__ double exp2_of_loss(double x) {
  constexpr double kCoefficients[] = {0x1.e9ec1fcb69a7fp-32, 0x1.e6228acd1c6e5p-28, 0x1.b524ebd13a55fp-24,
                                      0x1.62bfc2c86d700p-20, 0x1.ffcbfc6da6ed1p-17, 0x1.430913112c61bp-13,
                                      0x1.5d87fe78a3f9cp-10, 0x1.3b2ab6fb9f1a5p-7,  0x1.c6b08d704a0c6p-5,
                                      0x1.ebfbdff82c5aep-3,  0x1.62e42fefa39efp-1,  1.0};
  constexpr double kRounder = 0x1.8p52;  // Added to a number, it leaves the nearest integer in the last bits.
  double const rounded = x + kRounder;
  double const rest = x - (rounded - kRounder);
  double power = kCoefficients[0];
#pragma unroll
  for (int k = 1; k < 12; ++k) power = fma(power, rest, kCoefficients[k]);
  int const exponent = __double2loint(rounded) << 20;
  double const scaled = __hiloint2double(__double2hiint(power) + exponent, __double2loint(power));
  return x > -1021 ? scaled : 0.0;
}

}  // namespace monge::cuda
