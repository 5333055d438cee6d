#include "cpu/packed_cloud.hpp"

#include <algorithm>
#include <limits>
#include <string>

#include <monge/error.hpp>

#include "core/strided.hpp"

namespace monge::cpu {
namespace {

template <class T>
PackedCloud<T> make_cloud(std::int64_t size, std::int64_t dimension, std::vector<double> centre) {
  PackedCloud<T> cloud;
  cloud.size = size;
  cloud.dimension = dimension;
  cloud.centre = std::move(centre);
  std::int64_t const values = padded_to_panel<T>(size) * dimension;
  cloud.panels = aligned_array<T>(values);
  std::fill_n(cloud.panels.get(), values, T(0));
  cloud.squared_norms.resize(static_cast<std::size_t>(size));
  return cloud;
}

template <class T>
void measure(PackedCloud<T>& cloud) {
  for (std::int64_t i = 0; i < cloud.size; ++i) {
    double norm = 0;
    for (std::int64_t k = 0; k < cloud.dimension; ++k) {
      double const value = cloud.coordinate(i, k);
      norm += value * value;
    }
    cloud.squared_norms[static_cast<std::size_t>(i)] = norm;
    cloud.largest_squared_norm = std::max(cloud.largest_squared_norm, norm);
  }
}

template <class T>
T& coordinate(PackedCloud<T>& cloud, std::int64_t i, std::int64_t k) {
  return cloud.panels[(i / kPanel<T> * cloud.dimension + k) * kPanel<T> + i % kPanel<T>];
}

}  // namespace

template <class T>
AlignedArray<T> aligned_array(std::int64_t size) {
  if (size > std::numeric_limits<std::int64_t>::max() / static_cast<std::int64_t>(2 * sizeof(T)))
    throw Error(ErrorCode::out_of_memory, "memory: " + std::to_string(size) + " values do not fit in an address space");
  auto array = hwy::AllocateAligned<T>(static_cast<std::size_t>(std::max<std::int64_t>(size, 1)));
  if (!array)
    throw Error(ErrorCode::out_of_memory,
                "memory: " + std::to_string(size * static_cast<std::int64_t>(sizeof(T))) + " bytes are not available");
  return array;
}

template <class T>
PackedCloud<T> pack(MatrixView points, std::vector<double> centre) {
  PackedCloud<T> cloud = make_cloud<T>(points.rows(), points.columns(), std::move(centre));
  with_data(points, [&](auto const* data) {
    for (std::int64_t i = 0; i < points.rows(); ++i) {
      for (std::int64_t k = 0; k < points.columns(); ++k) {
        coordinate(cloud, i, k) =
            static_cast<T>(data[i * points.row_stride() + k] - cloud.centre[static_cast<std::size_t>(k)]);
      }
    }
  });
  measure(cloud);
  return cloud;
}

template <class T>
PackedCloud<T> gather(PackedCloud<T> const& cloud, std::vector<std::int64_t> const& indices) {
  auto const size = static_cast<std::int64_t>(indices.size());
  PackedCloud<T> result = make_cloud<T>(size, cloud.dimension, cloud.centre);
  for (std::int64_t i = 0; i < size; ++i) {
    for (std::int64_t k = 0; k < cloud.dimension; ++k)
      coordinate(result, i, k) = cloud.coordinate(indices[static_cast<std::size_t>(i)], k);
  }
  measure(result);
  return result;
}

template AlignedArray<float> aligned_array(std::int64_t);
template AlignedArray<double> aligned_array(std::int64_t);
template PackedCloud<float> pack(MatrixView, std::vector<double>);
template PackedCloud<double> pack(MatrixView, std::vector<double>);
template PackedCloud<float> gather(PackedCloud<float> const&, std::vector<std::int64_t> const&);
template PackedCloud<double> gather(PackedCloud<double> const&, std::vector<std::int64_t> const&);

}  // namespace monge::cpu
