#include "oracle/problem.hpp"

#include <cmath>
#include <limits>
#include <numbers>
#include <numeric>
#include <utility>

namespace monge::oracle {

std::uint64_t Random::next() {  // splitmix64
  std::uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

double Random::uniform() {
  return static_cast<double>(next() >> 11) * 0x1p-53;
}

double Random::uniform(double low, double high) {
  return low + (high - low) * uniform();
}

double Random::normal() {
  double const radius = std::sqrt(-2 * std::log(1 - uniform()));
  return radius * std::cos(2 * std::numbers::pi * uniform());
}

namespace {

template <class T>
std::vector<T> padded(std::span<double const> values, std::int64_t rows, std::int64_t columns, std::int64_t stride) {
  std::vector<T> buffer(rows * stride, std::numeric_limits<T>::quiet_NaN());
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t k = 0; k < columns; ++k) buffer[i * stride + k] = static_cast<T>(values[i * columns + k]);
  }
  return buffer;
}

}  // namespace

Stored::Stored(std::span<double const> values, std::int64_t rows, std::int64_t columns, DataType type,
               std::int64_t padding)
    : rows_(rows), columns_(columns), row_stride_(columns + padding) {
  if (type == DataType::float32) {
    buffer_ = padded<float>(values, rows, columns, row_stride_);
  } else {
    buffer_ = padded<double>(values, rows, columns, row_stride_);
  }
}

MatrixView Stored::view() const {
  return std::visit([&](auto const& buffer) { return MatrixView(buffer.data(), rows_, columns_, row_stride_); },
                    buffer_);
}

MutableMatrixView Stored::mutable_view() {
  return std::visit([&](auto& buffer) { return MutableMatrixView(buffer.data(), rows_, columns_, row_stride_); },
                    buffer_);
}

std::vector<double> Stored::values() const {
  std::vector<double> result;
  result.reserve(rows_ * columns_);
  std::visit(
      [&](auto const& buffer) {
        for (std::int64_t i = 0; i < rows_; ++i) {
          for (std::int64_t k = 0; k < columns_; ++k) result.push_back(buffer[i * row_stride_ + k]);
        }
      },
      buffer_);
  return result;
}

bool Stored::padding_untouched() const {
  return std::visit(
      [&](auto const& buffer) {
        for (std::int64_t i = 0; i < rows_; ++i) {
          for (std::int64_t k = columns_; k < row_stride_; ++k) {
            if (!std::isnan(buffer[i * row_stride_ + k])) return false;
          }
        }
        return true;
      },
      buffer_);
}

StoredVector::StoredVector(std::span<double const> values, DataType type, std::int64_t stride)
    : matrix_(values, static_cast<std::int64_t>(values.size()), 1, type, stride - 1) {}

VectorView StoredVector::view() const {
  MatrixView const view = matrix_.view();
  if (view.type() == DataType::float32) return {view.as<float>(), view.rows(), view.row_stride()};
  return {view.as<double>(), view.rows(), view.row_stride()};
}

MutableVectorView StoredVector::mutable_view() {
  MutableMatrixView const view = matrix_.mutable_view();
  if (view.type() == DataType::float32) return {view.as<float>(), view.rows(), view.row_stride()};
  return {view.as<double>(), view.rows(), view.row_stride()};
}

std::ostream& operator<<(std::ostream& out, Recipe const& recipe) {
  static constexpr char const* kWeights[] = {"uniform", "skewed", "with_zeros"};
  static constexpr char const* kPlaces[] = {"origin", "shifted", "apart"};
  static constexpr char const* kCosts[] = {
      "points", "distances", "random", "labels", "cosine", "dot", "euclidean", "p_norm", "labelled_distances"};
  return out << kCosts[static_cast<int>(recipe.costs)] << " n=" << recipe.n << " m=" << recipe.m << " d=" << recipe.d
             << " weights " << kWeights[static_cast<int>(recipe.weights)] << ", place "
             << kPlaces[static_cast<int>(recipe.place)] << ", eps/spread " << recipe.eps_over_spread
             << (recipe.storage == DataType::float32 ? ", float32" : ", float64") << " padding " << recipe.padding
             << ", scale " << recipe.scale << ", mass " << recipe.mass << ", seed " << recipe.seed;
}

std::vector<double> gaussian_points(std::int64_t n, std::int64_t d, Random& random, double centre, double deviation) {
  std::vector<double> points(n * d);
  for (double& coordinate : points) coordinate = centre + deviation * random.normal();
  return points;
}

Problem with_outlier_without_mass(Problem problem) {
  std::size_t const m = static_cast<std::size_t>(problem.m());
  problem.a[0] = 0;
  if (problem.has_points()) {
    std::vector<double> x = problem.x.values();
    for (std::int64_t k = 0; k < problem.d(); ++k) x[static_cast<std::size_t>(k)] *= 1e6;
    problem.x = Stored(x, problem.n(), problem.d());
    return problem;
  }
  std::vector<double> costs = problem.costs();
  for (std::size_t j = 0; j < m; ++j) costs[j] = 1e15;
  return make_matrix_problem(costs, problem.a, problem.b, DataType::float64, 0, problem.transposed);
}

std::vector<double> make_weights(Weights kind, std::int64_t size, double mass, Random& random) {
  std::vector<double> weights(size, 1.0);
  for (std::int64_t i = 0; i < size && kind != Weights::uniform; ++i) {
    if (kind == Weights::skewed) weights[i] = std::pow(10.0, random.uniform(-12, 0));
    if (kind == Weights::with_zeros) weights[i] = (i % 3 == 1) ? 0.0 : random.uniform(0.5, 1.5);
  }
  double const total = std::accumulate(weights.begin(), weights.end(), 0.0);
  for (double& weight : weights) weight *= mass / total;
  return weights;
}

std::vector<double> Problem::costs() const {
  std::vector<double> const stored = cost.values();
  if (!transposed) return stored;
  std::vector<double> result(stored.size());
  for (std::int64_t i = 0; i < n(); ++i) {
    for (std::int64_t j = 0; j < m(); ++j) result[i * m() + j] = stored[j * n() + i];
  }
  return result;
}

Problem make_matrix_problem(std::span<double const> costs, std::vector<double> a, std::vector<double> b,
                            DataType storage, std::int64_t padding, bool transposed) {
  std::int64_t const n = static_cast<std::int64_t>(a.size()), m = static_cast<std::int64_t>(b.size());
  std::vector<double> memory(costs.begin(), costs.end());
  for (std::int64_t i = 0; transposed && i < n; ++i) {
    for (std::int64_t j = 0; j < m; ++j) memory[j * n + i] = costs[i * m + j];
  }
  Stored stored = transposed ? Stored(memory, m, n, storage, padding) : Stored(memory, n, m, storage, padding);
  return {{}, {}, std::move(a), std::move(b), 1, std::move(stored), transposed};
}

namespace {

/// c(x, y) of d coordinates.
long double cost_of(CostFunction function, double p, double const* x, double const* y, std::int64_t d) {
  long double square_x = 0, square_y = 0, product = 0, square = 0;
  for (std::int64_t k = 0; k < d; ++k) {
    long double const difference = static_cast<long double>(x[k]) - y[k];
    square += difference * difference;
    square_x += static_cast<long double>(x[k]) * x[k];
    square_y += static_cast<long double>(y[k]) * y[k];
    product += static_cast<long double>(x[k]) * y[k];
  }
  switch (function) {
    case CostFunction::sqeuclidean:
      return square;
    case CostFunction::euclidean:
      return std::sqrt(square);
    case CostFunction::cosine:
      return 1 - product / std::sqrt(square_x * square_y);
    case CostFunction::dot:
      return -product;
    default:
      return p_norm({x, static_cast<std::size_t>(d)}, {y, static_cast<std::size_t>(d)}, p);
  }
}

void add_labels(Problem& problem, Recipe const& recipe, Random& random) {
  double const place = recipe.place == Place::origin ? 0 : 1000;
  std::vector<double> cost(kClasses[0] * kClasses[1]);
  for (double& entry : cost) entry = place + random.uniform(0, static_cast<double>(recipe.d));
  problem.label_cost = Stored(cost, kClasses[0], kClasses[1], recipe.storage, recipe.padding);
  problem.label_weight = 0.5;
  for (std::int64_t i = 0; i < recipe.n; ++i)
    problem.labels_x.push_back(static_cast<std::int64_t>(random.uniform(0, static_cast<double>(kClasses[0] - 1))));
  for (std::int64_t j = 0; j < recipe.m; ++j)
    problem.labels_y.push_back(static_cast<std::int64_t>(random.uniform(1, static_cast<double>(kClasses[1]))));
}

std::vector<double> random_costs(Recipe const& recipe, Random& random) {
  constexpr double kPlaces[] = {0, 1e3, 1e6};
  std::vector<double> costs(recipe.n * recipe.m);
  for (std::int64_t i = 0; i < recipe.n; ++i) {
    for (std::int64_t j = 0; j < recipe.m; ++j) {
      bool const forbidden = random.uniform() < 0.125 && i > 0 && j > 0;
      costs[i * recipe.m + j] = forbidden ? std::numeric_limits<double>::infinity()
                                          : kPlaces[static_cast<int>(recipe.place)] + random.uniform(-1, 2);
    }
  }
  return costs;
}

}  // namespace

PointCloud Problem::clouds() const {
  PointCloud clouds{x.view(), y.view(), scale, cost_function, p};
  if (has_labels()) {
    auto const view = [](std::vector<std::int64_t> const& labels) {
      return IndexView{labels.data(), static_cast<std::int64_t>(labels.size())};
    };
    clouds.labels = {view(labels_x), view(labels_y), label_cost.view(), label_weight};
  }
  return clouds;
}

long double p_norm(std::span<double const> x, std::span<double const> y, long double p) {
  using Real = long double;
  Real largest = 0, sum = 0;
  for (std::size_t k = 0; k < x.size(); ++k) largest = std::max(largest, std::abs(Real(x[k]) - y[k]));
  for (std::size_t k = 0; k < x.size() && largest > 0; ++k) sum += std::pow(std::abs(Real(x[k]) - y[k]) / largest, p);
  return std::isinf(p) ? largest : largest * std::pow(sum, 1 / p);
}

std::vector<long double> dense_costs(Problem const& problem) {
  if (!problem.has_points()) {
    std::vector<double> const costs = problem.costs();
    return {costs.begin(), costs.end()};
  }
  std::vector<double> const x = problem.x.values(), y = problem.y.values(), label_cost = problem.label_cost.values();
  std::int64_t const d = problem.x.columns();
  std::vector<long double> costs;
  for (std::int64_t i = 0; i < problem.n(); ++i) {
    for (std::int64_t j = 0; j < problem.m(); ++j) {
      long double cost = problem.scale * cost_of(problem.cost_function, problem.p, &x[i * d], &y[j * d], d);
      if (problem.has_labels()) {
        std::int64_t const at = problem.labels_x[i] * problem.label_cost.columns() + problem.labels_y[j];
        cost += static_cast<long double>(problem.label_weight) * label_cost[at];
      }
      costs.push_back(cost);
    }
  }
  return costs;
}

Problem make_problem(Recipe const& recipe) {
  Random random(recipe.seed);
  double const x_centre = recipe.place == Place::shifted ? 1000 : 0;
  double const y_centre = recipe.place == Place::origin ? 0.5 : 1000.5;
  std::vector<double> const x = gaussian_points(recipe.n, recipe.d, random, x_centre);
  std::vector<double> const y = gaussian_points(recipe.m, recipe.d, random, y_centre, 0.7);
  Problem problem{Stored(x, recipe.n, recipe.d, recipe.storage, recipe.padding),
                  Stored(y, recipe.m, recipe.d, recipe.storage, recipe.padding),
                  make_weights(recipe.weights, recipe.n, recipe.mass, random),
                  make_weights(recipe.weights, recipe.m, recipe.mass, random), recipe.scale};
  switch (recipe.costs) {
    case Costs::labelled_distances:
      problem.cost_function = CostFunction::euclidean;
      [[fallthrough]];
    case Costs::labels:
      add_labels(problem, recipe, random);
      break;
    case Costs::cosine:
      problem.cost_function = CostFunction::cosine;
      break;
    case Costs::dot:
      problem.cost_function = CostFunction::dot;
      break;
    case Costs::euclidean:
      problem.cost_function = CostFunction::euclidean;
      break;
    case Costs::p_norm:
      problem.cost_function = CostFunction::p_norm;
      problem.p = 3;
      break;
    default:
      break;
  }
  if (has_points(recipe.costs)) return problem;
  std::vector<long double> const distances = dense_costs(problem);
  std::vector<double> const costs = recipe.costs == Costs::distances
                                        ? std::vector<double>(distances.begin(), distances.end())
                                        : random_costs(recipe, random);
  return make_matrix_problem(costs, std::move(problem.a), std::move(problem.b), recipe.storage, recipe.padding,
                             recipe.seed % 2 == 0);
}

}  // namespace monge::oracle
