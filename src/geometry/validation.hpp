// Checks of the arguments of a call. Every message is one line with the field, its value and what is allowed.
#pragma once

#include <monge/array.hpp>
#include <monge/geometry.hpp>
#include <monge/options.hpp>

#include "core/require.hpp"

namespace monge {

void check(char const* field, Bounds const& bounds, double value);
template <class Choice>
void check(char const* field, OneOf<Choice> choices, Choice value) {
  require(choices.contains(value), "{}: is {}; must be {}", field, static_cast<int>(value), choices.text());
}
/// A visitor of lists of fields, which checks each member against its field.
inline constexpr auto kCheckField = [](auto const& field, auto const& value) {
  check(field.name, field.constraint, value);
};

/// Shapes, strides, pointers and the scale; the values of the points are checked where they are read, while packing.
void validate(Geometry const& geometry, Device context);
/// n and m, and the dimension of the points; 0 where there are none.
struct Shape {
  std::int64_t rows, columns, dimension;
  bool has_points() const { return dimension > 0; }
  friend bool operator==(Shape, Shape) = default;
};
Shape shape_of(Geometry const& geometry);
/// The points, or the matrix, of a geometry that is known to have them.
PointCloud const& clouds_of(Geometry const& geometry);
CostMatrix const& matrix_of(Geometry const& geometry);
/// Throws unless the costs differ in values alone: kind, shape, cost function and classes are as before.
void require_same_kind(Geometry const& before, Geometry const& now);
/// The caller's words for a row and a column of C in messages.
struct LineNames {
  char const* row = "row of C";
  char const* column = "column of C";
};
inline LineNames line_names(Shape shape) {
  return shape.has_points() ? LineNames{"row of x", "row of y"} : LineNames{};
}
/// Checks of a view: its shape, pointer and stride, and that `context` can reach it. Host memory is within reach of
/// every context, device memory only of a context on that device.
void validate_matrix(char const* field, MatrixView view, std::int64_t rows, std::int64_t columns, Device context);
void validate_vector(char const* field, VectorView view, std::int64_t size, Device context);
void validate_indices(char const* field, MutableIndexView view, std::int64_t rows, std::int64_t columns,
                      Device context);
void require_reachable(char const* field, Device memory, Device context);

}  // namespace monge
