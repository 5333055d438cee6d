// Scores from a cost matrix in memory. __device__ only.
#pragma once
#include <type_traits>

#include "cuda/launch/arguments.hpp"

namespace monge::cuda {

/// C_ij - least, in double unless all is float, so that float64 costs keep their digits beside a common offset.
template <class T, class S>
__device__ __forceinline__ T stored_score(S cost, double least) {
  using Difference = std::conditional_t<sizeof(T) == 4 && sizeof(S) == 4, float, double>;
  return static_cast<T>(static_cast<Difference>(cost) - static_cast<Difference>(least));
}

/// The score of one pair.
template <class T>
__device__ __forceinline__ T stored_score(StoredCosts const& costs, int line, int place) {
  std::int64_t const at = line * costs.stride + place;
  return costs.scalar == DataType::float32 ? stored_score<T>(static_cast<float const*>(costs.data)[at], costs.least)
                                           : stored_score<T>(static_cast<double const*>(costs.data)[at], costs.least);
}

/// Starts copying a cost of 4 or 8 bytes to shared memory.
template <int kBytes>
__device__ __forceinline__ void copy_async(std::uint32_t shared, void const* global) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(shared), "l"(global), "n"(kBytes) : "memory");
}

/// Loads 16 bytes at once.
__device__ __forceinline__ void load_16_bytes(float (&value)[4], float const* from) {
  float4 const v = *reinterpret_cast<float4 const*>(from);
  value[0] = v.x, value[1] = v.y, value[2] = v.z, value[3] = v.w;
}
__device__ __forceinline__ void load_16_bytes(double (&value)[2], double const* from) {
  double2 const v = *reinterpret_cast<double2 const*>(from);
  value[0] = v.x, value[1] = v.y;
}

}  // namespace monge::cuda
