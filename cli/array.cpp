#include "array.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <monge/error.hpp>

namespace monge::cli {
namespace {

void require_dimensions(std::string const& field, auto const& array, bool condition, char const* allowed) {
  if (condition) return;
  throw Error(ErrorCode::invalid_argument,
              fmt::format("{}: has shape {}; must be {}", field, shape_text(array.shape), allowed));
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

DataType Array::type() const {
  static constexpr DataType kTypes[] = {DataType::float64, DataType::float32, DataType::float16};
  return kTypes[values.index()];
}

void const* Array::data() const {
  if (mapped) return mapped.get();
  return std::visit([](auto const& mine) { return static_cast<void const*>(mine.data()); }, values);
}

void* Array::data() {
  return std::visit([](auto& mine) { return static_cast<void*>(mine.data()); }, values);
}

Array Array::zeros(std::vector<std::int64_t> const& shape) const {
  std::int64_t const count = std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
  return std::visit(
      [&](auto const& mine) {
        return Array{shape, std::decay_t<decltype(mine)>(static_cast<std::size_t>(count))};
      },
      values);
}

MatrixView points(std::string const& field, Array const& array) {
  require_dimensions(field, array, array.shape.size() <= 2, "1-D or 2-D");
  return {array.data(), array.type(), array.rows(), array.columns()};
}

MutableMatrixView points(std::string const& field, Array& array) {
  require_dimensions(field, array, array.shape.size() <= 2, "1-D or 2-D");
  return {array.data(), array.type(), array.rows(), array.columns()};
}

MatrixView finite_points(std::string const& field, Array const& array) {
  MatrixView const rows = points(field, array);
  auto const refuse = [&](std::string const& what) {
    throw Error(ErrorCode::invalid_argument, fmt::format("{}: {}", field, what));
  };
  if (rows.type() == DataType::float16) refuse(fmt::format("is {}; must be float32 or float64", name(rows.type())));
  auto const check = [&](auto const& all) {
    for (std::size_t e = 0; e < all.size(); ++e) {
      double const value = to_double(all[e]);
      std::int64_t const at = static_cast<std::int64_t>(e);
      if (!std::isfinite(value))
        refuse(fmt::format("row {}, column {} is {}; must be finite", at / rows.columns(), at % rows.columns(), value));
    }
  };
  std::visit(check, array.values);
  return rows;
}

CostMatrix costs(std::string const& field, Array const& array) {
  require_dimensions(field, array, array.shape.size() == 2, "2-D");
  std::int64_t const n = array.rows(), m = array.columns();
  MatrixView const stored(array.data(), array.type(), array.by_columns ? m : n, array.by_columns ? n : m);
  return {stored, array.by_columns};
}

VectorView vector(std::string const& field, std::optional<Array> const& array) {
  if (!array) return {};
  require_dimensions(field, *array, array->shape.size() <= 2 && array->columns() == 1, "1-D, or n x 1");
  return {array->data(), array->type(), array->rows()};
}

IndexView labels(std::string const& field, std::optional<IndexArray> const& array) {
  if (!array) return {};
  require_dimensions(field, *array, array->shape.size() <= 2 && array->columns() == 1, "1-D, or n x 1");
  return {array->values.data(), static_cast<std::int64_t>(array->values.size())};
}

IndexMatrixView label_matrix(std::string const& field, std::optional<IndexArray> const& array) {
  if (!array) return {};
  require_dimensions(field, *array, array->shape.size() == 2, "2-D");
  return {array->values.data(), array->shape[0], array->shape[1], array->shape[1]};
}

IndexArray zero_indices(std::vector<std::int64_t> shape) {
  std::int64_t count = 1;
  for (std::int64_t const entries : shape) count *= entries;
  return {std::move(shape), std::vector<std::int64_t>(static_cast<std::size_t>(count))};
}

MutableIndexView indices(IndexArray& array) {
  std::int64_t const columns = array.columns();
  return {array.values.data(), array.shape.front(), columns, columns};
}

std::string shape_text(std::vector<std::int64_t> const& shape) {
  return fmt::format("{}", fmt::join(shape, " x "));
}

std::string printable(std::string_view text) {
  std::string shown(text.substr(0, 40));
  std::replace_if(
      shown.begin(), shown.end(), [](unsigned char c) { return c < 0x20 || c > 0x7e; }, '?');
  return text.size() > shown.size() ? shown + "..." : shown;
}

}  // namespace monge::cli
