#include "array.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <monge/error.hpp>

namespace monge::cli {

Array Array::zeros_like() const {
  return std::visit([&](auto const& mine) { return Array{shape, std::decay_t<decltype(mine)>(mine.size())}; }, values);
}

MatrixView points(Array const& array) {
  return std::visit([&](auto const& values) { return MatrixView(values.data(), array.rows(), array.columns()); },
                    array.values);
}

MutableMatrixView points(Array& array) {
  return std::visit([&](auto& values) { return MutableMatrixView(values.data(), array.rows(), array.columns()); },
                    array.values);
}

VectorView vector(std::string const& field, Array const& array) {
  if (array.columns() != 1) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{}: has shape {}; must be 1-D, or n x 1", field, shape_text(array.shape)));
  }
  return std::visit([](auto const& values) { return VectorView(values); }, array.values);
}

std::string shape_text(std::vector<std::int64_t> const& shape) {
  return fmt::format("{}", fmt::join(shape, " x "));
}

}  // namespace monge::cli
