#include "geometry/points.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>

#include <monge/error.hpp>

#include "core/compensated_sum.hpp"
#include "core/numbers.hpp"
#include "core/parallel.hpp"
#include "core/strided.hpp"

namespace monge {

void throw_not_finite(char const* field, std::int64_t row, std::int64_t column, double value, char const* entries) {
  throw Error(ErrorCode::invalid_argument, std::string(field) + ": row " + std::to_string(row) + ", column " +
                                               std::to_string(column) + " is " + std::to_string(value) + "; " +
                                               entries + " must be finite");
}

std::vector<double> centre_of(char const* field, MatrixView points, std::span<double const> weights) {
  std::vector<double> centre(to_size(points.columns()), 0.0);
  with_data(points, [&](auto const* data) {
    double total = 0;
    for (std::int64_t i = 0; i < points.rows(); ++i) {
      auto const* row = data + i * points.row_stride();
      double const weight = weights.empty() ? 1.0 : weights[to_size(i)];
      double const next = total + weight;
      // A running mean: sums of coordinates could overflow, and large offsets would lose digits.
      double const share = next > 0 ? weight / next : 0;
      total = next;
      for (std::int64_t k = 0; k < points.columns(); ++k) {
        double const value = row[k];
        if (!std::isfinite(value)) throw_not_finite(field, i, k, value);
        double& mean = centre[to_size(k)];
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
      double const share = weights[to_size(i)] / total.value();
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

bool is_compact(MatrixView points, int threads) {
  constexpr double kMostDeviations = 11;
  constexpr std::int64_t kParts = 64, kPairsOfNumber = 16;  // Pairs of a pass in the time to read a number.
  struct Sums {
    double least = 0, largest = 0, sum = 0, squares = 0;
  };
  std::int64_t const d = points.columns();
  std::vector<Sums> sums(to_size(kParts * d));
  with_data(points, [&](auto const* data) {
    parallel_for(useful_threads(threads, points.rows(), d * kPairsOfNumber), kParts, [&](std::int64_t part) {
      for (std::int64_t k = 0; k < d; ++k) {
        Sums result;
        for (std::int64_t i = part * points.rows() / kParts; i < (part + 1) * points.rows() / kParts; ++i) {
          double const value = static_cast<double>(data[i * points.row_stride() + k]) - static_cast<double>(data[k]);
          result.least = std::min(result.least, value);
          result.largest = std::max(result.largest, value);
          result.sum += value;
          result.squares += value * value;
        }
        sums[to_size(part * d + k)] = result;
      }
    });
  });
  for (std::int64_t k = 0; k < d; ++k) {
    Sums all;
    for (std::int64_t part = 0; part < kParts; ++part) {
      Sums const& one = sums[to_size(part * d + k)];
      all.least = std::min(all.least, one.least);
      all.largest = std::max(all.largest, one.largest);
      all.sum += one.sum;
      all.squares += one.squares;
    }
    double const mean = all.sum / static_cast<double>(points.rows());
    double const variance = all.squares / static_cast<double>(points.rows()) - mean * mean;
    if (!(all.largest - all.least <= kMostDeviations * std::sqrt(variance))) return false;
  }
  return true;
}

std::vector<double> centred_products(MatrixView points, std::span<double const> centre, std::span<double const> w) {
  std::vector<double> products(to_size(points.rows()));
  with_data(points, [&](auto const* data) {
    for (std::int64_t i = 0; i < points.rows(); ++i) {
      double product = 0;
      for (std::size_t k = 0; k < w.size(); ++k)
        product += w[k] * (data[i * points.row_stride() + static_cast<std::int64_t>(k)] - centre[k]);
      products[to_size(i)] = product;
    }
  });
  return products;
}

PointCloud every(PointCloud const& clouds, Side side, std::int64_t stride) {
  PointCloud result = clouds;
  MatrixView& points = side == Side::rows ? result.x : result.y;
  IndexView& labels = side == Side::rows ? result.labels.x : result.labels.y;
  std::int64_t const size = (points.rows() + stride - 1) / stride;
  points = {points.data(), points.type(), size, points.columns(), points.row_stride() * stride, points.device()};
  if (!labels.empty()) labels = {labels.data, size, labels.stride * stride, labels.device};
  return result;
}

namespace {

/// A matrix of elements of `width` bytes, row-major.
struct Block {
  void const* data;
  std::int64_t rows, columns, row_stride, width;
  Device device;
};

bool are_equal(Block const& x, Block const& y) {
  if (x.width != y.width || x.rows != y.rows || x.columns != y.columns) return false;
  if (x.data == y.data && x.row_stride == y.row_stride) return true;
  if (x.device.type != DeviceType::cpu || y.device.type != DeviceType::cpu) return false;
  auto const row = [](Block const& of, std::int64_t i) {
    return static_cast<std::byte const*>(of.data) + i * of.row_stride * of.width;
  };
  for (std::int64_t i = 0; i < x.rows; ++i) {
    if (std::memcmp(row(x, i), row(y, i), to_size(x.columns * x.width)) != 0) return false;
  }
  return true;
}

}  // namespace

bool is_cloud_with_itself(Geometry const& geometry) {
  auto const* const clouds = std::get_if<PointCloud>(&geometry);
  if (clouds == nullptr) return false;
  auto const points = [](MatrixView view) {
    return Block{view.data(), view.rows(), view.columns(), view.row_stride(), size_of(view.type()), view.device()};
  };
  auto const labels = [](IndexView view) {
    return Block{view.data, view.size, 1, view.stride, sizeof(std::int64_t), view.device};
  };
  return are_equal(points(clouds->x), points(clouds->y)) &&
         are_equal(labels(clouds->labels.x), labels(clouds->labels.y));
}

}  // namespace monge
