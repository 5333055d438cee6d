// Numbers that many files name, and indices of containers.
#pragma once
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numbers>

namespace monge {

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();
inline constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
inline constexpr double kLog2e = std::numbers::log2e;
inline constexpr double kLn2 = std::numbers::ln2;
inline constexpr double kUnitRoundoff = 0x1p-53;  // float64

/// A count or an index as containers take it.
constexpr std::size_t to_size(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

}  // namespace monge
