#include "cpu/pass/packed_points.hpp"

#include <algorithm>

#include "core/numbers.hpp"
#include "core/strided.hpp"

namespace monge::cpu {
namespace {

template <class T>
void reshape(PackedPoints<T>& points, std::int64_t size, std::int64_t dimension) {
  std::int64_t const values = padded_to_panel<T>(size) * dimension;
  std::fill_n(points.panels.at_least(values), values, T(0));
  points.size = size;
  points.dimension = dimension;
}

template <class T>
T& coordinate(PackedPoints<T>& points, std::int64_t i, std::int64_t k) {
  return points.panels.get()[(i / kPanel<T> * points.dimension + k) * kPanel<T> + i % kPanel<T>];
}

}  // namespace

template <class T>
void pack(MatrixView points, std::span<double const> centre, PackedPoints<T>& packed) {
  reshape(packed, points.rows(), points.columns());
  with_data(points, [&](auto const* data) {
    for (std::int64_t i = 0; i < points.rows(); ++i) {
      for (std::int64_t k = 0; k < points.columns(); ++k) {
        double const origin = centre.empty() ? 0.0 : centre[to_size(k)];
        coordinate(packed, i, k) = static_cast<T>(data[i * points.row_stride() + k] - origin);
      }
    }
  });
}

template <class T>
PackedPoints<T> gather(PackedPoints<T> const& points, std::span<std::int64_t const> indices) {
  PackedPoints<T> result;
  reshape(result, static_cast<std::int64_t>(indices.size()), points.dimension);
  for (std::int64_t i = 0; i < result.size; ++i) {
    for (std::int64_t k = 0; k < points.dimension; ++k)
      coordinate(result, i, k) = points.coordinate(indices[to_size(i)], k);
  }
  return result;
}

template void pack(MatrixView, std::span<double const>, PackedPoints<float>&);
template void pack(MatrixView, std::span<double const>, PackedPoints<double>&);
template PackedPoints<float> gather(PackedPoints<float> const&, std::span<std::int64_t const>);
template PackedPoints<double> gather(PackedPoints<double> const&, std::span<std::int64_t const>);

}  // namespace monge::cpu
