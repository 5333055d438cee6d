// Element access to views of host memory, whatever their type: for packing and copying, never inside a kernel.
#pragma once
#include <utility>

#include <monge/array.hpp>

namespace monge {

/// Calls function(data) with the view's pointer as float const* or double const* (or writable, for a mutable view).
template <class View, class Function>
decltype(auto) with_data(View const& view, Function&& function) {
  if (view.type() == DataType::float32) return std::forward<Function>(function)(view.template as<float>());
  return std::forward<Function>(function)(view.template as<double>());
}

/// Calls store(i, value) for each element.
template <class Store>
void read_vector(VectorView from, Store&& store) {
  with_data(from, [&](auto const* data) {
    for (std::int64_t i = 0; i < from.size(); ++i) store(i, static_cast<double>(data[i * from.stride()]));
  });
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
