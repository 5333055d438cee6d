// Newton's method for quadratically regularised plans, from input to report: optimality of what it returns, however
// costs, weights and masks look, and how many passes it takes.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include <monge/monge.hpp>

#include "oracle/backend_test.hpp"
#include "oracle/regularized.hpp"
#include "regularized/quadratic_newton.hpp"

namespace monge {
namespace {

using oracle::dense;
using oracle::RegularizedData;
using oracle::RegularizedOracle;
using oracle::RegularizedRecipe;

constexpr double kUnit = std::numeric_limits<double>::epsilon();

class QuadraticNewton : public oracle::BackendTest {
 protected:
  QuadraticNewton() : BackendTest(2) {}

  static RegularizedOptions options(double tolerance, RegularizedCriterion criterion = RegularizedCriterion::gap) {
    RegularizedOptions result;
    result.method = RegularizedMethod::newton;
    result.tolerance = tolerance;
    result.criterion = criterion;
    return result;
  }
  RegularizedPlan solve(Geometry const& geometry, VectorView p, VectorView q, double weight, double tolerance) const {
    Regularizer h;
    h.quadratic = weight;
    return solve_regularized(context(), geometry, p, q, h, options(tolerance));
  }
};
MONGE_FOR_EACH_OF(QuadraticNewton,
                  (oracle::all_devices() +
                   std::vector<oracle::Target>{{DeviceType::cuda, Precision::float64, oracle::Costs::points, true}}));

std::vector<double> uniform(std::int64_t n) {
  return std::vector<double>(static_cast<std::size_t>(n), 1 / static_cast<double>(n));
}

/// Squared distances of normal clouds of the plane, one moved by 1/2, over the largest.
std::vector<double> cloud_costs(std::int64_t n, unsigned seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal;
  std::vector<double> x(static_cast<std::size_t>(4 * n)), cost;
  for (double& value : x) value = normal(random);
  double const* const y = x.data() + 2 * n;
  for (std::int64_t i = 0; i < n; ++i) {
    for (std::int64_t j = 0; j < n; ++j) {
      double const dx = x[static_cast<std::size_t>(2 * i)] - y[2 * j] - 0.5;
      double const dy = x[static_cast<std::size_t>(2 * i + 1)] - y[2 * j + 1] - 0.5;
      cost.push_back(dx * dx + dy * dy);
    }
  }
  double const most = *std::ranges::max_element(cost);
  for (double& value : cost) value /= most;
  return cost;
}

std::vector<RegularizedRecipe> recipes() {
  std::vector<RegularizedRecipe> result;
  auto const add = [&](char const* name, std::int64_t n, std::int64_t m, auto&& change) {
    RegularizedRecipe recipe{n, m, name};
    recipe.quadratic = 0.5;
    change(recipe);
    result.push_back(recipe);
  };
  using R = RegularizedRecipe;
  add("plain", 37, 53, [](R&) {});
  add("one", 1, 1, [](R&) {});
  add("one_row", 1, 19, [](R&) {});
  add("one_column", 19, 1, [](R&) {});
  add("two_threads", 601, 523, [](R&) {});
  add("zero_shares", 31, 67, [](R& r) { r.has_zero_shares = true; });
  add("infinite", 40, 41, [](R& r) { r.has_infinite_costs = true; });
  add("mask", 40, 41, [](R& r) { r.has_mask = true; });
  add("mask_transposed", 40, 47, [](R& r) {
    r.has_mask = r.transposed = r.has_zero_shares = true;
    r.storage = DataType::float32;
  });
  add("float32", 33, 65, [](R& r) { r.storage = DataType::float32; });
  add("transposed", 65, 33, [](R& r) { r.transposed = true; });
  add("offset", 29, 31, [](R& r) { r.offset = 1e6; });
  add("scale", 29, 31, [](R& r) {
    r.range = 1e-4;
    r.mass = 50;
  });
  add("huge_weight", 29, 31, [](R& r) { r.quadratic = 1e7; });
  add("large_weight", 29, 31, [](R& r) { r.quadratic = 100; });
  add("small_weight", 61, 59, [](R& r) { r.quadratic = 1e-4; });
  // More points than a block has threads, about one pair active for each.
  add("small_weight_many_points", 1300, 1100, [](R& r) { r.quadratic = 1e-3; });
  add("none", 47, 43, [](R& r) { r.quadratic = 0; });
  add("none_zero_shares_mask", 47, 43, [](R& r) {
    r.quadratic = 0;
    r.has_zero_shares = r.has_mask = true;
  });
  return result;
}

// X = [u + v - C]_+ / lambda to rounding, with its marginals within the tolerance and the gap with it; u and v finite
// and, without a quadratic term, feasible.
TEST_P(QuadraticNewton, MeetsTheConditionsOfOptimality) {
  double const tolerance = 1e-7;
  for (RegularizedRecipe const& recipe : recipes()) {
    SCOPED_TRACE(recipe.name);
    RegularizedData const data(recipe);
    auto const masses = [&](std::vector<double> shares) {
      for (double& share : shares) share *= recipe.mass;
      return shares;
    };
    std::vector<double> const p = masses(data.p), q = masses(data.q);
    Regularizer h;
    h.quadratic = data.terms.quadratic;
    h.mask = data.terms.mask;
    RegularizedPlan const plan = solve_regularized(context(), data.geometry, p, q, h, options(tolerance));
    RegularizedReport const& report = plan.report();
    EXPECT_EQ(report.status, Status::converged) << report.message;
    EXPECT_TRUE(report.message.starts_with("converged after ")) << report.message;
    std::int64_t most = 0;  // Active pairs. On the CPU each takes 4 bytes.
    for (RegularizedCheck const& check : report.history) most = std::max(most, check.nonzeros);
    EXPECT_GT(report.peak_bytes, context().device().type == DeviceType::cpu ? 4 * most - 1 : 0);
    EXPECT_LE(report.primal_residual, 1.01 * tolerance * recipe.mass);
    double const size = std::max(std::abs(report.primal), 1e-3 * recipe.mass * recipe.range);
    // Values are sums of terms as large as costs are.
    double const rounding = 64 * kUnit * recipe.mass * (std::abs(recipe.offset) + recipe.range);
    EXPECT_LE(std::abs(report.gap), tolerance * size + rounding);

    std::vector<double> const x = dense(plan), u = plan.u(), v = plan.v();
    double largest = 0;
    for (std::vector<double> const* side : {&u, &v}) {
      for (double const potential : *side) {
        ASSERT_TRUE(std::isfinite(potential));
        largest = std::max(largest, std::abs(potential));
      }
    }
    double const unit = 8 * kUnit * (2 * largest + std::abs(recipe.offset) + recipe.range);
    for (std::int64_t i = 0; i < recipe.n; ++i) {
      for (std::int64_t j = 0; j < recipe.m; ++j) {
        std::size_t const k = static_cast<std::size_t>(i * recipe.m + j);
        double const z = u[static_cast<std::size_t>(i)] + v[static_cast<std::size_t>(j)] - data.costs[k];
        if (recipe.quadratic == 0) {
          ASSERT_LE(z, unit) << i << ", " << j;
          if (x[k] > 0) {
            ASSERT_LE(-z, tolerance * recipe.range) << i << ", " << j;
          }
        } else {
          ASSERT_NEAR(x[k], std::max(z, 0.0) / h.quadratic, unit / h.quadratic) << i << ", " << j;
        }
      }
    }
  }
}

TEST_P(QuadraticNewton, EvaluatesAsTheOracleDoes) {
  for (RegularizedRecipe const& recipe : recipes()) {
    SCOPED_TRACE(recipe.name);
    if (recipe.name == "two_threads") continue;
    RegularizedData const data(recipe);
    RegularizedOracle const oracle(data);
    Backend const& backend = backend_of(context());
    RegularizedInput const input = data.input();
    auto const quadratic = backend.quadratic_operator(backend.regularized_costs({&input, 1})[0]);
    double const weight = quadratic->scale().quadratic(data.terms.quadratic);
    EXPECT_EQ(quadratic->scale().offset, oracle.scale().offset);
    EXPECT_EQ(quadratic->scale().range, oracle.scale().range);
    // Rough, so that residual and gap are far above rounding.
    QuadraticSettings const settings{
        .tolerance = 1e-2, .criterion = RegularizedCriterion::residual, .passes = 1000, .p = data.p, .q = data.q};
    QuadraticNewtonMethod newton(*quadratic, weight, settings);
    while (!newton.advance()) continue;
    QuadraticProgress const& last = newton.now();
    RegularizedValues const actual = quadratic->evaluate();

    std::int64_t const n = recipe.n, m = recipe.m;
    std::vector<double> x(static_cast<std::size_t>(n * m)), u(static_cast<std::size_t>(n)),
        v(static_cast<std::size_t>(m));
    quadratic->dense({x.data(), n, m});
    quadratic->potentials(u, v);
    CostScale const scale = quadratic->scale();
    auto const inside = [](std::vector<double> const& values, double less, double factor) {
      oracle::Vector result;
      for (double const value : values) result.push_back((static_cast<oracle::Real>(value) - less) * factor);
      return result;
    };
    oracle::OracleValues const expected =
        oracle.evaluate(inside(x, 0, 1 / scale.mass), inside(u, scale.offset / 2, 1 / scale.range),
                        inside(v, scale.offset / 2, 1 / scale.range));
    // Rounding of potentials that have been to the user's units and back.
    double const gauge = 64 * kUnit * (1 + std::abs(scale.offset) / scale.range) * (1 + weight);
    auto const close = [&](char const* what, double value, oracle::Real exact, oracle::Real slope) {
      oracle::expect_close(what, value, exact, gauge * (1 + slope + std::abs(exact)));
    };
    close("mass", actual.transported_mass, expected.transported_mass, 0);
    close("residual", std::sqrt(actual.residual_squares), std::sqrt(expected.residual_squares), 0);
    close("residual_l1", actual.residual_l1, expected.residual_l1, 0);
    close("cost", actual.transport_cost, expected.transport_cost, 0);
    close("regularization", actual.regularization, expected.regularization, 0);
    close("dual", actual.dual, expected.dual, expected.conjugate_slope + expected.dual_size);
    EXPECT_EQ(actual.nonzeros, expected.nonzeros);
    if (weight == 0) continue;
    // What the steps go by.
    close("dual of the pass", last.values.dual, expected.dual, expected.conjugate_slope + expected.dual_size);
    close("gap of the pass", last.values.gap, expected.transport_cost + expected.regularization - expected.dual,
          expected.conjugate_slope + expected.dual_size);
    close("residual of the pass", last.values.residual_l1, expected.residual_l1, 0);
    EXPECT_EQ(last.values.active, expected.nonzeros);
  }
}

// Where float64 cannot meet a tolerance the plan is as good as at those that it can.
TEST_P(QuadraticNewton, TighterTolerancesLeaveNoLargerGap) {
  std::int64_t const n = 120, m = 90;
  std::mt19937_64 random(0);
  std::uniform_real_distribution<double> cost_of;
  std::vector<double> cost(static_cast<std::size_t>(n * m));
  for (double& value : cost) value = cost_of(random);
  for (double const tolerance : {3e-7, 3e-8, 3e-9}) {
    RegularizedReport const report =
        solve(CostMatrix{{cost.data(), n, m}}, uniform(n), uniform(m), 0, tolerance).report();
    EXPECT_LE(std::abs(report.gap), 3e-7 * report.primal) << tolerance;
    EXPECT_EQ(report.status == Status::converged, std::abs(report.gap) <= tolerance * report.primal) << tolerance;
  }
}

// Assignments of up to six points, whatever their permutation.
TEST_P(QuadraticNewton, FindsTheBestPermutation) {
  std::mt19937_64 random(5);
  std::uniform_real_distribution<double> cost_of(-1, 1);
  for (std::int64_t n = 2; n <= 6; ++n) {
    std::vector<double> cost(static_cast<std::size_t>(n * n)), const_p = uniform(n);
    for (double& value : cost) value = cost_of(random);
    std::vector<std::int64_t> order(static_cast<std::size_t>(n)), best;
    std::iota(order.begin(), order.end(), 0);
    double least = std::numeric_limits<double>::infinity();
    do {
      double sum = 0;
      for (std::int64_t i = 0; i < n; ++i)
        sum += cost[static_cast<std::size_t>(i * n + order[static_cast<std::size_t>(i)])];
      if (sum < least) {
        least = sum;
        best = order;
      }
    } while (std::ranges::next_permutation(order).found);
    RegularizedPlan const plan = solve(CostMatrix{{cost.data(), n, n}}, const_p, const_p, 0, 1e-8);
    EXPECT_EQ(plan.status(), Status::converged) << plan.report().message;
    std::vector<double> const x = dense(plan);
    for (std::int64_t i = 0; i < n; ++i) {
      for (std::int64_t j = 0; j < n; ++j) {
        double const expected = best[static_cast<std::size_t>(i)] == j ? 1 / static_cast<double>(n) : 0;
        EXPECT_NEAR(x[static_cast<std::size_t>(i * n + j)], expected, 1e-8);
      }
    }
    EXPECT_EQ(plan.report().nonzeros, n);
  }
}

// In one dimension the optimal vertex is that of the quantiles: at most n + m - 1 entries, however unequal the masses.
TEST_P(QuadraticNewton, FindsTheVertexOfTheQuantiles) {
  std::int64_t const n = 23, m = 17;
  std::mt19937_64 random(7);
  std::uniform_real_distribution<double> uniform_of(0.1, 1);
  std::vector<double> x(static_cast<std::size_t>(n)), y(static_cast<std::size_t>(m)), p = x, q = y;
  for (auto* values : {&x, &y, &p, &q}) {
    for (double& value : *values) value = uniform_of(random);
  }
  std::ranges::sort(x);
  std::ranges::sort(y);
  for (auto* weights : {&p, &q}) {
    double const total = std::accumulate(weights->begin(), weights->end(), 0.0);
    for (double& weight : *weights) weight /= total;
  }
  std::vector<double> cost;
  for (double const from : x) {
    for (double const to : y) cost.push_back((from - to) * (from - to));
  }
  RegularizedPlan const plan = solve(CostMatrix{{cost.data(), n, m}}, p, q, 0, 1e-7);
  EXPECT_EQ(plan.status(), Status::converged) << plan.report().message;
  std::vector<double> const actual = dense(plan);
  std::vector<double> left = p, right = q, expected(actual.size());
  for (std::size_t i = 0, j = 0; i < left.size() && j < right.size();) {
    double const mass = std::min(left[i], right[j]);
    expected[i * right.size() + j] += mass;
    left[i] -= mass;
    right[j] -= mass;
    left[i] <= right[j] ? ++i : ++j;
  }
  // The residual of the marginals adds up along the vertex.
  for (std::size_t k = 0; k < actual.size(); ++k) EXPECT_NEAR(actual[k], expected[k], 1e-6) << k;
  EXPECT_LE(plan.report().nonzeros, n + m - 1);
}

// A plain emulation, with exact linear systems and no line search, takes 23, 136 and 380 passes.
TEST_P(QuadraticNewton, TakesFewPasses) {
  std::int64_t const n = 1000;
  std::vector<double> const cost = cloud_costs(n, 3), p = uniform(n);
  struct Limit {
    double weight;
    int passes;
  };
  for (Limit const limit : {Limit{1, 30}, {1e-3, 100}, {1e-5, 100}}) {
    Regularizer h;
    h.quadratic = limit.weight;
    // |.|_1 is at most twice this.
    RegularizedPlan const plan = solve_regularized(context(), CostMatrix{{cost.data(), n, n}}, p, p, h,
                                                   options(5e-9, RegularizedCriterion::residual));
    EXPECT_EQ(plan.status(), Status::converged);
    EXPECT_LE(plan.report().marginal_error, 1e-8);
    EXPECT_LE(plan.report().iterations, limit.passes) << limit.weight;
    EXPECT_LE(plan.report().newton_steps, plan.report().iterations);
  }
}

// Costs that are all equal change no plan, however large they are. All entries of the plan are equal. The value is off
// by the gap, at most 1e-10 of the slope of the regularizer there, and by rounding.
TEST_P(QuadraticNewton, EqualHugeCostsGiveThePlanOfNone) {
  std::int64_t const n = 20, m = 31;
  std::vector<double> const p = uniform(n), q = uniform(m);
  for (double const value : {1.0, 1e16, 1e160, 1e200, -1e200, 1e300}) {
    SCOPED_TRACE(value);
    std::vector<double> const cost(static_cast<std::size_t>(n * m), value);
    RegularizedPlan const plan = solve(CostMatrix{{cost.data(), n, m}}, p, q, 1, 1e-10);
    EXPECT_EQ(plan.status(), Status::converged) << plan.report().message;
    EXPECT_LE(plan.report().iterations, 10);
    double const entry = 1 / static_cast<double>(n * m);
    EXPECT_NEAR(plan.report().primal, value + entry / 2, 1e-12 * (std::abs(value) + 1));
  }
}

TEST_P(QuadraticNewton, PointsGiveThePlanOfTheirCosts) {
  std::int64_t const n = 37, m = 59;
  std::mt19937_64 random(11);
  std::normal_distribution<double> normal;
  std::vector<double> p = uniform(n), q = uniform(m);
  p[1] += p[4];
  p[4] = 0;
  struct Case {
    CostFunction function;
    std::int64_t d;  // Many coordinates meet in inner products.
  };
  for (auto const [function, d] : {Case{CostFunction::sqeuclidean, 3},
                                   {CostFunction::sqeuclidean, 21},
                                   {CostFunction::euclidean, 3},
                                   {CostFunction::cosine, 3},
                                   {CostFunction::dot, 3},
                                   {CostFunction::p_norm, 3}}) {
    SCOPED_TRACE(name(function));
    std::vector<double> x(static_cast<std::size_t>(n * d)), y(static_cast<std::size_t>(m * d)), cost;
    for (double& value : x) value = normal(random);
    for (double& value : y) value = 2 + normal(random);
    for (std::int64_t i = 0; i < n; ++i) {
      for (std::int64_t j = 0; j < m; ++j) {
        double square = 0, product = 0, own = 0, other = 0, power = 0;
        for (std::int64_t k = 0; k < d; ++k) {
          double const a = x[static_cast<std::size_t>(i * d + k)], b = y[static_cast<std::size_t>(j * d + k)];
          square += (a - b) * (a - b);
          product += a * b;
          own += a * a;
          other += b * b;
          power += std::pow(std::abs(a - b), 3);
        }
        cost.push_back(function == CostFunction::sqeuclidean ? square
                       : function == CostFunction::euclidean ? std::sqrt(square)
                       : function == CostFunction::cosine    ? 1 - product / std::sqrt(own * other)
                       : function == CostFunction::dot       ? -product
                                                             : std::cbrt(power));
      }
    }
    PointCloud clouds{{x.data(), n, d}, {y.data(), m, d}};
    clouds.cost_function = function;
    clouds.p = 3;
    double const tolerance = 1e-10;
    RegularizedPlan const of_points = solve(clouds, p, q, 0.3, tolerance);
    RegularizedPlan const of_matrix = solve(CostMatrix{{cost.data(), n, m}}, p, q, 0.3, tolerance);
    EXPECT_EQ(of_points.status(), Status::converged);
    RegularizedReport const &a = of_points.report(), &b = of_matrix.report();
    double const size = std::abs(b.primal) + 1;
    EXPECT_NEAR(a.primal, b.primal, 8 * tolerance * size);
    EXPECT_NEAR(a.transport_cost, b.transport_cost, 1e-7 * size);
    std::vector<double> const actual = dense(of_points), expected = dense(of_matrix);
    // The primal is strongly convex: lambda / 2 |X - X*|^2 is at most the gap.
    for (std::size_t k = 0; k < actual.size(); ++k)
      ASSERT_NEAR(actual[k], expected[k], 2 * std::sqrt(4 * tolerance * size / 0.3));

    // Whatever reads the plan sees the same one.
    EXPECT_EQ(a.nonzeros, std::ranges::count_if(actual, [](double x) { return x > 0; }));
    std::vector<double> row(p.size()), column(q.size());
    of_points.marginals(row, column);
    for (std::size_t k = 0; k < actual.size(); ++k) {
      row[k / q.size()] -= actual[k];
      column[k % q.size()] -= actual[k];
    }
    for (double const rest : row) EXPECT_NEAR(rest, 0, 64 * kUnit);
    for (double const rest : column) EXPECT_NEAR(rest, 0, 64 * kUnit);
    // That of the row without mass is as large as it may be.
    std::vector<double> const u = of_points.u(), v = of_points.v();
    double least = std::numeric_limits<double>::infinity();
    for (std::size_t j = 0; j < v.size(); ++j) least = std::min(least, cost[4 * v.size() + j] - v[j]);
    EXPECT_NEAR(u[4], least, 64 * kUnit * (1 + *std::ranges::max_element(cost)));

    Regularizer h;
    h.quadratic = 0.3;
    h.mask = {cost.data(), n, m};
    EXPECT_THROW(solve_regularized(context(), clouds, p, q, h, options(tolerance)), Error);
  }
}

/// Two clouds around `centre`, stored as told, as a problem of the oracle; uniform weights.
oracle::Problem clouds_of(CostFunction function, double norm, double size, double centre, std::int64_t m,
                          DataType storage = DataType::float64, bool has_labels = false) {
  constexpr std::int64_t kRows = 41, kDimension = 11;
  oracle::Random random(5);
  oracle::Problem problem{
      oracle::Stored(oracle::gaussian_points(kRows, kDimension, random, centre, size), kRows, kDimension, storage),
      oracle::Stored(oracle::gaussian_points(m, kDimension, random, centre, 0.7 * size), m, kDimension, storage),
      uniform(kRows), uniform(m)};
  problem.cost_function = function;
  problem.p = norm;
  if (has_labels) {
    for (std::int64_t i = 0; i < kRows; ++i) problem.labels_x.push_back(i % 3);
    for (std::int64_t j = 0; j < m; ++j) problem.labels_y.push_back(j % 2);
    problem.label_cost = oracle::Stored(std::vector<double>{0, 1, 0.25, 0.75, 2, 0.5}, 3, 2);
    problem.label_weight = 0.5;
  }
  return problem;
}

struct SizedClouds {
  CostFunction function;
  double norm = 2, size = 1, centre = 0;
  DataType storage = DataType::float64;
  bool has_labels = false;
};
std::vector<SizedClouds> sized_clouds() {
  using enum CostFunction;
  std::vector<SizedClouds> result;
  for (double const norm : {1.5, 100.0, 110.0, 1e300, std::numeric_limits<double>::infinity()}) {
    for (double const size : {1e-150, 1e-4, 1e-3, 1.0, 1e4, 1e150}) result.push_back({p_norm, norm, size});
    result.push_back({p_norm, norm, 1e-3, 1000});
    result.push_back({p_norm, norm, 1e3, 0, DataType::float32});
  }
  for (double const size : {1e-60, 1e-4, 1e4, 1e60}) result.push_back({sqeuclidean, 2, size});
  for (CostFunction const function : {sqeuclidean, euclidean, cosine, dot}) {
    result.push_back({function, 2, 1, 1000, DataType::float32});
    if (function != euclidean) result.push_back({function, 2, 1, 0.5, DataType::float32, true});
  }
  return result;
}

// Rows without mass get u_i = min_j C_ij - v_j: with one column this shows each cost as the kernel made it. Scores and
// norms of d coordinates are off by up to 12 + 2 d units of the largest square or distance of centred points; shifts
// by as many of the largest product of points where they are (docs/math.md, section 4).
TEST_P(QuadraticNewton, CostsOfPointsOfAnySizeAreExactToRounding) {
  for (SizedClouds const& of : sized_clouds()) {
    SCOPED_TRACE(testing::Message() << name(of.function) << " p " << of.norm << " size " << of.size << " centre "
                                    << of.centre << (of.has_labels ? " labels" : ""));
    oracle::Problem problem = clouds_of(of.function, of.norm, of.size, of.centre, 1, of.storage, of.has_labels);
    std::ranges::fill(problem.a, 0.0);
    problem.a[3] = problem.a[5] = 0.5;
    std::vector<double> const expected = oracle::narrow(oracle::dense_costs(problem)), x = problem.x.values();
    auto const largest_of = [](std::vector<double> const& values) {
      double largest = 0;
      for (double const value : values) largest = std::max(largest, std::abs(value));
      return largest;
    };
    // Centred points are as large as distances are. Directions of length 1 are rounded before they are subtracted.
    double const d = 11, moved = of.function == CostFunction::sqeuclidean || of.function == CostFunction::dot;
    double const rounded = of.function == CostFunction::cosine ? std::sqrt(2 * largest_of(expected)) : 0;
    double const size = 4 * largest_of(expected) + moved * d * of.centre * largest_of(x) + rounded;
    RegularizedPlan const plan = solve(problem.geometry(), problem.a, problem.b, size, 1e-6);
    std::vector<double> const u = plan.u(), v = plan.v();
    for (std::size_t i = 0; i < expected.size(); ++i) {
      if (problem.a[i] > 0) continue;
      ASSERT_NEAR(u[i] + v[0], expected[i], (12 + 2 * d) * kUnit * size) << i;
    }
  }
}

TEST_P(QuadraticNewton, PointsOfAnySizeGiveThePlanOfTheirCosts) {
  double const tolerance = 1e-8;
  for (SizedClouds const& of : sized_clouds()) {
    SCOPED_TRACE(testing::Message() << name(of.function) << " p " << of.norm << " size " << of.size << " centre "
                                    << of.centre << (of.has_labels ? " labels" : ""));
    oracle::Problem const problem = clouds_of(of.function, of.norm, of.size, of.centre, 29, of.storage, of.has_labels);
    std::vector<oracle::Real> const costs = oracle::dense_costs(problem);
    std::vector<double> const cost = oracle::narrow(costs);
    auto const [least, most] = std::ranges::minmax_element(cost);
    double const range = *most - *least, weight = 0.3 * range;
    RegularizedPlan const of_points = solve(problem.geometry(), problem.a, problem.b, weight, tolerance);
    RegularizedPlan const of_matrix =
        solve(CostMatrix{{cost.data(), problem.n(), problem.m()}}, problem.a, problem.b, weight, tolerance);
    EXPECT_EQ(of_points.status(), Status::converged);
    // Gaps are relative to the primal less the least cost, at most the range and the term. Costs of points lose digits
    // to where they lie.
    double const lost = of.function == CostFunction::dot || of.function == CostFunction::sqeuclidean
                            ? 64 * kUnit * 11 * of.centre * of.centre
                            : 0;
    EXPECT_NEAR(of_points.report().primal, of_matrix.report().primal, 2 * tolerance * 1.3 * range + lost);
    // Both minimise what is strongly convex: weight / 2 |X - X*|^2 is at most the gap.
    std::vector<double> const actual = dense(of_points), expected = dense(of_matrix);
    for (std::size_t k = 0; k < actual.size(); ++k)
      ASSERT_NEAR(actual[k], expected[k], 2 * std::sqrt(2 * (1.3 * tolerance + lost / range) / 0.3));
  }
}

TEST_P(QuadraticNewton, RefusesPointsWhoseSquaresOverflow) {
  for (CostFunction const function : {CostFunction::sqeuclidean, CostFunction::p_norm}) {
    oracle::Problem const problem = clouds_of(function, 100, 1e160, 0, 7);
    try {
      solve(problem.geometry(), problem.a, problem.b, 1, 1e-6);
      FAIL();
    } catch (Error const& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      EXPECT_EQ(std::string(error.what()),
                "x, y: the squares of coordinates overflow; the points must lie closer together");
    }
  }
}

TEST_P(QuadraticNewton, WarmStartsAtTheOptimumTakeOnePass) {
  std::int64_t const n = 60;
  std::vector<double> const cost = cloud_costs(n, 13), p = uniform(n);
  Geometry const geometry = CostMatrix{{cost.data(), n, n}};
  RegularizedPlan const cold = solve(geometry, p, p, 0.1, 1e-8);
  Regularizer h;
  h.quadratic = 0.1;
  RegularizedOptions given = options(1e-7);
  std::vector<double> const u = cold.u(), v = cold.v();
  given.u = u;
  given.v = v;
  RegularizedPlan const warm = solve_regularized(context(), geometry, p, p, h, given);
  EXPECT_EQ(warm.status(), Status::converged);
  EXPECT_EQ(warm.report().iterations, 1);
  // From a poor start too.
  std::vector<double> const far(static_cast<std::size_t>(n), -10.0);
  given.u = far;
  EXPECT_EQ(solve_regularized(context(), geometry, p, p, h, given).status(), Status::converged);
}

TEST_P(QuadraticNewton, RefusesMasksThatLeaveNoPlan) {
  // Rows 0 and 1 may only go to column 0, which has room for one.
  std::vector<double> const cost(9, 1.0), mask{1, 0, 0, 1, 0, 0, 1, 1, 1};
  Regularizer h;
  h.mask = {mask.data(), 3, 3};
  for (double const weight : {0.0, 1e-3, 1.0, 1e4}) {
    h.quadratic = weight;
    try {
      solve_regularized(context(), CostMatrix{{cost.data(), 3, 3}}, {}, {}, h, options(1e-6));
      FAIL();
    } catch (Error const& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      EXPECT_EQ(std::string(error.what()),
                "cost: forbids too many pairs, with the mask; must leave a plan with these marginals");
    }
  }
}

// Two problems in one, which no allowed pair joins.
TEST_P(QuadraticNewton, SolvesBlocks) {
  std::int64_t const n = 30;
  std::vector<double> const cost = cloud_costs(n, 17), p = uniform(n);
  std::vector<double> mask;
  for (std::int64_t i = 0; i < n; ++i) {
    for (std::int64_t j = 0; j < n; ++j) mask.push_back((i < 12) == (j < 12) ? 1 : 0);
  }
  Regularizer h;
  h.mask = {mask.data(), n, n};
  for (double const weight : {0.0, 1e-2, 10.0}) {
    h.quadratic = weight;
    RegularizedPlan const plan = solve_regularized(context(), CostMatrix{{cost.data(), n, n}}, p, p, h, options(1e-7));
    EXPECT_EQ(plan.status(), Status::converged) << weight << ": " << plan.report().message;
  }
}

TEST_P(QuadraticNewton, StopsWhereItIsTold) {
  std::int64_t const n = 50;
  std::vector<double> const cost = cloud_costs(n, 19), p = uniform(n);
  Regularizer h;
  h.quadratic = 1e-3;
  RegularizedOptions given = options(1e-8);
  given.iterations = 5;
  RegularizedPlan const limited = solve_regularized(context(), CostMatrix{{cost.data(), n, n}}, p, p, h, given);
  EXPECT_EQ(limited.status(), Status::iteration_limit);
  EXPECT_LE(limited.report().iterations, 6);
  given.iterations = 1000;
  double weight = std::numeric_limits<double>::infinity();
  int calls = 0;
  given.progress = [&](RegularizedProgress const& now) {
    EXPECT_LE(now.weight, weight);
    weight = now.weight;
    return ++calls < 4;
  };
  RegularizedPlan const stopped = solve_regularized(context(), CostMatrix{{cost.data(), n, n}}, p, p, h, given);
  EXPECT_EQ(stopped.status(), Status::stopped);
  EXPECT_EQ(calls, 4);
  EXPECT_EQ(stopped.report().history.size(), 4U);
  EXPECT_EQ(stopped.report().weight, weight);
}

// The value is a quadratic function of costs and masses as long as no pair becomes active or ceases to be, so central
// differences have no error but the solves' and rounding's, over the step; the rare pair that changes is second order.
TEST_P(QuadraticNewton, PotentialsAndPlanAreTheDerivatives) {
  std::int64_t const n = 12;
  double const weight = 2, step = 1e-5, allowed = 1e-13 / step + 10 * step;
  std::vector<double> const cost = cloud_costs(n, 29), p = uniform(n);
  auto const value = [&](std::vector<double> const& c, std::vector<double> const& rows,
                         std::vector<double> const& columns) {
    return solve(CostMatrix{{c.data(), n, n}}, rows, columns, weight, 1e-13).report().dual;
  };
  /// The difference of two values: for `of` with entry `up` a step up and `down` a step down, if there is one, and
  /// reversed.
  auto const difference = [&](std::vector<double> const& of, std::size_t up, std::ptrdiff_t down, auto&& value_of) {
    std::vector<double> above = of, below = of;
    above[up] += step;
    below[up] -= step;
    if (down >= 0) {
      above[static_cast<std::size_t>(down)] -= step;
      below[static_cast<std::size_t>(down)] += step;
    }
    return (value_of(above) - value_of(below)) / (2 * step);
  };
  RegularizedPlan const plan = solve(CostMatrix{{cost.data(), n, n}}, p, p, weight, 1e-13);
  std::vector<double> const x = dense(plan), u = plan.u(), v = plan.v();
  for (std::size_t i = 1; i < static_cast<std::size_t>(n); ++i) {
    EXPECT_NEAR(difference(p, i, 0, [&](auto const& rows) { return value(cost, rows, p); }), u[i] - u[0], allowed);
    EXPECT_NEAR(difference(p, i, 0, [&](auto const& columns) { return value(cost, p, columns); }), v[i] - v[0],
                allowed);
  }
  for (std::size_t k = 0; k < cost.size(); k += 7)
    EXPECT_NEAR(difference(cost, k, -1, [&](auto const& costs) { return value(costs, p, p); }), x[k], allowed);
}

// Rounding leaves entries of X off by epsilon / lambda.
TEST_P(QuadraticNewton, SaysWhereRoundingEnds) {
  std::int64_t const n = 100;
  std::vector<double> const cost = cloud_costs(n, 23), p = uniform(n);
  RegularizedPlan const plan = solve(CostMatrix{{cost.data(), n, n}}, p, p, 1e-13, 1e-9);
  EXPECT_EQ(plan.status(), Status::precision_limit);
}

}  // namespace
}  // namespace monge
