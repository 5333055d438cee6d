// Array: the numbers of a file, in host memory.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <monge/array.hpp>
#include <monge/geometry.hpp>

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
  bool by_columns = false;  ///< A matrix whose columns follow one another; otherwise values are row-major.
  std::shared_ptr<void const> mapped = {};  ///< A matrix of the same type that lies in a file, in place of the values.

  DataType type() const;
  void const* data() const;
  void* data();
  std::int64_t rows() const { return shape.front(); }
  std::int64_t columns() const { return shape.size() == 1 ? 1 : shape.back(); }
  /// Zeros of the same element type.
  Array zeros(std::vector<std::int64_t> const& shape) const;
};

/// Whole numbers, row-major.
struct IndexArray {
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> values;

  std::int64_t columns() const { return shape.size() == 1 ? 1 : shape.back(); }
};

// These functions throw Error, naming `field`, for any other shape. All but costs() take row-major values.
/// A cloud of points: n x d, or 1-D of n entries, which is read as n x 1.
MatrixView points(std::string const& field, Array const& array);
MutableMatrixView points(std::string const& field, Array& array);
/// The same, of finite float32 or float64 numbers.
MatrixView finite_points(std::string const& field, Array const& array);
/// Costs: 2-D, in the order that the array has them.
CostMatrix costs(std::string const& field, Array const& array);
/// Weights or potentials: 1-D, or n x 1; empty where there is no array.
VectorView vector(std::string const& field, std::optional<Array> const& array);
/// Labels: 1-D, or n x 1; empty where there is no array.
IndexView labels(std::string const& field, std::optional<IndexArray> const& array);
/// Labels of pairs: 2-D; empty where there is no array.
IndexMatrixView label_matrix(std::string const& field, std::optional<IndexArray> const& array);

/// Zeros.
IndexArray zero_indices(std::vector<std::int64_t> shape);
/// A view to write to; a vector is a matrix of one column.
MutableIndexView indices(IndexArray& array);

/// "3 x 4", as messages write shapes.
std::string shape_text(std::vector<std::int64_t> const& shape);

/// Text of a file for a message: one short line of printable ASCII.
std::string printable(std::string_view text);

}  // namespace monge::cli
