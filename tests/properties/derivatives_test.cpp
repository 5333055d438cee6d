// Derivatives as a user meets them: against finite differences of the returned dual value, for any place, scale and
// layout of the points, and far from convergence.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "oracle/backend_test.hpp"
#include "oracle/derivatives.hpp"

namespace monge::oracle {
namespace {

class DerivativesTest : public BackendTest {
 protected:
  Plan solve(Problem const& problem, double eps, double tolerance, int iterations = 20000,
             Penalties const& penalties = {}) const {
    SolveOptions const options{.eps = eps,
                               .tolerance = tolerance,
                               .iterations = iterations,
                               .penalty_a = penalties.a,
                               .penalty_b = penalties.b,
                               .precision = precision()};
    return monge::solve(context(), problem.geometry(), problem.a, problem.b, options);
  }
};
MONGE_FOR_EACH_POINT_TARGET(DerivativesTest);

struct Gradients {
  explicit Gradients(Plan const& plan, std::int64_t d)
      : x(plan.rows() * d), y(plan.columns() * d), a(plan.rows()), b(plan.columns()) {
    report = plan.gradients({.x = {x.data(), plan.rows(), d}, .y = {y.data(), plan.columns(), d}, .a = a, .b = b});
  }
  std::vector<double> x, y, a, b;
  GradientReport report;
};

double norm(std::span<double const> values) {
  double sum = 0;
  for (double const value : values) sum += value * value;
  return std::sqrt(sum);
}

double distance(std::span<double const> first, std::span<double const> second) {
  std::vector<double> difference(first.begin(), first.end());
  for (std::size_t k = 0; k < difference.size(); ++k) difference[k] -= second[k];
  return norm(difference);
}

double dot(std::span<double const> first, std::span<double const> second) {
  double sum = 0;
  for (std::size_t k = 0; k < first.size(); ++k) sum += first[k] * second[k];
  return sum;
}

Problem moved(Problem problem, std::span<double const> v, double step) {
  for (Side const side : kSides) {
    Stored& points = side == Side::rows ? problem.x : problem.y;
    std::vector<double> values = points.values();
    std::size_t const first = side == Side::rows ? 0 : problem.x.values().size();
    for (std::size_t k = 0; k < values.size(); ++k) values[k] += step * v[first + k];
    points = Stored(values, points.rows(), points.columns());
  }
  return problem;
}

class CostDerivativesTest : public DerivativesTest {
 protected:
  static constexpr std::int64_t kN = 15, kM = 12, kD = 3;
  /// Step of central differences, which are off by third derivatives times its square over 6 and by rounding over it.
  static constexpr double kStep = 1e-5;

  struct Case {
    Problem problem;
    double eps;
    Penalties penalties;
  };
  std::vector<Case> cases() const {
    std::vector<Case> result;
    struct {
      double scale;
      Penalties over_eps;
    } const kinds[] = {{1, {}}, {0.5, {}}, {1, {2, 5}}, {0.5, {std::numeric_limits<double>::infinity(), 3}}};
    for (auto const& [scale, over_eps] : kinds) {
      Problem problem = make_problem({kN, kM, kD, Weights::uniform, Place::origin, 1, DataType::float64, 0, scale});
      double const eps = 0.2 * Magnitudes(problem).spread();
      result.push_back({std::move(problem), eps, {over_eps.a * eps, over_eps.b * eps}});
    }
    return result;
  }
  Plan solution(Case const& at) const { return solve(at.problem, at.eps, 1e-13, 20000, at.penalties); }
  /// d function(case) / dh where `move` moves the case by h.
  template <class Function, class Move>
  static double slope(Case const& given, double step, Function const& function, Move const& move) {
    double values[2];
    for (int k = 0; k < 2; ++k) {
      Case there = given;
      move(there, k == 0 ? step : -step);
      values[k] = function(there);
    }
    return (values[0] - values[1]) / (2 * step);
  }
  /// From one weight to another: the total stays what it is.
  static auto shift_weight(Side side) {
    return [side](Case& at, double h) {
      std::vector<double>& weights = side == Side::rows ? at.problem.a : at.problem.b;
      weights[1] += h;
      weights[4] -= h;
    };
  }
  void SetUp() override {
    DerivativesTest::SetUp();
    if (!is_float64()) GTEST_SKIP() << "differences of float32 solves are rounding";
  }
};
MONGE_FOR_EACH_OF(CostDerivativesTest, all_devices() + with_point_costs(kPointCosts));

TEST_P(CostDerivativesTest, are_those_of_the_dual_value_that_is_returned) {
  for (Case const& given : cases()) {
    SCOPED_TRACE(testing::Message() << "scale " << given.problem.scale << ", penalties " << given.penalties.a << " "
                                    << given.penalties.b);
    auto const value = [&](Case const& at) { return solution(at).report().dual; };
    Plan const plan = solution(given);
    std::vector<double> a(kN), b(kM);
    GradientReport const report = plan.gradients({.a = a, .b = b});
    EXPECT_LE(report.distance, 1e-9);
    for (Side const side : kSides) {
      std::vector<double> const& gradient = side == Side::rows ? a : b;
      EXPECT_NEAR(slope(given, kStep / 15, value, shift_weight(side)), gradient[1] - gradient[4],
                  1e-8 * norm(gradient));
    }
    EXPECT_NEAR(slope(given, kStep, value, [](Case& at, double h) { at.problem.scale += h; }), report.scale,
                1e-8 * std::abs(report.scale));
    EXPECT_EQ(std::isnan(report.label_weight), !given.problem.has_labels());
    if (given.problem.has_labels()) {
      EXPECT_NEAR(slope(given, kStep, value, [](Case& at, double h) { at.problem.label_weight += h; }),
                  report.label_weight, 1e-8 * std::abs(report.label_weight));
    }

    Gradients const gradients(plan, kD);
    std::vector<double> all = gradients.x;
    all.insert(all.end(), gradients.y.begin(), gradients.y.end());
    Random random(3);
    std::vector<double> const v = gaussian_points(kN + kM, kD, random);
    auto const move = [&](Case& at, double h) { at.problem = moved(at.problem, v, h); };
    EXPECT_NEAR(slope(given, kStep, value, move), dot(all, v), 1e-8 * norm(all) * norm(v));

    // And the Hessian's products are those of the gradient.
    std::vector<double> product(all.size());
    double* const of_y = product.data() + kN * kD;
    LinearReport const linear =
        plan.hessian_product({.x = {v.data(), kN, kD}, .y = {v.data() + kN * kD, kM, kD}},
                             {.x = {product.data(), kN, kD}, .y = {of_y, kM, kD}}, {.tolerance = 1e-12});
    EXPECT_EQ(linear.status, LinearStatus::converged) << linear.residual;
    std::vector<double> change(all.size());
    for (double const sign : {1.0, -1.0}) {
      Case there = given;
      move(there, sign * kStep);
      Gradients const after(solution(there), kD);
      for (std::size_t k = 0; k < change.size(); ++k)
        change[k] += sign * (k < kN * kD ? after.x[k] : after.y[k - kN * kD]) / (2 * kStep);
    }
    EXPECT_LE(distance(change, product), 1e-7 * norm(product));
  }
}

TEST_P(CostDerivativesTest, of_functions_of_the_potentials_are_those_of_their_values) {
  for (Case const& given : cases()) {
    SCOPED_TRACE(testing::Message() << "scale " << given.problem.scale << ", penalties " << given.penalties.a << " "
                                    << given.penalties.b);
    Random random(7);
    std::vector<double> const of_f = gaussian_points(kN, 1, random);
    std::vector<double> of_g = gaussian_points(kM, 1, random);
    // The same sum, as potentials that are unique up to a constant ask for.
    of_g[0] = std::accumulate(of_f.begin(), of_f.end(), 0.0) - std::accumulate(of_g.begin() + 1, of_g.end(), 0.0);
    auto const value = [&](Case const& at) {
      Plan const plan = solution(at);
      return dot(of_f, plan.f()) + dot(of_g, plan.g());
    };
    std::vector<double> points((kN + kM) * kD), a(kN), b(kM);
    GradientViews const out{.x = {points.data(), kN, kD}, .y = {points.data() + kN * kD, kM, kD}, .a = a, .b = b};
    LinearReport const report = solution(given).potential_gradients(of_f, of_g, out, {.tolerance = 1e-12});
    EXPECT_EQ(report.status, LinearStatus::converged) << report.residual;
    for (Side const side : kSides) {
      std::vector<double> const& gradient = side == Side::rows ? a : b;
      EXPECT_NEAR(slope(given, kStep / 15, value, shift_weight(side)), gradient[1] - gradient[4],
                  1e-6 * norm(gradient));
    }
    std::vector<double> const v = gaussian_points(kN + kM, kD, random);
    EXPECT_NEAR(slope(given, kStep, value, [&](Case& at, double h) { at.problem = moved(at.problem, v, h); }),
                dot(points, v), 1e-6 * norm(points) * norm(v));
  }
}

TEST_P(CostDerivativesTest, of_functions_of_products_are_those_of_their_values) {
  constexpr std::int64_t kWidth = 4;
  for (Case const& given : cases()) {
    SCOPED_TRACE(testing::Message() << "scale " << given.problem.scale << ", penalties " << given.penalties.a << " "
                                    << given.penalties.b);
    Random random(7);
    std::vector<double> const u = gaussian_points(kN, kWidth, random), v = gaussian_points(kM, kWidth, random);
    MatrixView const of_rows(u.data(), kN, kWidth), of_columns(v.data(), kM, kWidth);
    auto const value = [&](Case const& at) {
      std::vector<double> product(u.size());
      solution(at).apply(of_columns, {product.data(), kN, kWidth});
      return dot(u, product);
    };
    std::vector<double> points((kN + kM) * kD), a(kN), b(kM);
    GradientViews const out{.x = {points.data(), kN, kD}, .y = {points.data() + kN * kD, kM, kD}, .a = a, .b = b};
    LinearReport const report = solution(given).product_gradients(of_rows, of_columns, out, {.tolerance = 1e-12});
    EXPECT_EQ(report.status, LinearStatus::converged) << report.residual;
    // A marginal error of 1e-13 over the step, and third derivatives.
    for (Side const side : kSides) {
      std::vector<double> const& gradient = side == Side::rows ? a : b;
      EXPECT_NEAR(slope(given, kStep / 15, value, shift_weight(side)), gradient[1] - gradient[4],
                  1e-7 * norm(gradient));
    }
    std::vector<double> const direction = gaussian_points(kN + kM, kD, random);
    EXPECT_NEAR(slope(given, kStep, value, [&](Case& at, double h) { at.problem = moved(at.problem, direction, h); }),
                dot(points, direction), 1e-8 * norm(points) * norm(direction));
  }
}

// W = P o (s + t - u v^T / eps), and by weights the sums of shares; points of no weight included.
TEST_P(DerivativesTest, of_products_equal_the_oracle) {
  constexpr std::int64_t kN = 60, kM = 50, kD = 3, kWidth = 5;
  Problem const problem = make_problem({kN, kM, kD, Weights::with_zeros});
  double const eps = 0.1 * Magnitudes(problem).spread(), infinity = std::numeric_limits<double>::infinity();
  double const allowed = is_float64() ? 1e-8 : 1e-5;
  Random random(17);
  std::vector<double> const u = gaussian_points(kN, kWidth, random), v = gaussian_points(kM, kWidth, random);
  for (Penalties const& penalties : {Penalties{}, Penalties{2 * eps, 5 * eps}, Penalties{infinity, 3 * eps}}) {
    SCOPED_TRACE(testing::Message() << "penalties " << penalties.a << " " << penalties.b);
    Plan const plan = solve(problem, eps, 1e-5, 20000, penalties);
    std::vector<double> x(kN * kD), y(kM * kD), a(kN), b(kM);
    plan.product_gradients({u.data(), kN, kWidth}, {v.data(), kM, kWidth},
                           {.x = {x.data(), kN, kD}, .y = {y.data(), kM, kD}, .a = a, .b = b},
                           {.tolerance = is_float64() ? 1e-11 : 1e-6});
    PointProblem const exact(problem, eps, penalties);
    Dense const dense = exact.dense();
    Potentials const potentials = potentials_of(plan);
    Vector const entries = dense.plan(eps, potentials);
    auto const of_pair = [&](std::int64_t i, std::int64_t j) {
      Real sum = 0;
      for (std::int64_t k = 0; k < kWidth; ++k) sum += Real(u[i * kWidth + k]) * v[j * kWidth + k];
      return sum;
    };
    Vector right(kN + kM, 0);
    for (std::int64_t i = 0; i < kN; ++i) {
      for (std::int64_t j = 0; j < kM; ++j) {
        Real const term = entries[i * kM + j] * of_pair(i, j) / eps;
        right[i] += term;
        right[kN + j] += term;
      }
    }
    Vector const solution = exact.solve(potentials, right);
    for (Side const side : kSides) {
      bool const by_rows = side == Side::rows;
      std::int64_t const own = by_rows ? 0 : kN, far = kN - own;
      auto const pair = [&](std::int64_t i, std::int64_t j) { return by_rows ? of_pair(i, j) : of_pair(j, i); };
      auto const tilt = [&](std::int64_t i, std::int64_t j) {
        return solution[own + i] + solution[far + j] - pair(i, j) / eps;
      };
      std::vector<double> const expected = narrow(exact.gradient(side, potentials, tilt));
      EXPECT_LE(distance(by_rows ? x : y, expected), allowed * norm(expected));

      Vector const softmins = dense.softmin(side, eps, potentials.of(other(side)));
      std::vector<double> const& found = by_rows ? a : b;
      std::vector<double> by_weights, ratios;
      double constant = 0;  // Constant of (s + t, t' - t), which is free in a balanced problem.
      for (std::int64_t i = 0; i < exact.size(side); ++i) {
        Real f = potentials.of(side)[i], sum = 0;
        if (exact.weights(side)[i] == 0) f = softmins[i] / (1 + eps / penalties.of(side));
        for (std::int64_t j = 0; j < exact.size(other(side)); ++j) {
          Real const share = exact.weights(other(side))[j] *
                             std::exp((softmins[i] + potentials.of(other(side))[j] - dense.cost(side, i, j)) / eps);
          sum += share * (pair(i, j) - eps * solution[far + j]);
        }
        ratios.push_back(static_cast<double>(std::exp((f - softmins[i]) / eps)));
        by_weights.push_back(static_cast<double>(ratios.back() * sum));
        if (exact.is_balanced()) constant += (found[i] - by_weights[i]) / ratios[i] / exact.size(side);
      }
      for (std::size_t i = 0; i < ratios.size(); ++i) by_weights[i] += ratios[i] * constant;
      EXPECT_LE(distance(found, by_weights), allowed * norm(by_weights));
    }
  }
}

// FlashSinkhorn, Table 13: normal points, weights from the simplex; no damping, a system solved to 1e-7.
// <u, P v> with u = 1 / r at a point of little mass is the average of v there. Its derivatives tend to a limit with the
// mass of the point, which they miss by about that mass: 1e-9 of it is the reference.
TEST_P(DerivativesTest, of_averages_of_points_of_little_mass_tend_to_a_limit) {
  constexpr std::int64_t kN = 14, kM = 11, kD = 2, kAt = 2;
  for (bool const balanced : {true, false}) {
    std::vector<double> expected[4];
    for (double const least : {1e-9, 1e-20, 1e-40, 1e-100, 1e-200, 1e-290}) {
      SCOPED_TRACE(testing::Message() << "least " << least << ", balanced " << balanced);
      Problem problem = make_problem({kN, kM, kD, Weights::uniform, Place::origin, 0.2});
      problem.a[kAt] *= least;
      double const ratio = std::accumulate(problem.a.begin(), problem.a.end(), 0.0) /
                           std::accumulate(problem.b.begin(), problem.b.end(), 0.0);
      for (double& weight : problem.b) weight *= ratio;
      double const eps = 0.2 * Magnitudes(problem).spread();
      Plan const plan =
          solve(problem, eps, is_float64() ? 1e-12 : 1e-6, 20000, balanced ? Penalties{} : Penalties{2 * eps, 5 * eps});
      std::vector<double> r(kN), c(kM), u(kN), v(kM);
      plan.marginals(r, c);
      u[kAt] = 1 / r[kAt];
      for (std::size_t j = 0; j < v.size(); ++j) v[j] = static_cast<double>(j % 3);
      Gradients found(plan, kD);
      LinearReport const report =
          plan.product_gradients({u.data(), kN, 1}, {v.data(), kM, 1},
                                 {.x = {found.x.data(), kN, kD}, .y = {found.y.data(), kM, kD}, .b = found.b},
                                 {.tolerance = is_float64() ? 1e-9 : 1e-5});
      EXPECT_EQ(report.status, LinearStatus::converged);
      // Potentials are defined up to a constant, and so are derivatives by weights.
      double const mean = std::accumulate(found.b.begin(), found.b.end(), 0.0) / kM;
      for (double& by : found.b) by -= mean;
      std::vector<double> const parts[] = {
          found.y, found.b, {found.x.begin() + kAt * kD, found.x.begin() + (kAt + 1) * kD}};
      for (std::size_t k = 0; k < std::size(parts); ++k) {
        if (expected[k].empty()) expected[k] = parts[k];
        EXPECT_LE(distance(parts[k], expected[k]), (is_float64()                     ? 1e-7
                                                    : precision() == Precision::tf32 ? 2e-2
                                                                                     : 2e-4) *
                                                       norm(expected[k]));
      }
    }
  }
}

TEST_P(DerivativesTest, hessian_products_are_as_good_as_the_arithmetic) {
  constexpr std::int64_t kSize = 512, kDimension = 4;
  Random random(13);
  Problem problem;
  problem.x = Stored(gaussian_points(kSize, kDimension, random), kSize, kDimension, DataType::float32);
  problem.y = Stored(gaussian_points(kSize, kDimension, random), kSize, kDimension, DataType::float32);
  for (auto* weights : {&problem.a, &problem.b}) {
    double total = 0;
    for (std::int64_t i = 0; i < kSize; ++i) total += weights->emplace_back(-std::log(1 - random.uniform()));
    for (double& weight : *weights) weight /= total;
  }
  std::vector<double> const v = gaussian_points(2 * kSize, kDimension, random);
  std::vector<double> only_x = v;
  std::fill(only_x.begin() + kSize * kDimension, only_x.end(), 0.0);
  for (double const eps : {0.1, 0.25, 0.5}) {
    Plan const plan = solve(problem, eps, 1e-6);
    std::vector<double> product(kSize * kDimension);
    LinearReport const report = plan.hessian_product({.x = {v.data(), kSize, kDimension}},
                                                     {.x = {product.data(), kSize, kDimension}}, {.tolerance = 1e-7});
    PointProblem const dense(problem, eps);
    std::vector<double> expected = narrow(dense.hessian_product(potentials_of(plan), only_x));
    expected.resize(product.size());
    double const error = distance(product, expected) / norm(expected);
    EXPECT_LE(error, is_float64() ? 1e-6 : 1.2e-5)
        << "eps " << eps << ", residual " << report.residual << " after " << report.iterations << " steps";
  }
}

TEST_P(DerivativesTest, gradients_do_not_depend_on_the_place_of_the_clouds) {
  for (Place const place : {Place::origin, Place::shifted, Place::apart}) {
    for (double const scale : {1.0, 0.5, 1e-3}) {
      Problem const problem = make_problem({200, 150, 3, Weights::with_zeros, place, 1, DataType::float64, 3, scale});
      double const eps = 0.05 * Magnitudes(problem).spread();
      Plan const plan = solve(problem, eps, 1e-5);
      Gradients const gradients(plan, 3);
      PointProblem const dense(problem, eps);
      Potentials const potentials = potentials_of(plan);
      for (Side const side : kSides) {
        std::vector<double> const expected = narrow(dense.gradient(side, potentials));
        std::vector<double> const& found = side == Side::rows ? gradients.x : gradients.y;
        EXPECT_LE(distance(found, expected), (is_float64() ? 1e-8 : 1e-5) * norm(expected));
        for (std::size_t i = 0; i < dense.weights(side).size(); ++i) {
          if (dense.weights(side)[i] > 0) continue;
          for (int k = 0; k < 3; ++k) EXPECT_EQ(found[3 * i + k], 0);
        }
      }
    }
  }
}

// The system is semidefinite whatever the plan is: negative curvature would be blamed on the data.
TEST_P(DerivativesTest, a_system_that_rounding_ends_stagnates) {
  for (std::uint64_t const seed : {1, 2, 3, 4, 5, 6}) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Problem const problem =
        make_problem({40, 40, 4, Weights::uniform, Place::origin, 1, DataType::float64, 0, 1, 1, seed});
    SolveOptions const options{.eps = 0.002, .tolerance = 0, .iterations = 5, .annealing = 1, .precision = precision()};
    Plan const plan = monge::solve(context(), problem.geometry(), problem.a, problem.b, options);
    Random random(seed);
    std::vector<double> const v = gaussian_points(40, 4, random);
    std::vector<double> product(v.size());
    LinearReport const report =
        plan.hessian_product({.x = {v.data(), 40, 4}}, {.x = {product.data(), 40, 4}}, {.tolerance = 1e-15});
    EXPECT_EQ(name(report.status), "stagnation");
  }
}

// Where P nearly matches the points, the right side is the rounding of its two parts. That is no shortfall; the same
// points at a larger eps in float32, where the parts do not cancel, and too few steps are one.
TEST_P(DerivativesTest, a_right_side_of_rounding_is_solved) {
  std::int64_t const n = 60;
  Random random(1);
  std::vector<double> const x = gaussian_points(n, 3, random), v = gaussian_points(n, 3, random);
  std::vector<double> y(x), product(x.size());
  for (std::size_t k = 0; k < y.size(); ++k) y[k] = x[(k + 3 * 17) % y.size()] + 0.01 * v[k];
  PointCloud const clouds{{x.data(), n, 3}, {y.data(), n, 3}};
  auto const report_at = [&](double eps, LinearOptions const& linear) {
    SolveOptions const options{.eps = eps, .tolerance = 1e-5, .iterations = 20000, .precision = precision()};
    return monge::solve(context(), clouds, options)
        .hessian_product({.x = {v.data(), n, 3}}, {.x = {product.data(), n, 3}}, linear);
  };
  LinearReport const matched = report_at(1e-4, {});
  EXPECT_EQ(name(matched.status), "converged") << matched.residual;
  EXPECT_EQ(matched.residual, 0) << "the right side counts as 0";
  EXPECT_EQ(name(report_at(0.3, {.iterations = 3}).status), "iteration_limit");
}

// At the ends of the ranges of eps and rho, and for clouds that are points: finite, and what a report says is so.
TEST_P(DerivativesTest, are_finite_at_the_ends_of_the_ranges) {
  Problem const spread = make_problem({20, 30, 3, Weights::skewed});
  Problem points = spread;
  points.x = Stored(std::vector<double>(60, 3.0), 20, 3);
  points.y = Stored(std::vector<double>(90, 5.0), 30, 3);
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  Random random(4);
  std::vector<double> const v = gaussian_points(20, 3, random);
  for (Problem const* const problem : std::initializer_list<Problem const*>{&spread, &points}) {
    for (double const eps : {1e-6, 1.0, 1e9}) {
      for (double const rho : {1e-6, 1.0, 1e9, kInfinity}) {
        SCOPED_TRACE(testing::Message() << (problem == &points ? "points" : "clouds") << ", eps " << eps << ", rho "
                                        << rho);
        Plan const plan = solve(*problem, eps, 1e-3, 500, {rho, rho});
        Gradients const gradients(plan, 3);
        for (auto const* const values : {&gradients.x, &gradients.y, &gradients.a, &gradients.b})
          for (double const value : *values) ASSERT_TRUE(std::isfinite(value));
        // Products of 11 bits may make the system indefinite: it then ends without an estimate.
        bool const may_break_down = GetParam().precision == Precision::tf32;
        EXPECT_TRUE(std::isfinite(gradients.report.distance) ||
                    (may_break_down && std::isnan(gradients.report.distance)));
        std::vector<double> product(60);
        LinearReport const report =
            plan.hessian_product({.x = {v.data(), 20, 3}}, {.x = {product.data(), 20, 3}}, {.iterations = 200});
        EXPECT_TRUE(std::isfinite(report.residual));
        for (double const value : product) ASSERT_TRUE(std::isfinite(value));
        if (problem != &points) continue;
        // One distance: all entries of P are a_i b_j times one number, and the gradient by x_i is its mass's times 2 (x
        // - y).
        std::vector<double> row(20), column(30);
        plan.marginals(row, column);
        for (std::size_t k = 0; k < 60; ++k) EXPECT_NEAR(gradients.x[k], -4 * row[k / 3], 1e-5 * row[k / 3]);
      }
    }
  }
}

// The distance is a first-order estimate: right to within its own size.
TEST_P(DerivativesTest, the_report_says_how_far_the_gradient_is_from_the_optimum) {
  Problem const problem = make_problem({60, 50, 3, Weights::with_zeros});
  double const eps = 0.05 * Magnitudes(problem).spread();
  Gradients const optimal(solve(problem, eps, is_float64() ? 1e-12 : 1e-6), 3);
  for (int const sweeps : {10, 20, 40}) {
    Plan const plan = solve(problem, eps, 0, sweeps);
    Gradients const gradients(plan, 3);
    double const error = std::hypot(distance(gradients.x, optimal.x), distance(gradients.y, optimal.y)) /
                         std::hypot(norm(gradients.x), norm(gradients.y));
    EXPECT_GT(gradients.report.iterations, 0);
    EXPECT_EQ(gradients.report.marginal_error, plan.report().marginal_error);
    double const noise = is_float64() ? 1e-10 : 1e-5;
    // The system is solved to a tenth.
    EXPECT_NEAR(gradients.report.distance, error, (0.3 + 2 * error) * error + noise) << sweeps;
    EXPECT_TRUE(std::isnan(plan.gradients({}, {.error_iterations = 0}).distance));
  }
}

TEST_P(DerivativesTest, views_may_be_strided_and_of_either_type) {
  Problem const problem = make_problem({23, 31, 5, Weights::skewed});
  Plan const plan = solve(problem, Magnitudes(problem).spread(), 1e-5);
  Gradients const expected(plan, 5);
  Random random(9);
  std::vector<double> const v = gaussian_points(23, 5, random);
  Stored const narrow_v(v, 23, 5, DataType::float32, 4);
  std::vector<double> const v32 = narrow_v.values();
  std::vector<double> product(115);
  plan.hessian_product({.x = {v32.data(), 23, 5}}, {.x = {product.data(), 23, 5}});
  for (DataType const type : {DataType::float32, DataType::float64}) {
    auto const rounded = [&](std::vector<double> const& values, std::int64_t rows) {
      return Stored(values, rows, std::ssize(values) / rows, type).values();
    };
    Stored x(std::vector<double>(115), 23, 5, type, 3), y(std::vector<double>(155), 31, 5, type, 1);
    StoredVector a(std::vector<double>(23), type, 2), b(std::vector<double>(31), type, 3);
    plan.gradients({x.mutable_view(), y.mutable_view(), a.mutable_view(), b.mutable_view()}, {0});
    EXPECT_EQ(x.values(), rounded(expected.x, 23));
    EXPECT_EQ(y.values(), rounded(expected.y, 31));
    EXPECT_EQ(a.values(), rounded(expected.a, 23));
    EXPECT_EQ(b.values(), rounded(expected.b, 31));
    Stored out(std::vector<double>(115), 23, 5, type, 2);
    plan.hessian_product({.x = narrow_v.view()}, {.x = out.mutable_view()});
    EXPECT_EQ(out.values(), rounded(product, 23));
    EXPECT_TRUE(x.padding_untouched() && y.padding_untouched() && a.padding_untouched() && b.padding_untouched() &&
                out.padding_untouched());
  }
}

TEST_P(DerivativesTest, bad_calls_are_refused) {
  Problem const problem = make_problem({6, 5, 2});
  Plan const plan = solve(problem, 1, 1e-3);
  std::vector<double> some(100);
  auto const expect_refused = [](auto const& call, char const* text) {
    try {
      call();
      FAIL() << "no error; expected " << text;
    } catch (Error const& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      EXPECT_NE(std::string(error.what()).find(text), std::string::npos) << error.what();
    }
  };
  MatrixView const v(some.data(), 6, 2);
  MutableMatrixView const out(some.data(), 6, 2), wide(some.data(), 6, 3);
  expect_refused([&] { plan.gradients({.x = wide}); }, "x: ");
  expect_refused([&] { plan.gradients({.b = std::span(some).first(6)}); }, "b: ");
  expect_refused([&] { plan.gradients({}, {-1}); }, "error_iterations: is -1");
  expect_refused([&] { plan.hessian_product({.y = v}, {.x = out}); }, "v.y: ");
  expect_refused([&] { plan.hessian_product({.x = v}, {.x = wide}); }, "out.x: ");
  expect_refused([&] { plan.hessian_product({.x = v}, {.x = out}, {.damping = -1}); }, "damping: is -1");
  expect_refused([&] { plan.hessian_product({.x = v}, {.x = out}, {.tolerance = -1}); }, "tolerance: is -1");
  expect_refused([&] { plan.inverse_hessian_product(v, out, INFINITY); }, "shift: is inf");
  expect_refused([&] { plan.potential_gradients(std::span(some).first(5), {}, {}); }, "of_f: ");
  std::fill(some.begin(), some.end(), 1.0);
  expect_refused([&] { plan.potential_gradients(std::span(some).first(6), {}, {.x = out}); }, "of_f, of_g: ");
  MatrixView const of_columns(some.data(), 5, 2), none(some.data(), 6, 0);
  expect_refused([&] { plan.product_gradients(none, of_columns, {}); }, "u: has 0 columns");
  expect_refused([&] { plan.product_gradients(of_columns, v, {}); }, "u: ");
  expect_refused([&] { plan.product_gradients(v, v, {}); }, "v: ");
  expect_refused([&] { plan.product_gradients(v, of_columns, {.x = wide}); }, "x: ");
  expect_refused([&] { plan.product_gradients(v, of_columns, {}, {.iterations = -1}); }, "iterations: is -1");
}

class MatrixDerivativesTest : public BackendTest {};
MONGE_FOR_EACH_OF(MatrixDerivativesTest, with_all_costs(all_devices()));

TEST_P(MatrixDerivativesTest, a_plan_is_what_its_entries_say) {
  Problem const problem = make_problem({40, 30, 3, Weights::with_zeros});
  double const eps = 0.1 * Magnitudes(problem).spread();
  Plan const plan = monge::solve(context(), problem.geometry(), problem.a, problem.b,
                                 {.eps = eps, .tolerance = 1e-9, .precision = precision()});
  Stored out(std::vector<double>(1200), 40, 30, DataType::float64, 3);
  plan.dense(out.mutable_view());
  EXPECT_TRUE(out.padding_untouched());
  Dense const dense(problem);
  Potentials const potentials = potentials_of(plan);
  Vector const expected = dense.plan(eps, potentials);
  Vector const relative = Tolerance(problem, eps, arithmetic(problem.d())).plan(Side::rows, potentials);
  Vector allowed;
  for (std::size_t k = 0; k < expected.size(); ++k) allowed.push_back(expected[k] * relative[k / 30]);
  expect_close("P", out.values(), expected, allowed);

  std::vector<double> a(40), b(30);
  GradientReport const report = plan.gradients({.a = a, .b = b});
  EXPECT_GE(report.distance, 0);
  EXPECT_LE(report.distance, 1e-6);
  if (problem.has_points()) return;
  EXPECT_TRUE(std::isnan(report.scale));
  std::vector<double> v(120);
  MutableMatrixView const view(v.data(), 40, 3);
  EXPECT_THROW(plan.gradients({.x = view}), Error);
  EXPECT_THROW(plan.hessian_product({.x = view}, {.x = view}), Error);
}

}  // namespace
}  // namespace monge::oracle
