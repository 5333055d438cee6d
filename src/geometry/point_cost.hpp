// The cost of two points, as both backends make it (docs/math.md, section 12).
//
// A kernel reads the features of a point: its coordinates, divided by their length for the cosine. In features, a cost
// function with inner products is
//
//   C_ij = square (|x_i|^2 + |y_j|^2) + product <x_i, y_j> + label_cost_ij
//
// With square = -product / 2 a translation of all points changes no cost; with square = 0, and for labels, centring
// leaves terms of one point in the shifts. The CPU looks the cost of two labels up in a table. On CUDA labels have
// coordinates u, v, which are features, too: label_cost_ij = product <u_i, v_j>.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include <monge/geometry.hpp>

#include "core/side.hpp"

namespace monge {

/// Whether c(x, y) follows from |x|^2, |y|^2 and <x, y>.
constexpr bool has_products(CostFunction function) {
  return function != CostFunction::euclidean && function != CostFunction::p_norm;
}

/// The terms of a cost, as far as solvers decide by them.
struct CostTerms {
  std::optional<CostFunction> function;                            // None for a cost matrix.
  double scale = std::numeric_limits<double>::quiet_NaN();         // NaN for a cost matrix,
  double label_weight = std::numeric_limits<double>::quiet_NaN();  // and where there are no labels.

  bool has_labels() const { return !std::isnan(label_weight); }
  bool is_distance() const { return function && !has_products(*function); }
  /// Whether float32 has all digits of costs up to `bound` and, for points, of the squares of their distances.
  bool fits_float32(double bound) const;
};
CostTerms terms_of(Geometry const& geometry);

/// The cost of each pair of a class of x and a class of y.
struct LabelCosts {
  std::int64_t rows = 0, columns = 0;
  std::vector<double> cost;  // weight W, row by row.
  double range = 0;          // Largest less smallest cost.

  std::int64_t classes(Side side) const { return side == Side::rows ? rows : columns; }
  /// Coordinates of a label.
  std::int64_t width() const { return std::min(rows, columns); }
};
/// `cost` is in host memory. Throws invalid_argument where it is not finite.
std::shared_ptr<LabelCosts const> label_costs(MatrixView cost, double weight);

/// The derivatives, by features, of a cost that is a sum of squares and inner products of features. Features of labels
/// are left out.
///   d_1 c(x_i, y_j) = slope_i + product y'_j,   d slope_i / d x_i = curvature I,
/// where slope_i is the derivative with y at the centre of its cloud, and y'_j = y_j less this centre; d_2 c likewise.
/// For s |x - y|^2, product = -2 s and curvature = 2 s.
struct PointForm {
  double product, curvature;
};

struct PointCost {
  /// `label_cost` is clouds.labels.cost in host memory.
  PointCost(PointCloud const& clouds, MatrixView label_cost);

  CostFunction function;
  double scale;
  double p;           // Exponent of distances: 2 for the Euclidean one. Infinity: the largest difference.
  double square = 0;  // See above; both are 0 for distances.
  double product = 0;
  std::int64_t dimension;                    // Coordinates of a point.
  std::shared_ptr<LabelCosts const> labels;  // Null where there are none.

  /// Coordinates of a point and its label.
  std::int64_t features() const { return dimension + (labels ? labels->width() : 0); }
  /// The coordinates of the labels of one side, a row for each class.
  std::vector<double> label_features(Side side) const;
  bool is_distance() const { return !has_products(function); }
  /// Whether translating both clouds changes no cost of points. The packing of a cloud is then independent of the
  /// other's place.
  bool is_invariant() const { return square != 0; }
  /// The factor of a coordinate in the shifts of one side's points, given this coordinate's centres on both sides.
  double lean(double own, double other) const { return product * (is_invariant() ? other - own : other); }
  /// One coordinate's part of the constant of the shifts. Each side has half of it, so their weighted means are equal.
  double constant(double mu, double nu) const {
    return is_invariant() ? square * (mu - nu) * (mu - nu) : product * mu * nu;
  }
  PointForm form() const { return {product, 2 * square}; }
  /// A bound on centred costs and on their differences, given the largest |x|^2 of each side's centred points. Infinite
  /// if squares or products may exceed `most`, the largest number of the arithmetic.
  double bound(double largest_square_x, double largest_square_y, double most) const;
};

/// Throws invalid_argument "labels_x: point 7 has label 12; must be in [0, 10)".
[[noreturn]] void throw_no_class(char const* field, std::int64_t point, std::int64_t label, std::int64_t classes);
/// The same unless all labels, in host memory, are in [0, classes).
void require_classes(char const* field, IndexView labels, std::int64_t classes);
/// Throws invalid_argument "x, y: the squares of coordinates overflow; ..." unless a cost, or a PointCost::bound(), is
/// finite.
void require_no_overflow(double bound);
/// The same for a mean cost that leaves no room for the shifts. Distances have no shifts, and their mean may be NaN.
void require_no_overflow(CostFunction function, double bound, double mean);
/// The same for the costs of an operator in float64 or in float32: `bound` is centred_bound of its cost_size().
void require_no_overflow(CostTerms const& terms, double bound, bool in_float64);
/// The same of new points, whose mean cost is not known.
void require_no_overflow_of_new(double bound);
/// Throws invalid_argument "x: row 3 has length 0; must be positive for the cost function cosine".
[[noreturn]] void throw_no_direction(char const* field, std::int64_t row);
/// Throws unsupported where new points would need labels and have none.
void require_labels(PointCost const& cost, IndexView labels);

}  // namespace monge
