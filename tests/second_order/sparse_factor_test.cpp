// The sparse factor, by the residuals of its solutions. Cholesky's factorisation and the two triangular solves give an
// x with (A + E) x = b, |E_ij| <= gamma sqrt(A_ii A_jj) and gamma = (3 N + 1) u / (1 - (3 N + 1) u), N the unknowns:
// Higham, Accuracy and Stability of Numerical Algorithms (2002), theorem 10.4 with (10.8). The bound holds for L D L^T
// with D > 0 too: L has no division by its diagonal in either solve, and D has one.
#include "second_order/sparse_factor.hpp"
#include "core/numbers.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "oracle/problem.hpp"

namespace monge {
namespace {

struct Matrix {
  std::vector<double> r, c;
  std::vector<std::int64_t> rows{}, columns{};
  std::vector<double> entries{};

  std::int64_t n() const { return static_cast<std::int64_t>(r.size()); }
  std::int64_t m() const { return static_cast<std::int64_t>(c.size()); }
  SparseFactor analysed() const { return {n(), m(), rows, columns}; }
  bool factor(SparseFactor& factor) const { return factor.factor(r, c, entries); }
  void add(std::int64_t i, std::int64_t j, double value) {
    rows.push_back(i);
    columns.push_back(j);
    entries.push_back(value);
  }
};

/// Every pair with probability `density`, in random order of rows; the diagonal outweighs the rest of its row a little.
Matrix random_matrix(std::int64_t n, std::int64_t m, double density, std::uint64_t seed) {
  oracle::Random random(seed);
  Matrix matrix{std::vector<double>(n), std::vector<double>(m)};
  for (std::int64_t j = m; j-- > 0;) {
    for (std::int64_t i = 0; i < n; ++i) {
      if (random.uniform() < density) matrix.add(i, j, random.uniform(-1, 1));
    }
  }
  for (double& value : matrix.r) value = 0.01;
  for (double& value : matrix.c) value = 0.02;
  for (std::size_t k = 0; k < matrix.entries.size(); ++k) {
    matrix.r[matrix.rows[k]] += std::fabs(matrix.entries[k]);
    matrix.c[matrix.columns[k]] += std::fabs(matrix.entries[k]);
  }
  return matrix;
}

void expect_solves(SparseFactor const& factor, Matrix const& matrix, std::uint64_t seed) {
  oracle::Random random(seed);
  std::vector<double> f(matrix.n()), g(matrix.m());
  for (std::size_t i = 0; i < f.size(); ++i) f[i] = random.uniform(-1, 1) * std::sqrt(matrix.r[i]);
  for (std::size_t j = 0; j < g.size(); ++j) g[j] = random.uniform(-1, 1) * std::sqrt(matrix.c[j]);
  std::vector<long double> residual(f.begin(), f.end());
  residual.insert(residual.end(), g.begin(), g.end());
  factor.solve(f, g);
  long double sum = 0;  // sum_j sqrt(A_jj) |x_j|
  std::size_t const n = f.size();
  for (std::size_t i = 0; i < n; ++i) {
    residual[i] -= static_cast<long double>(matrix.r[i]) * f[i];
    sum += std::sqrt(matrix.r[i]) * std::fabs(f[i]);
  }
  for (std::size_t j = 0; j < g.size(); ++j) {
    residual[n + j] -= static_cast<long double>(matrix.c[j]) * g[j];
    sum += std::sqrt(matrix.c[j]) * std::fabs(g[j]);
  }
  for (std::size_t k = 0; k < matrix.entries.size(); ++k) {
    residual[matrix.rows[k]] -= static_cast<long double>(matrix.entries[k]) * g[matrix.columns[k]];
    residual[n + matrix.columns[k]] -= static_cast<long double>(matrix.entries[k]) * f[matrix.rows[k]];
  }
  double const unknowns = static_cast<double>(residual.size());
  long double const gamma = (3 * unknowns + 1) * kUnitRoundoff / (1 - (3 * unknowns + 1) * kUnitRoundoff);
  for (std::size_t k = 0; k < residual.size(); ++k) {
    double const diagonal = k < n ? matrix.r[k] : matrix.c[k - n];
    EXPECT_LE(std::fabs(residual[k]), gamma * std::sqrt(diagonal) * sum) << "unknown " << k;
  }
}

TEST(SparseFactor, solves_random_patterns) {
  std::uint64_t seed = 1;
  for (auto const& [n, m] : {std::pair{1, 1}, {1, 5}, {7, 1}, {12, 9}, {40, 61}, {3, 0}}) {
    for (double const density : {0.0, 0.1, 0.5, 1.0}) {
      SCOPED_TRACE(testing::Message() << n << " x " << m << ", density " << density);
      Matrix const matrix = random_matrix(n, m, density, seed++);
      SparseFactor factor = matrix.analysed();
      ASSERT_TRUE(matrix.factor(factor));
      expect_solves(factor, matrix, seed);
      expect_solves(factor, matrix, seed + 100);
    }
  }
}

TEST(SparseFactor, takes_other_values_of_the_same_pattern) {
  Matrix matrix = random_matrix(20, 30, 0.2, 5);
  SparseFactor factor = matrix.analysed();
  for (double const change : {1.0, 0.5, -0.25}) {
    for (double& value : matrix.entries) value *= change;
    ASSERT_TRUE(matrix.factor(factor));
    expect_solves(factor, matrix, 6);
  }
}

TEST(SparseFactor, diagonals_may_be_many_orders_apart) {
  Matrix matrix = random_matrix(20, 15, 0.3, 7);
  auto const scale = [](std::size_t k) { return std::pow(10.0, 60.0 * std::cos(static_cast<double>(k))); };
  for (std::size_t i = 0; i < matrix.r.size(); ++i) matrix.r[i] *= scale(i) * scale(i);
  for (std::size_t j = 0; j < matrix.c.size(); ++j) matrix.c[j] *= scale(40 + j) * scale(40 + j);
  for (std::size_t k = 0; k < matrix.entries.size(); ++k)
    matrix.entries[k] *= scale(matrix.rows[k]) * scale(40 + matrix.columns[k]);
  SparseFactor factor = matrix.analysed();
  ASSERT_TRUE(matrix.factor(factor));
  expect_solves(factor, matrix, 8);
}

TEST(SparseFactor, says_what_is_not_positive_definite_and_goes_on) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  Matrix const good{{2, 2}, {2, 2}, {0, 1, 1}, {0, 0, 1}, {1, 1, 0.5}};
  SparseFactor factor = good.analysed();
  for (double const bad : {0.0, -1.0, kInfinity, std::numeric_limits<double>::quiet_NaN()}) {
    for (int const place : {0, 1, 2, 3}) {
      SCOPED_TRACE(testing::Message() << bad << " at " << place);
      Matrix broken = good;
      (place < 2 ? broken.r[place] : broken.c[place - 2]) = bad;
      EXPECT_FALSE(broken.factor(factor));
      ASSERT_TRUE(good.factor(factor));
      expect_solves(factor, good, 9);
    }
  }
  for (double const bad : {2.1, -2.1, kInfinity, 1e300}) {
    Matrix broken = good;
    broken.entries[0] = bad;
    EXPECT_FALSE(broken.factor(factor)) << bad;
  }
  ASSERT_TRUE(good.factor(factor));
  expect_solves(factor, good, 9);
}

TEST(SparseFactor, a_forest_does_not_fill_in) {
  Matrix const alone{{1, 2, 3}, {4, 5}};
  EXPECT_EQ(alone.analysed().nonzeros(), 5);
  Matrix star{{100}, std::vector<double>(50, 1.0)};
  for (std::int64_t j = 0; j < 50; ++j) star.add(0, j, -0.1);
  EXPECT_EQ(star.analysed().nonzeros(), 101);
}

// A minimum degree ordering begins with the larger side: each unknown of it has 9 neighbours, and these become dense.
TEST(SparseFactor, counts_the_fill_of_a_complete_graph) {
  SparseFactor const factor = random_matrix(12, 9, 1, 10).analysed();
  EXPECT_EQ(factor.nonzeros(), 12 * 10 + 9 * 10 / 2);
  EXPECT_EQ(factor.operations(), 0.5 * (12 * 10 * 10 + 9 * 10 * 19 / 6));
}

// Its diagonal is 3 and its neighbours are -1, so |x| <= |b| / 1 and a row of the factor, in any order without fill,
// has few terms: the residual is a handful of roundings.
TEST(SparseFactor, solves_a_long_chain) {
  std::int64_t const n = 50000;
  Matrix chain{std::vector<double>(n, 3.0), std::vector<double>(n, 3.0)};
  for (std::int64_t i = 0; i < n; ++i) {
    chain.add(i, i, -1);
    if (i > 0) chain.add(i, i - 1, -1);
  }
  SparseFactor moved = chain.analysed();
  SparseFactor factor = std::move(moved);
  ASSERT_TRUE(chain.factor(factor));
  EXPECT_EQ(factor.nonzeros(), 4 * n - 1);
  oracle::Random random(11);
  std::vector<double> f(n), g(n);
  for (double& value : f) value = random.uniform(-1, 1);
  for (double& value : g) value = random.uniform(-1, 1);
  std::vector<double> const b = f, c = g;
  factor.solve(f, g);
  for (std::int64_t i = 0; i < n; ++i) {
    long double const before = i > 0 ? g[i - 1] : 0, after = i + 1 < n ? f[i + 1] : 0;
    EXPECT_NEAR(b[i], 3.0L * f[i] - before - g[i], 50 * kUnitRoundoff) << i;
    EXPECT_NEAR(c[i], 3.0L * g[i] - after - f[i], 50 * kUnitRoundoff) << i;
  }
}

}  // namespace
}  // namespace monge
