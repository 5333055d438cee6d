#include "cpu/geometry/features.hpp"

#include <algorithm>
#include <cmath>
#include <span>

#include "core/numbers.hpp"
#include "core/strided.hpp"
#include "geometry/points.hpp"

namespace monge::cpu {
namespace {

/// |x| without overflow or underflow of its terms.
double length(std::span<double const> x) {
  double largest = 0, square = 0;
  for (double const value : x) largest = std::max(largest, std::abs(value));
  if (largest == 0) return 0;
  for (double const value : x) square += value / largest * (value / largest);
  return largest * std::sqrt(square);
}

}  // namespace

Features::Features(PointCost const& cost, char const* field, MatrixView points) : view_(points) {
  if (cost.function != CostFunction::cosine) return;
  std::size_t const d = to_size(points.columns());
  copy_.resize(to_size(points.rows()) * d);
  for (std::int64_t i = 0; i < points.rows(); ++i) {
    std::span<double> const row(copy_.data() + to_size(i) * d, d);
    with_data(points, [&](auto const* data) { std::copy_n(data + i * points.row_stride(), d, row.begin()); });
    for (std::size_t k = 0; k < d; ++k) {
      if (!std::isfinite(row[k])) throw_not_finite(field, i, static_cast<std::int64_t>(k), row[k]);
    }
    double const size = length(row);
    if (size == 0) throw_no_direction(field, i);
    for (double& value : row) value /= size;
  }
  view_ = MatrixView(copy_.data(), points.rows(), points.columns());
}

}  // namespace monge::cpu
