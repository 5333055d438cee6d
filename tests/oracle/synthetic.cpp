#include "oracle/synthetic.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>
#include <utility>

namespace monge::oracle {
namespace {

/// |x_i - y_j|^2, n x m. The oracle's own costs, in long double, take minutes of these sizes.
std::vector<double> squared_distances(Problem const& problem) {
  std::vector<double> const x = problem.x.values(), y = problem.y.values();
  std::int64_t const n = problem.n(), m = problem.m(), d = problem.d();
  std::vector<double> distances(static_cast<std::size_t>(n * m)), coordinates(y.size());
  for (std::int64_t j = 0; j < m; ++j) {
    for (std::int64_t k = 0; k < d; ++k) coordinates[k * m + j] = y[j * d + k];
  }
  for (std::int64_t i = 0; i < n; ++i) {
    double* const row = &distances[i * m];
    for (std::int64_t k = 0; k < d; ++k) {
      double const* const of_k = &coordinates[k * m];
      double const x_ik = x[i * d + k];
      for (std::int64_t j = 0; j < m; ++j) row[j] += (x_ik - of_k[j]) * (x_ik - of_k[j]);
    }
  }
  return distances;
}

Problem normalised(Stored x, Stored y, std::vector<double> a, std::vector<double> b) {
  for (std::vector<double>* weights : {&a, &b}) {
    double const total = std::accumulate(weights->begin(), weights->end(), 0.0);
    for (double& weight : *weights) weight /= total;
  }
  Problem problem{std::move(x), std::move(y), std::move(a), std::move(b)};
  std::vector<double> const distances = squared_distances(problem);
  problem.scale = 1 / *std::max_element(distances.begin(), distances.end());
  return problem;
}

}  // namespace

Problem gaussian_problem(std::int64_t n, std::int64_t m, double offset, std::uint64_t seed, std::int64_t d) {
  Random random(seed);
  std::vector<double> const x = gaussian_points(n, d, random), y = gaussian_points(m, d, random, offset);
  return normalised(Stored(x, n, d), Stored(y, m, d), std::vector<double>(n, 1.0), std::vector<double>(m, 1.0));
}

Problem mixture_problem(std::int64_t n, std::int64_t m) {
  auto const grid = [](std::int64_t size) {
    std::vector<double> points(size);
    for (std::int64_t i = 0; i < size; ++i) points[i] = 5 * static_cast<double>(i) / static_cast<double>(size - 1);
    return points;
  };
  auto const density = [](double t, double mean, double deviation) {
    double const z = (t - mean) / deviation;
    return std::exp(-0.5 * z * z) / (deviation * std::sqrt(2 * std::numbers::pi));
  };
  std::vector<double> const x = grid(n), y = grid(m);
  std::vector<double> a(n), b(m);
  for (std::int64_t i = 0; i < n; ++i) a[i] = std::exp(-x[i]);
  for (std::int64_t j = 0; j < m; ++j) b[j] = 0.2 * density(y[j], 1, 0.2) + 0.8 * density(y[j], 3, 0.5);
  return normalised(Stored(x, n, 1), Stored(y, m, 1), std::move(a), std::move(b));
}

Problem feature_problem(std::int64_t n, std::int64_t m, std::uint64_t seed) {
  constexpr std::int64_t kFeatures = 512, kRank = 24;
  constexpr double kShift = 0.35, kNoise = 0.15;
  Random random(seed);
  std::vector<double> directions = gaussian_points(kRank, kFeatures, random);
  for (std::int64_t r = 0; r < kRank; ++r) {
    for (std::int64_t k = 0; k < kFeatures; ++k)
      directions[r * kFeatures + k] *= 0.5 * std::pow(0.85, static_cast<double>(r));
  }
  std::vector<double> base = gaussian_points(1, kFeatures, random);
  for (double& value : base) value = 0.6 * std::abs(value);
  std::vector<double> const shift = gaussian_points(1, kRank, random, 0, kShift);
  auto const features = [&](std::int64_t size, double class_of) {
    std::vector<double> values(static_cast<std::size_t>(size * kFeatures));
    for (std::int64_t i = 0; i < size; ++i) {
      std::vector<double> const factors = gaussian_points(1, kRank, random);
      for (std::int64_t k = 0; k < kFeatures; ++k) {
        double value = base[k] + kNoise * random.normal();
        for (std::int64_t r = 0; r < kRank; ++r)
          value += (factors[r] + class_of * shift[r]) * directions[r * kFeatures + k];
        values[i * kFeatures + k] = std::max(value, 0.0);
      }
    }
    return values;
  };
  std::vector<double> const x = features(n, 0), y = features(m, 1);
  return normalised(Stored(x, n, kFeatures), Stored(y, m, kFeatures), std::vector<double>(n, 1.0),
                    std::vector<double>(m, 1.0));
}

Problem as_matrix(Problem const& problem, bool transposed) {
  std::vector<double> costs = squared_distances(problem);
  for (double& cost : costs) cost *= problem.scale;
  return make_matrix_problem(costs, problem.a, problem.b, DataType::float64, 0, transposed);
}

}  // namespace monge::oracle
