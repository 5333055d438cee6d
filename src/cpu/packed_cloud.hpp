// A point cloud as the CPU kernels read it: centred, in the arithmetic of the solve, in panels of 32 or 16 points.
#pragma once
#include <cstdint>
#include <vector>

#include <hwy/aligned_allocator.h>

#include <monge/array.hpp>

namespace monge::cpu {

/// Points a panel holds: 128 bytes of each coordinate, a whole number of vectors on every instruction set.
template <class T>
inline constexpr std::int64_t kPanel = 128 / sizeof(T);

template <class T>
constexpr std::int64_t padded_to_panel(std::int64_t size) {
  return (size + kPanel<T> - 1) / kPanel<T> * kPanel<T>;
}

template <class T>
using AlignedArray = hwy::AlignedFreeUniquePtr<T[]>;

/// Throws out_of_memory; the values are not initialised.
template <class T>
AlignedArray<T> aligned_array(std::int64_t size);

/// Coordinate k of point i is panels[(i / kPanel * dimension + k) * kPanel + i % kPanel]; padding points are zero.
template <class T>
struct PackedCloud {
  std::int64_t size = 0;
  std::int64_t dimension = 0;
  AlignedArray<T> panels;
  std::vector<double> centre;         // Subtracted in float64 before rounding to T.
  std::vector<double> squared_norms;  // |x'_i|^2 of the rounded, centred points.
  double largest_squared_norm = 0;

  T const* panel(std::int64_t index) const { return panels.get() + index * dimension * kPanel<T>; }
  T coordinate(std::int64_t i, std::int64_t k) const { return panel(i / kPanel<T>)[k * kPanel<T> + i % kPanel<T>]; }
};

template <class T>
PackedCloud<T> pack(MatrixView points, std::vector<double> centre);

/// The points `indices` of `cloud`, in that order.
template <class T>
PackedCloud<T> gather(PackedCloud<T> const& cloud, std::vector<std::int64_t> const& indices);

}  // namespace monge::cpu
