#include "geometry/point_cost.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "core/numbers.hpp"
#include "core/require.hpp"
#include "core/strided.hpp"

namespace monge {

CostTerms terms_of(Geometry const& geometry) {
  auto const* const clouds = std::get_if<PointCloud>(&geometry);
  if (clouds == nullptr) return {};
  CostTerms terms{.function = clouds->cost_function, .scale = clouds->scale};
  if (!clouds->labels.empty()) terms.label_weight = clouds->labels.weight;
  return terms;
}

bool CostTerms::fits_float32(double bound) const {
  constexpr double kLeast = 0x1p-100;  // The least normal number over the unit roundoff, with some bits to spare.
  if (!function) return bound == 0 || bound >= kLeast;
  double const size = bound / scale;
  return (is_distance() ? size * size : size) >= kLeast;
}

std::shared_ptr<LabelCosts const> label_costs(MatrixView cost, double weight) {
  LabelCosts labels;
  labels.rows = cost.rows();
  labels.columns = cost.columns();
  double least = std::numeric_limits<double>::infinity(), most = -least;
  with_data(cost, [&](auto const* data) {
    for (std::int64_t k = 0; k < labels.rows; ++k) {
      for (std::int64_t l = 0; l < labels.columns; ++l) {
        double const value = weight * static_cast<double>(data[k * cost.row_stride() + l]);
        require(std::isfinite(value), "label_cost: row {}, column {} is {}; must be finite, times label_weight too", k,
                l, data[k * cost.row_stride() + l]);
        least = std::min(least, value);
        most = std::max(most, value);
        labels.cost.push_back(value);
      }
    }
  });
  labels.range = most - least;
  require(std::isfinite(labels.range), "label_cost: ranges from {} to {}; the difference must be finite", least, most);
  return std::make_shared<LabelCosts>(std::move(labels));
}

PointCost::PointCost(PointCloud const& clouds, MatrixView label_cost)
    : function(clouds.cost_function),
      scale(clouds.scale),
      p(function == CostFunction::p_norm ? clouds.p : 2),
      dimension(clouds.x.columns()) {
  if (!clouds.labels.empty()) labels = label_costs(label_cost, clouds.labels.weight);
  if (is_distance()) return;
  product = function == CostFunction::sqeuclidean ? -2 * scale : -scale;
  if (function != CostFunction::dot) square = -product / 2;
}

std::vector<double> PointCost::label_features(Side side) const {
  std::int64_t const width = labels->width();
  // The label coordinates of both sides have one size. Where points and labels cost alike, it is the size of the
  // points' coordinates. The size is a power of two, so the division is exact.
  double const size = labels->range > 0 ? std::exp2(std::round(std::log2(labels->range / std::abs(product)) / 2)) : 1;
  bool const across = labels->columns <= labels->rows;  // The columns have unit vectors.
  std::vector<double> result;
  if (across == (side == Side::columns)) {
    result.assign(to_size(width * width), 0.0);
    for (std::int64_t k = 0; k < width; ++k) result[to_size(k * (width + 1))] = size;
    return result;
  }
  for (std::int64_t r = 0; r < std::max(labels->rows, labels->columns); ++r) {
    for (std::int64_t k = 0; k < width; ++k) {
      std::int64_t const at = across ? r * labels->columns + k : k * labels->columns + r;
      result.push_back(labels->cost[to_size(at)] / product / size);
    }
  }
  return result;
}

double PointCost::bound(double largest_square_x, double largest_square_y, double most) const {
  double const x = std::sqrt(largest_square_x), y = std::sqrt(largest_square_y);
  // Leaves room for the sum of squares and twice the products.
  if (!((x + y) * (x + y) <= most / 4)) return std::numeric_limits<double>::infinity();
  double points = square != 0 ? square * (x + y) * (x + y) : 2 * std::abs(product) * x * y;
  // Below p = 2 the p-norm exceeds |x|, most of all where all coordinates are the same.
  if (is_distance()) points = scale * (p < 2 ? std::pow(static_cast<double>(dimension), 1 / p - 0.5) : 1) * (x + y);
  // Centring subtracts a row mean and a column mean from an entry; each moves it by at most the range.
  return points + (labels ? 2 * labels->range : 0);
}

void throw_no_class(char const* field, std::int64_t point, std::int64_t label, std::int64_t classes) {
  throw Error(ErrorCode::invalid_argument,
              fmt::format("{}: point {} has label {}; must be in [0, {})", field, point, label, classes));
}

void require_classes(char const* field, IndexView labels, std::int64_t classes) {
  for (std::int64_t i = 0; i < labels.size; ++i) {
    std::int64_t const label = labels.data[i * labels.stride];
    if (label < 0 || label >= classes) throw_no_class(field, i, label, classes);
  }
}

void require_no_overflow(double bound) {
  require(std::isfinite(bound), "x, y: the squares of coordinates overflow; the points must lie closer together");
}

void require_no_overflow(CostFunction function, double bound, double mean) {
  bool const fits = !has_products(function) || std::abs(mean) <= std::numeric_limits<double>::max() / 16;
  require_no_overflow(fits ? bound : std::numeric_limits<double>::infinity());
}

void require_no_overflow(CostTerms const& terms, double bound, bool in_float64) {
  if (terms.function && in_float64) require_no_overflow(bound);
  require(
      std::isfinite(bound), "{}",
      terms.function
          ? "x, y: the squares of coordinates overflow float32; precision must be float64, or the points lie closer "
            "together"
          : "cost: the finite costs range over more than float32 arithmetic holds here; precision must be float64, "
            "or the costs and eps smaller by a common factor");
}

void require_no_overflow_of_new(double bound) {
  require(std::isfinite(bound), "points: the squares of coordinates overflow; must lie closer to those of the plan");
}

void throw_no_direction(char const* field, std::int64_t row) {
  throw Error(ErrorCode::invalid_argument,
              fmt::format("{}: row {} has length 0; must be positive for the cost function cosine", field, row));
}

void require_labels(PointCost const& cost, IndexView labels) {
  if (cost.labels && labels.empty())
    throw Error(ErrorCode::unsupported,
                "points: new ones have no labels; maps and potentials at new points need costs without labels");
}

}  // namespace monge
