#include "geometry/points.hpp"

#include <cmath>

#include <monge/error.hpp>

#include "core/compensated_sum.hpp"
#include "core/strided.hpp"

namespace monge {

void throw_not_finite(char const* field, std::int64_t row, std::int64_t column, double value) {
  throw Error(ErrorCode::invalid_argument, std::string(field) + ": row " + std::to_string(row) + ", column " +
                                               std::to_string(column) + " is " + std::to_string(value) +
                                               "; coordinates must be finite");
}

std::vector<double> centre_of(char const* field, MatrixView points, std::span<double const> weights) {
  std::vector<double> centre(static_cast<std::size_t>(points.columns()), 0.0);
  with_data(points, [&](auto const* data) {
    double total = 0;
    for (std::int64_t i = 0; i < points.rows(); ++i) {
      auto const* row = data + i * points.row_stride();
      double const weight = weights.empty() ? 1.0 : weights[static_cast<std::size_t>(i)];
      double const next = total + weight;
      // A running mean: sums of coordinates could overflow, and large offsets would lose digits.
      double const share = next > 0 ? weight / next : 0;
      total = next;
      for (std::int64_t k = 0; k < points.columns(); ++k) {
        double const value = row[k];
        if (!std::isfinite(value)) throw_not_finite(field, i, k, value);
        double& mean = centre[static_cast<std::size_t>(k)];
        mean += (value - mean) * share;
      }
    }
  });
  return centre;
}

double mean_squared_distance(MatrixView points, std::span<double const> centre, std::span<double const> weights) {
  CompensatedSum total, mean;
  for (double const weight : weights) total.add(weight);
  with_data(points, [&](auto const* data) {
    for (std::int64_t i = 0; i < points.rows(); ++i) {
      double const share = weights[static_cast<std::size_t>(i)] / total.value();
      if (share == 0) continue;  // However far the point is.
      double square = 0;
      for (std::size_t k = 0; k < centre.size(); ++k) {
        double const difference = data[i * points.row_stride() + static_cast<std::int64_t>(k)] - centre[k];
        square += difference * difference;
      }
      mean.add(share * square);
    }
  });
  return mean.value();
}

std::vector<double> centred_products(MatrixView points, std::span<double const> centre, std::span<double const> w) {
  std::vector<double> products(static_cast<std::size_t>(points.rows()));
  with_data(points, [&](auto const* data) {
    for (std::int64_t i = 0; i < points.rows(); ++i) {
      double product = 0;
      for (std::size_t k = 0; k < w.size(); ++k)
        product += w[k] * (data[i * points.row_stride() + static_cast<std::int64_t>(k)] - centre[k]);
      products[static_cast<std::size_t>(i)] = product;
    }
  });
  return products;
}

}  // namespace monge
