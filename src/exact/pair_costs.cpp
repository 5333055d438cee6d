#include "exact/pair_costs.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <string>

#include "core/strided.hpp"
#include "geometry/cost_matrix.hpp"
#include "geometry/point_cost.hpp"
#include "geometry/points.hpp"

namespace monge {
namespace {

/// Row or, if transposed, column i of the matrix.
VectorView line_of(MatrixView matrix, bool transposed, std::int64_t i) {
  std::int64_t const first = transposed ? i : i * matrix.row_stride();
  char const* const data = static_cast<char const*>(matrix.data()) + first * size_of(matrix.type());
  return {data, matrix.type(), transposed ? matrix.rows() : matrix.columns(), transposed ? matrix.row_stride() : 1,
          matrix.device()};
}

std::vector<double> rows_of(Backend const& backend, MatrixView matrix) {
  std::size_t const width = static_cast<std::size_t>(matrix.columns());
  std::vector<double> values(static_cast<std::size_t>(matrix.rows()) * width);
  for (std::size_t k = 0; k < width; ++k) {
    std::vector<double> const column = backend.read(line_of(matrix, true, static_cast<std::int64_t>(k)));
    for (std::size_t i = 0; i < column.size(); ++i) values[i * width + k] = column[i];
  }
  return values;
}

std::vector<double> points_of(Backend const& backend, char const* field, MatrixView view, bool directions) {
  std::vector<double> points = rows_of(backend, view);
  std::size_t const d = static_cast<std::size_t>(view.columns());
  for (std::int64_t i = 0; i < view.rows(); ++i) {
    std::span<double> const row = std::span(points).subspan(static_cast<std::size_t>(i) * d, d);
    double largest = 0, square = 0;
    for (std::size_t k = 0; k < d; ++k) {
      if (!std::isfinite(row[k])) throw_not_finite(field, i, static_cast<std::int64_t>(k), row[k]);
      largest = std::max(largest, std::abs(row[k]));
    }
    if (!directions) continue;
    if (largest == 0) throw_no_direction(field, i);
    for (double& value : row) {
      value /= largest;
      square += value * value;
    }
    for (double& value : row) value /= std::sqrt(square);
  }
  return points;
}

std::vector<std::int64_t> labels_of(Backend const& backend, char const* field, IndexView view, std::int64_t classes) {
  std::vector<std::int64_t> labels;
  // A backend reads float64. A label is read as the number of the same bits.
  for (double const value : backend.read({view.data, DataType::float64, view.size, view.stride, view.device})) {
    labels.push_back(std::bit_cast<std::int64_t>(value));
    if (labels.back() < 0 || labels.back() >= classes)
      throw_no_class(field, static_cast<std::int64_t>(labels.size()) - 1, labels.back(), classes);
  }
  return labels;
}

/// sum_k term(x_k, y_k). Eight sums side by side become SIMD, which one sum in order may not.
template <class Term>
double sum_of(std::span<double const> x, std::span<double const> y, Term const& term) {
  constexpr std::size_t kSums = 8;
  double sums[kSums] = {}, rest = 0;
  std::size_t const whole = x.size() / kSums * kSums;
  for (std::size_t k = 0; k < whole; k += kSums) {
    for (std::size_t q = 0; q < kSums; ++q) sums[q] += term(x[k + q], y[k + q]);
  }
  for (std::size_t k = whole; k < x.size(); ++k) rest += term(x[k], y[k]);
  for (double const sum : sums) rest += sum;
  return rest;
}

double square_of_difference(double x, double y) {
  return (x - y) * (x - y);
}

double p_norm(std::span<double const> x, std::span<double const> y, double p) {
  double largest = 0, sum = 0;  // Powers of differences relative to the largest do not overflow.
  for (std::size_t k = 0; k < x.size(); ++k) largest = std::max(largest, std::abs(x[k] - y[k]));
  if (largest == 0 || std::isinf(p)) return largest;
  for (std::size_t k = 0; k < x.size(); ++k) sum += std::pow(std::abs(x[k] - y[k]) / largest, p);
  return largest * std::pow(sum, 1 / p);
}

}  // namespace

PairCosts::PairCosts(Backend const& backend, Geometry const& geometry) : backend_(backend) {
  if (auto const* const costs = std::get_if<CostMatrix>(&geometry)) {
    matrix_ = costs->cost;
    transposed_ = costs->transposed;
    return;
  }
  clouds_ = std::get<PointCloud>(geometry);
  d_ = static_cast<std::size_t>(clouds_.x.columns());
  bool const directions = clouds_.cost_function == CostFunction::cosine;
  x_.points = points_of(backend, "x", clouds_.x, directions);
  y_.points = points_of(backend, "y", clouds_.y, directions);
  Labels const& labels = clouds_.labels;
  if (labels.empty()) return;
  x_.labels = labels_of(backend, "labels_x", labels.x, labels.cost.rows());
  y_.labels = labels_of(backend, "labels_y", labels.y, labels.cost.columns());
  std::int64_t const rows = labels.cost.rows(), columns = labels.cost.columns();
  std::vector<double> const costs = rows_of(backend, labels.cost);
  label_costs_ = label_costs(MatrixView(costs.data(), rows, columns), labels.weight);
}

double PairCosts::of_points(std::int64_t i, std::int64_t j) const {
  std::span<double const> const x(x_.points.data() + static_cast<std::size_t>(i) * d_, d_);
  std::span<double const> const y(y_.points.data() + static_cast<std::size_t>(j) * d_, d_);
  double cost = 0;
  switch (clouds_.cost_function) {
    case CostFunction::sqeuclidean:
      cost = sum_of(x, y, square_of_difference);
      break;
    case CostFunction::euclidean:
      cost = p_norm(x, y, 2);
      break;
    case CostFunction::cosine:  // Of directions, 1 - <x, y> = |x - y|^2 / 2.
      cost = sum_of(x, y, square_of_difference) / 2;
      break;
    case CostFunction::dot:
      cost = -sum_of(x, y, std::multiplies<double>());
      break;
    case CostFunction::p_norm:
      cost = p_norm(x, y, clouds_.p);
      break;
  }
  cost *= clouds_.scale;
  if (x_.labels.empty()) return cost;
  std::int64_t const place =
      x_.labels[static_cast<std::size_t>(i)] * label_costs_->columns + y_.labels[static_cast<std::size_t>(j)];
  return cost + label_costs_->cost[static_cast<std::size_t>(place)];
}

void PairCosts::set(std::span<Arc> arcs) const {
  if (d_ > 0) {
    for (Arc& arc : arcs) {
      arc.cost = of_points(arc.row, arc.column);
      require_no_overflow(arc.cost);
    }
    return;
  }
  if (matrix_.device().type == DeviceType::cpu) {
    with_data(matrix_, [&](auto const* data) {
      for (Arc& arc : arcs) {
        std::int64_t const i = transposed_ ? arc.column : arc.row, j = transposed_ ? arc.row : arc.column;
        arc.cost = double{data[i * matrix_.row_stride() + j]};
      }
    });
  } else {
    set_from_device(arcs);
  }
  for (Arc const& arc : arcs) {
    if (std::isnan(arc.cost) || arc.cost == -HUGE_VAL) throw_bad_cost(arc.row, arc.column, arc.cost);
  }
}

void PairCosts::set_from_device(std::span<Arc> arcs) const {
  constexpr std::int64_t kMost = 1 << 21;  // Numbers of a read.
  for (std::size_t k = 0; k < arcs.size();) {
    // Arcs that follow each other are of a row or, if only their column is the same, of a column.
    bool const of_column =
        k + 1 < arcs.size() && arcs[k].row != arcs[k + 1].row && arcs[k].column == arcs[k + 1].column;
    auto const line_of_arc = [&](Arc const& arc) { return of_column ? arc.column : arc.row; };
    bool const in_memory = of_column == transposed_;  // Or else its numbers are matrix_.row_stride() apart.
    std::int64_t const width = matrix_.row_stride(), first = line_of_arc(arcs[k]);
    std::int64_t const most = in_memory ? std::max<std::int64_t>(1, kMost / std::max<std::int64_t>(1, width)) : 1;
    std::size_t end = k;
    std::int64_t last = first;
    for (; end < arcs.size(); ++end) {
      std::int64_t const line = line_of_arc(arcs[end]);
      if (line < last || line > last + 1 || line >= first + most) break;
      last = line;
    }
    VectorView const line = line_of(matrix_, !in_memory, first);
    std::vector<double> const numbers =
        backend_.read({line.data(), line.type(), line.size() + (last - first) * width, line.stride(), line.device()});
    for (; k < end; ++k) {
      std::int64_t const other = of_column ? arcs[k].row : arcs[k].column;
      arcs[k].cost = numbers[static_cast<std::size_t>((line_of_arc(arcs[k]) - first) * width + other)];
    }
  }
}

}  // namespace monge
