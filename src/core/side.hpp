// The two sides of a problem.
#pragma once

namespace monge {

enum class Side { rows, columns };  // rows: a, x, f (n); columns: b, y, g (m)

inline constexpr Side kSides[] = {Side::rows, Side::columns};

constexpr int side_index(Side side) {
  return static_cast<int>(side);
}
constexpr Side opposite(Side side) {
  return side == Side::rows ? Side::columns : Side::rows;
}

}  // namespace monge
