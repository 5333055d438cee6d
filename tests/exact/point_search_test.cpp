// PointSearch and what stands on it, beside all pairs.
#include "exact/point_search.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>

#include <gtest/gtest.h>
#include <monge/c_transform.hpp>

#include "oracle/problem.hpp"

namespace monge::oracle {
namespace {

enum class Cloud { normal, lattice, clusters, far, one_place };

struct Points {
  std::vector<double> values, weights;
  std::int64_t size, d;
  MatrixView view() const { return {values.data(), size, d}; }
};

Points make_points(Cloud cloud, std::int64_t size, std::int64_t d, Random& random) {
  Points points{{}, {}, size, d};
  for (std::int64_t i = 0; i < size; ++i) {
    double const corner = cloud == Cloud::clusters ? 100 * static_cast<double>(i % 3) : 0;
    for (std::int64_t k = 0; k < d; ++k) {
      double const value = random.normal();
      points.values.push_back(cloud == Cloud::lattice     ? std::round(2 * value)
                              : cloud == Cloud::far       ? 1e8 + value
                              : cloud == Cloud::one_place ? 3
                                                          : corner + value);
    }
    points.weights.push_back(i % 7 == 3 ? 0 : i % 7 == 4 ? 1e-300 : 1);
  }
  return points;
}

double square(Points const& x, std::int64_t i, Points const& y, std::int64_t j) {
  double sum = 0;
  for (std::int64_t k = 0; k < x.d; ++k) {
    double const difference = x.values[i * x.d + k] - y.values[j * x.d + k];
    sum += difference * difference;
  }
  return sum;
}

/// The p-norm of the difference; without p its square.
double cost_of(std::optional<double> p, Points const& x, std::int64_t i, Points const& y, std::int64_t j) {
  if (!p) return square(x, i, y, j);
  double sum = 0;
  for (std::int64_t k = 0; k < x.d; ++k) {
    double const size = std::abs(x.values[i * x.d + k] - y.values[j * x.d + k]);
    sum += std::pow(size, *p);
  }
  return std::pow(sum, 1 / *p);
}

/// Potentials near which searches are quick, and those that tell nothing of the place.
std::vector<double> make_potential(int kind, std::optional<double> p, Points const& y, Random& random) {
  std::vector<double> potential;
  for (std::int64_t j = 0; j < y.size; ++j) {
    double const near = kind == 1 ? (p ? 0.45 : 0.3) * cost_of(p, y, j, y, 0) : 0;
    potential.push_back(kind == 2 ? random.uniform(-50, 50) : near);
  }
  return potential;
}

constexpr std::optional<double> kPowers[] = {std::nullopt, 2.0, 3.0, 1.3};

class PointSearches : public testing::TestWithParam<std::optional<double>> {};
INSTANTIATE_TEST_SUITE_P(, PointSearches, testing::ValuesIn(kPowers));

TEST_P(PointSearches, FindWhatAllPairsShow) {
  constexpr double kScale = 0.5;
  constexpr std::int64_t kQueries = 61;
  std::optional<double> const p = GetParam();
  Random random(5);
  for (Cloud const cloud : {Cloud::normal, Cloud::lattice, Cloud::clusters, Cloud::far, Cloud::one_place}) {
    for (std::int64_t const d : {1, 2, 3, 5}) {
      for (std::int64_t const size : {1, 31, 33, 500}) {
        Points const x = make_points(cloud, kQueries, d, random), y = make_points(cloud, size, d, random);
        std::vector<double> const origin(x.values.begin(), x.values.begin() + d);
        PointSearch const queries(x.view(), origin, {kScale, p}, 2), search(y.view(), origin, {kScale, p}, 2);
        for (int kind = 0; kind < 3; ++kind) {
          SCOPED_TRACE(testing::Message() << static_cast<int>(cloud) << ' ' << d << ' ' << size << ' ' << kind);
          std::vector<double> const potential = make_potential(kind, p, y, random);
          std::int64_t const k = std::min<std::int64_t>(size, 9);
          std::vector<std::int64_t> found(kQueries * k, -1);
          std::vector<double> least(kQueries);
          search.nearest(queries, x.weights, potential, y.weights, {found.data(), kQueries, k, k}, least);
          for (std::int64_t i = 0; i < kQueries; ++i) {
            if (x.weights[i] == 0) continue;
            auto const value = [&](std::int64_t j) {
              return y.weights[j] > 0 ? kScale * cost_of(p, x, i, y, j) - potential[j]
                                      : std::numeric_limits<double>::infinity();
            };
            std::vector<std::int64_t> order(size);
            std::iota(order.begin(), order.end(), 0);
            std::stable_sort(order.begin(), order.end(), [&](auto p, auto q) { return value(p) < value(q); });
            double const slack = 0x1p-49 * (kScale * cost_of(p, x, i, y, order[0]) + 1e3);
            for (std::int64_t q = 0; q < k; ++q) {
              double const expected = value(order[q]), own = value(found[i * k + q]);
              if (std::isinf(expected)) {
                EXPECT_EQ(found[i * k + q], order[q]);
              } else {
                EXPECT_NEAR(own, expected, slack + 0x1p-49 * std::abs(expected)) << i << ' ' << q;
              }
              // Costs and their order are exact.
              if (cloud == Cloud::one_place || (cloud == Cloud::lattice && !p)) {
                EXPECT_TRUE(kind > 0 || found[i * k + q] == order[q]);
              }
            }
            if (std::isfinite(value(order[0]))) {
              EXPECT_NEAR(least[i], value(order[0]), slack);
            }
          }
        }
      }
    }
  }
}

TEST_P(PointSearches, TransformsOfManyPointsAreThoseOfAllPairs) {
  std::int64_t const n = 2100, m = 2300;
  std::optional<double> const p = GetParam();
  Random random(6);
  for (std::int64_t const d : {2, 5, 6}) {  // From 6 dimensions on all pairs are taken.
    Points const x = make_points(Cloud::normal, n, d, random), y = make_points(Cloud::normal, m, d, random);
    std::vector<double> const g = make_potential(1, p, y, random);
    std::vector<double> f(n);
    std::vector<std::int64_t> nearest(n);
    PointCloud clouds{.x = x.view(), .y = y.view(), .scale = 2};
    if (p) clouds.cost_function = *p == 2 ? CostFunction::euclidean : CostFunction::p_norm, clouds.p = *p;
    c_transform(Context::cpu(2), clouds, {g.data(), m}, {f.data(), n}, {nearest.data(), n, 1, 1});
    for (std::int64_t i = 0; i < n; ++i) {
      double least = std::numeric_limits<double>::infinity();
      for (std::int64_t j = 0; j < m; ++j) least = std::min(least, 2 * cost_of(p, x, i, y, j) - g[j]);
      ASSERT_NEAR(f[i], least, 1e-11);
      ASSERT_NEAR(2 * cost_of(p, x, i, y, nearest[i]) - g[nearest[i]], least, 1e-11);
    }
  }
}

}  // namespace
}  // namespace monge::oracle
