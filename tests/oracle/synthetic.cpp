#include "oracle/synthetic.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>
#include <utility>

namespace monge::oracle {
namespace {

Problem normalised(Stored x, Stored y, std::vector<double> a, std::vector<double> b) {
  for (std::vector<double>* weights : {&a, &b}) {
    double const total = std::accumulate(weights->begin(), weights->end(), 0.0);
    for (double& weight : *weights) weight /= total;
  }
  Problem problem{std::move(x), std::move(y), std::move(a), std::move(b)};
  std::vector<long double> const costs = dense_costs(problem);
  problem.scale = static_cast<double>(1 / *std::max_element(costs.begin(), costs.end()));
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

Problem as_matrix(Problem const& problem, bool transposed) {
  std::vector<long double> const costs = dense_costs(problem);
  return make_matrix_problem(std::vector<double>(costs.begin(), costs.end()), problem.a, problem.b, DataType::float64,
                             0, transposed);
}

}  // namespace monge::oracle
