#include "array.hpp"

#include <cmath>
#include <limits>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <monge/error.hpp>

namespace monge::cli {
namespace {

void require_dimensions(std::string const& field, Array const& array, bool condition, char const* allowed) {
  if (condition) return;
  throw Error(ErrorCode::invalid_argument,
              fmt::format("{}: has shape {}; must be {}", field, shape_text(array.shape), allowed));
}

template <class ArrayType, class Visit>
auto visit_real(std::string const& field, ArrayType& array, Visit&& visit) {
  if (auto* const values = std::get_if<std::vector<double>>(&array.values)) return visit(*values);
  if (auto* const values = std::get_if<std::vector<float>>(&array.values)) return visit(*values);
  throw Error(ErrorCode::invalid_argument, fmt::format("{}: is float16; must be float32 or float64", field));
}

}  // namespace

double to_double(Half half) {
  auto const bits = static_cast<std::uint16_t>(half);
  int const exponent = bits >> 10 & 31, fraction = bits & 1023;
  double const magnitude = exponent == 31  ? (fraction == 0 ? std::numeric_limits<double>::infinity()
                                                            : std::numeric_limits<double>::quiet_NaN())
                           : exponent == 0 ? std::ldexp(fraction, -24)
                                           : std::ldexp(1024 + fraction, exponent - 25);
  return bits >> 15 != 0 ? -magnitude : magnitude;
}

Array Array::zeros_like() const {
  return std::visit([&](auto const& mine) { return Array{shape, std::decay_t<decltype(mine)>(mine.size())}; }, values);
}

MatrixView points(std::string const& field, Array const& array) {
  require_dimensions(field, array, array.shape.size() <= 2, "1-D or 2-D");
  return visit_real(field, array,
                    [&](auto& values) { return MatrixView(values.data(), array.rows(), array.columns()); });
}

MutableMatrixView points(std::string const& field, Array& array) {
  require_dimensions(field, array, array.shape.size() <= 2, "1-D or 2-D");
  return visit_real(field, array,
                    [&](auto& values) { return MutableMatrixView(values.data(), array.rows(), array.columns()); });
}

VectorView vector(std::string const& field, std::optional<Array> const& array) {
  if (!array) return {};
  require_dimensions(field, *array, array->shape.size() <= 2 && array->columns() == 1, "1-D, or n x 1");
  return visit_real(field, *array, [](auto& values) { return VectorView(values); });
}

std::string shape_text(std::vector<std::int64_t> const& shape) {
  return fmt::format("{}", fmt::join(shape, " x "));
}

}  // namespace monge::cli
