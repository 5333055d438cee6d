// Sinkhorn divergences: against the oracle, in closed form, and what they must be whatever the clouds are.
#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <set>

#include "oracle/backend_test.hpp"
#include "oracle/refusal.hpp"

namespace monge::oracle {
namespace {

Problem self_of(Problem const& problem, Side side) {
  bool const rows = side == Side::rows;
  Stored const& points = rows ? problem.x : problem.y;
  std::vector<double> const& weights = rows ? problem.a : problem.b;
  Problem result = problem;
  result.x = result.y = points;
  result.a = result.b = weights;
  result.labels_x = result.labels_y = rows ? problem.labels_x : problem.labels_y;
  return result;
}

/// Label costs that may compare each cloud to itself.
Problem with_symmetric_labels(Problem problem, Random& random) {
  std::int64_t const classes = std::max(kClasses[0], kClasses[1]);
  std::vector<double> cost(classes * classes);
  for (std::int64_t i = 0; i < classes; ++i) {
    for (std::int64_t j = 0; j <= i; ++j) cost[i * classes + j] = cost[j * classes + i] = random.uniform(0, 2);
  }
  problem.label_cost = Stored(cost, classes, classes);
  return problem;
}

Stored moved(Stored const& cloud, std::vector<double> const& by) {
  std::vector<double> values = cloud.values();
  for (std::size_t k = 0; k < values.size(); ++k) values[k] += by[k % by.size()];
  return Stored(values, cloud.rows(), cloud.columns());
}

/// The costs of the clouds as a matrix.
Stored costs_of(Problem const& problem) {
  Dense const dense(problem);
  std::vector<double> values;
  for (std::int64_t i = 0; i < problem.n(); ++i) {
    for (std::int64_t j = 0; j < problem.m(); ++j) values.push_back(static_cast<double>(dense.cost(Side::rows, i, j)));
  }
  return Stored(values, problem.n(), problem.m());
}

class DivergenceTest : public BackendTest {
 protected:
  /// What every precision reaches here.
  double tolerance(std::int64_t d) const {
    if (is_float64()) return 1e-11;
    return precision() == Precision::tf32 && d > 8 ? 0.1 : 1e-4;
  }
  SolveOptions options(Problem const& problem, double eps) const {
    return {.eps = eps, .tolerance = tolerance(problem.d()), .iterations = 100000, .precision = precision()};
  }
  Divergence diverge(Problem const& problem, double eps) const {
    Divergence result = sinkhorn_divergence(context(), problem.clouds(), problem.a, problem.b, options(problem, eps));
    EXPECT_EQ(result.status(), Status::converged)
        << result.ab.report().message << "; " << result.aa.report().message << "; " << result.bb.report().message;
    return result;
  }
};
MONGE_FOR_EACH_POINT_TARGET(DivergenceTest);

double spread_of(Problem const& problem) {
  return Magnitudes(problem).spread();
}

/// The rounding of float64 in a dual value.
Real value_rounding(Plan const& plan, Problem const& problem) {
  Tolerance const float64(problem, plan.report().eps, oracle::arithmetic({}, Precision::float64, problem.d()));
  return float64.evaluation(Dense(problem), potentials_of(plan)).dual;
}

/// How far a dual value may be from the optimum. The dual is concave, so D* - D <= <a - r, f* - f> + <b - c, g* - g>:
/// the marginal error times the largest |f* - f|, which is at most the range of C', as softmins of C' range over no
/// more, f starts from 0 and sweeps are not expansive; and the rounding of float64.
Real dual_error(Plan const& plan, Problem const& problem) {
  double const level = std::abs(plan.report().eps * std::log(plan.report().mass));
  return plan.report().marginal_error * (2 * spread_of(problem) + level) + value_rounding(plan, problem);
}

Real error_of(Divergence const& divergence, Problem const& problem) {
  return dual_error(divergence.ab, problem) + dual_error(divergence.aa, self_of(problem, Side::rows)) +
         dual_error(divergence.bb, self_of(problem, Side::columns));
}

/// From the dense solves of the three problems.
Real dense_divergence(Problem const& problem, double eps) {
  auto const optimum = [&](Problem const& some) {
    Dense const dense(some);
    return evaluate(dense, eps, solve(dense, eps, 1e-12L)).dual;
  };
  return optimum(problem) - (optimum(self_of(problem, Side::rows)) + optimum(self_of(problem, Side::columns))) / 2;
}

TEST_P(DivergenceTest, equals_the_oracle) {
  std::vector<Recipe> const recipes{
      {1, 1, 1},
      {1, 20, 3, Weights::skewed},
      {17, 15, 2, Weights::with_zeros, Place::apart, 0.1},
      {33, 40, 5, Weights::skewed, Place::shifted, 0.1, DataType::float32, 3},
      {40, 31, 12, Weights::with_zeros, Place::origin, 0.1, DataType::float64, 2, 0.5, 2.5, 2},
      {29, 50, 30, Weights::uniform, Place::apart, 1, DataType::float64, 0, 2, 1e-3, 3},
  };
  for (Recipe const& recipe : recipes) {
    SCOPED_TRACE(testing::Message() << recipe);
    Problem const problem = oracle::make_problem(recipe);
    double const spread = spread_of(problem);
    double const eps = recipe.eps_over_spread * (spread > 0 ? spread : 1);
    Divergence const actual = diverge(problem, eps);
    expect_close("S", actual.value, dense_divergence(problem, eps), error_of(actual, problem));
    Real const by_hand = actual.ab.report().dual - (actual.aa.report().dual + actual.bb.report().dual) / 2;
    EXPECT_NEAR(actual.value, static_cast<double>(by_hand), 1e-14 * std::abs(actual.ab.report().dual));
    EXPECT_GE(actual.value, -static_cast<double>(error_of(actual, problem)));
    for (Plan const* plan : {&actual.aa, &actual.bb}) {
      // But for a constant, which a gauge may leave on one side.
      std::vector<double> const f = plan->f(), g = plan->g();
      for (std::size_t i = 0; i < f.size(); ++i)
        EXPECT_NEAR(f[i] - g[i], f[0] - g[0], 0x1p-50 * (std::abs(f[i]) + std::abs(f[0]) + std::abs(g[i])));
    }
    if (recipe.n == 1) continue;  // The gap of a point to itself is nothing but rounding.
    expect_report_matches(actual.aa.report(), self_of(problem, Side::rows), eps, potentials_of(actual.aa));
    expect_report_matches(actual.bb.report(), self_of(problem, Side::columns), eps, potentials_of(actual.bb));
  }
}

/// The points of `cloud` from the last to the first.
Stored reversed(Stored const& cloud) {
  std::vector<double> const values = cloud.values();
  std::vector<double> found;
  for (std::int64_t i = cloud.rows() - 1; i >= 0; --i) {
    auto const row = values.begin() + i * cloud.columns();
    found.insert(found.end(), row, row + cloud.columns());
  }
  return Stored(found, cloud.rows(), cloud.columns());
}

// The error is of second order in that of the self terms: OT(a, b) starts where they ended, and only rises from there.
TEST_P(DivergenceTest, of_a_cloud_from_itself_in_another_order_is_zero) {
  for (std::int64_t const d : {2, 20}) {
    for (double const over_spread : {0.01, 0.05, 100.0}) {
      SCOPED_TRACE(testing::Message() << "d " << d << ", eps / spread " << over_spread);
      Problem problem = self_of(oracle::make_problem({50, 1, d, Weights::with_zeros, Place::shifted}), Side::rows);
      problem.y = reversed(problem.x);
      std::reverse(problem.b.begin(), problem.b.end());
      double const eps = over_spread * spread_of(problem);
      Divergence const actual = diverge(problem, eps);
      // A half-step gains eps KL(a | r) <= eps |r - a|^2 / min a, and each averaged sweep half of the one before.
      Real const error = actual.aa.report().marginal_error;
      double smallest = 1;
      for (double const weight : problem.a) smallest = weight > 0 ? std::min(smallest, weight) : smallest;
      EXPECT_LE(std::abs(actual.value), 2 * eps * error * error / smallest + 2 * value_rounding(actual.ab, problem));
      EXPECT_LE(actual.ab.report().iterations, 20);
    }
  }
}

// One solve serves the three parts of a cloud and its copy: nothing of its error is left.
TEST_P(DivergenceTest, of_a_cloud_from_its_copy_takes_one_solve) {
  for (Costs const costs : {Costs::points, Costs::labels, Costs::euclidean, Costs::dot}) {
    SCOPED_TRACE(testing::Message() << "costs " << static_cast<int>(costs));
    Random random(1);
    Problem problem = self_of(
        oracle::make_problem({.n = 50, .m = 1, .d = 4, .weights = Weights::with_zeros, .costs = costs}), Side::rows);
    if (costs == Costs::labels) problem = with_symmetric_labels(problem, random);
    SolveOptions given = options(problem, 0.05 * spread_of(problem));
    given.tolerance = 0.01;
    std::vector<int> solved;
    given.progress = [&](Progress const& progress) {
      solved.push_back(progress.problem);
      return true;
    };
    Divergence const actual = sinkhorn_divergence(context(), problem.clouds(), problem.a, problem.b, given);
    EXPECT_EQ(actual.value, 0);
    EXPECT_EQ(actual.status(), Status::converged);
    for (int const part : solved) EXPECT_EQ(part, 1);
    for (Plan const* plan : {&actual.ab, &actual.bb}) {
      EXPECT_EQ(plan->f(), actual.aa.f());
      EXPECT_EQ(plan->g(), actual.aa.g());
      EXPECT_EQ(plan->report().iterations, actual.aa.report().iterations);
      EXPECT_EQ(plan->report().marginal_error, actual.aa.report().marginal_error);
    }
    Problem weight = problem, point = problem, label = problem;
    std::reverse(weight.b.begin(), weight.b.end());
    point.y = moved(problem.x, {1e-6, 0, 0, 0});
    std::reverse(label.labels_y.begin(), label.labels_y.end());
    for (Problem const* other : {&weight, &point, &label}) {
      if (other == &label && !problem.has_labels()) continue;
      solved.clear();
      sinkhorn_divergence(context(), other->clouds(), other->a, other->b, given);
      EXPECT_EQ(std::set<int>(solved.begin(), solved.end()), (std::set<int>{0, 1, 2}));
    }
  }
}

// Both centred gauges are those of the self terms.
TEST_P(DivergenceTest, of_a_translated_cloud_is_the_squared_distance) {
  for (std::int64_t const d : {1, 3, 12}) {
    for (double const distance : {0.25, 4.0, 1024.0}) {
      SCOPED_TRACE(testing::Message() << "d " << d << ", distance " << distance);
      Problem problem =
          self_of(oracle::make_problem({40, 1, d, Weights::skewed, Place::origin, 1, DataType::float32}), Side::rows);
      problem.scale = 0.5;
      problem.y = moved(problem.x, std::vector<double>(static_cast<std::size_t>(d), distance));
      Divergence const actual = diverge(problem, 0.1);
      double const expected = 0.5 * static_cast<double>(d) * distance * distance;
      expect_close("S", actual.value, expected, error_of(actual, problem));
      // Nothing of the distance reaches the error.
      EXPECT_NEAR(actual.value, expected, 1e-4 * tolerance(d) + 1e-13 * expected);
    }
  }
}

// The distance of two points, whatever eps is.
TEST_P(DivergenceTest, of_single_points) {
  for (double const eps : {1e-6, 1.0, 1e6}) {
    Problem problem = oracle::make_problem({1, 1, 3, Weights::uniform, Place::apart, 1, DataType::float64, 0, 2, 2.5});
    Divergence const actual = diverge(problem, eps);
    std::vector<double> const x = problem.x.values(), y = problem.y.values();
    double square = 0;
    for (int k = 0; k < 3; ++k) square += (x[k] - y[k]) * (x[k] - y[k]);
    EXPECT_NEAR(actual.value, 2.5 * 2 * square, 1e-14 * 5 * square + 1e-14 * eps);
  }
}

TEST_P(DivergenceTest, of_clouds_that_are_single_points) {
  std::vector<double> const ones(30, 1.0 / 30);
  Stored const here(std::vector<double>(60, 3.0), 30, 2), there(std::vector<double>(60, 7.0), 30, 2);
  EXPECT_NEAR(diverge({here, here, ones, ones}, 0.01).value, 0, 1e-15);
  EXPECT_NEAR(diverge({here, there, ones, ones}, 0.01).value, 32, 1e-12);
}

// If both totals are T, the plan and the divergence are T times those of total 1. The error of a dual value
// (dual_error()) enters a divergence with the weights 1, 1/2 and 1/2. Two divergences are compared, hence the factor 4.
// The terms of a dual value have the size T (eps log T + costs).
TEST_P(DivergenceTest, of_large_totals_keeps_its_digits) {
  Problem const problem = oracle::make_problem({12, 9, 3});
  double const eps = 0.5, unit = diverge(problem, eps).value;
  for (double const total : {0x1p-60, 1.5, 3.0, 0x1p40, 0x1p60, 0x1p100}) {
    Problem large = problem;
    for (std::vector<double>* const weights : {&large.a, &large.b}) {
      for (double& weight : *weights) weight *= total;
    }
    Divergence const actual = diverge(large, eps);
    Real const size = 2 * spread_of(problem) + eps * std::abs(std::log(total));
    EXPECT_NEAR(actual.value / total, unit, 4 * (tolerance(3) + 0x1p-47L) * size) << total;
  }
}

// With eps goes the correlation of the two clouds: what is left is the squared distance of their means, up to a term of
// the order of spread^2 / eps.
TEST_P(DivergenceTest, at_huge_eps_is_that_of_the_means) {
  for (std::int64_t const d : {3, 12}) {
    Problem const problem = oracle::make_problem({40, 50, d, Weights::with_zeros});
    double const spread = spread_of(problem), eps = 1e6 * spread;
    Real square = 0;
    for (std::int64_t k = 0; k < d; ++k) {
      auto const mean = [&](Stored const& points, std::vector<double> const& weights) {
        std::vector<double> const values = points.values();
        Real sum = 0;
        for (std::size_t i = 0; i < weights.size(); ++i) sum += Real(weights[i]) * values[i * d + k];
        return sum / std::accumulate(weights.begin(), weights.end(), Real(0));
      };
      Real const w = mean(problem.x, problem.a) - mean(problem.y, problem.b);
      square += w * w;
    }
    Divergence const actual = diverge(problem, eps);
    expect_close("S", actual.value, square, 2 * spread * spread / eps + 1e-12 * eps / spread * 1e-3);
  }
}

TEST_P(DivergenceTest, is_symmetric) {
  Problem const problem = oracle::make_problem({45, 60, 4, Weights::skewed});
  double const eps = 0.02 * spread_of(problem);
  Problem const flipped{problem.y, problem.x, problem.b, problem.a, problem.scale};
  Divergence const one = diverge(problem, eps), other = diverge(flipped, eps);
  expect_close("S", one.value, other.value, error_of(one, problem) + error_of(other, flipped));
}

// Sweeps of a cloud to itself at least halve their error. In float32 they may take the three sweeps that show that the
// error has stopped, then two sweeps in float64.
TEST(DivergenceSweeps, of_self_terms_end_at_the_rounding_of_float32) {
  for (std::int64_t const d : {8, 64}) {
    for (double const tolerance : {1e-6, 1e-7, 1e-8}) {
      SCOPED_TRACE(testing::Message() << "d = " << d << ", tolerance " << tolerance);
      Problem const problem = oracle::make_problem({300, 280, d});
      auto const sweeps = [&](Precision precision) {
        Divergence const result =
            sinkhorn_divergence(Context::cpu(1), problem.clouds(), problem.a, problem.b,
                                {.eps = 0.05 * spread_of(problem), .tolerance = tolerance, .precision = precision});
        EXPECT_EQ(result.status(), Status::converged);
        return std::max(result.aa.report().iterations, result.bb.report().iterations);
      };
      EXPECT_LE(sweeps(Precision::automatic), sweeps(Precision::float64) + 5);
    }
  }
}

// A symmetric solve of a cloud with itself is a self term. Where both sides lie apart in memory, float32 leaves a
// difference of f and g that takes hundreds of sweeps.
TEST(DivergenceSweeps, of_a_symmetric_solve_of_a_cloud_with_itself_keep_f_equal_to_g) {
  Problem problem = oracle::make_problem({300, 300, 16, Weights::skewed});
  SolveOptions const options{.eps = 0.05 * spread_of(problem), .tolerance = 1e-9, .schedule = Schedule::symmetric};
  PointCloud cloud = problem.clouds();
  cloud.y = cloud.x;
  Plan const plan = solve(Context::cpu(1), cloud, problem.a, problem.a, options);
  EXPECT_EQ(plan.status(), Status::converged);
  EXPECT_EQ(plan.f(), plan.g());
  problem.y = problem.x;
  SolveOptions of_two = options;
  of_two.precision = Precision::float64;
  Plan const other = solve(Context::cpu(1), problem.clouds(), problem.a, problem.a, of_two);
  EXPECT_LE(plan.report().iterations, other.report().iterations + 6);
  // Potentials are off by eps times the error of a marginal over its weight.
  double const least = *std::min_element(problem.a.begin(), problem.a.end());
  for (std::size_t i = 0; i < problem.a.size(); ++i)
    EXPECT_NEAR(plan.f()[i], other.f()[i], 2 * options.eps * options.tolerance / least) << i;

  for (bool const equal : {false, true}) {
    Plan const plain = solve(Context::cpu(1), cloud, problem.a, equal ? problem.a : problem.b,
                             {.eps = options.eps, .schedule = equal ? Schedule::overrelaxed : Schedule::symmetric});
    EXPECT_NE(plain.f(), plain.g());
  }
}

// No digits are lost to where the clouds are or how far apart: S moves by what the means do.
TEST_P(DivergenceTest, does_not_lose_digits_to_a_distance) {
  Problem const near = oracle::make_problem({48, 40, 2, Weights::uniform, Place::origin, 1, DataType::float32});
  double const eps = 0.01;
  Divergence const first = diverge(near, eps);
  auto const mean = [&](Stored const& points, std::int64_t k) {
    std::vector<double> const values = points.values();
    double sum = 0;
    for (std::int64_t i = 0; i < points.rows(); ++i) sum += values[i * 2 + k];
    return sum / static_cast<double>(points.rows());
  };
  for (double const distance : {3.0, 10.0, 100.0}) {
    Problem far = near;
    far.y = moved(near.y, {distance, 0});
    double const w = mean(near.y, 0) - mean(near.x, 0);
    double const expected = first.value + 2 * w * distance + distance * distance;
    Divergence const actual = diverge(far, eps);
    EXPECT_NEAR(actual.value, expected, 2 * tolerance(2) * 0.1 + 1e-13 * expected);
  }
}

// Gaussians on a fine grid (closed_form_test.cpp).
TEST_P(DivergenceTest, of_gaussians) {
  double const s = 1.0, t = 0.6, shift = 1.5;
  std::int64_t const count = 121;
  std::vector<double> x, y, weights;
  for (std::int64_t i = 0; i < count; ++i) {
    double const z = -9 + 18.0 * static_cast<double>(i) / static_cast<double>(count - 1);
    x.push_back(s * z);
    y.push_back(shift + t * z);
    weights.push_back(std::exp(-z * z / 2));
  }
  double const total = std::accumulate(weights.begin(), weights.end(), 0.0);
  for (double& weight : weights) weight /= total;
  Problem const problem{Stored(x, count, 1), Stored(y, count, 1), weights, weights};
  for (double const eps : {1.0, 4.0}) {
    auto const optimum = [&](Real one, Real two) {
      Real const c = (std::sqrt(1 + 16 * one * one * two * two / (eps * eps)) - 1) * eps / 4;
      return one * one + two * two - 2 * c - eps * std::log(1 - c * c / (one * one * two * two)) / 2;
    };
    Real const expected = shift * shift + optimum(s, t) - (optimum(s, s) + optimum(t, t)) / 2;
    expect_close("S", diverge(problem, eps).value, expected, 0.4 * tolerance(1) + 2e-13);
  }
}

TEST_P(DivergenceTest, of_cost_matrices_is_that_of_their_points) {
  Problem const problem = oracle::make_problem({30, 40, 3, Weights::skewed, Place::shifted});
  double const eps = 0.05 * spread_of(problem);
  Stored const xy = costs_of(problem), xx = costs_of(self_of(problem, Side::rows)),
               yy = costs_of(self_of(problem, Side::columns));
  SolveOptions const given = options(problem, eps);
  Divergence const points = diverge(problem, eps);
  Divergence const matrices = sinkhorn_divergence(context(), DivergenceCosts{{xy.view()}, {xx.view()}, {yy.view()}},
                                                  problem.a, problem.b, given);
  EXPECT_EQ(matrices.status(), Status::converged);
  expect_close("S", matrices.value, points.value, 2 * error_of(points, problem) + 1e-9 * is_float64());
}

/// 17 averaged sweeps; overrelaxed solves of the same problems take 60 and 70.
TEST_P(DivergenceTest, of_cost_matrices_with_a_diagonal_of_zeros_takes_few_sweeps_for_self_terms) {
  Problem const problem = oracle::make_problem({500, 400, 3});
  double const eps = 0.01 * spread_of(problem);
  Stored const xy = costs_of(problem), xx = costs_of(self_of(problem, Side::rows)),
               yy = costs_of(self_of(problem, Side::columns));
  Divergence const found = sinkhorn_divergence(context(), DivergenceCosts{{xy.view()}, {xx.view()}, {yy.view()}}, {},
                                               {}, {.eps = eps, .tolerance = 1e-6});
  EXPECT_EQ(found.status(), Status::converged);
  for (Plan const* self : {&found.aa, &found.bb}) {
    EXPECT_LE(self->report().iterations, 25);
    EXPECT_LE(self->report().marginal_error, 1e-6);
  }
}

class DivergenceWithCosts : public DivergenceTest {
 protected:
  Problem make_problem(Recipe const& recipe) const {
    Problem const problem = BackendTest::make_problem(recipe);
    Random random(recipe.seed);
    return problem.has_labels() ? with_symmetric_labels(problem, random) : problem;
  }
  /// The map of a plan is the mean of the points themselves, whatever its costs are made of.
  void expect_map(Plan const& plan, Problem const& problem, double eps) const {
    Stored map(std::vector<double>(problem.n() * problem.d()), problem.n(), problem.d());
    plan.barycentric_projection(map.mutable_view());
    Dense const dense(problem);
    Arithmetic const own = oracle::arithmetic({GetParam().device}, precision(), problem);
    std::vector<double> const points = problem.y.values();
    double largest = 0;
    for (double const value : points) largest = std::max(largest, std::abs(value));
    Potentials const potentials = potentials_of(plan);
    Vector const expected = dense.average(Side::rows, eps, potentials, points, problem.d(), true);
    Vector allowed = Tolerance(problem, eps, own).product(dense, Side::rows, potentials, points, problem.d(), true);
    // Points are rounded less their mean, which is no larger than the largest.
    for (Real& value : allowed) value += 2 * own.unit * largest;
    expect_close("map", map.values(), expected, allowed);
  }
};
MONGE_FOR_EACH_OF(DivergenceWithCosts, with_point_costs(kPointCosts));

TEST_P(DivergenceWithCosts, equals_the_oracle) {
  for (Recipe const& recipe : std::vector<Recipe>{{1, 6, 3},
                                                  {6, 1, 2},
                                                  {25, 4, 3, Weights::with_zeros},
                                                  {17, 31, 12, Weights::skewed},
                                                  {31, 17, 2, Weights::uniform, Place::shifted}}) {
    SCOPED_TRACE(testing::Message() << recipe);
    Problem const problem = make_problem(recipe), aa = self_of(problem, Side::rows),
                  bb = self_of(problem, Side::columns);
    double const eps = 0.2 * std::max({spread_of(problem), spread_of(aa), spread_of(bb)});
    Divergence const actual = diverge(problem, eps);
    expect_close("S", actual.value, dense_divergence(problem, eps), error_of(actual, problem));
    expect_map(actual.ab, problem, eps);
    expect_map(actual.aa, aa, eps);
    expect_map(actual.bb, bb, eps);
    if (problem.has_labels()) continue;  // Their features are not the same on both sides.
    for (Plan const* plan : {&actual.aa, &actual.bb}) {
      // But for a constant, which a gauge may leave on one side, and what it costs in digits of all.
      std::vector<double> const f = plan->f(), g = plan->g();
      double largest = 0;
      for (std::size_t i = 0; i < f.size(); ++i) largest = std::max({largest, std::abs(f[i]), std::abs(g[i])});
      for (std::size_t i = 0; i < f.size(); ++i) EXPECT_NEAR(f[i] - g[i], f[0] - g[0], 0x1p-50 * largest);
    }
  }
}

/// S as a function of what its gradient is by.
class DivergenceGradients : public BackendTest {
 protected:
  struct Gradients {
    std::vector<double> x, y, a, b;
    DivergenceGradient of_value;
  };
  SolveOptions options(double eps, double penalty) const {
    return {.eps = eps,
            .tolerance = 1e-13,
            .iterations = 100000,
            .penalty_a = penalty,
            .penalty_b = penalty,
            .precision = Precision::float64};
  }
  Divergence diverge(Problem const& problem, SolveOptions const& options) const {
    return sinkhorn_divergence(context(), problem.clouds(), problem.a, problem.b, options);
  }
  Gradients gradients(Problem const& problem, SolveOptions const& options) const {
    std::int64_t const n = problem.n(), m = problem.m(), d = problem.d();
    Gradients result{
        std::vector<double>(n * d), std::vector<double>(m * d), std::vector<double>(n), std::vector<double>(m), {}};
    result.of_value =
        diverge(problem, options)
            .gradients({.x = {result.x.data(), n, d}, .y = {result.y.data(), m, d}, .a = result.a, .b = result.b});
    return result;
  }
  /// (S(h) - S(-h)) / 2 h, with `move` moving the problem by h.
  double difference(Problem const& problem, SolveOptions const& options,
                    std::function<void(Problem&, double)> const& move) const {
    constexpr double kStep = 1e-5;
    double value[2];
    for (int s : {0, 1}) {
      Problem moved = problem;
      move(moved, s == 0 ? kStep : -kStep);
      value[s] = diverge(moved, options).value;
    }
    return (value[0] - value[1]) / (2 * kStep);
  }
  void expect_gradients(Problem const& problem, SolveOptions const& options) const {
    Gradients const actual = gradients(problem, options);
    std::int64_t const d = problem.d();
    // The third derivative by h, h^2 / 6 = 2e-11 of it, and rounding of S over h: some 1e-10.
    double const allowed = 1e-8;
    auto const nudged = [&](Stored const& cloud, std::int64_t at, double h) {
      std::vector<double> values = cloud.values();
      values[at] += h;
      return Stored(values, cloud.rows(), d);
    };
    for (std::int64_t const at : {std::int64_t{0}, d + 1}) {
      EXPECT_NEAR(actual.x[at], difference(problem, options, [&](Problem& p, double h) { p.x = nudged(p.x, at, h); }),
                  allowed);
      EXPECT_NEAR(actual.y[at], difference(problem, options, [&](Problem& p, double h) { p.y = nudged(p.y, at, h); }),
                  allowed);
    }
    // Along directions of zero sum, which a balanced problem asks for.
    EXPECT_NEAR(actual.a[1] - actual.a[2],
                difference(problem, options,
                           [](Problem& p, double h) {
                             p.a[1] += h;
                             p.a[2] -= h;
                           }),
                allowed);
    EXPECT_NEAR(actual.b[3] - actual.b[1],
                difference(problem, options,
                           [](Problem& p, double h) {
                             p.b[3] += h;
                             p.b[1] -= h;
                           }),
                allowed);
    EXPECT_NEAR(actual.of_value.scale, difference(problem, options, [](Problem& p, double h) { p.scale += h; }),
                allowed);
  }
};
MONGE_FOR_EACH_DEVICE(DivergenceGradients);

TEST_P(DivergenceGradients, equal_finite_differences_of_the_value) {
  for (std::int64_t const d : {2, 12}) {
    for (double const penalty : {std::numeric_limits<double>::infinity(), 0.7}) {
      SCOPED_TRACE(testing::Message() << "d " << d << ", penalty " << penalty);
      Problem problem = oracle::make_problem({7, 9, d, Weights::uniform, Place::origin, 1, DataType::float64, 0, 0.4});
      for (std::size_t i = 0; i < problem.a.size(); ++i) problem.a[i] *= 1 + 0.1 * (static_cast<double>(i) - 3);
      expect_gradients(problem, options(0.3 * static_cast<double>(d), penalty));
    }
  }
}

TEST_P(DivergenceGradients, with_labels_and_of_dot_products_equal_finite_differences) {
  for (Costs const costs : {Costs::labels, Costs::dot}) {
    SCOPED_TRACE(costs == Costs::dot ? "dot" : "labels");
    Problem problem = oracle::make_problem({.n = 7, .m = 9, .d = 3, .costs = costs});
    Random random(1);
    if (problem.has_labels()) problem = with_symmetric_labels(problem, random);
    SolveOptions const given = options(0.7, std::numeric_limits<double>::infinity());
    expect_gradients(problem, given);
    if (!problem.has_labels()) continue;
    EXPECT_NEAR(gradients(problem, given).of_value.label_weight,
                difference(problem, given, [](Problem& p, double h) { p.label_weight += h; }), 1e-8);
  }
}

// Unequal masses: the term in their difference has a derivative too.
TEST_P(DivergenceGradients, of_unequal_masses_equal_finite_differences) {
  Problem problem = oracle::make_problem({7, 9, 3});
  for (double& weight : problem.a) weight *= 2;
  for (double& weight : problem.b) weight *= 0.7;
  SolveOptions const given = options(0.5, 1.3);
  expect_gradients(problem, given);
  Gradients const actual = gradients(problem, given);
  EXPECT_NEAR(actual.a[2], difference(problem, given, [](Problem& p, double h) { p.a[2] += h; }), 1e-8);
  EXPECT_NEAR(actual.b[5], difference(problem, given, [](Problem& p, double h) { p.b[5] += h; }), 1e-8);
}

// A point of no weight has a derivative by its weight, and none by where it lies.
TEST_P(DivergenceGradients, of_points_of_no_weight) {
  Problem problem = oracle::make_problem({7, 9, 3});
  problem.a[4] = 0;
  problem.a[1] += 1.0 / 7;
  SolveOptions const given = options(0.5, std::numeric_limits<double>::infinity());
  Gradients const actual = gradients(problem, given);
  for (int k = 0; k < 3; ++k) EXPECT_EQ(actual.x[4 * 3 + k], 0);
  double const h = 1e-6;
  auto const value = [&](double by) {
    Problem moved = problem;
    moved.a[4] += by;
    moved.a[1] -= by;
    return diverge(moved, given).value;
  };
  // To one side, so to second order in h.
  double const slope = (-3 * value(0) + 4 * value(h) - value(2 * h)) / (2 * h);
  EXPECT_NEAR(actual.a[4] - actual.a[1], slope, 1e-7);
}

// At S(x, x) the value has its minimum.
TEST_P(DivergenceGradients, vanish_where_the_measures_are_the_same) {
  Problem const problem = self_of(oracle::make_problem({30, 1, 4, Weights::with_zeros, Place::shifted}), Side::rows);
  for (double const tolerance : {1e-2, 1e-12}) {
    SolveOptions given = options(0.5, std::numeric_limits<double>::infinity());
    given.tolerance = tolerance;
    Gradients const actual = gradients(problem, given);
    for (std::vector<double> const* of : {&actual.x, &actual.y, &actual.a, &actual.b}) {
      for (double const value : *of) EXPECT_EQ(value, 0);
    }
  }
}

// No positive definite kernel is behind these costs, but they are symmetric.
TEST_P(DivergenceGradients, of_cost_matrices_are_those_of_their_points) {
  Problem const problem = oracle::make_problem({12, 15, 3, Weights::skewed});
  SolveOptions const given = options(0.5, std::numeric_limits<double>::infinity());
  Stored const xy = costs_of(problem), xx = costs_of(self_of(problem, Side::rows)),
               yy = costs_of(self_of(problem, Side::columns));
  Gradients const expected = gradients(problem, given);
  std::vector<double> a(12), b(15);
  sinkhorn_divergence(context(), DivergenceCosts{{xy.view()}, {xx.view()}, {yy.view()}}, problem.a, problem.b, given)
      .gradients({.a = a, .b = b});
  for (std::size_t i = 1; i < a.size(); ++i) EXPECT_NEAR(a[i] - a[0], expected.a[i] - expected.a[0], 1e-7);
  for (std::size_t j = 1; j < b.size(); ++j) EXPECT_NEAR(b[j] - b[0], expected.b[j] - expected.b[0], 1e-7);
}

class DivergenceCalls : public BackendTest {};
MONGE_FOR_EACH_DEVICE(DivergenceCalls);

TEST_P(DivergenceCalls, say_what_is_wrong) {
  Problem const problem = oracle::make_problem({6, 8, 2});
  SolveOptions const good{.eps = 0.1};
  auto const call = [&](PointCloud const& clouds, SolveOptions const& options) {
    return oracle::refusal_of([&] { sinkhorn_divergence(context(), clouds, {}, {}, options); });
  };
  EXPECT_EQ(call(problem.clouds(), good), "no error");
  EXPECT_EQ(call(problem.clouds(), {.eps_relative = 0}), "eps_relative: is 0; must be finite and > 0");
  SolveOptions penalties = good;
  penalties.penalty_a = 2;
  EXPECT_EQ(call(problem.clouds(), penalties),
            "penalty_b: is inf; must be 2 as penalty_a is, as each measure meets itself");
  PointCloud clouds = problem.clouds();
  clouds.scale = -1;
  EXPECT_EQ(call(clouds, good), "scale: is -1; must be finite and > 0");

  Stored const xy(std::vector<double>(48, 1.0), 6, 8), xx(std::vector<double>(36, 1.0), 6, 6);
  auto const matrices = [&](Stored const& first, Stored const& second) {
    return oracle::refusal_of([&] {
      sinkhorn_divergence(context(), DivergenceCosts{{xy.view()}, {first.view()}, {second.view()}}, {}, {}, good);
    });
  };
  EXPECT_EQ(matrices(xx, xx), "yy: cost: is 6 x 6; must be 8 x 8");
  EXPECT_EQ(matrices(xy, xx), "xx: cost: is 6 x 8; must be 6 x 6");
}

// Tables of labels are symmetric, whatever lies between their rows. Those of a batch need not be one.
TEST_P(DivergenceCalls, want_symmetric_label_costs) {
  Problem const problem = oracle::make_problem({6, 8, 2});
  std::vector<std::int64_t> const classes{0, 1, 2, 0, 1, 2, 0, 1};
  std::vector<double> good{0, 1, 2, -7, 1, 0, 3, -8, 2, 3, 0}, wrong = good;
  wrong[9] = 4;
  auto const with = [&](std::vector<double> const& table) {
    PointCloud clouds = problem.clouds();
    clouds.labels = {.x = {classes.data(), 6},
                     .y = {classes.data(), 8},
                     .cost = MatrixView(table.data(), DataType::float64, 3, 3, 4)};
    return DivergenceProblem{.costs = clouds};
  };
  auto const batch = [&](std::vector<double> const& last) {
    std::vector<DivergenceProblem> const problems{with(good), with(good), with(last)};
    return oracle::refusal_of([&] { sinkhorn_divergence_batch(context(), problems, {.eps = 0.1}); });
  };
  EXPECT_EQ(batch(good), "no error");
  EXPECT_EQ(batch(wrong),
            "problem 2: label_cost: row 2, column 1 is 4 and row 1, column 2 is 3; must be symmetric, as each cloud "
            "meets itself");
}

// Newton's method begins in float64, sweeps of the self terms in float32: they cannot share packed points.
TEST_P(DivergenceCalls, by_newton_are_those_by_sweeps) {
  Problem const problem = oracle::make_problem({40, 50, 3, Weights::with_zeros, Place::shifted});
  SolveOptions options{.eps = 0.3, .method = Method::newton};
  Divergence const newton = sinkhorn_divergence(context(), problem.clouds(), problem.a, problem.b, options);
  options.method = Method::sinkhorn;
  Divergence const sweeps = sinkhorn_divergence(context(), problem.clouds(), problem.a, problem.b, options);
  EXPECT_EQ(newton.status(), Status::converged);
  EXPECT_NEAR(newton.value, sweeps.value, newton.gap + sweeps.gap + 1e-13 * std::abs(sweeps.ab.report().dual));
}

// One eps for the three: that of OT(a, b).
TEST_P(DivergenceCalls, share_eps_and_the_wish_to_stop) {
  Problem const problem = oracle::make_problem({40, 50, 3});
  SolveOptions options{.eps_relative = 0.05};
  std::vector<int> seen;
  options.progress = [&](Progress const& progress) {
    seen.push_back(progress.problem);
    return true;
  };
  Divergence const whole = sinkhorn_divergence(context(), problem.clouds(), problem.a, problem.b, options);
  EXPECT_NEAR(whole.ab.report().eps_relative, 0.05, 1e-15);
  EXPECT_EQ(whole.aa.report().eps, whole.ab.report().eps);
  EXPECT_EQ(whole.bb.report().eps, whole.ab.report().eps);
  for (int const index : {0, 1, 2}) EXPECT_NE(std::find(seen.begin(), seen.end(), index), seen.end());
  options.progress = [](Progress const&) { return false; };
  Divergence const stopped = sinkhorn_divergence(context(), problem.clouds(), problem.a, problem.b, options);
  EXPECT_EQ(stopped.status(), Status::stopped);
  for (Plan const* plan : {&stopped.ab, &stopped.aa, &stopped.bb}) EXPECT_EQ(plan->status(), Status::stopped);
}

}  // namespace
}  // namespace monge::oracle
