// Seeded test problems: two clouds or a cost matrix, weights, and how they lie in memory.
#pragma once
#include <cstdint>
#include <ostream>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include <monge/monge.hpp>

namespace monge::oracle {

/// The same numbers on every platform, unlike the distributions of <random>.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  double uniform();                         // in [0, 1)
  double uniform(double low, double high);  // in [low, high)
  double normal();

 private:
  std::uint64_t next();
  std::uint64_t state_;
};

/// A matrix in float32 or float64 storage whose rows are padded with NaN, so that reading past a row shows.
class Stored {
 public:
  Stored() = default;
  Stored(std::span<double const> values, std::int64_t rows, std::int64_t columns, DataType type = DataType::float64,
         std::int64_t padding = 0);

  MatrixView view() const;
  MutableMatrixView mutable_view();
  /// What is stored, as float64 (rounded if the storage is float32), without padding.
  std::vector<double> values() const;
  bool padding_untouched() const;
  std::int64_t rows() const { return rows_; }
  std::int64_t columns() const { return columns_; }

 private:
  std::int64_t rows_ = 0;
  std::int64_t columns_ = 0;
  std::int64_t row_stride_ = 0;
  std::variant<std::vector<float>, std::vector<double>> buffer_;
};

/// A vector in float32 or float64 storage with NaN between its elements.
class StoredVector {
 public:
  StoredVector(std::span<double const> values, DataType type, std::int64_t stride);
  VectorView view() const;
  MutableVectorView mutable_view();
  std::vector<double> values() const { return matrix_.values(); }
  bool padding_untouched() const { return matrix_.padding_untouched(); }

 private:
  Stored matrix_;  // size x 1
};

enum class Weights {
  uniform,
  skewed,      // log-uniform over 1e-12 .. 1
  with_zeros,  // a third of them zero
};

enum class Place {
  origin,
  shifted,  // both clouds 1000 away from the origin in every coordinate
  apart,    // y 1000 away from x in every coordinate
};

enum class Costs {
  points,     // squared distances between two clouds
  distances,  // the same, as a matrix
  random,     // a matrix without structure: both signs, and every eighth pair or so forbidden
  // of points:
  labels,  // squared distances and a cost from class to class
  cosine,
  dot,
  euclidean,
  p_norm,              // p = 3
  labelled_distances,  // Euclidean distances and a cost from class to class; on the CPU
};
constexpr bool has_points(Costs costs) {
  return costs != Costs::distances && costs != Costs::random;
}
/// Rows and columns of a label cost.
inline constexpr std::int64_t kClasses[] = {7, 5};

struct Recipe {
  std::int64_t n, m, d;
  Weights weights = Weights::uniform;
  Place place = Place::origin;
  double eps_over_spread = 0.05;  // eps in units of the largest cost between the clouds moved onto each other
  DataType storage = DataType::float64;
  std::int64_t padding = 0;
  double scale = 1;
  double mass = 1;
  std::uint64_t seed = 1;  // A matrix lies transposed where it is even.
  Costs costs = Costs::points;
};
std::ostream& operator<<(std::ostream& out, Recipe const& recipe);

struct Problem {
  Stored x, y;
  std::vector<double> a, b;
  double scale = 1;
  /// Instead of the points, where it has rows.
  Stored cost = {};
  bool transposed = false;
  CostFunction cost_function = CostFunction::sqeuclidean;
  double p = 2;
  std::vector<std::int64_t> labels_x = {}, labels_y = {};
  Stored label_cost = {};
  double label_weight = 1;

  bool has_points() const { return cost.rows() == 0; }
  std::int64_t n() const { return static_cast<std::int64_t>(a.size()); }
  std::int64_t m() const { return static_cast<std::int64_t>(b.size()); }
  std::int64_t d() const { return has_points() ? x.columns() : 0; }
  bool has_labels() const { return label_cost.rows() > 0; }
  PointCloud clouds() const;
  CostMatrix matrix() const { return {cost.view(), transposed}; }
  Geometry geometry() const { return has_points() ? Geometry(clouds()) : Geometry(matrix()); }
  /// C (n x m, row-major) of a matrix, as it is stored.
  std::vector<double> costs() const;
};

/// sum_k |x_k - y_k|^p to the power 1 / p, by way of the largest difference; p may be infinite.
long double p_norm(std::span<double const> x, std::span<double const> y, long double p);
/// C (n x m, row-major) of the points or the matrix, as they are stored.
std::vector<long double> dense_costs(Problem const& problem);
/// Gaussian clouds: x standard, y at 0.7 of the size around 0.5. The distances of a matrix are those of the clouds;
/// random costs lie between -1 and 2, around 1000 or a million where the clouds would be shifted or apart, and those of
/// the first row and column are finite. Label costs are up to as much as a coordinate's difference costs, around 1000
/// where the clouds are not at the origin; the last class of x and the first of y have no points.
Problem make_problem(Recipe const& recipe);
/// A problem with the costs C (n x m, row-major), stored as told.
Problem make_matrix_problem(std::span<double const> costs, std::vector<double> a, std::vector<double> b,
                            DataType storage = DataType::float64, std::int64_t padding = 0, bool transposed = false);
/// The problem with weight 0 at the first row and costs of it that exceed all others by far: big-M padding of a matrix,
/// or a point of a million times its length.
Problem with_outlier_without_mass(Problem problem);
std::vector<double> make_weights(Weights kind, std::int64_t size, double mass, Random& random);
std::vector<double> gaussian_points(std::int64_t n, std::int64_t d, Random& random, double centre = 0,
                                    double deviation = 1);

}  // namespace monge::oracle
