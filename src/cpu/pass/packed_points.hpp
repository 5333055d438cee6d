// Points for the CPU kernels: in the precision of the solve, in panels of 32 or 16 points.
#pragma once
#include <cstdint>
#include <span>

#include <monge/array.hpp>

#include "cpu/runtime/memory.hpp"

namespace monge::cpu {

/// Points of a panel: 128 bytes of each coordinate, a whole number of vectors on every instruction set.
template <class T>
inline constexpr std::int64_t kPanel = 128 / sizeof(T);

template <class T>
constexpr std::int64_t padded_to_panel(std::int64_t size) {
  return (size + kPanel<T> - 1) / kPanel<T> * kPanel<T>;
}

/// Coordinate k of point i is panels[(i / kPanel * dimension + k) * kPanel + i % kPanel]; padding points are zero.
template <class T>
struct PackedPoints {
  std::int64_t size = 0;
  std::int64_t dimension = 0;
  Buffer<T> panels;

  T const* panel(std::int64_t index) const { return panels.get() + index * dimension * kPanel<T>; }
  T coordinate(std::int64_t i, std::int64_t k) const { return panel(i / kPanel<T>)[k * kPanel<T> + i % kPanel<T>]; }
};

/// Packs points - centre, computed in float64 and rounded to T; an empty centre is the origin. Uses the memory
/// of `packed` if it suffices.
template <class T>
void pack(MatrixView points, std::span<double const> centre, PackedPoints<T>& packed);

/// The points `indices` of `points`, in that order.
template <class T>
PackedPoints<T> gather(PackedPoints<T> const& points, std::span<std::int64_t const> indices);

}  // namespace monge::cpu
