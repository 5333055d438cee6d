// Element access to views of host memory, whatever their type: for packing and copying, never inside a kernel.
#pragma once
#include <cstdint>
#include <utility>
#include <vector>

#include <monge/array.hpp>

#include "core/numbers.hpp"

namespace monge {

/// Calls function(data) with the view's pointer as float const* or double const* (or writable, for a mutable view).
template <class View, class Function>
decltype(auto) with_data(View const& view, Function&& function) {
  if (view.type() == DataType::float32) return std::forward<Function>(function)(view.template as<float>());
  return std::forward<Function>(function)(view.template as<double>());
}

/// The vector as a matrix of one column.
template <class Void>
detail::BasicMatrixView<Void> as_column(detail::BasicVectorView<Void> const& vector) {
  return {vector.data(), vector.type(), vector.size(), 1, vector.stride(), vector.device()};
}

/// The entries row by row.
inline std::vector<double> values_of(MatrixView matrix) {
  std::vector<double> values;
  values.reserve(to_size(matrix.rows() * matrix.columns()));
  with_data(matrix, [&](auto const* data) {
    for (std::int64_t i = 0; i < matrix.rows(); ++i, data += matrix.row_stride())
      values.insert(values.end(), data, data + matrix.columns());
  });
  return values;
}

/// out_i = value(i), rounded to the view's type.
template <class Value>
void write_vector(MutableVectorView out, Value&& value) {
  with_data(out, [&](auto* data) {
    using T = std::remove_pointer_t<decltype(data)>;
    for (std::int64_t i = 0; i < out.size(); ++i) data[i * out.stride()] = static_cast<T>(value(i));
  });
}

}  // namespace monge
