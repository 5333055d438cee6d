// Array: what a file holds, row-major in host memory.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include <monge/array.hpp>

namespace monge::cli {

/// The bits of a float16.
enum class Half : std::uint16_t {};

inline double to_double(double value) {
  return value;
}
double to_double(Half half);

struct Array {
  std::vector<std::int64_t> shape;  ///< One to three entries.
  std::variant<std::vector<double>, std::vector<float>, std::vector<Half>> values;

  DataType type() const;
  void const* data() const;
  void* data();
  std::int64_t rows() const { return shape.front(); }
  std::int64_t columns() const { return shape.size() == 1 ? 1 : shape.back(); }
  /// The same shape and element type, all zero.
  Array zeros_like() const;
};

// These throw Error, naming `field`, for any other shape.
/// A cloud of points: n x d, or 1-D of n entries, which is read as n x 1.
MatrixView points(std::string const& field, Array const& array);
MutableMatrixView points(std::string const& field, Array& array);
/// Weights or potentials: 1-D, or n x 1; empty where there is no array.
VectorView vector(std::string const& field, std::optional<Array> const& array);

/// "3 x 4", as messages write shapes.
std::string shape_text(std::vector<std::int64_t> const& shape);

}  // namespace monge::cli
