// Array: what a file holds, row-major in host memory.
#pragma once
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include <monge/array.hpp>

namespace monge::cli {

struct Array {
  std::vector<std::int64_t> shape;  ///< One or two entries.
  std::variant<std::vector<double>, std::vector<float>> values;

  std::int64_t rows() const { return shape.front(); }
  std::int64_t columns() const { return shape.size() == 2 ? shape.back() : 1; }
  /// The same shape and element type, all zero.
  Array zeros_like() const;
};

/// A cloud of points: n x d, or 1-D of n entries, which is read as n x 1.
MatrixView points(Array const& array);
MutableMatrixView points(Array& array);
/// Weights or potentials: 1-D, or n x 1. Throws Error, naming `field`, for any other shape.
VectorView vector(std::string const& field, Array const& array);

/// "3 x 4", as messages write shapes.
std::string shape_text(std::vector<std::int64_t> const& shape);

}  // namespace monge::cli
