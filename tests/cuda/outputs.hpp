// Outputs of the calls that these tests make: their lengths, and their contents before a call.
#pragma once
#include <cstddef>
#include <cstdint>

namespace monge::oracle {

inline constexpr double kPoison = -12345;

inline std::size_t length(std::int64_t rows, std::int64_t columns = 1) {
  return static_cast<std::size_t>(rows * columns);
}

}  // namespace monge::oracle
