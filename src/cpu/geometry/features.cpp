#include "cpu/geometry/features.hpp"

#include <algorithm>
#include <cmath>

#include "core/strided.hpp"
#include "geometry/points.hpp"

namespace monge::cpu {
namespace {

/// x| without overflow or underflow of its terms.
double length(std::span<double const> x) {
  double largest = 0, square = 0;
  for (double const value : x) largest = std::max(largest, std::abs(value));
  if (largest == 0) return 0;
  for (double const value : x) square += value / largest * (value / largest);
  return largest * std::sqrt(square);
}

}  // namespace

Features::Features(PointCost const& cost, std::string const& field, MatrixView points, IndexView labels,
                   std::span<double const> classes)
    : view_(points) {
  bool const directions = cost.function == CostFunction::cosine;
  if (!directions && classes.empty()) return;
  std::size_t const d = static_cast<std::size_t>(points.columns());
  std::size_t const width = classes.empty() ? 0 : static_cast<std::size_t>(cost.labels->width);
  copy_.resize(static_cast<std::size_t>(points.rows()) * (d + width));
  for (std::int64_t i = 0; i < points.rows(); ++i) {
    std::span<double> const row(copy_.data() + static_cast<std::size_t>(i) * (d + width), d + width);
    with_data(points, [&](auto const* data) { std::copy_n(data + i * points.row_stride(), d, row.begin()); });
    for (std::size_t k = 0; k < d; ++k) {
      if (!std::isfinite(row[k])) throw_not_finite(field.c_str(), i, static_cast<std::int64_t>(k), row[k]);
    }
    if (directions) {
      double const size = length(row.first(d));
      if (size == 0) throw_no_direction(field.c_str(), i);
      for (double& value : row.first(d)) value /= size;
    }
    if (width > 0) {
      std::int64_t const label = labels.data[i * labels.stride];
      std::int64_t const count = static_cast<std::int64_t>(classes.size() / width);
      if (label < 0 || label >= count) throw_no_class(("labels_" + field).c_str(), i, label, count);
      std::copy_n(classes.begin() + label * static_cast<std::int64_t>(width), width,
                  row.begin() + static_cast<std::ptrdiff_t>(d));
    }
  }
  view_ = MatrixView(copy_.data(), points.rows(), static_cast<std::int64_t>(d + width));
}

}  // namespace monge::cpu
