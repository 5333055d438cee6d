#include "exact/pair_costs.hpp"

#include <algorithm>
#include <cmath>
#include <functional>

#include "core/numbers.hpp"
#include "core/strided.hpp"
#include "geometry/cost_matrix.hpp"
#include "geometry/p_norm.hpp"
#include "geometry/point_cost.hpp"
#include "geometry/points.hpp"
#include "geometry/validation.hpp"
#include "seam/values.hpp"

namespace monge {
namespace {

/// Row or, if transposed, column i of the matrix.
VectorView line_of(MatrixView matrix, bool transposed, std::int64_t i) {
  std::int64_t const first = transposed ? i : i * matrix.row_stride();
  char const* const data = static_cast<char const*>(matrix.data()) + first * size_of(matrix.type());
  return {data, matrix.type(), transposed ? matrix.rows() : matrix.columns(), transposed ? matrix.row_stride() : 1,
          matrix.device()};
}

std::vector<double> points_of(Backend const& backend, char const* field, MatrixView view, bool directions) {
  std::vector<double> points = backend.read(view);
  std::size_t const d = to_size(view.columns());
  for (std::int64_t i = 0; i < view.rows(); ++i) {
    std::span<double> const row = std::span(points).subspan(to_size(i) * d, d);
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
  std::vector<std::int64_t> labels = read_labels(backend, view);
  require_classes(field, {labels.data(), std::ssize(labels)}, classes);
  return labels;
}

}  // namespace

PairCosts::PairCosts(Backend const& backend, Geometry const& geometry) : backend_(backend) {
  if (auto const* const costs = std::get_if<CostMatrix>(&geometry)) {
    matrix_ = costs->cost;
    transposed_ = costs->transposed;
    return;
  }
  clouds_ = std::get<PointCloud>(geometry);
  d_ = to_size(clouds_.x.columns());
  bool const directions = clouds_.cost_function == CostFunction::cosine;
  x_.points = points_of(backend, "x", clouds_.x, directions);
  y_.points = points_of(backend, "y", clouds_.y, directions);
  Labels const& labels = clouds_.labels;
  if (labels.empty()) return;
  x_.labels = labels_of(backend, "labels_x", labels.x, labels.cost.rows());
  y_.labels = labels_of(backend, "labels_y", labels.y, labels.cost.columns());
  std::int64_t const rows = labels.cost.rows(), columns = labels.cost.columns();
  std::vector<double> const costs = backend.read(labels.cost);
  label_costs_ = label_costs(MatrixView(costs.data(), rows, columns), labels.weight);
}

PairCosts::PairCosts(Backend const& backend, SparseCost const& cost) : backend_(backend) {
  std::int64_t const count = cost.column_indices.size;
  auto const index = [](IndexView view, std::int64_t k) { return view.data[k * view.stride]; };
  std::vector<double> const values = count > 0 ? backend.read(cost.values) : std::vector<double>();
  pairs_.reserve(to_size(count));
  std::int64_t k = index(cost.row_begin, 0);
  require(k == 0 && index(cost.row_begin, cost.rows()) == count,
          "row_begin: is {} at the first and {} at the last; must be 0 and {}, the number of pairs", k,
          index(cost.row_begin, cost.rows()), count);
  row_begin_.push_back(0);
  for (std::int64_t i = 0; i < cost.rows(); ++i) {
    std::int64_t const end = index(cost.row_begin, i + 1);
    require(end >= k && end <= count, "row_begin: element {} is {}; must be in [{}, {}]", i + 1, end, k, count);
    row_begin_.push_back(end);
    for (; k < end; ++k) {
      std::int64_t const j = index(cost.column_indices, k);
      double const value = values[to_size(k)];
      require(j >= 0 && j < cost.columns, "column_indices: element {} is {}; must be in [0, {})", k, j, cost.columns);
      if (std::isnan(value) || value == -HUGE_VAL) throw_bad_cost(i, j, value);
      pairs_.push_back({static_cast<std::int32_t>(i), static_cast<std::int32_t>(j), value});
    }
  }
  if (!std::is_sorted(pairs_.begin(), pairs_.end())) std::sort(pairs_.begin(), pairs_.end());
  auto const twice = std::adjacent_find(pairs_.begin(), pairs_.end(), std::mem_fn(&Arc::is_same_pair));
  require(twice == pairs_.end(), "column_indices: row {} has column {} twice; must have each pair once",
          twice == pairs_.end() ? 0 : twice->row, twice == pairs_.end() ? 0 : twice->column);
}

double PairCosts::of_points(std::int64_t i, std::int64_t j) const {
  double const* const x = x_.points.data() + to_size(i) * d_;
  double const* const y = y_.points.data() + to_size(j) * d_;
  auto const difference = [&](std::size_t k) { return x[k] - y[k]; };
  auto const square = [&](std::size_t k) { return difference(k) * difference(k); };
  double cost = 0;
  switch (clouds_.cost_function) {
    case CostFunction::sqeuclidean:
      cost = sum_of(d_, square);
      break;
    case CostFunction::euclidean:
      cost = p_norm(d_, 2, difference);
      break;
    case CostFunction::cosine:  // Points are directions: 1 - <x, y> = |x - y|^2 / 2.
      cost = sum_of(d_, square) / 2;
      break;
    case CostFunction::dot:
      cost = -sum_of(d_, [&](std::size_t k) { return x[k] * y[k]; });
      break;
    case CostFunction::p_norm:
      cost = p_norm(d_, clouds_.p, difference);
      break;
  }
  cost *= clouds_.scale;
  if (x_.labels.empty()) return cost;
  std::int64_t const place = x_.labels[to_size(i)] * label_costs_->columns + y_.labels[to_size(j)];
  return cost + label_costs_->cost[to_size(place)];
}

void PairCosts::set(std::span<Arc> arcs) const {
  if (is_sparse()) {
    for (Arc& arc : arcs) {
      std::span<Arc const> const pairs = row(arc.row);
      auto const found = std::lower_bound(pairs.begin(), pairs.end(), arc);
      arc.cost = found != pairs.end() && found->column == arc.column ? found->cost : HUGE_VAL;
    }
    return;
  }
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
    bool const in_memory = of_column == transposed_;  // Others are matrix_.row_stride() apart.
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
      arcs[k].cost = numbers[to_size((line_of_arc(arcs[k]) - first) * width + other)];
    }
  }
}

}  // namespace monge
