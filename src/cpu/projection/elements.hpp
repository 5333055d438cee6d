// Elements of a batch as float, one at a time.
#pragma once
#include <bit>
#include <cstdint>

#include <monge/projection.hpp>

namespace monge::cpu {

inline float from_bfloat16(std::uint16_t bits) {
  return std::bit_cast<float>(std::uint32_t{bits} << 16);
}

inline std::uint16_t to_bfloat16(float value) {
  auto const bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<std::uint16_t>(bits >> 16 | 0x40);  // A NaN stays a NaN.
  return static_cast<std::uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

inline float from_float16(std::uint16_t half) {
  std::uint32_t const sign = std::uint32_t{half & 0x8000u} << 16;
  std::uint32_t const rest = half & 0x7fffu;
  if (rest >= 0x7c00) return std::bit_cast<float>(sign | 0x7f800000u | (rest & 0x3ff) << 13);
  // Moving the exponent by a product is right for subnormals, too.
  float const magnitude = std::bit_cast<float>(rest << 13) * 0x1p112f;
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(magnitude) | sign);
}

inline std::uint16_t to_float16(float value) {
  std::uint32_t const bits = std::bit_cast<std::uint32_t>(value);
  std::uint32_t const sign = bits >> 16 & 0x8000u;
  std::uint32_t const magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<std::uint16_t>(sign | 0x7e00u);
  if (magnitude >= 0x477ff000u) return static_cast<std::uint16_t>(sign | 0x7c00u);
  if (magnitude < 0x38800000u) {  // Subnormal: adding 0.5 leaves the rounded multiple of 2^-24 in the low bits.
    float const shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(shifted) - 0x3f000000u));
  }
  std::uint32_t const rebased = magnitude - 0x38000000u;
  return static_cast<std::uint16_t>(sign | (rebased + 0xfff + (rebased >> 13 & 1)) >> 13);
}

inline float load_element(void const* data, DataType type, std::int64_t at) {
  if (type == DataType::float32) return static_cast<float const*>(data)[at];
  std::uint16_t const bits = static_cast<std::uint16_t const*>(data)[at];
  return type == DataType::bfloat16 ? from_bfloat16(bits) : from_float16(bits);
}

inline void store_element(void* data, DataType type, std::int64_t at, float value) {
  if (type == DataType::float32) {
    static_cast<float*>(data)[at] = value;
  } else {
    static_cast<std::uint16_t*>(data)[at] = type == DataType::bfloat16 ? to_bfloat16(value) : to_float16(value);
  }
}

}  // namespace monge::cpu
