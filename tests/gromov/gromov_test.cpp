// solve_gromov() against dense float64 formulas: costs within the clouds as matrices, plans as arrays.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <monge/gromov.hpp>

#include "oracle/backend_test.hpp"
#include "oracle/problem.hpp"
#include "oracle/refusal.hpp"

namespace monge::oracle {
namespace {

using Values = std::vector<double>;

/// A dense matrix, row-major.
struct Matrix {
  std::int64_t rows, columns;
  Values data;
  Matrix(std::int64_t n, std::int64_t m) : rows(n), columns(m), data(static_cast<std::size_t>(n * m)) {}
  double& operator()(std::int64_t i, std::int64_t j) { return data[static_cast<std::size_t>(i * columns + j)]; }
  double operator()(std::int64_t i, std::int64_t j) const { return data[static_cast<std::size_t>(i * columns + j)]; }
  MatrixView view() const { return {data.data(), rows, columns}; }
};

Matrix squared_distances(Matrix const& x, Matrix const& y) {
  Matrix cost(x.rows, y.rows);
  for (std::int64_t i = 0; i < x.rows; ++i)
    for (std::int64_t j = 0; j < y.rows; ++j)
      for (std::int64_t k = 0; k < x.columns; ++k) cost(i, j) += std::pow(x(i, k) - y(j, k), 2);
  return cost;
}

struct Case {
  Matrix x, y, s, t;
  Values a, b;
  bool fused() const { return s.columns > 0; }
  GromovClouds clouds() const {
    return fused() ? GromovClouds{x.view(), y.view(), s.view(), t.view()} : GromovClouds{x.view(), y.view()};
  }
};

Matrix random_matrix(Random& random, std::int64_t rows, std::int64_t columns, double scale = 1) {
  Matrix matrix(rows, columns);
  for (std::int64_t i = 0; i < rows; ++i)  // Axes of different lengths have no ties.
    for (std::int64_t k = 0; k < columns; ++k)
      matrix(i, k) =
          scale * (random.normal() + 0.3 * std::pow(random.normal(), 2)) * (1 + 0.4 * static_cast<double>(k));
  return matrix;
}

Values random_weights(Random& random, std::int64_t size, double total = 1) {
  Values weights(static_cast<std::size_t>(size));
  for (double& w : weights) w = random.uniform(0.5, 1);
  double const sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  for (double& w : weights) w *= total / sum;
  return weights;
}

Case make_case(std::int64_t n, std::int64_t m, std::int64_t p, std::int64_t q, std::int64_t r = 0,
               std::uint64_t seed = 1, double total = 1) {
  Random random(seed);
  Matrix const x = random_matrix(random, n, p), y = random_matrix(random, m, q, 1.2);
  Matrix const s = random_matrix(random, n, r), t = random_matrix(random, m, r);
  Values const a = random_weights(random, n, total), b = random_weights(random, m, total);
  return {x, y, s, t, a, b};
}

/// A problem as matrices C and D within the spaces, M between them (empty: none) and weights.
struct Matrices {
  Matrix c, d, m;
  Values a, b;
  bool fused() const { return m.columns > 0; }
  GromovLoss loss = GromovLoss::square;
  GromovMatrices views() const {
    return {.source = c.view(), .target = d.view(), .cost = fused() ? m.view() : MatrixView(), .loss = loss};
  }
};

Matrices matrices_of(Case const& given) {
  return {squared_distances(given.x, given.x), squared_distances(given.y, given.y),
          given.fused() ? squared_distances(given.s, given.t) : Matrix(0, 0), given.a, given.b};
}

long double loss_of(GromovLoss loss, long double c, long double d) {
  if (loss == GromovLoss::square) return std::pow(c - d, 2);
  c += 1e-18L, d += 1e-18L;
  return c * std::log(c / d) - c + d;
}

/// The loss of each pair of entries, without any expansion.
double energy(Matrix const& c, Matrix const& d, Matrix const& plan, GromovLoss loss = GromovLoss::square) {
  long double sum = 0;
  for (std::int64_t i = 0; i < plan.rows; ++i)
    for (std::int64_t j = 0; j < plan.columns; ++j) {
      if (plan(i, j) == 0) continue;
      long double inner = 0;
      for (std::int64_t k = 0; k < plan.rows; ++k)
        for (std::int64_t l = 0; l < plan.columns; ++l)
          if (plan(k, l) != 0) inner += loss_of(loss, c(i, k), d(j, l)) * plan(k, l);
      sum += inner * plan(i, j);
    }
  return static_cast<double>(sum);
}
double energy(Matrices const& given, Matrix const& plan) {
  return energy(given.c, given.d, plan, given.loss);
}
double energy(Case const& given, Matrix const& plan) {
  return energy(squared_distances(given.x, given.x), squared_distances(given.y, given.y), plan);
}

double linear(Case const& given, Matrix const& plan) {
  Matrix const cost = squared_distances(given.s, given.t);
  return std::inner_product(cost.data.begin(), cost.data.end(), plan.data.begin(), 0.0);
}

/// Sinkhorn's algorithm for any costs, to the rounding of float64.
Matrix sinkhorn(Matrix const& cost, Values const& a, Values const& b, double eps) {
  Values f(a.size(), 0), g(b.size(), 0);
  auto const softmin = [&](std::int64_t size, auto const& term) {
    double top = -std::numeric_limits<double>::infinity(), sum = 0;
    for (std::int64_t k = 0; k < size; ++k) top = std::max(top, term(k));
    for (std::int64_t k = 0; k < size; ++k) sum += std::exp(term(k) - top);
    return -eps * (top + std::log(sum));
  };
  for (int sweep = 0; sweep < 20000; ++sweep) {
    double change = 0;
    for (std::int64_t i = 0; i < cost.rows; ++i)
      f[i] = softmin(cost.columns, [&](std::int64_t j) { return (g[j] - cost(i, j)) / eps + std::log(b[j]); });
    for (std::int64_t j = 0; j < cost.columns; ++j) {
      double const next =
          softmin(cost.rows, [&](std::int64_t i) { return (f[i] - cost(i, j)) / eps + std::log(a[i]); });
      change = std::max(change, std::abs(next - g[j]));
      g[j] = next;
    }
    if (change <= 1e-13 * eps) break;
  }
  Matrix plan(cost.rows, cost.columns);
  for (std::int64_t i = 0; i < cost.rows; ++i)
    for (std::int64_t j = 0; j < cost.columns; ++j)
      plan(i, j) = a[i] * b[j] * std::exp((f[i] + g[j] - cost(i, j)) / eps);
  return plan;
}

/// The derivative of the objective by the plan, by products with the matrices.
Matrix derivative(Matrices const& given, Matrix const& plan, double alpha) {
  auto const& [c, d, cost, a, b, loss] = given;
  bool const square = loss == GromovLoss::square;
  auto const log = [](double v) { return std::log(v + 1e-18); };
  auto const own_c = [&](double v) { return square ? v * v : v * log(v) - v; };
  auto const own_d = [&](double v) { return square ? v * v : v; };
  auto const factor = [&](double v) { return square ? 2 * v : log(v); };
  std::int64_t const n = plan.rows, m = plan.columns;
  Matrix left(n, m), right(n, m), result(n, m);  // C P and C^T P.
  Values by_row(n, 0), by_column(m, 0);
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t k = 0; k < n; ++k) by_row[i] += (own_c(c(i, k)) + own_c(c(k, i))) * a[k];
  for (std::int64_t j = 0; j < m; ++j)
    for (std::int64_t l = 0; l < m; ++l) by_column[j] += (own_d(d(j, l)) + own_d(d(l, j))) * b[l];
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t k = 0; k < n; ++k)
      for (std::int64_t l = 0; l < m; ++l) left(i, l) += c(i, k) * plan(k, l), right(i, l) += c(k, i) * plan(k, l);
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t j = 0; j < m; ++j) {
      double product = 0;
      for (std::int64_t l = 0; l < m; ++l) product += left(i, l) * factor(d(j, l)) + right(i, l) * factor(d(l, j));
      result(i, j) = alpha * (by_row[i] + by_column[j] - product);
      if (given.fused()) result(i, j) += (1 - alpha) * cost(i, j);
    }
  return result;
}

template <class Given>
Matrix product_plan(Given const& given) {
  Matrix plan(static_cast<std::int64_t>(given.a.size()), static_cast<std::int64_t>(given.b.size()));
  double const total = std::accumulate(given.a.begin(), given.a.end(), 0.0);
  for (std::int64_t i = 0; i < plan.rows; ++i)
    for (std::int64_t j = 0; j < plan.columns; ++j) plan(i, j) = given.a[i] * given.b[j] / total;
  return plan;
}

/// Plans of the linearised objective from the product plan; `steps` of them, or until they stay. By the proximal method
/// the cost of each plan is added to those before, at a falling eps. Writes the L1 change of the last step.
Matrix alternated(Matrices const& given, double alpha, double eps, bool proximal, int steps,
                  double* last_change = nullptr) {
  Matrix plan = product_plan(given), cost(plan.rows, plan.columns);
  for (int k = 1; k <= steps; ++k) {
    Matrix const slope = derivative(given, plan, alpha);
    for (std::size_t e = 0; e < cost.data.size(); ++e)
      cost.data[e] = proximal ? (cost.data[e] * (k - 1) + slope.data[e]) / k : slope.data[e];
    Matrix const next = sinkhorn(cost, given.a, given.b, proximal ? eps / k : eps);
    double change = 0;
    for (std::size_t e = 0; e < cost.data.size(); ++e) change += std::abs(next.data[e] - plan.data[e]);
    plan = next;
    if (last_change != nullptr) *last_change = change;
    if (change < 1e-12) break;
  }
  return plan;
}

double divergence(Matrix const& plan, Values const& a, Values const& b) {
  double sum = 0;
  for (std::int64_t i = 0; i < plan.rows; ++i)
    for (std::int64_t j = 0; j < plan.columns; ++j) {
      double const product = a[i] * b[j], mass = plan(i, j);
      sum += (mass > 0 ? mass * std::log(mass / product) : 0) - mass + product;
    }
  return sum;
}

Matrix dense(Plan const& plan) {
  Matrix result(plan.rows(), plan.columns());
  plan.dense({result.data.data(), result.rows, result.columns});
  return result;
}

Matrix dense(ExactPlan const& plan) {
  Matrix result(plan.rows(), plan.columns());
  for (std::int64_t i = 0; i < plan.rows(); ++i)
    for (std::int64_t e = plan.row_begin[i]; e < plan.row_begin[i + 1]; ++e)
      result(i, plan.column_indices[e]) = plan.values[e];
  return result;
}

void expect_bounds(Gromov const& found) {
  GromovReport const& report = found.report;
  EXPECT_GE(report.lower_bound, 0);
  EXPECT_LE(report.lower_bound, report.alpha * report.quadratic + (1 - report.alpha) * report.linear);
  for (GromovStart const& start : report.starts) {
    if (start.finished) {
      EXPECT_LE(report.value, start.value + 1e-5 * std::abs(start.value));
    }
  }
}

/// Values of the plan from its entries. Marginals miss the weights by the tolerance over ten at most, which is the
/// relative error of all sums here.
void expect_values(Case const& given, Gromov const& found, double tolerance) {
  Matrix const plan = found.plan ? dense(*found.plan) : dense(*found.exact);
  double const size = energy(given, product_plan(given));
  EXPECT_NEAR(found.report.quadratic, energy(given, plan), tolerance * size);
  if (given.fused()) {
    EXPECT_NEAR(found.report.linear, linear(given, plan), tolerance * linear(given, product_plan(given)));
  }
  expect_bounds(found);
}

class GromovTest : public BackendTest {
 protected:
  GromovTest() : BackendTest(2) {}
  Gromov solve(Case const& given, GromovOptions const& options) const {
    return solve_gromov(context(), given.clouds(), given.a, given.b, options);
  }
  Gromov solve(Matrices const& given, GromovOptions const& options) const {
    return solve_gromov(context(), given.views(), given.a, given.b, options);
  }
  void refused(char const* message, auto const& wrong, GromovOptions const& options = {},
               ErrorCode code = ErrorCode::invalid_argument) const {
    EXPECT_THAT(refusal_of([&] { solve(wrong, options); }, code), testing::StartsWith(message));
  }
};
MONGE_FOR_EACH_DEVICE(GromovTest);

// The limits of both alternations are the same plan, up to the change at which they end, over 1 - their rate of
// convergence, which is .9 at most here.
constexpr double kTolerance = 1e-8;
constexpr double kSame = 1e-6;

TEST_P(GromovTest, alternating_equals_dense_alternation) {
  for (auto const& [p, q, r] : {std::tuple{3, 2, 0}, {2, 3, 0}, {1, 1, 0}, {3, 2, 4}, {2, 4, 1}}) {
    for (double const total : {1.0, 2.5}) {
      SCOPED_TRACE(testing::Message() << "p " << p << " q " << q << " r " << r << " total " << total);
      Case const given = make_case(30, 24, p, q, r, 3, total);
      double const alpha = r > 0 ? 0.4 : 1, eps = 0.1 * total * energy(given, product_plan(given)) / total / total;
      Gromov const found = solve(given, {.eps = eps, .alpha = 0.4, .tolerance = kTolerance, .starts = 1});
      ASSERT_EQ(found.report.status, Status::converged) << found.report.message;
      ASSERT_EQ(found.report.alpha, alpha);
      Matrix const expected = alternated(matrices_of(given), alpha, eps, false, 2000);
      double const size = energy(given, product_plan(given));
      EXPECT_NEAR(found.report.quadratic, energy(given, expected), kSame * size);
      EXPECT_NEAR(found.report.entropy, divergence(expected, given.a, given.b), kSame * total);
      if (r > 0) {
        EXPECT_NEAR(found.report.linear, linear(given, expected), kSame * linear(given, product_plan(given)));
      }
      EXPECT_EQ(found.report.value,
                alpha * found.report.quadratic + (1 - alpha) * found.report.linear + eps * found.report.entropy);
      EXPECT_NEAR(found.report.starts[0].value, found.report.value, kSame * size);
      EXPECT_LE(found.report.stationarity, kSame * size);
      expect_values(given, found, kSame);
    }
  }
}

TEST_P(GromovTest, proximal_equals_dense_steps) {
  Case const given = make_case(30, 24, 3, 2, 2, 4);
  double const eps = 0.3 * energy(given, product_plan(given));
  for (int const steps : {1, 12}) {
    Gromov const found = solve(given, {.eps = eps,
                                       .alpha = 0.7,
                                       .method = GromovMethod::proximal,
                                       .tolerance = kTolerance,
                                       .iterations = steps,
                                       .starts = 1});
    EXPECT_EQ(found.report.status, Status::iteration_limit);
    Matrix const expected = alternated(matrices_of(given), 0.7, eps, true, steps);
    double const size = energy(given, product_plan(given));
    EXPECT_NEAR(found.report.quadratic, energy(given, expected), kSame * size);
    EXPECT_NEAR(found.report.value, 0.7 * found.report.quadratic + 0.3 * found.report.linear, 1e-14 * size);
    expect_values(given, found, kSame);
  }
}

TEST_P(GromovTest, exact_plans_are_local_optima) {
  for (auto const& [n, m, r] : {std::tuple{24, 30, 0}, {40, 40, 0}, {24, 30, 2}, {1, 7, 0}, {7, 1, 2}, {1, 1, 0}}) {
    SCOPED_TRACE(testing::Message() << n << " x " << m << ", r " << r);
    Case const given = make_case(n, m, 2, 3, r, 5);
    Gromov const found = solve(given, {});
    ASSERT_EQ(found.report.status, Status::converged) << found.report.message;
    expect_values(given, found, 1e-12);
    // No plan has a lower cost for the slope at this one.
    Matrix const plan = dense(*found.exact);
    Matrix const slope = derivative(matrices_of(given), plan, found.report.alpha);
    double const cost = std::inner_product(slope.data.begin(), slope.data.end(), plan.data.begin(), 0.0);
    ExactPlan const best = solve_exact(context(), CostMatrix{slope.view()}, given.a, given.b);
    double const size = energy(given, product_plan(given)) + 1e-30;
    EXPECT_NEAR(found.report.stationarity, cost - best.report.transport_cost, 1e-10 * size);
    EXPECT_LE(found.report.stationarity, 1e-10 * size);
  }
}

/// Both sides of a central difference of the value, from the same start, over all points, features and weights.
TEST_P(GromovTest, gradients_are_differences_of_the_value) {
  for (bool const exact : {false, true}) {
    for (double const total : {1.0, 2.0}) {
      Case const given = make_case(14, 11, 2, 3, 2, 13, total);
      double const size = energy(given, product_plan(given));
      GromovOptions options{.eps = exact ? 0 : 0.05 * size / total, .alpha = 0.3, .tolerance = 1e-9};
      Gromov const found = solve(given, options);
      options.cross_moment = {found.cross_moment.data(), 2, 3};
      Matrix x(14, 2), y(11, 3), s(14, 2), t(11, 2);
      Values a(14), b(11);
      auto const out = [](Matrix& matrix) {
        return MutableMatrixView(matrix.data.data(), matrix.rows, matrix.columns);
      };
      found.gradients({out(x), out(y), out(s), out(t), a, b});
      auto const difference = [&](auto const& change, double step) {
        Case up = given, down = given;
        change(up, step);
        change(down, -step);
        return (solve(up, options).report.value - solve(down, options).report.value) / (2 * step);
      };
      // The error of a difference is the third derivative times the square of the step, and the rounding of the value
      // over the step: 1e-5^2 and 1e-10 of the value.
      double const slack = 1e-5 * size;
      for (auto const& [member, gradient] : {std::pair{&Case::x, &x}, {&Case::y, &y}, {&Case::s, &s}, {&Case::t, &t}}) {
        for (std::int64_t const i : {std::int64_t{0}, gradient->rows - 1}) {
          for (std::int64_t k = 0; k < gradient->columns; ++k) {
            double const expected = difference([&, m = member](Case& at, double h) { (at.*m)(i, k) += h; }, 1e-4);
            EXPECT_NEAR((*gradient)(i, k), expected, slack) << i << ' ' << k << " exact " << exact;
          }
        }
      }
      if (exact) continue;  // Its derivatives by weights are one-sided.
      for (auto const& [member, gradient] : {std::pair{&Case::a, &a}, {&Case::b, &b}}) {
        double const expected =
            difference([m = member](Case& at, double h) { (at.*m)[1] += h, (at.*m)[4] -= h; }, 1e-5);
        EXPECT_NEAR((*gradient)[1] - (*gradient)[4], expected, slack);
      }
      double const expected = difference([](Case& at, double h) { at.a[2] += h, at.b[3] += h; }, 1e-5);
      EXPECT_NEAR(a[2] + b[3], expected, slack);
    }
  }
}

TEST_P(GromovTest, features_of_new_points_are_those_of_the_sources) {
  for (auto const& [p, q, r] : {std::tuple{3, 2, 0}, {2, 3, 2}}) {
    Case const given = make_case(14, 11, p, q, r, 14);
    for (double const eps : {0.0, 0.1 * energy(given, product_plan(given))}) {
      Gromov const found = solve(given, {.eps = eps});
      Matrix u(14, static_cast<std::int64_t>(found.u.size()) / 14);
      found.source_features(given.x.view(), given.s.view(), {u.data.data(), u.rows, u.columns});
      EXPECT_EQ(u.data, found.u);
    }
  }
}

/// Rotated in the plane of the first two axes, scaled, shifted and in another order.
Case moved(Case given, double scale, double shift, bool reversed) {
  for (Matrix* const cloud : {&given.x, &given.y}) {
    for (std::int64_t i = 0; i < cloud->rows; ++i) {
      if (cloud->columns > 1) {
        double const u = (*cloud)(i, 0), v = (*cloud)(i, 1);
        (*cloud)(i, 0) = 0.6 * u - 0.8 * v;
        (*cloud)(i, 1) = 0.8 * u + 0.6 * v;
      }
      for (std::int64_t k = 0; k < cloud->columns; ++k) (*cloud)(i, k) = scale * (*cloud)(i, k) + shift;
    }
  }
  if (reversed) {
    std::reverse(given.a.begin(), given.a.end());
    for (Matrix* const cloud : {&given.x, &given.s}) {
      Matrix const old = *cloud;
      for (std::int64_t i = 0; i < old.rows; ++i)
        for (std::int64_t k = 0; k < old.columns; ++k) (*cloud)(i, k) = old(old.rows - 1 - i, k);
    }
  }
  return given;
}

TEST_P(GromovTest, does_not_see_isometries_units_and_order) {
  Case const given = make_case(40, 32, 3, 2, 0, 6);
  double const size = energy(given, product_plan(given));
  for (double const share : {0.0, 0.05}) {
    double const value = solve(given, {.eps = share * size}).report.value;
    for (auto const& [scale, shift] : {std::pair{1.0, 0.0}, {1.0, 1e6}, {1e-7, 0.0}, {1e7, 0.0}, {3.0, -1e4}}) {
      for (bool const reversed : {false, true}) {
        SCOPED_TRACE(testing::Message() << "eps " << share << " scale " << scale << " shift " << shift);
        double const unit = std::pow(scale, 4);
        Gromov const other = solve(moved(given, scale, shift, reversed), {.eps = share * size * unit});
        EXPECT_EQ(other.report.status, Status::converged) << other.report.message;
        // A shift of 1e6 leaves coordinates 1e-10; the tolerance of 1e-5 leaves its square to the value with entropy.
        EXPECT_NEAR(other.report.value / unit, value, 1e-5 * size);
        expect_bounds(other);
      }
    }
  }
}

TEST_P(GromovTest, of_isometric_clouds_is_zero) {
  Case given = make_case(60, 60, 3, 3, 0, 7);
  given.y = moved(given, 1, 1000, true).x;
  given.a = given.b = {};
  for (std::int64_t const d : {3, 5}) {  // y may lie in a space of more dimensions.
    Matrix y(60, d);
    for (std::int64_t i = 0; i < 60; ++i)
      for (std::int64_t k = 0; k < 3; ++k) y(i, k) = given.y(i, k);
    given.y = y;
    Gromov const found = solve(given, {});
    given.a = given.b = Values(60, 1.0 / 60);
    EXPECT_LE(found.report.quadratic, 1e-10 * energy(given, product_plan(given)));
    EXPECT_EQ(found.report.lower_bound, 0);
    for (std::int64_t i = 0; i < 60; ++i) EXPECT_EQ(found.exact->column_indices[i], 59 - i);
  }
}

/// Nodes 0 and +-sqrt(3) with the weights 2/3 and 1/6 have the moments of a normal distribution up to degree 5, so E
/// between two grids of them is that between normal distributions: 4 (sum l - sum l')^2 + 8 |l - l'|^2 for the moments
/// l and l' of the axes (Delon, Desolneux, Salmona 2022). Where l' = c l the bound by moments is tight.
TEST_P(GromovTest, between_normal_distributions_has_the_closed_form) {
  double const node[] = {0, std::sqrt(3.0), -std::sqrt(3.0)}, weight[] = {2.0 / 3, 1.0 / 6, 1.0 / 6};
  double const moment[] = {3, 2, 1}, factor = 1.7;
  Case given{Matrix(27, 3), Matrix(27, 3), Matrix(27, 0), Matrix(27, 0), Values(27), {}};
  for (int i = 0; i < 27; ++i) {
    int const digit[] = {i / 9, i / 3 % 3, i % 3};
    given.a[i] = 1;
    for (int k = 0; k < 3; ++k) {
      given.x(i, k) = std::sqrt(moment[k]) * node[digit[k]];
      given.a[i] *= weight[digit[k]];
    }
  }
  given.b = given.a;
  given.y = moved(given, std::sqrt(factor), 5, false).x;
  double const difference = 1 - factor, sum = 6 * difference, square = 14 * difference * difference;
  double const expected = 4 * sum * sum + 8 * square;
  Gromov const found = solve(given, {});
  EXPECT_NEAR(found.report.value, expected, 1e-11 * expected);
  EXPECT_NEAR(found.report.lower_bound, expected, 1e-10 * expected);
  expect_bounds(found);
}

TEST_P(GromovTest, several_starts_find_no_worse_plans_than_one) {
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    Case const given = make_case(50, 45, 2, 3, 0, seed);
    Gromov const one = solve(given, {.starts = 1}), all = solve(given, {}), many = solve(given, {.starts = 12});
    EXPECT_LE(all.report.value, one.report.value * (1 + 1e-12));
    EXPECT_LE(many.report.value, all.report.value * (1 + 1e-12));
    EXPECT_GE(all.report.lower_bound, one.report.lower_bound);
    ASSERT_EQ(all.report.starts.size(), 6u);
    ASSERT_EQ(many.report.starts.size(), 12u);
    EXPECT_EQ(many.report.starts[11].kind, GromovStartKind::random);
    expect_values(given, all, 1e-12);

    // The end of a solve is a start that ends where it begins.
    Gromov const again = solve(given, {.cross_moment = {all.cross_moment.data(), 2, 3}});
    ASSERT_EQ(again.report.starts.size(), 1u);
    EXPECT_EQ(again.report.starts[0].kind, GromovStartKind::given);
    EXPECT_NEAR(again.report.value, all.report.value, 1e-12 * all.report.value);
    EXPECT_LE(again.report.iterations, 2);
  }
}

/// The least objective of all permutations. The objective is concave, so no plan between uniform weights has less.
double least_of_permutations(Case const& given, double alpha) {
  std::int64_t const n = given.x.rows;
  std::vector<std::int64_t> order(static_cast<std::size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  double least = std::numeric_limits<double>::infinity();
  do {
    Matrix plan(n, n);
    for (std::int64_t i = 0; i < n; ++i) plan(i, order[static_cast<std::size_t>(i)]) = 1.0 / static_cast<double>(n);
    double value = energy(given, plan);
    if (given.fused()) value = alpha * value + (1 - alpha) * linear(given, plan);
    least = std::min(least, value);
  } while (std::next_permutation(order.begin(), order.end()));
  return least;
}

TEST_P(GromovTest, branch_and_bound_finds_the_best_permutation) {
  double const alpha = 0.3;
  int better = 0;
  for (auto const& [n, p, q, r] : {std::tuple{6, 2, 2, 0},
                                   {5, 1, 1, 0},
                                   {6, 1, 4, 0},
                                   {6, 2, 2, 2},
                                   {5, 3, 2, 0},
                                   {5, 3, 3, 0},
                                   {1, 2, 2, 1},
                                   {2, 2, 2, 0}}) {
    for (std::uint64_t seed = 1; seed <= 4; ++seed) {
      SCOPED_TRACE(testing::Message() << n << " points, p " << p << " q " << q << " r " << r << " seed " << seed);
      Case given = make_case(n, n, p, q, r, seed);
      given.a = given.b = {};
      double const least = least_of_permutations(given, alpha), gap = p * q == 9 ? 0.05 : 1e-6;
      Gromov const found = solve(given, {.alpha = alpha, .starts = 1, .gap = gap});
      ASSERT_EQ(found.report.status, Status::converged) << found.report.message;
      EXPECT_NEAR(found.report.value, least, gap * least + 1e-14);
      EXPECT_LE(found.report.lower_bound, least);
      EXPECT_GE(found.report.lower_bound, (1 - gap) * found.report.value - 1e-10);
      EXPECT_EQ(found.report.gap > 0, found.report.value > found.report.lower_bound);
      better += found.report.starts[static_cast<std::size_t>(found.report.best)].kind == GromovStartKind::partition;
    }
  }
  EXPECT_GE(better, 4);  // The product plan alone leads to other optima.
}

TEST_P(GromovTest, branch_and_bound_meets_the_value_of_any_clouds) {
  std::vector<Case> cases{make_case(40, 32, 2, 2, 0, 20),
                          make_case(30, 24, 2, 2, 3, 21, 2.5),
                          make_case(20, 16, 2, 3, 0, 22),
                          make_case(1, 9, 2, 2, 0, 23),
                          make_case(9, 1, 2, 2, 1, 24),
                          moved(make_case(20, 16, 2, 2, 0, 25), 1e-3, 1e3, true),
                          moved(make_case(20, 16, 2, 2, 0, 25), 1e7, 0, false)};
  Case collinear = make_case(20, 16, 2, 2, 0, 26);
  for (std::int64_t i = 0; i < 20; ++i) collinear.x(i, 1) = 0.5 * collinear.x(i, 0) + 1;
  cases.push_back(collinear);
  Case flat = make_case(20, 16, 5, 4, 0, 27);  // Both lie in planes.
  for (Matrix* const cloud : {&flat.x, &flat.y})
    for (std::int64_t i = 0; i < cloud->rows; ++i)
      for (std::int64_t k = 2; k < cloud->columns; ++k) (*cloud)(i, k) = (*cloud)(i, k - 2) - 3 * (*cloud)(i, 1);
  cases.push_back(flat);
  Case twice = make_case(20, 18, 2, 2, 0, 28);
  for (std::int64_t i = 0; i < 10; ++i)
    for (std::int64_t k = 0; k < 2; ++k) twice.x(i + 10, k) = twice.x(i, k);
  cases.push_back(twice);
  Case light = make_case(20, 16, 2, 2, 0, 29);
  light.b[0] += light.b[1];
  light.a[3] += light.a[4];
  light.a[4] = 1e-300;
  light.b[1] = 0;
  for (std::int64_t k = 0; k < 2; ++k) light.y(1, k) = 1e6;  // A far point of no weight.
  cases.push_back(light);
  Case constant = make_case(12, 9, 2, 2, 0, 30);
  constant.x = Matrix(12, 2);
  cases.push_back(constant);
  for (std::size_t k = 0; k < cases.size(); ++k) {
    for (double const gap : {0.3, 0.02}) {
      SCOPED_TRACE(testing::Message() << "case " << k << ", gap " << gap);
      Gromov const found = solve(cases[k], {.gap = gap}), local = solve(cases[k], {});
      ASSERT_EQ(found.report.status, Status::converged) << found.report.message;
      double const size = energy(cases[k], product_plan(cases[k]));
      EXPECT_LE(found.report.value, local.report.value + 1e-13 * size);
      EXPECT_GE(found.report.lower_bound, local.report.lower_bound);
      EXPECT_LE(found.report.value - found.report.lower_bound, gap * found.report.value + 1e-10 * size);
      expect_values(cases[k], found, 1e-12);
    }
  }
}

TEST_P(GromovTest, branch_and_bound_ends_early_with_a_bound) {
  Case const given = make_case(60, 50, 3, 3, 0, 31);
  double lowest = 0;
  GromovOptions options{.gap = 1e-9, .seconds = 0.5};
  options.progress = [&](GromovProgress const& progress) {
    EXPECT_GE(progress.lower_bound, lowest);
    lowest = progress.lower_bound;
    return true;
  };
  Gromov const late = solve(given, options), local = solve(given, {});
  EXPECT_EQ(late.report.status, Status::iteration_limit);
  EXPECT_THAT(late.report.message, testing::HasSubstr("more seconds or a larger gap would help"));
  EXPECT_GE(late.report.seconds.total, 0.5);
  EXPECT_GE(late.report.lower_bound, std::max(lowest, local.report.lower_bound));
  expect_values(given, late, 1e-12);

  options.progress = [&](GromovProgress const& progress) { return progress.iteration < local.report.iterations + 30; };
  options.seconds = std::numeric_limits<double>::infinity();
  Gromov const stopped = solve(given, options);
  EXPECT_EQ(stopped.report.status, Status::stopped);
  EXPECT_GT(stopped.report.problems, 0);
  expect_values(given, stopped, 1e-12);
}

TEST_P(GromovTest, branch_and_bound_refuses_what_would_take_too_long) {
  Case const given = make_case(14, 15, 5, 2, 0, 32);
  auto const unsupported = [&](char const* message, auto const& wrong) {
    try {
      solve(wrong, {.gap = 0.1});
      ADD_FAILURE() << "no error";
    } catch (Error const& error) {
      EXPECT_EQ(error.code(), ErrorCode::unsupported);
      EXPECT_THAT(error.what(), testing::StartsWith(message));
    }
  };
  unsupported("gap: is given for clouds of 5 and 2 dimensions; branch and bound", given);
  unsupported("gap: is given for matrices; must be infinity, since branch and bound is for points", matrices_of(given));
  refused("gap: is 0.1 with entropy; must be infinity", given, {.eps = 1, .gap = 0.1});
  refused("gap: is 0.1 and marginals are semirelaxed; must be infinity", given,
          {.marginals = GromovMarginals::semirelaxed, .gap = 0.1});
  refused("gap: is 0; must be", given, {.gap = 0});
  refused("seconds: is -1; must be", given, {.seconds = -1});
  refused("seconds: is 60 and gap infinity; must be infinity", given, {.seconds = 60});
}

// The first steps from the product plan are the poorest, its end may be the best.
TEST_P(GromovTest, all_starts_end_no_higher_than_the_product_plan) {
  for (std::uint64_t seed = 1; seed <= 12; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Case const given = make_case(40, 40, 3, 3, 0, seed);
    Gromov const one = solve(given, {.eps = 1.7, .starts = 1}), all = solve(given, {.eps = 1.7});
    // Ends of the same search, to its tolerance.
    EXPECT_LE(all.report.value, one.report.value + 1e-4 * std::abs(one.report.value));
  }
}

TEST_P(GromovTest, takes_weights_of_nearly_nothing) {
  Case given = make_case(20, 16, 2, 2, 1, 8), less = given;
  given.a[3] = 0;
  given.a[4] = 1e-300;
  given.b[0] = 0;
  for (std::int64_t k = 0; k < 2; ++k) given.x(3, k) = 1e6;  // A far point of no weight.
  double const total = std::accumulate(given.a.begin(), given.a.end(), 0.0);
  double const total_b = std::accumulate(given.b.begin(), given.b.end(), 0.0);
  for (double& w : given.b) w *= total / total_b;
  double const size = energy(given, product_plan(given));
  for (double const eps : {0.0, 0.1 * size}) {
    Gromov const found = solve(given, {.eps = eps});
    EXPECT_EQ(found.report.status, Status::converged) << found.report.message;
    expect_values(given, found, 1e-5);
  }
}

TEST_P(GromovTest, of_constant_clouds_and_duplicates) {
  for (double const eps : {0.0, 0.5}) {
    Case given = make_case(12, 9, 2, 2, 0, 9);
    given.x = Matrix(12, 2);  // All distances are 0.
    Gromov const found = solve(given, {.eps = eps});
    EXPECT_EQ(found.report.status, Status::converged) << found.report.message;
    expect_values(given, found, 1e-6);
    given.y = Matrix(9, 2);
    Gromov const both = solve(given, {.eps = eps});
    EXPECT_EQ(both.report.status, Status::converged) << both.report.message;
    EXPECT_EQ(both.report.quadratic, 0);
    EXPECT_EQ(both.report.lower_bound, 0);

    Case twice = make_case(20, 18, 2, 3, 0, 10);
    for (std::int64_t i = 0; i < 10; ++i)
      for (std::int64_t k = 0; k < 2; ++k) twice.x(i + 10, k) = twice.x(i, k);
    Gromov const copies = solve(twice, {.eps = eps});
    EXPECT_EQ(copies.report.status, Status::converged) << copies.report.message;
    expect_values(twice, copies, 1e-5);
  }
}

TEST_P(GromovTest, of_scales_whose_fourth_powers_leave_float64) {
  Case given = make_case(12, 9, 2, 2, 0, 15);
  for (double& v : given.x.data) v *= 1e-90;
  for (double& v : given.y.data) v *= 1e-90;
  for (double const eps : {0.0, 1.0}) {
    Gromov const found = solve(given, {.eps = eps});
    EXPECT_EQ(found.report.status, Status::converged) << found.report.message;
    EXPECT_EQ(found.report.quadratic, 0);
  }
  for (double& v : given.x.data) v *= 1e150;
  for (double& v : given.y.data) v *= 1e90;
  EXPECT_EQ(solve(given, {}).report.status, Status::converged);
  EXPECT_THAT(refusal_of([&] { solve(given, {.eps = 1}); }),
              testing::StartsWith("eps: is 1, too far below the objective, up to"));
}

TEST_P(GromovTest, ends_early_with_a_status) {
  Case const given = make_case(60, 50, 3, 3, 0, 11);
  double const size = energy(given, product_plan(given));
  for (double const eps : {0.0, 0.01 * size}) {
    Gromov const found = solve(given, {.eps = eps, .iterations = 1, .starts = 1});
    EXPECT_EQ(found.report.status, Status::iteration_limit);
    EXPECT_EQ(found.report.iterations, 1);
    expect_values(given, found, 1e-5);
    for (int const most : {0, 1, 6}) {
      int calls = 0;
      GromovOptions options{.eps = eps};
      options.progress = [&](GromovProgress const& progress) {
        EXPECT_GE(progress.iteration, 0);
        return calls++ < most;
      };
      Gromov const stopped = solve(given, options);
      EXPECT_EQ(stopped.report.status, Status::stopped);
      EXPECT_EQ(calls, most + 1);
      if (eps == 0) expect_values(given, stopped, 1e-5);
    }
  }
}

// Searches share no sums, so threads change no bit.
TEST(GromovSearches, end_alike_side_by_side_and_in_turn) {
  Case const points = make_case(90, 80, 3, 2, 0, 17), fused = make_case(40, 50, 2, 2, 3, 18);
  auto const check = [](auto const& clouds, Case const& given, GromovOptions options) {
    Gromov const expected = solve_gromov(Context::cpu(1), clouds, given.a, given.b, options);
    ASSERT_GE(expected.report.starts.size(), 3u);
    for (int const threads : {2, 7}) {
      SCOPED_TRACE(threads);
      int calls = 0;
      auto const caller = std::this_thread::get_id();
      for (bool const watched : {false, true}) {
        options.progress = {};
        if (watched)
          options.progress = [&](GromovProgress const& at) {
            EXPECT_EQ(std::this_thread::get_id(), caller);
            EXPECT_LT(at.iteration, expected.report.iterations);
            if (at.value == std::numeric_limits<double>::infinity()) {
              EXPECT_EQ(at.iteration, 0);  // No step has ended.
            }
            ++calls;
            return true;
          };
        Gromov const found = solve_gromov(Context::cpu(threads), clouds, given.a, given.b, options);
        GromovReport const &one = found.report, &other = expected.report;
        EXPECT_EQ(one.value, other.value);
        EXPECT_EQ(one.lower_bound, other.lower_bound);
        EXPECT_EQ(one.stationarity, other.stationarity);
        EXPECT_EQ(one.iterations, other.iterations);
        EXPECT_EQ(one.sweeps, other.sweeps);
        EXPECT_EQ(one.best, other.best);
        for (std::size_t k = 0; k < other.starts.size(); ++k) {
          EXPECT_EQ(one.starts[k].value, other.starts[k].value) << k;
          EXPECT_EQ(one.starts[k].iterations, other.starts[k].iterations) << k;
        }
        EXPECT_EQ(found.exact->values, expected.exact->values);
        EXPECT_EQ(found.exact->column_indices, expected.exact->column_indices);
      }
      // Between the steps of a search, which begins or goes on twice.
      EXPECT_GE(calls + 2 * std::ssize(expected.report.starts), expected.report.iterations);
    }
  };
  check(points.clouds(), points, {});
  check(fused.clouds(), fused, {.alpha = 0.3});
  check(fused.clouds(), fused, {.marginals = GromovMarginals::semirelaxed});
  double const total = std::accumulate(fused.a.begin(), fused.a.end(), 0.0);
  check(fused.clouds(), fused, {.marginals = GromovMarginals::partial, .mass = 0.5 * total});
  Matrices const matrices = matrices_of(points);
  check(matrices.views(), points, {});
}

TEST_P(GromovTest, refuses_what_it_cannot_take) {
  Case const given = make_case(6, 5, 2, 3, 2, 12);
  double const nan = std::numeric_limits<double>::quiet_NaN();
  Case wrong = given;
  wrong.x(4, 1) = nan;
  refused("x: row 4, column 1 is nan; coordinates must be finite", wrong);
  wrong = given;
  wrong.t(2, 0) = std::numeric_limits<double>::infinity();
  refused("t: row 2, column 0 is inf; coordinates must be finite", wrong);
  wrong = given;
  wrong.y(1, 0) = 1e100;
  refused("y: row 0 lies", wrong);
  wrong = given;
  wrong.a[2] = -1;
  refused("a: entry 2 is -1; weights must be finite and >= 0", wrong);
  wrong = given;
  wrong.a[2] = 2;
  refused("b: the total is", wrong);
  wrong = given;
  wrong.a.pop_back();
  refused("a: has 5 entries; must have 6, one for each row of x", wrong);
  refused("eps: is -1", given, {.eps = -1});
  refused("alpha: is 1.5", given, {.alpha = 1.5});
  refused("method: is proximal without entropy; must be alternating", given, {.method = GromovMethod::proximal});
  refused("cross_moment: is 2 x 2; must be 2 x 3", given, {.cross_moment = {given.x.data.data(), 2, 2}});
  GromovClouds clouds = given.clouds();
  clouds.t = {};
  EXPECT_EQ(refusal_of([&] { solve_gromov(context(), clouds); }), "t: is missing; features need both s and t");
  clouds = given.clouds();
  clouds.t = given.y.view();
  EXPECT_EQ(refusal_of([&] { solve_gromov(context(), clouds); }), "t: is 5 x 3; must be 5 x 2");
}

/// Any matrices: entries of a normal distribution, for the loss kl without their signs; symmetric or not.
Matrices random_matrices(std::int64_t n, std::int64_t m, bool symmetric, bool fused, std::uint64_t seed,
                         double total = 1, GromovLoss loss = GromovLoss::square) {
  Random random(seed);
  auto const square = [&](std::int64_t size) {
    Matrix matrix(size, size);
    for (double& v : matrix.data) v = loss == GromovLoss::kl ? std::abs(random.normal()) : random.normal();
    for (std::int64_t i = 0; i < size; ++i)
      for (std::int64_t k = 0; symmetric && k < i; ++k) matrix(i, k) = matrix(k, i);
    return matrix;
  };
  Matrix const c = square(n), d = square(m);
  Matrix cost(fused ? n : 0, fused ? m : 0);
  for (double& v : cost.data) v = random.normal();
  Values const a = random_weights(random, n, total), b = random_weights(random, m, total);
  return {c, d, cost, a, b, loss};
}

/// exp(-|x_i - x_k|^2) times a sign: a positive matrix, so with another sign on each side the objective is convex.
Matrices of_kernels(std::int64_t n, std::int64_t m, double sign, std::uint64_t seed) {
  Matrices given = matrices_of(make_case(n, m, 2, 2, 0, seed));
  for (double& v : given.c.data) v = std::exp(-v);
  for (double& v : given.d.data) v = sign * std::exp(-v);
  return given;
}

double inner(Matrix const& one, Matrix const& other) {
  return std::inner_product(one.data.begin(), one.data.end(), other.data.begin(), 0.0);
}

/// Values of the plan from its entries, and bounds. A plan misses the marginals by `tolerance` at most.
void expect_values(Matrices const& given, Gromov const& found, double tolerance) {
  Matrix const plan = found.plan ? dense(*found.plan) : dense(*found.exact);
  double const size = energy(given, product_plan(given));
  EXPECT_NEAR(found.report.quadratic, energy(given, plan), tolerance * size + 1e-300);
  if (given.fused()) {
    EXPECT_NEAR(found.report.linear, inner(given.m, plan), tolerance * size);
  }
  EXPECT_LE(found.report.lower_bound,
            found.report.alpha * found.report.quadratic + (1 - found.report.alpha) * found.report.linear);
}

// The points' path, from the same start, has another image of the plan.
TEST_P(GromovTest, matrices_of_squared_distances_give_the_plans_of_points) {
  for (std::int64_t const r : {0, 2}) {
    Case const given = make_case(30, 24, 3, 2, r, 3, 2.0);
    double const size = energy(given, product_plan(given));
    for (double const eps : {0.0, 0.05 * size}) {
      GromovOptions const options{.eps = eps, .alpha = 0.4, .tolerance = kTolerance, .starts = 1};
      Gromov const points = solve(given, options), matrices = solve(matrices_of(given), options);
      ASSERT_EQ(matrices.report.status, Status::converged) << matrices.report.message;
      EXPECT_NEAR(matrices.report.value, points.report.value, (eps > 0 ? kSame : 1e-13) * size);
      EXPECT_NEAR(matrices.report.linear, points.report.linear, (eps > 0 ? kSame : 1e-13) * size);
      expect_values(matrices_of(given), matrices, kSame);
    }
  }
}

TEST_P(GromovTest, alternating_of_matrices_equals_dense_alternation) {
  for (auto const& [symmetric, loss] : {std::pair{true, GromovLoss::square},
                                        {false, GromovLoss::square},
                                        {true, GromovLoss::kl},
                                        {false, GromovLoss::kl}}) {
    for (bool const fused : {false, true}) {
      for (double const total : {1.0, 2.5}) {
        SCOPED_TRACE(testing::Message() << "symmetric " << symmetric << " fused " << fused << " total " << total << ' '
                                        << name(loss));
        Matrices const given = random_matrices(30, 24, symmetric, fused, 3, total, loss);
        double const alpha = fused ? 0.4 : 1, size = energy(given, product_plan(given));
        // Full steps from one start lead to one plan where the entropy is large.
        double const eps = (loss == GromovLoss::kl ? 1.0 : 0.3) * size / total;
        Gromov const found = solve(given, {.eps = eps, .alpha = 0.4, .tolerance = kTolerance, .starts = 1});
        ASSERT_EQ(found.report.status, Status::converged) << found.report.message;
        ASSERT_EQ(found.report.alpha, alpha);
        Matrix const expected = alternated(given, alpha, eps, false, 2000);
        EXPECT_NEAR(found.report.quadratic, energy(given, expected), kSame * size);
        EXPECT_NEAR(found.report.entropy, divergence(expected, given.a, given.b), kSame * total);
        EXPECT_LE(found.report.stationarity, kSame * size);
        EXPECT_NEAR(found.report.starts[0].value, found.report.value, kSame * size);
        expect_values(given, found, kSame);
        for (std::int64_t i = 0; i < 30; ++i)
          for (std::int64_t j = 0; j < 24; ++j)
            EXPECT_NEAR(found.cross_moment[static_cast<std::size_t>(24 * i + j)], expected(i, j), kSame * total);
      }
    }
  }
}

TEST_P(GromovTest, proximal_of_matrices_equals_dense_steps) {
  Matrices const given = random_matrices(30, 24, false, true, 4);
  double const size = energy(given, product_plan(given)), eps = 0.5 * size;
  for (int const steps : {1, 12}) {
    Gromov const found = solve(given, {.eps = eps,
                                       .alpha = 0.7,
                                       .method = GromovMethod::proximal,
                                       .tolerance = kTolerance,
                                       .iterations = steps,
                                       .starts = 1});
    EXPECT_EQ(found.report.status, Status::iteration_limit);
    Matrix const expected = alternated(given, 0.7, eps, true, steps);
    EXPECT_NEAR(found.report.quadratic, energy(given, expected), kSame * size);
    expect_values(given, found, kSame);
  }
}

// Full steps swing between two plans where the objective is convex and eps small.
TEST_P(GromovTest, entropic_steps_settle_where_full_ones_swing) {
  Matrices const given = of_kernels(30, 24, -1, 5);
  double const size = energy(given, product_plan(given)), eps = 0.01 * size;
  double swing = 0;
  alternated(given, 1, eps, false, 60, &swing);
  ASSERT_GT(swing, 0.1);
  Gromov const found = solve(given, {.eps = eps, .tolerance = kTolerance});
  ASSERT_EQ(found.report.status, Status::converged) << found.report.message;
  expect_values(given, found, kSame);
  Matrix const plan = dense(*found.plan), next = sinkhorn(derivative(given, plan, 1), given.a, given.b, eps);
  for (std::size_t e = 0; e < plan.data.size(); ++e) EXPECT_NEAR(next.data[e], plan.data[e], 1e-6);
}

TEST_P(GromovTest, exact_plans_of_matrices_are_stationary) {
  std::vector<Matrices> const all{random_matrices(24, 30, true, false, 5),
                                  random_matrices(24, 30, false, false, 6),
                                  random_matrices(30, 24, false, true, 7),
                                  of_kernels(24, 24, 1, 8),
                                  of_kernels(24, 20, -1, 9),
                                  random_matrices(1, 7, true, true, 10),
                                  random_matrices(7, 1, false, false, 11),
                                  random_matrices(1, 1, true, false, 12),
                                  random_matrices(24, 30, true, false, 5, 1, GromovLoss::kl),
                                  random_matrices(30, 24, false, true, 7, 1, GromovLoss::kl),
                                  random_matrices(1, 7, true, true, 10, 1, GromovLoss::kl)};
  for (std::size_t k = 0; k < all.size(); ++k) {
    SCOPED_TRACE(testing::Message() << "case " << k);
    Matrices const& given = all[k];
    double const tolerance = 1e-3;
    Gromov const found = solve(given, {.tolerance = tolerance});
    ASSERT_EQ(found.report.status, Status::converged) << found.report.message;
    expect_values(given, found, 1e-12);
    Matrix const plan = dense(*found.exact), slope = derivative(given, plan, found.report.alpha);
    for (std::int64_t i = 0; i < plan.rows; ++i) {
      double mass = 0;
      for (std::int64_t j = 0; j < plan.columns; ++j) mass += plan(i, j);
      EXPECT_NEAR(mass, given.a[i], 1e-14);
    }
    ExactPlan const best = solve_exact(context(), CostMatrix{slope.view()}, given.a, given.b);
    double const size = energy(given, product_plan(given)) + 1e-30;
    double const gap = inner(slope, plan) - best.report.transport_cost;
    EXPECT_NEAR(found.report.stationarity, gap, 1e-10 * size);
    bool const is_vertex = static_cast<std::int64_t>(found.exact->values.size()) <= plan.rows + plan.columns - 1;
    EXPECT_LE(gap, is_vertex ? 1e-10 * size : tolerance * found.report.value);
    if (k == 3) {
      EXPECT_TRUE(is_vertex);
    }
    if (k == 4) {
      EXPECT_FALSE(is_vertex);  // The objective is convex.
    }
  }
}

TEST_P(GromovTest, gradients_by_matrices_are_differences_of_the_value) {
  for (auto const& [exact, loss] : {std::pair{false, GromovLoss::square},
                                    {true, GromovLoss::square},
                                    {false, GromovLoss::kl},
                                    {true, GromovLoss::kl}}) {
    for (double const total : {1.0, 2.0}) {
      Matrices const given = random_matrices(14, 11, false, true, 13, total, loss);
      double const size = energy(given, product_plan(given));
      GromovOptions options{.eps = exact ? 0 : 0.2 * size / total, .alpha = 0.3, .tolerance = 1e-9};
      Gromov const found = solve(given, options);
      options.cross_moment = {found.cross_moment.data(), 14, 11};
      Matrix c(14, 14), d(11, 11);
      Values a(14), b(11);
      found.gradients({.x = {c.data.data(), 14, 14}, .y = {d.data.data(), 11, 11}, .a = a, .b = b});
      auto const difference = [&](auto const& change, double step) {
        Matrices up = given, down = given;
        change(up, step);
        change(down, -step);
        return (solve(up, options).report.value - solve(down, options).report.value) / (2 * step);
      };
      // As above: the third derivative times the square of the step, and the rounding of the value over the step.
      double const slack = 1e-5 * size;
      for (auto const& [i, k] : {std::pair{0, 3}, {3, 0}, {2, 2}, {10, 7}}) {
        double const by_c = difference([&, i = i, k = k](Matrices& at, double h) { at.c(i, k) += h; }, 1e-4);
        double const by_d = difference([&, i = i, k = k](Matrices& at, double h) { at.d(i, k) += h; }, 1e-4);
        EXPECT_NEAR(c(i, k), by_c, slack) << i << ' ' << k << " exact " << exact;
        EXPECT_NEAR(d(i, k), by_d, slack) << i << ' ' << k << " exact " << exact;
      }
      if (exact) continue;  // Its derivatives by weights are one-sided.
      double const by_a = difference([](Matrices& at, double h) { at.a[1] += h, at.a[4] -= h; }, 1e-5);
      double const by_b = difference([](Matrices& at, double h) { at.b[1] += h, at.b[4] -= h; }, 1e-5);
      double const by_both = difference([](Matrices& at, double h) { at.a[2] += h, at.b[3] += h; }, 1e-5);
      EXPECT_NEAR(a[1] - a[4], by_a, slack);
      EXPECT_NEAR(b[1] - b[4], by_b, slack);
      EXPECT_NEAR(a[2] + b[3], by_both, slack);
    }
  }
}

TEST_P(GromovTest, finds_the_order_of_a_matrix) {
  Matrices given = random_matrices(40, 40, false, false, 14);
  given.a = given.b = {};
  for (std::int64_t i = 0; i < 40; ++i)
    for (std::int64_t k = 0; k < 40; ++k) given.d(i, k) = given.c(39 - i, 39 - k);
  Gromov const found = solve(given, {});
  ASSERT_EQ(found.report.starts[1].kind, GromovStartKind::descriptors);
  EXPECT_LE(found.report.starts[1].value, 1e-14);
  EXPECT_LE(found.report.quadratic, 1e-14);  // Rounding of two sums of 1, over 40 terms.
  EXPECT_EQ(found.report.lower_bound, 0);
  for (std::int64_t i = 0; i < 40; ++i) EXPECT_EQ(found.exact->column_indices[i], 39 - i);

  Gromov const many = solve(given, {.starts = 6});
  ASSERT_EQ(many.report.starts.size(), 6u);
  EXPECT_EQ(many.report.starts[5].kind, GromovStartKind::random);
  EXPECT_NE(many.report.starts[4].value, many.report.starts[5].value);
  Gromov const again = solve(given, {.cross_moment = {found.cross_moment.data(), 40, 40}});
  ASSERT_EQ(again.report.starts.size(), 1u);
  EXPECT_EQ(again.report.iterations, 1);
  EXPECT_LE(again.report.quadratic, 1e-14);
}

TEST_P(GromovTest, matrices_of_any_unit_and_offset) {
  Matrices const given = random_matrices(20, 16, false, false, 15);
  double const size = energy(given, product_plan(given));
  for (double const share : {0.0, 0.3}) {
    double const value = solve(given, {.eps = share * size, .starts = 1}).report.value;
    for (auto const& [scale, shift] : {std::pair{1e-7, 0.0}, {1e7, 0.0}, {1.0, 1e4}, {1e-150, 0.0}, {1e150, 0.0}}) {
      Matrices other = given;
      for (Matrix* const matrix : {&other.c, &other.d})
        for (double& v : matrix->data) v = scale * v + shift;
      double const unit = scale * scale;
      Gromov const found = solve(other, {.eps = share * size * unit, .starts = 1});
      EXPECT_EQ(found.report.status, Status::converged) << found.report.message;
      // A shift of 1e4 leaves entries 1e-12; the tolerance of 1e-5 leaves its square to the value with entropy.
      EXPECT_NEAR(found.report.value / unit, value, 1e-8 * size) << scale << ' ' << shift;
    }
  }
}

// The loss kl is of degree 1, so units are no squares.
TEST_P(GromovTest, loss_kl_takes_any_unit_and_zeros) {
  Matrices given = random_matrices(20, 16, false, false, 15, 1, GromovLoss::kl);
  double const size = energy(given, product_plan(given));
  for (double const share : {0.0, 0.3}) {
    double const value = solve(given, {.eps = share * size, .starts = 1}).report.value;
    for (double const scale : {1e-7, 1e7, 1e100}) {
      Matrices other = given;
      for (Matrix* const matrix : {&other.c, &other.d})
        for (double& v : matrix->data) v *= scale;
      Gromov const found = solve(other, {.eps = share * size * scale, .starts = 1});
      EXPECT_EQ(found.report.status, Status::converged) << found.report.message;
      // 1e-18 beside 1e-7 is 1e-11. With entropy the tolerance of 1e-5 leaves its square to the value.
      EXPECT_NEAR(found.report.value / scale, value, 1e-8 * size) << scale;
    }
  }
  for (std::int64_t k = 0; k < 16; ++k) given.c(k, k) = given.d(k, k) = 0;  // Their loss is up to 41 times an entry.
  given.a[3] = given.b[5] = 0;
  given.a[4] = 1e-300;
  double const total = std::accumulate(given.a.begin(), given.a.end(), 0.0);
  double const total_b = std::accumulate(given.b.begin(), given.b.end(), 0.0);
  for (double& w : given.b) w *= total / total_b;
  for (double const eps : {0.0, 0.3 * size}) {
    Gromov const found = solve(given, {.eps = eps, .tolerance = eps > 0 ? 1e-5 : 1e-3});  // Conditional gradients.
    EXPECT_EQ(found.report.status, Status::converged) << found.report.message;
    expect_values(given, found, eps > 0 ? 1e-5 : 1e-12);
  }
}

TEST_P(GromovTest, matrices_take_features) {
  Case const points = make_case(14, 11, 2, 2, 3, 21);
  Matrices given = random_matrices(14, 11, false, false, 22);
  given.m = squared_distances(points.s, points.t);
  GromovMatrices with_features = given.views();
  with_features.cost = {};
  double const eps = 0.3 * energy(given, product_plan(given));
  GromovOptions options{.eps = eps, .alpha = 0.3, .tolerance = 1e-9};
  auto const value = [&](Matrix const& s, Matrix const& t) {
    with_features.s = s.view();
    with_features.t = t.view();
    return solve_gromov(context(), with_features, given.a, given.b, options);
  };
  Gromov const found = value(points.s, points.t), expected = solve(given, options);
  EXPECT_NEAR(found.report.value, expected.report.value, 1e-13 * eps);
  Matrix s(14, 3), t(11, 3);
  found.gradients({.s = {s.data.data(), 14, 3}, .t = {t.data.data(), 11, 3}});
  options.cross_moment = {found.cross_moment.data(), 14, 11};
  for (auto const& at : {std::pair{0, 2}, {10, 1}}) {
    std::int64_t const i = at.first, k = at.second;
    auto const difference = [&](bool of_source) {
      double values[2];
      for (int const side : {0, 1}) {
        Matrix moved_s = points.s, moved_t = points.t;
        (of_source ? moved_s : moved_t)(i, k) += side == 0 ? 1e-4 : -1e-4;
        values[side] = value(moved_s, moved_t).report.value;
      }
      return (values[0] - values[1]) / 2e-4;
    };
    EXPECT_NEAR(s(i, k), difference(true), 1e-5 * eps);  // As above.
    EXPECT_NEAR(t(i, k), difference(false), 1e-5 * eps);
  }
}

TEST_P(GromovTest, matrices_of_one_value_have_the_closed_form) {
  Matrices given = random_matrices(12, 9, true, false, 16, 2.0);
  given.c.data.assign(144, 3);
  for (double const eps : {0.0, 0.5}) {
    given.d.data.assign(81, 1);
    Gromov const found = solve(given, {.eps = eps});
    EXPECT_EQ(found.report.status, Status::converged) << found.report.message;
    EXPECT_NEAR(found.report.quadratic, 16, 1e-13);  // (3 - 1)^2 times the square of the mass.
    EXPECT_NEAR(found.report.lower_bound, 16, 1e-10);
    given.loss = GromovLoss::kl;
    Gromov const relative = solve(given, {.eps = eps});
    EXPECT_NEAR(relative.report.quadratic, 4 * (3 * std::log(3) - 2), 1e-13);
    EXPECT_NEAR(relative.report.lower_bound, relative.report.quadratic, 1e-10);
    given.d.data.assign(81, 3);
    EXPECT_NEAR(solve(given, {.eps = eps}).report.quadratic, 0, 1e-13);
    given.loss = GromovLoss::square;
    EXPECT_NEAR(solve(given, {.eps = eps}).report.quadratic, 0, 1e-13);
  }
}

TEST_P(GromovTest, matrices_take_weights_of_nearly_nothing) {
  Matrices given = random_matrices(20, 16, false, true, 17);
  given.a[3] = 0;
  given.a[4] = 1e-300;
  given.b[0] = 0;
  for (std::int64_t k = 0; k < 20; ++k) given.c(3, k) = 1e6;  // A far row of no weight.
  double const total = std::accumulate(given.a.begin(), given.a.end(), 0.0);
  double const total_b = std::accumulate(given.b.begin(), given.b.end(), 0.0);
  for (double& w : given.b) w *= total / total_b;
  double const size = energy(given, product_plan(given));
  for (double const eps : {0.0, 0.3 * size}) {
    Gromov const found = solve(given, {.eps = eps});
    EXPECT_EQ(found.report.status, Status::converged) << found.report.message;
    expect_values(given, found, 1e-5);
  }
}

// The value is that of the plan after Altschuler, Weed, Rigollet 2017, whose marginals are the weights.
TEST_P(GromovTest, values_of_matrices_are_those_of_plans_with_the_weights) {
  Matrices const given = random_matrices(20, 16, false, false, 19);
  double const size = energy(given, product_plan(given));
  Gromov const found = solve(given, {.eps = 0.05 * size, .tolerance = 0.4, .iterations = 1, .starts = 1});
  ASSERT_GT(found.report.marginal_error, 1e-3);
  Matrix plan = dense(*found.plan);
  Values lack = given.a, lack_of_column = given.b;
  for (std::int64_t i = 0; i < 20; ++i) {
    double const mass = std::accumulate(&plan.data[16 * i], &plan.data[16 * i] + 16, 0.0);
    for (std::int64_t j = 0; j < 16; ++j) plan(i, j) *= std::min(1.0, given.a[i] / mass);
  }
  for (std::int64_t j = 0; j < 16; ++j) {
    double mass = 0;
    for (std::int64_t i = 0; i < 20; ++i) mass += plan(i, j);
    for (std::int64_t i = 0; i < 20; ++i) {
      plan(i, j) *= std::min(1.0, given.b[j] / mass);
      lack[i] -= plan(i, j);
      lack_of_column[j] -= plan(i, j);
    }
  }
  double const missing = std::accumulate(lack.begin(), lack.end(), 0.0);
  for (std::int64_t i = 0; i < 20; ++i)
    for (std::int64_t j = 0; j < 16; ++j) plan(i, j) += lack[i] * lack_of_column[j] / missing;
  // Entries of float32 products have errors of 2^-22.
  EXPECT_NEAR(found.report.quadratic, energy(given, plan), 1e-5 * size);
}

TEST_P(GromovTest, refuses_matrices_that_it_cannot_take) {
  Matrices const given = random_matrices(6, 5, true, true, 18);
  double const nan = std::numeric_limits<double>::quiet_NaN();
  Matrices wrong = given;
  wrong.c(4, 1) = nan;
  refused("source: row 4, column 1 is nan; entries must be finite", wrong);
  wrong = given;
  wrong.m(2, 0) = std::numeric_limits<double>::infinity();
  refused("cost: row 2, column 0 is inf; entries must be finite", wrong);
  wrong = given;
  wrong.d(1, 0) = 1e160;
  refused("target: has entries of up to 1e+160", wrong);
  wrong = given;
  wrong.d = Matrix(5, 4);
  refused("target: is 5 x 4; must be square", wrong);
  wrong = given;
  wrong.m = Matrix(5, 5);
  refused("cost: is 5 x 5; must be 6 x 5", wrong);
  wrong = given;
  wrong.a[2] = 2;
  refused("b: the total is", wrong);
  refused("cross_moment: is 6 x 6; must be 6 x 5", given, {.cross_moment = given.c.view()});
  refused("cross_moment: has an entry of -", given, {.cross_moment = given.m.view()});
  Gromov const found = solve(given, {});
  Matrix out(6, 6);
  EXPECT_THAT(refusal_of([&] {
                found.gradients({.s = {out.data.data(), 6, 6}});
              }),
              testing::StartsWith("s: is 6 x 6; must be 0 x 0"));
  GromovMatrices views = given.views();
  views.loss = GromovLoss::kl;
  EXPECT_THAT(refusal_of([&] { solve_gromov(context(), views); }),
              testing::HasSubstr("entries must be >= 0 for the loss kl"));
  views = given.views();
  views.s = given.c.view();
  EXPECT_EQ(refusal_of([&] { solve_gromov(context(), views); }), "t: is missing; features need both s and t");
  views.t = given.m.view();
  EXPECT_EQ(refusal_of([&] { solve_gromov(context(), views); }), "t: is 6 x 5; must be 5 x 6");
  views.t = {given.m.data.data(), 5, 6};
  EXPECT_EQ(refusal_of([&] { solve_gromov(context(), views); }),
            "cost: is given beside features; must be empty, or s and t");
  EXPECT_THROW(found.source_features(out.view(), {}, {out.data.data(), 6, 6}), Error);
}

// Open marginals.

using enum GromovMarginals;

Values sums(Matrix const& plan, bool of_rows) {
  Values sum(static_cast<std::size_t>(of_rows ? plan.rows : plan.columns), 0);
  for (std::int64_t i = 0; i < plan.rows; ++i)
    for (std::int64_t j = 0; j < plan.columns; ++j) sum[of_rows ? i : j] += plan(i, j);
  return sum;
}

double total_of(Values const& weights) {
  return std::accumulate(weights.begin(), weights.end(), 0.0);
}

Matrix plan_of_result(Gromov const& found) {
  return found.plan ? dense(*found.plan) : dense(*found.exact);
}

/// The derivative of the objective without entropy, whatever the marginals of the plan.
Matrix whole_derivative(Matrices given, Matrix const& plan, double alpha) {
  given.a = sums(plan, true);
  given.b = sums(plan, false);
  return derivative(given, plan, alpha);
}

/// sum p log(p / w)
double relative(Values const& p, Values const& w) {
  double sum = 0;
  for (std::size_t i = 0; i < p.size(); ++i) sum += p[i] > 0 ? p[i] * std::log(p[i] / w[i]) : 0;
  return sum;
}

double relative(Matrix const& plan, Values const& a, Values const& b) {
  Values product(plan.data.size());
  for (std::size_t i = 0; i < a.size(); ++i)
    for (std::size_t j = 0; j < b.size(); ++j) product[i * b.size() + j] = a[i] * b[j];
  return relative(plan.data, product);
}

/// a_i softmin_j: the plan with rows a and open columns.
Matrix row_softmax(Matrix const& cost, Values const& a, Values const& b, double eps) {
  Matrix plan(cost.rows, cost.columns);
  for (std::int64_t i = 0; i < cost.rows; ++i) {
    double least = cost(i, 0), sum = 0;
    for (std::int64_t j = 0; j < cost.columns; ++j) least = std::min(least, cost(i, j));
    for (std::int64_t j = 0; j < cost.columns; ++j) sum += plan(i, j) = b[j] * std::exp((least - cost(i, j)) / eps);
    for (std::int64_t j = 0; j < cost.columns; ++j) plan(i, j) *= a[i] / sum;
  }
  return plan;
}

double distance(Matrix const& one, Matrix const& other) {
  double sum = 0;
  for (std::size_t e = 0; e < one.data.size(); ++e) sum += std::abs(one.data[e] - other.data[e]);
  return sum;
}

/// Weights of these totals.
template <class Given>
Given with_totals(Given given, double of_a, double of_b) {
  double const now_a = total_of(given.a), now_b = total_of(given.b);
  for (double& w : given.a) w *= of_a / now_a;
  for (double& w : given.b) w *= of_b / now_b;
  return given;
}

/// Calls test(problem, its matrices, size of E) for points, with features or without, and for matrices.
void for_each_problem(auto const& test) {
  for (auto const& [p, q, r] : {std::tuple{3, 2, 0}, {1, 3, 2}}) {
    SCOPED_TRACE(testing::Message() << "points, p " << p << " q " << q << " r " << r);
    Case const given = with_totals(make_case(24, 20, p, q, r, 21), 2, 3);
    test(given, matrices_of(given), energy(given, product_plan(given)));
  }
  for (bool const fused : {false, true}) {
    SCOPED_TRACE(testing::Message() << "matrices, fused " << fused);
    Matrices const given = with_totals(random_matrices(24, 20, !fused, fused, 22), 2, 3);
    test(given, given, energy(given.c, given.d, product_plan(given)));
  }
}

TEST_P(GromovTest, open_exact_plans_are_stationary) {
  for_each_problem([&](auto const& given, Matrices const& matrices, double size) {
    for (auto const kind : {semirelaxed, partial}) {
      SCOPED_TRACE(name(kind));
      double const mass = kind == partial ? 1.5 : 2;
      Gromov const found = solve(
          given, {.alpha = 0.4, .marginals = kind, .mass = kind == partial ? mass : 0, .tolerance = 1e-3, .starts = 3});
      GromovReport const& report = found.report;
      ASSERT_EQ(report.status, Status::converged) << report.message;
      Matrix const plan = dense(*found.exact);
      Values const row = sums(plan, true), column = sums(plan, false);
      EXPECT_NEAR(total_of(row), mass, 1e-14);
      EXPECT_NEAR(report.mass, mass, 1e-15);
      for (std::size_t i = 0; i < row.size(); ++i) {
        EXPECT_LE(row[i], given.a[i] + 1e-15);
        if (kind == semirelaxed) {
          EXPECT_NEAR(row[i], given.a[i], 1e-15);
        }
      }
      for (std::size_t j = 0; j < column.size() && kind == partial; ++j) EXPECT_LE(column[j], given.b[j] + 1e-15);
      EXPECT_NEAR(report.quadratic, energy(matrices.c, matrices.d, plan), 1e-12 * size);
      if (given.fused()) {
        EXPECT_NEAR(report.linear, inner(matrices.m, plan), 1e-12 * size);
      }
      EXPECT_EQ(report.value, report.alpha * report.quadratic + (1 - report.alpha) * report.linear);
      EXPECT_LE(report.lower_bound, report.value);

      Matrix const slope = whole_derivative(matrices, plan, report.alpha);
      double best = 0;
      if (kind == partial) {
        best = solve_exact(context(), CostMatrix{slope.view()}, given.a, given.b, {.mass = mass}).report.transport_cost;
      } else {
        for (std::int64_t i = 0; i < slope.rows; ++i)
          best += given.a[i] * *std::min_element(&slope.data[i * 20], &slope.data[i * 20] + 20);
      }
      double const gap = inner(slope, plan) - best;
      EXPECT_NEAR(report.stationarity, gap, 1e-10 * size);
      EXPECT_LE(gap, 1e-3 * std::abs(report.value) + 1e-10 * size);
    }
  });
}

TEST_P(GromovTest, semirelaxed_plans_are_row_softmaxes) {
  for_each_problem([&](auto const& given, Matrices const& matrices, double size) {
    double const eps = 0.1 * size;
    auto const balanced = with_totals(given, 2, 2);
    GromovOptions options{.eps = eps, .alpha = 0.4, .marginals = semirelaxed, .tolerance = kTolerance, .starts = 1};
    Gromov const found = solve(given, options);
    GromovReport const& report = found.report;
    ASSERT_EQ(report.status, Status::converged) << report.message;
    Matrix const plan = plan_of_result(found);
    Matrix const again = row_softmax(whole_derivative(matrices, plan, report.alpha), balanced.a, balanced.b, eps);
    EXPECT_LE(distance(plan, again), kSame);
    EXPECT_NEAR(report.quadratic, energy(matrices.c, matrices.d, plan), 1e-12 * size);
    EXPECT_NEAR(report.entropy, divergence(plan, balanced.a, balanced.b), 1e-12);
    EXPECT_NEAR(report.value,
                report.alpha * report.quadratic + (1 - report.alpha) * report.linear + eps * report.entropy,
                1e-14 * size);
    EXPECT_LE(report.stationarity, kSame * size);
    EXPECT_LE(report.marginal_error, 1e-13);

    options.method = GromovMethod::proximal;
    for (int const steps : {1, 7}) {
      options.iterations = steps;
      Gromov const proximal = solve(given, options);
      Matrix expected = product_plan(balanced), cost(24, 20);
      for (int k = 1; k <= steps; ++k) {
        Matrix const slope = whole_derivative(matrices, expected, report.alpha);
        for (std::size_t e = 0; e < cost.data.size(); ++e) cost.data[e] += slope.data[e];
        expected = row_softmax(cost, balanced.a, balanced.b, eps);
      }
      EXPECT_LE(distance(plan_of_result(proximal), expected), 1e-10);
      EXPECT_NEAR(proximal.report.quadratic, energy(matrices.c, matrices.d, expected), 1e-10 * size);
    }
  });
}

TEST_P(GromovTest, semirelaxed_steps_settle_where_full_ones_swing) {
  Case const clouds = make_case(30, 24, 2, 3, 0, 5);
  auto const check = [&](auto const& given, Matrices const& matrices) {
    double const size = energy(matrices.c, matrices.d, product_plan(given)), eps = 0.01 * size;
    Matrix plan = product_plan(given);
    double swing = 0;
    for (int k = 0; k < 60; ++k) {
      Matrix const next = row_softmax(whole_derivative(matrices, plan, 1), given.a, given.b, eps);
      swing = distance(next, plan);
      plan = next;
    }
    EXPECT_GT(swing, 0.1);
    Gromov const found =
        solve(given, {.eps = eps, .marginals = semirelaxed, .tolerance = kTolerance, .iterations = 10000, .starts = 1});
    ASSERT_EQ(found.report.status, Status::converged) << found.report.message;
    plan = dense(*found.plan);
    EXPECT_LE(distance(plan, row_softmax(whole_derivative(matrices, plan, 1), given.a, given.b, eps)), 1e-5);
  };
  Matrices const kernels = of_kernels(30, 24, -1, 5);
  check(kernels, kernels);
  check(clouds, matrices_of(clouds));
}

// log(P_ij / a_i b_j) is a sum of the cost and of the logarithms of both marginals, for the cost that the plan makes.
TEST_P(GromovTest, unbalanced_plans_meet_the_conditions_of_first_order) {
  for_each_problem([&](auto const& given, Matrices const& matrices, double size) {
    double const eps = 0.1 * size, penalty_a = 0.3 * size, penalty_b = 0.2 * size;
    GromovOptions options{.eps = eps,
                          .alpha = 0.4,
                          .marginals = unbalanced,
                          .penalty_a = penalty_a,
                          .penalty_b = penalty_b,
                          .tolerance = kTolerance};
    options.starts = 1;
    double last = 0;  // The objective of the last step but one.
    options.progress = [&](GromovProgress const& at) {
      last = at.value;
      return true;
    };
    Gromov const found = solve(given, options);
    GromovReport const& report = found.report;
    ASSERT_EQ(report.status, Status::converged) << report.message;
    Matrix const plan = dense(*found.plan);
    Values const row = sums(plan, true), column = sums(plan, false), &a = given.a, &b = given.b;
    double const mass = total_of(row), of_rows = relative(row, a), of_columns = relative(column, b),
                 of_plan = relative(plan, a, b);
    EXPECT_NEAR(report.mass, mass, 1e-12);
    Matrix const slope = whole_derivative(matrices, plan, report.alpha);
    double const base = penalty_a * of_rows + penalty_b * of_columns + eps * of_plan;
    Matrix predicted(24, 20);
    for (std::int64_t i = 0; i < 24; ++i)
      for (std::int64_t j = 0; j < 20; ++j) {
        double const terms = penalty_a * std::log(row[i] / a[i]) + penalty_b * std::log(column[j] / b[j]);
        predicted(i, j) = a[i] * b[j] * std::exp(-((slope(i, j) + base) / mass + terms) / eps);
      }
    EXPECT_LE(distance(plan, predicted), 1e-5 * mass);
    EXPECT_NEAR(report.quadratic, energy(matrices.c, matrices.d, plan), 1e-12 * size);
    EXPECT_NEAR(report.entropy, mass * of_plan + (36 - mass * mass) / 2, 1e-10);
    EXPECT_NEAR(
        report.divergence,
        penalty_a * (mass * of_rows + (4 - mass * mass) / 2) + penalty_b * (mass * of_columns + (9 - mass * mass) / 2),
        1e-10 * size);
    EXPECT_NEAR(
        report.value,
        report.alpha * report.quadratic + (1 - report.alpha) * report.linear + eps * report.entropy + report.divergence,
        1e-14 * report.value);
    EXPECT_NEAR(last, report.value, kSame * report.value);
    EXPECT_LE(report.stationarity, kSame * size);
    EXPECT_LE(report.lower_bound, report.value);
  });
}

TEST_P(GromovTest, gradients_with_open_marginals_are_differences_of_the_value) {
  for (auto const kind : {semirelaxed, partial, unbalanced}) {
    for (bool const entropic : {false, true}) {
      if (entropic ? kind == partial : kind == unbalanced) continue;
      SCOPED_TRACE(testing::Message() << name(kind) << ", entropic " << entropic);
      Case const given = with_totals(make_case(14, 11, 2, 3, 2, 13), 1, 1.5);
      Matrices const matrices = random_matrices(14, 11, false, true, 13);
      double const size = energy(given, product_plan(given));
      GromovOptions options{.eps = entropic ? 0.2 * size : 0,
                            .alpha = 0.3,
                            .marginals = kind,
                            .penalty_a = kind == unbalanced ? size : 0,
                            .penalty_b = kind == unbalanced ? size : 0,
                            .mass = kind == partial ? 0.6 : 0,
                            .tolerance = 1e-10,
                            .iterations = 10000};
      Gromov const found = solve(given, options), other = solve(matrices, options);
      Matrix x(14, 2), y(11, 3), s(14, 2), t(11, 2), c(14, 14), d(11, 11);
      auto const out = [](Matrix& matrix) {
        return MutableMatrixView(matrix.data.data(), matrix.rows, matrix.columns);
      };
      found.gradients({out(x), out(y), out(s), out(t)});
      other.gradients({out(c), out(d)});
      Values a(14);
      EXPECT_THAT(refusal_of([&] { found.gradients({.a = a}); }, ErrorCode::unsupported),
                  testing::StartsWith("gradients: marginals are "));
      EXPECT_THROW(other.gradients({.b = a}), Error);
      auto const difference = [&](auto const& at, Gromov const& from, std::int64_t rows, std::int64_t columns,
                                  auto const& change) {
        options.cross_moment = {from.cross_moment.data(), rows, columns};
        auto up = at, down = at;
        change(up, 1e-4);
        change(down, -1e-4);
        return (solve(up, options).report.value - solve(down, options).report.value) / 2e-4;
      };
      double const slack = 1e-5 * size;  // As above.
      for (auto const& [member, gradient] : {std::pair{&Case::x, &x}, {&Case::y, &y}, {&Case::s, &s}, {&Case::t, &t}})
        for (std::int64_t k = 0; k < gradient->columns; ++k)
          EXPECT_NEAR((*gradient)(9, k),
                      difference(given, found, 8, 7, [&, m = member](Case& at, double h) { (at.*m)(9, k) += h; }),
                      slack);
      double const by_c = difference(matrices, other, 14, 11, [](Matrices& at, double h) { at.c(9, 7) += h; });
      double const by_d = difference(matrices, other, 14, 11, [](Matrices& at, double h) { at.d(9, 7) += h; });
      EXPECT_NEAR(c(9, 7), by_c, slack);
      EXPECT_NEAR(d(9, 7), by_d, slack);
    }
  }
}

TEST_P(GromovTest, open_marginals_take_weights_of_nearly_nothing_and_any_totals) {
  for (auto const kind : {semirelaxed, partial, unbalanced}) {
    SCOPED_TRACE(name(kind));
    Case given = make_case(20, 16, 2, 2, 1, 8);
    given.a[3] = 0;
    given.a[4] = 1e-300;
    given.b[0] = 0;
    given.b[1] = 1e-300;
    for (std::int64_t k = 0; k < 2; ++k) given.x(3, k) = 1e6;  // A far point of no weight.
    double const size = energy(given, product_plan(given));
    auto const options = [&](double scale) {
      return GromovOptions{.eps = kind == unbalanced ? 0.1 * size * scale : 0,
                           .marginals = kind,
                           .penalty_a = kind == unbalanced ? size : 0,
                           .penalty_b = kind == unbalanced ? size : 0,
                           .mass = kind == partial ? 0.5 : 0};
    };
    for (auto const& [of_a, of_b] : {std::pair{1.0, 1.0}, {1e6, 1.0}, {1.0, 1e6}}) {
      Case const scaled = with_totals(given, of_a, of_b);
      Gromov const found = solve(scaled, options(1));
      EXPECT_EQ(found.report.status, Status::converged) << found.report.message;
      Matrix const plan = plan_of_result(found);
      double const mass = total_of(plan.data);
      EXPECT_NEAR(found.report.mass, mass, 1e-6 * mass);
      EXPECT_NEAR(found.report.quadratic, energy(given, plan), 1e-5 * size * mass * mass);
      for (std::int64_t j = 0; j < 16; ++j) EXPECT_EQ(plan(3, j), 0);
      for (std::int64_t i = 0; i < 20; ++i) EXPECT_EQ(plan(i, 0), 0);
    }
    // Distances within do not change where one point is left, or the clouds move far away.
    Case const single = make_case(1, 7, 1, 2, 0, 9);
    Gromov const one = solve(single, options(1));
    EXPECT_EQ(one.report.status, Status::converged) << one.report.message;
    EXPECT_NEAR(one.report.quadratic, energy(single, plan_of_result(one)), 1e-10 * size);
    Gromov const near = solve(given, options(1)), far = solve(moved(given, 1, 1e5, false), options(1));
    EXPECT_NEAR(far.report.quadratic, near.report.quadratic, 1e-6 * size);
    Case plain = given;  // Features would not scale.
    plain.s = Matrix(20, 0);
    plain.t = Matrix(16, 0);
    double const expected = solve(plain, options(1)).report.value;
    for (double const scale : {1e-60, 1e-7, 1e7, 1e60}) {
      double const power = std::pow(scale, 4);
      GromovOptions in_unit = options(power);
      in_unit.penalty_a *= power;
      in_unit.penalty_b *= power;
      EXPECT_NEAR(solve(moved(plain, scale, 0, false), in_unit).report.value / power, expected, 1e-6 * size) << scale;
    }
  }
}

TEST_P(GromovTest, new_points_have_the_costs_of_open_marginals) {
  for (auto const& [p, q, r] : {std::tuple{3, 2, 0}, {2, 3, 2}}) {
    Case const given = make_case(14, 11, p, q, r, 14);
    double const size = energy(given, product_plan(given));
    for (auto const& options :
         {GromovOptions{.marginals = semirelaxed},
          GromovOptions{.eps = size, .marginals = unbalanced, .penalty_a = size, .penalty_b = size}}) {
      Gromov const found = solve(given, options);
      Matrix u(14, static_cast<std::int64_t>(found.u.size()) / 14);
      found.source_features(given.x.view(), given.s.view(), {u.data.data(), u.rows, u.columns});
      EXPECT_EQ(u.data, found.u);
    }
  }
}

TEST_P(GromovTest, finds_the_part_that_two_clouds_share) {
  Case given = make_case(30, 20, 2, 2, 0, 15);
  for (std::int64_t j = 0; j < 20; ++j)
    for (std::int64_t k = 0; k < 2; ++k) given.y(j, k) = given.x(j, k);
  given.a.assign(30, 1);
  given.b.assign(20, 1);
  Gromov const rows = solve(given, {.marginals = partial, .mass = 20});
  EXPECT_NEAR(rows.report.value, 0, 1e-10);
  Case const turned{given.y, given.x, given.t, given.s, given.b, given.a};
  Gromov const found = solve(turned, {.marginals = semirelaxed});
  EXPECT_NEAR(found.report.value, 0, 1e-10);
}

// From axes with the wrong signs a step has the mass exp(-E / penalty), which float64 does not hold.
// eps log(P_ij / a_i b_j) plus the derivative of the objective is f_i + g_j. f is the same in all rows that have less
// than a, and at most this in the others; g likewise.
TEST_P(GromovTest, entropic_partial_plans_meet_the_conditions_of_first_order) {
  for (bool const fused : {false, true}) {
    Matrices const given = with_totals(random_matrices(24, 20, !fused, fused, 22), 2, 3);
    double const size = energy(given.c, given.d, product_plan(given)), eps = 0.02 * size;
    GromovOptions options{.eps = eps, .alpha = 0.4, .marginals = partial, .mass = 1.5, .tolerance = kTolerance};
    Gromov const found = solve(given, options);
    ASSERT_EQ(found.report.status, Status::converged) << found.report.message;
    Matrix const plan = dense(*found.plan);
    Values const row = sums(plan, true), column = sums(plan, false);
    EXPECT_NEAR(total_of(row), 1.5, 1e-12);
    EXPECT_LE(found.report.marginal_error, 1e-8);
    EXPECT_NEAR(found.report.quadratic, energy(given.c, given.d, plan), 1e-7 * size);
    EXPECT_NEAR(found.report.entropy, relative(plan, given.a, given.b) - 1.5 + 6, 1e-7);
    Matrix terms = whole_derivative(given, plan, found.report.alpha);
    for (std::int64_t i = 0; i < 24; ++i)
      for (std::int64_t j = 0; j < 20; ++j) terms(i, j) += eps * std::log(plan(i, j) / given.a[i] / given.b[j]);
    double most_f = terms(0, 0), most_g = terms(0, 0);
    for (std::int64_t i = 0; i < 24; ++i) most_f = std::max(most_f, terms(i, 0));
    for (std::int64_t j = 0; j < 20; ++j) most_g = std::max(most_g, terms(0, j));
    int open = 0;
    for (std::int64_t i = 0; i < 24; ++i) {
      for (std::int64_t j = 0; j < 20; ++j)
        EXPECT_NEAR(terms(i, j), terms(i, 0) + terms(0, j) - terms(0, 0), 1e-5 * size);
      if (row[i] > (1 - 1e-6) * given.a[i]) continue;
      EXPECT_NEAR(terms(i, 0), most_f, 1e-5 * size);
      ++open;
    }
    EXPECT_GT(open, 0);
    EXPECT_LT(open, 24);
    for (std::int64_t j = 0; j < 20; ++j)
      if (column[j] < (1 - 1e-6) * given.b[j]) {
        EXPECT_NEAR(terms(0, j), most_g, 1e-5 * size);
      }
    Gromov const short_of =
        solve(given, {.eps = eps / 10, .marginals = partial, .mass = 2, .tolerance = 0.1, .sweeps = 1});
    EXPECT_EQ(short_of.report.message, "the last step ended short of its tolerance; more sweeps would help");
  }
}

// The limit of proximal steps has no entropy: the derivative of the objective is 0 where the plan has mass. Where it
// has none the derivative may be negative, since entries that are almost 0 take many steps to grow.
TEST_P(GromovTest, proximal_unbalanced_plans_meet_the_conditions_of_first_order) {
  for_each_problem([&](auto const& given, Matrices const& matrices, double size) {
    double const penalty_a = 0.3 * size, penalty_b = 0.2 * size;
    Gromov const found = solve(given, {.eps = 0.01 * size,
                                       .alpha = 0.4,
                                       .method = GromovMethod::proximal,
                                       .marginals = unbalanced,
                                       .penalty_a = penalty_a,
                                       .penalty_b = penalty_b});
    GromovReport const& report = found.report;
    EXPECT_EQ(report.status, Status::converged) << report.message;
    Matrix const plan = dense(*found.plan);
    Values const row = sums(plan, true), column = sums(plan, false), &a = given.a, &b = given.b;
    double const mass = total_of(row);
    Matrix const slope = whole_derivative(matrices, plan, report.alpha);
    double const base = penalty_a * relative(row, a) + penalty_b * relative(column, b);
    double sum = 0;
    for (std::int64_t i = 0; i < 24; ++i)
      for (std::int64_t j = 0; j < 20; ++j)
        sum += plan(i, j) * std::abs((slope(i, j) + base) / mass + penalty_a * std::log(row[i] / a[i]) +
                                     penalty_b * std::log(column[j] / b[j]));
    // The last step, which changes the plan by 1e-5, has the derivative for its cost, so that it is eps times this.
    EXPECT_LE(sum, 1e-4 * size * mass);
    EXPECT_EQ(report.entropy, 0);
    EXPECT_NEAR(report.value, report.alpha * report.quadratic + (1 - report.alpha) * report.linear + report.divergence,
                1e-14 * report.value);
    Matrix u(24, static_cast<std::int64_t>(found.u.size()) / 24);
    EXPECT_THAT(refusal_of(
                    [&] {
                      found.source_features({}, {}, {u.data.data(), u.rows, u.columns});
                    },
                    ErrorCode::unsupported),
                testing::StartsWith("source_features: the "));
  });
}

// From axes with the wrong signs a step has the mass exp(-E / penalty), which float64 does not hold.
TEST_P(GromovTest, leaves_starts_whose_plans_lose_their_mass) {
  Case given = make_case(30, 30, 2, 2, 0, 15);
  given.y = given.x;
  given.b = given.a;
  double const penalty = energy(given, product_plan(given)) / 3000;
  Gromov const found =
      solve(given, {.eps = penalty, .marginals = unbalanced, .penalty_a = penalty, .penalty_b = penalty});
  EXPECT_EQ(found.report.status, Status::converged) << found.report.message;
  EXPECT_GT(found.report.mass, 0.1);
  if (context().device().type == DeviceType::cpu) {  // On an H200 no start lost its mass.
    EXPECT_GT(std::ranges::count_if(found.report.starts, [](auto const& start) { return std::isinf(start.value); }), 0);
  }
}

TEST_P(GromovTest, refuses_open_marginals_that_it_cannot_take) {
  Case const given = make_case(6, 5, 2, 3, 2, 12);
  refused("mass: is 0; must be > 0 and at most 1, the smaller total", given, {.marginals = partial});
  refused("mass: is 1.1; must be > 0 and at most 1", given, {.marginals = partial, .mass = 1.1});
  refused("mass: is 0.5 and marginals are balanced; must be 0", given, {.mass = 0.5});
  refused("penalty_a: is 0 and marginals are unbalanced; must be > 0", given, {.eps = 1, .marginals = unbalanced});
  refused("penalty_b: is 1 and marginals are semirelaxed", given, {.marginals = semirelaxed, .penalty_b = 1});
  refused("eps: is 0 and marginals are unbalanced; must be > 0", given,
          {.marginals = unbalanced, .penalty_a = 1, .penalty_b = 1}, ErrorCode::unsupported);
  refused("eps: is > 0 and marginals of points are partial; must be 0", given,
          {.eps = 1, .marginals = partial, .mass = 1}, ErrorCode::unsupported);
  refused("method: is proximal and marginals are partial", given,
          {.eps = 1, .method = GromovMethod::proximal, .marginals = partial, .mass = 1}, ErrorCode::unsupported);
  Matrix const moments(8, 7);
  refused("cross_moment: has a mass of 0; must be > 0", given,
          {.marginals = semirelaxed, .cross_moment = moments.view()});
  refused("penalty_a: is 1e-300; must be larger, or starts more, since plans from", given,
          {.eps = 1e-300, .marginals = unbalanced, .penalty_a = 1e-300, .penalty_b = 1e-300});
}

}  // namespace
}  // namespace monge::oracle
