// solve_exact(): each plan is proved optimal against dense costs: it has the marginals, its potentials allow all pairs,
// and its gap is rounding.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include <gtest/gtest.h>
#include <monge/exact.hpp>

#include "oracle/backend_test.hpp"
#include "oracle/problem.hpp"
#include "oracle/refusal.hpp"

namespace monge::oracle {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

double largest_finite(std::vector<long double> const& costs) {
  double most = 0;
  for (long double const cost : costs) {
    if (std::isfinite(cost)) most = std::max(most, static_cast<double>(std::abs(cost)));
  }
  return most;
}

/// The rounding of n + m products of a mass and a potential, which is a sum of some costs.
double rounding_of_bound(double largest_cost, double total) {
  return 0x1p-45 * largest_cost * total + std::numeric_limits<double>::min();
}

/// The rounding of sums of n + m weights, in this file and in the library.
double rounding_of_mass(Problem const& problem, double total) {
  return std::max(1e-14, static_cast<double>(problem.n() + problem.m()) * 0x1p-53) * total;
}

/// `allowed` is a share of the largest cost: the default tolerance, and the rounding of costs.
void expect_proof(Problem const& problem, ExactPlan const& plan, double allowed = 2e-12) {
  std::int64_t const n = problem.n(), m = problem.m();
  std::vector<long double> const costs = dense_costs(problem);
  ASSERT_EQ(plan.report.status, ExactStatus::optimal) << plan.report.message;
  ASSERT_EQ(plan.rows(), n);
  ASSERT_EQ(plan.columns(), m);
  double const total = std::accumulate(problem.a.begin(), problem.a.end(), 0.0);
  double const slack = allowed * largest_finite(costs), mass_slack = rounding_of_mass(problem, total);

  std::vector<double> row(n, 0), column(m, 0);
  long double gap = 0, cost = 0;
  ASSERT_EQ(plan.row_begin.size(), n + 1);
  for (std::int64_t i = 0; i < n; ++i) {
    for (std::int64_t k = plan.row_begin[i]; k < plan.row_begin[i + 1]; ++k) {
      std::int64_t const j = plan.column_indices[k];
      ASSERT_TRUE(k == plan.row_begin[i] || j > plan.column_indices[k - 1]);
      ASSERT_GT(plan.values[k], 0);
      row[i] += plan.values[k];
      column[j] += plan.values[k];
      cost += plan.values[k] * costs[i * m + j];
      gap += plan.values[k] * (costs[i * m + j] - plan.f[i] - plan.g[j]);
    }
  }
  EXPECT_EQ(plan.report.nonzeros, std::ssize(plan.values));
  EXPECT_LE(plan.report.nonzeros, n + m - 1);
  for (std::int64_t i = 0; i < n; ++i) EXPECT_NEAR(row[i], problem.a[i], mass_slack);
  double const scale = total / std::accumulate(problem.b.begin(), problem.b.end(), 0.0);
  for (std::int64_t j = 0; j < m; ++j) EXPECT_NEAR(column[j], problem.b[j] * scale, mass_slack);
  for (std::int64_t i = 0; i < n; ++i) {
    for (std::int64_t j = 0; j < m; ++j) {
      if (std::isinf(plan.f[i]) || std::isinf(plan.g[j])) continue;
      ASSERT_GE(costs[i * m + j] - plan.f[i] - plan.g[j], -slack) << i << ' ' << j;
    }
  }
  double const rounding = rounding_of_bound(largest_finite(costs), total);
  EXPECT_LE(std::abs(static_cast<double>(gap)), slack * total);
  EXPECT_NEAR(plan.report.gap, static_cast<double>(gap), slack * total + rounding);
  EXPECT_NEAR(plan.report.transport_cost, static_cast<double>(cost), slack * total);
  EXPECT_NEAR(plan.report.dual, static_cast<double>(cost), 2 * slack * total + rounding);
  EXPECT_LE(plan.report.dual, plan.report.value);
  EXPECT_NEAR(plan.report.transported_mass, total, mass_slack);
}

ExactPlan solve(Problem const& problem, ExactOptions const& options = {}) {
  return solve_exact(Context::cpu(2), problem.geometry(), problem.a, problem.b, options);
}

/// Expects potentials that are feasible in the dual, with the value of the plan: a proof that both are optimal.
void expect_relaxed_proof(Problem const& problem, ExactPlan const& plan, ExactOptions const& options) {
  std::int64_t const n = problem.n(), m = problem.m();
  std::vector<long double> const costs = dense_costs(problem);
  ExactReport const& report = plan.report;
  ASSERT_EQ(report.status, ExactStatus::optimal) << report.message;
  double const total_a = std::accumulate(problem.a.begin(), problem.a.end(), 0.0);
  double const total_b = std::accumulate(problem.b.begin(), problem.b.end(), 0.0);
  double const slack = 2e-12 * report.cost_scale, most = slack * (total_a + total_b);
  std::vector<double> row(problem.a), column(problem.b);  // What the plan leaves.
  long double value = 0, dual = 0, mass = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    for (std::int64_t k = plan.row_begin[i]; k < plan.row_begin[i + 1]; ++k) {
      ASSERT_GT(plan.values[k], 0);
      row[i] -= plan.values[k];
      column[plan.column_indices[k]] -= plan.values[k];
      mass += plan.values[k];
      value += plan.values[k] * costs[i * m + plan.column_indices[k]];
    }
  }
  bool const partial = std::isfinite(options.mass);
  double const half = report.mass_price / 2;
  double const limit_a = partial ? half : options.penalty_a, limit_b = partial ? half : options.penalty_b;
  for (std::int64_t i = 0; i < n; ++i) {
    ASSERT_LE(plan.f[i], limit_a + slack);
    ASSERT_GE(partial ? row[i] : plan.f[i] + limit_a, partial ? -1e-15 * total_a : -slack);
    if (!partial && std::abs(row[i]) > 1e-15 * total_a) value += options.penalty_a * std::abs(row[i]);
    dual += problem.a[i] * plan.f[i];
    for (std::int64_t j = 0; j < m; ++j) ASSERT_GE(costs[i * m + j] - plan.f[i] - plan.g[j], -slack);
  }
  for (std::int64_t j = 0; j < m; ++j) {
    ASSERT_LE(plan.g[j], limit_b + slack);
    ASSERT_GE(partial ? column[j] : plan.g[j] + limit_b, partial ? -1e-15 * total_b : -slack);
    if (!partial && std::abs(column[j]) > 1e-15 * total_b) value += options.penalty_b * std::abs(column[j]);
    dual += problem.b[j] * plan.g[j];
  }
  if (partial) {
    EXPECT_NEAR(static_cast<double>(mass), options.mass, rounding_of_mass(problem, options.mass));
    dual -= half * (total_a + total_b - 2 * mass);
  }
  EXPECT_NEAR(static_cast<double>(value), static_cast<double>(dual), most);
  EXPECT_NEAR(report.value, static_cast<double>(value), most);
  EXPECT_NEAR(report.dual, static_cast<double>(dual), most);
  EXPECT_NEAR(report.gap, 0, most);
  EXPECT_EQ(report.missing_mass, 0);
}

class ExactOfCosts : public testing::TestWithParam<Costs> {};

// The smaller sizes take all pairs at once, the middle ones from potentials of sweeps, the larger ones candidates and
// passes.
TEST_P(ExactOfCosts, IsProved) {
  for (Weights const weights : {Weights::uniform, Weights::skewed, Weights::with_zeros}) {
    for (auto const& [n, m] : {std::pair{1, 1}, {1, 7}, {6, 1}, {12, 12}, {17, 30}, {120, 110}, {370, 360}}) {
      for (DataType const storage : {DataType::float64, DataType::float32}) {
        Recipe const recipe{
            .n = n, .m = m, .d = 3, .weights = weights, .storage = storage, .padding = 2, .costs = GetParam()};
        SCOPED_TRACE(testing::PrintToString(recipe));
        Problem const problem = make_problem(recipe);
        expect_proof(problem, solve(problem));
      }
    }
  }
}

TEST_P(ExactOfCosts, IsProvedWherePartOfTheMassStays) {
  for (Weights const weights : {Weights::uniform, Weights::skewed, Weights::with_zeros}) {
    for (auto const& [n, m] : {std::pair{1, 1}, {1, 7}, {17, 30}, {120, 110}, {380, 360}}) {
      Recipe const recipe{.n = n, .m = m, .d = 3, .weights = weights, .costs = GetParam()};
      SCOPED_TRACE(testing::PrintToString(recipe));
      Problem problem = make_problem(recipe);
      for (double& weight : problem.b) weight *= 1.5;
      double const total = std::accumulate(problem.a.begin(), problem.a.end(), 0.0);
      double const scale = largest_finite(dense_costs(problem));
      for (double const share : {0.25, 0.9}) {
        ExactOptions const partial{.mass = share * total};
        expect_relaxed_proof(problem, solve(problem, partial), partial);
      }
      for (auto const& [a, b] : {std::pair{0.6, 0.6}, {0.5, 2.0}, {2.0, 0.5}}) {
        ExactOptions const penalties{.penalty_a = a * scale, .penalty_b = b * scale};
        expect_relaxed_proof(problem, solve(problem, penalties), penalties);
      }
    }
  }
}

TEST_P(ExactOfCosts, OffsetsCostNoDigitsOfTheirOwn) {
  for (Place const place : {Place::shifted, Place::apart}) {
    Recipe const recipe{.n = 390, .m = 340, .d = 2, .place = place, .seed = 2, .costs = GetParam()};
    SCOPED_TRACE(testing::PrintToString(recipe));
    Problem const problem = make_problem(recipe);
    expect_proof(problem, solve(problem));
  }
}

/// The plan of the problem from a start is proved, too, and has the value of the plan from nothing.
ExactPlan solve_from(ExactPlan const& start, Problem const& problem, ExactOptions options = {}) {
  ExactPlan const cold = solve(problem, options);
  options.start = &start;
  ExactPlan warm = solve(problem, options);
  EXPECT_EQ(warm.report.status, ExactStatus::optimal);
  EXPECT_EQ(warm.report.missing_mass, 0);
  EXPECT_NEAR(warm.report.value, cold.report.value, 4e-12 * cold.report.cost_scale * cold.report.mass);
  return warm;
}

TEST_P(ExactOfCosts, TheSameProblemIsProvedFromItsPlanWithoutPivots) {
  for (Weights const weights : {Weights::uniform, Weights::skewed, Weights::with_zeros}) {
    for (auto const& [n, m] : {std::pair{1, 1}, {17, 30}, {120, 110}, {400, 330}}) {
      Recipe const recipe{.n = n, .m = m, .d = 3, .weights = weights, .costs = GetParam()};
      SCOPED_TRACE(testing::PrintToString(recipe));
      Problem const problem = make_problem(recipe);
      double const total = std::accumulate(problem.a.begin(), problem.a.end(), 0.0);
      for (double const mass : {kInfinity, 0.6 * total}) {
        ExactPlan const cold = solve(problem, {.mass = mass}), warm = solve_from(cold, problem, {.mass = mass});
        EXPECT_EQ(warm.report.rounds, 1);
        EXPECT_LE(warm.report.pivots, cold.report.pivots / 100) << mass;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, ExactOfCosts,
                         testing::Values(Costs::points, Costs::distances, Costs::random, Costs::labels, Costs::cosine,
                                         Costs::dot, Costs::euclidean, Costs::p_norm));

/// In float64, which is all there is.
std::vector<Target> devices_with_costs() {
  std::vector<Target> targets =
      with_all_costs(all_devices()) + with_point_costs({Costs::labels, Costs::cosine, Costs::p_norm});
  std::erase_if(targets, [](Target const& target) { return target.precision != Precision::float64; });
  return targets;
}
/// The same from all pairs, with sweeps or without, and from candidates that passes on the device find.
class ExactOnDevice : public BackendTest {};
MONGE_FOR_EACH_OF(ExactOnDevice, devices_with_costs());

TEST_P(ExactOnDevice, IsProved) {
  for (Weights const weights : {Weights::uniform, Weights::with_zeros}) {
    for (auto const& [n, m] : {std::pair{1, 7}, {17, 30}, {120, 110}, {370, 360}}) {
      Problem const problem = make_problem({.n = n, .m = m, .d = 3, .weights = weights, .padding = 2});
      SCOPED_TRACE(testing::PrintToString(n));
      auto const on_device = [&](ExactOptions const& options) {
        return solve_exact(context(), problem.geometry(), problem.a, problem.b, options);
      };
      ExactPlan const plan = on_device({});
      expect_proof(problem, plan);
      expect_proof(problem, on_device({.start = &plan}));
      expect_proof(problem, on_device({.f = plan.f, .g = plan.g}));
      ExactOptions const partial{.mass = 0.6 * plan.report.mass}, penalties{.penalty_a = 2, .penalty_b = 3};
      for (ExactOptions const& options : {partial, penalties})
        expect_relaxed_proof(problem, on_device(options), options);
    }
  }
}

// The bounds that hide rounding are those of points with mass.
TEST_P(ExactOnDevice, OutliersWithoutMassCostNoDigits) {
  Problem problem = make_problem({.n = 370, .m = 360, .d = 3});
  problem.a[0] = 0;
  std::ranges::fill(problem.b, 369.0 / 370 / 360);
  auto const report_of = [&](Problem const& some, ExactOptions const& options) {
    return solve_exact(context(), some.geometry(), some.a, some.b, options).report;
  };
  for (double const mass : {kInfinity, 0.5}) {
    ExactReport const report = report_of(problem, {.mass = mass});
    ExactReport const beside = report_of(with_outlier_without_mass(problem), {.mass = mass});
    EXPECT_EQ(beside.status, ExactStatus::optimal) << beside.message;
    double const allowed = 1e-12 * report.cost_scale;  // The tolerance of reduced costs; the mass is at most 1.
    EXPECT_NEAR(beside.value, report.value, allowed);
    EXPECT_NEAR(beside.dual, report.dual, allowed);
    EXPECT_NEAR(beside.gap, report.gap, allowed);
  }
}

// Costs of points are centred, and the shift of a far point may be far above all costs of points with mass.
TEST(Exact, FarPointsWithoutMassCostNoDigits) {
  for (double const distance : {0.0, 1000.0}) {
    Problem problem = make_problem({.n = 400, .m = 400, .d = 3});
    std::vector<double> points = problem.y.values();
    for (double& coordinate : points) coordinate += distance;
    problem.a.assign(400, 1.0 / 400);
    problem.b.assign(400, 1.0 / 399);
    problem.b[0] = 0;
    problem.y = Stored(points, 400, 3);
    ExactReport const expected = solve(problem).report;
    std::fill_n(points.begin(), 3, 1e15);
    problem.y = Stored(points, 400, 3);
    for (bool const turned : {false, true}) {
      if (turned) {
        std::swap(problem.x, problem.y);
        std::swap(problem.a, problem.b);
      }
      ExactReport const report = solve(problem).report;
      EXPECT_EQ(report.status, ExactStatus::optimal) << distance << ' ' << turned << ": " << report.message;
      double const allowed = 1e-12 * expected.cost_scale;  // The tolerance of reduced costs; the mass is 1.
      EXPECT_NEAR(report.value, expected.value, allowed);
      EXPECT_NEAR(report.dual, expected.dual, allowed);
    }
  }
}

/// Weights are whole numbers from 0 to `most`, with equal totals.
Problem whole_problem(Random& random, std::int64_t n, std::int64_t m, double most, double costs, double forbidden = 0) {
  std::vector<double> a(n), b(m), cost(n * m);
  for (double& weight : a) weight = std::floor(random.uniform(0, most + 1));
  for (double& weight : b) weight = std::floor(random.uniform(0, most + 1));
  ++a[0];
  ++b[0];
  double const lack = std::accumulate(a.begin(), a.end(), 0.0) - std::accumulate(b.begin(), b.end(), 0.0);
  (lack > 0 ? b[0] : a[0]) += std::abs(lack);
  for (double& entry : cost) entry = random.uniform() < forbidden ? kInfinity : std::floor(random.uniform(0, costs));
  for (std::int64_t i = 0; i < n; ++i) cost[i * m] = costs;  // The first column is allowed, the first row, too:
  for (std::int64_t j = 0; j < m; ++j) cost[j] = costs;      // each plan may go through them.
  a[0] += 1000;
  b[0] += 1000;
  return make_matrix_problem(cost, a, b);
}

TEST(Exact, SolvesWholeProblemsWithTiesExactly) {
  Random random(5);
  for (int trial = 0; trial < 300; ++trial) {
    std::int64_t const n = 1 + trial % 13, m = 1 + trial / 13 % 11;
    Problem const problem = whole_problem(random, n, m, trial % 5, 1 + trial % 4, trial % 3 * 0.3);
    ExactPlan const plan = solve(problem);
    expect_proof(problem, plan, 0);  // Whole numbers are not rounded.
    for (double const value : plan.values) EXPECT_EQ(value, std::floor(value));
    EXPECT_LE(plan.report.dual, plan.report.value);
  }
}

TEST(Exact, SolvesLatticesAndDuplicates) {
  std::vector<double> lattice, copies;
  for (int i = 0; i < 20; ++i) {
    for (int j = 0; j < 15; ++j) lattice.insert(lattice.end(), {1.0 * i, 1.0 * j});
  }
  for (int i = 0; i < 250; ++i) copies.insert(copies.end(), {1.0 * (i % 3), 0.0});
  for (auto const& [x, y] : {std::pair{lattice, copies}, {copies, lattice}, {lattice, lattice}, {copies, copies}}) {
    std::int64_t const n = std::ssize(x) / 2, m = std::ssize(y) / 2;
    Problem problem;
    problem.x = Stored(x, n, 2);
    problem.y = Stored(y, m, 2);
    problem.a.assign(n, 1.0 / static_cast<double>(n));
    problem.b.assign(m, 1.0 / static_cast<double>(m));
    ExactPlan const plan = solve(problem);
    expect_proof(problem, plan);
    if (n != m) continue;
    EXPECT_EQ(plan.report.nonzeros, n);  // A permutation, although the optimum is not unique.
  }
}

// Equal costs have no nearest columns. Each row and column has 12 candidates, and each row is offered 16 more, once.
TEST(Exact, EqualPointsNeedFewCandidates) {
  std::int64_t const n = 1024;  // Weights sum to 1 without rounding.
  Problem problem;
  problem.x = problem.y = Stored(std::vector<double>(2 * n, 1.0), n, 2);
  problem.a.assign(n, 1.0 / static_cast<double>(n));
  problem.b = problem.a;
  ExactPlan const plan = solve(problem);
  expect_proof(problem, plan);
  EXPECT_LE(plan.report.candidates, (12 + 12 + 16) * n);
}

TEST(Exact, TiesThatRoundingBreaksNeedFewCandidates) {
  // On a line with all sources left of all targets each plan costs the same, to rounding.
  Random random(5);
  std::int64_t const n = 1000;
  std::vector<double> x, y;
  Problem problem;
  problem.cost_function = CostFunction::euclidean;
  for (std::int64_t i = 0; i < n; ++i) {
    x.push_back(random.uniform(0, 1));
    y.push_back(random.uniform(1, 2));
    problem.a.push_back(random.uniform(0, 1));
    problem.b.push_back(random.uniform(0, 1));
  }
  problem.x = Stored(x, n, 1);
  problem.y = Stored(y, n, 1);
  double const ratio = std::accumulate(problem.a.begin(), problem.a.end(), 0.0) /
                       std::accumulate(problem.b.begin(), problem.b.end(), 0.0);
  for (double& weight : problem.b) weight *= ratio;
  ExactPlan const plan = solve(problem);
  expect_proof(problem, plan);
  EXPECT_LE(plan.report.candidates, (12 + 12 + 16 + 2) * n);  // With the pairs of a tree of n + n points.
}

TEST(Exact, EqualSizesWithUniformWeightsGiveAPermutation) {
  for (std::int64_t const n : {2, 60, 365}) {
    Problem const problem = make_problem({.n = n, .m = n, .d = 2});
    ExactPlan const plan = solve_exact(Context::cpu(), problem.geometry(), {}, {});
    ASSERT_EQ(plan.report.nonzeros, n);
    std::vector<std::int64_t> to = plan.column_indices;
    std::sort(to.begin(), to.end());
    for (std::int64_t i = 0; i < n; ++i) {
      EXPECT_EQ(to[i], i);
      EXPECT_EQ(plan.values[i], 1.0 / static_cast<double>(n));
    }
  }
}

TEST(Exact, FewCandidatesTakeMoreRounds) {
  Problem const problem = make_problem({.n = 400, .m = 350, .d = 2, .weights = Weights::skewed});
  ExactPlan const plan = solve(problem, {.candidates = 1});
  expect_proof(problem, plan);
  EXPECT_GT(plan.report.rounds, 1);
  EXPECT_LT(plan.report.candidates, 20 * 750);
}

// Large clouds start from every second point. The optimal plan of a translation is the translation.
TEST(Exact, LargeCloudsFindATranslation) {
  std::int64_t const n = 12'000, d = 6;
  Random random(4);
  std::vector<double> x(d * n), y(d * n);
  for (double& coordinate : x) coordinate = random.normal();
  for (std::int64_t i = 0; i < n; ++i) {
    for (std::int64_t k = 0; k < d; ++k) y[d * (n - 1 - i) + k] = x[d * i + k] + static_cast<double>(k);
  }
  // Partners have the same label, which costs 1.
  std::int64_t const classes = 5;
  std::vector<std::int64_t> labels_x(n), labels_y(n);
  std::vector<double> label_cost(classes * classes);
  for (std::int64_t i = 0; i < n; ++i) labels_x[i] = labels_y[n - 1 - i] = i % classes;
  for (std::int64_t k = 0; k < classes * classes; ++k)
    label_cost[k] = 1 + static_cast<double>(std::abs(k / classes - k % classes));
  for (bool const has_labels : {false, true}) {
    PointCloud clouds{.x = {x.data(), n, d}, .y = {y.data(), n, d}};
    if (has_labels) clouds.labels = {{labels_x.data(), n}, {labels_y.data(), n}, {label_cost.data(), classes, classes}};
    ExactPlan const plan = solve_exact(Context::cpu(2), clouds, {}, {});
    ASSERT_EQ(plan.report.status, ExactStatus::optimal);
    double const slack = 2e-12 * plan.report.cost_scale;
    EXPECT_NEAR(plan.report.value, has_labels ? 56 : 55, slack);
    EXPECT_NEAR(plan.report.gap, 0, slack);
    for (std::int64_t i = 0; i < n; ++i) ASSERT_EQ(plan.column_indices[i], n - 1 - i);
  }
}

// Candidates come from coarse clouds, and trees find better pairs.
TEST(Exact, ManyPointsInThePlaneAreProved) {
  for (Weights const weights : {Weights::uniform, Weights::with_zeros}) {
    Problem problem = make_problem({.n = 4200, .m = 4100, .d = 2, .weights = weights});
    SCOPED_TRACE(static_cast<int>(weights));
    expect_proof(problem, solve(problem));
    ExactOptions const options{.mass = 0.7 * std::accumulate(problem.a.begin(), problem.a.end(), 0.0)};
    expect_relaxed_proof(problem, solve(problem, options), options);
  }
}

// From 40,000 points on, plans of a device leave out pairs too, and the host searches trees for better ones.
TEST(ExactOfManyPoints, cuda_finds_the_plan_of_the_host) {
  require_device(DeviceType::cuda);
  if (IsSkipped() || HasFatalFailure()) return;
  std::int64_t const n = 41'000, m = 40'000;
  Random random(6);
  std::vector<double> x, y;
  for (std::int64_t e = 0; e < 2 * n; ++e) x.push_back(random.uniform());
  for (std::int64_t e = 0; e < 2 * m; ++e) y.push_back(std::pow(random.uniform(), 1.5));
  auto const report_of = [&](Context const& context, MatrixView of_x, MatrixView of_y) {
    return solve_exact(context, PointCloud{of_x, of_y}, {}, {}).report;
  };
  MatrixView const of_x(x.data(), n, 2), of_y(y.data(), m, 2);
  ExactReport const expected = report_of(Context::cpu(), of_x, of_y);
  ExactReport const found = report_of(Context::cuda(), of_x, of_y);
  for (ExactReport const& report : {expected, found}) {
    EXPECT_EQ(report.status, ExactStatus::optimal) << report.message;
    EXPECT_NEAR(report.value, expected.value, 2e-12 * report.cost_scale);
    EXPECT_NEAR(report.gap, 0, 2e-12 * report.cost_scale);
  }
  EXPECT_LE(found.rounds, expected.rounds + 2);
}

// Where potentials of 0 leave much of the mass without a place, a low first price takes a quarter more pivots.
TEST(Exact, StartsFromNothingTakeFewPivots) {
  std::int64_t const n = 45;
  std::int64_t pivots = 0, points = 0;
  Random random(7);
  for (int trial = 0; trial < 50; ++trial, points += 2 * n) {
    Problem problem = make_problem({.n = n, .m = n, .d = 2, .weights = Weights::skewed});
    std::vector<double> x(2 * n), y(2 * n);
    for (double& coordinate : x) coordinate = random.normal();
    for (double& coordinate : y) coordinate = 0.5 + 0.8 * random.normal();
    problem.x = Stored(x, n, 2);
    problem.y = Stored(y, n, 2);
    for (std::vector<double>* const weights : {&problem.a, &problem.b}) {
      for (double& weight : *weights) weight = random.uniform(0.1, 1.1);
      double const total = std::accumulate(weights->begin(), weights->end(), 0.0);
      for (double& weight : *weights) weight /= total;
    }
    ExactPlan const plan = solve(problem);
    expect_proof(problem, plan);
    pivots += plan.report.pivots;
  }
  EXPECT_LT(static_cast<double>(pivots), 3.4 * static_cast<double>(points));
}

// The start chooses its last eps from the candidates of both sides. An eps from the rows alone leaves thousands of
// pivots where there are few columns, and each pivot changes the potentials of thousands of nodes.
TEST(Exact, ManySourcesOfFewTargetsTakeFewPivotsInBothOrientations) {
  std::int64_t const many = 20'000, few = 20, d = 8;
  double value = 0;
  for (bool const has_few_targets : {true, false}) {
    std::int64_t const n = has_few_targets ? many : few, m = has_few_targets ? few : many;
    Random random(5);
    std::vector<double> cloud(many * d), targets(few * d), masses(many), others(few);
    for (auto* const coordinates : {&cloud, &targets}) {
      for (double& coordinate : *coordinates) coordinate = random.normal();
    }
    for (auto* const weights : {&masses, &others}) {
      for (double& weight : *weights) weight = random.uniform(0.1, 1.1);
      double const total = std::accumulate(weights->begin(), weights->end(), 0.0);
      for (double& weight : *weights) weight /= total;
    }
    if (!has_few_targets) {
      std::swap(cloud, targets);
      std::swap(masses, others);
    }
    PointCloud const clouds{.x = {cloud.data(), n, d}, .y = {targets.data(), m, d}};
    ExactPlan const plan = solve_exact(Context::cpu(2), clouds, masses, others);
    ASSERT_EQ(plan.report.status, ExactStatus::optimal);
    EXPECT_LT(plan.report.pivots, many / 10);
    if (has_few_targets) value = plan.report.value;
    EXPECT_NEAR(plan.report.value, value, 1e-11 * plan.report.cost_scale);
  }
}

TEST(Exact, MassLeavesClustersWithoutCandidatesBetweenThem) {
  // Two pairs of clusters far apart, of which one has a little more mass on the left than on the right.
  Random random(3);
  std::int64_t const n = 370;
  std::vector<double> x, y;
  for (std::int64_t i = 0; i < n; ++i) {
    double const place = i < n / 2 ? 0 : 1e3;
    x.insert(x.end(), {place + random.normal(), random.normal()});
    y.insert(y.end(), {place + random.normal(), random.normal()});
  }
  Problem problem;
  problem.x = Stored(x, n, 2);
  problem.y = Stored(y, n, 2);
  problem.a.assign(n, 1);
  problem.b.assign(n, 1);
  problem.a[0] += 1e-7;
  problem.b[n - 1] += 1e-7;
  expect_proof(problem, solve(problem, {.candidates = 2}));
}

TEST(Exact, WarmStartsNeedNoMoreRounds) {
  Problem problem = make_problem({.n = 400, .m = 350, .d = 3, .weights = Weights::skewed});
  ExactPlan const cold = solve(problem), warm = solve(problem, {.f = cold.f, .g = cold.g});
  expect_proof(problem, warm);
  EXPECT_EQ(warm.report.rounds, 1);
  EXPECT_LT(warm.report.pivots, cold.report.pivots);
  for (double& weight : problem.b) weight *= 2;  // Totals may differ where mass stays.
  for (ExactOptions options : {ExactOptions{.mass = 0.3}, ExactOptions{.penalty_a = 0.2, .penalty_b = 0.3}}) {
    ExactPlan const relaxed = solve(problem, options);
    options.f = relaxed.f;
    options.g = relaxed.g;
    ExactPlan const again = solve(problem, options);
    expect_relaxed_proof(problem, again, options);
    EXPECT_EQ(again.report.rounds, 1);
  }
}

TEST(Exact, SequencesStartFromTheLastPlan) {
  Random random(8);
  Recipe const recipe{.n = 390, .m = 340, .d = 2, .weights = Weights::skewed};
  for (bool const points_move : {true, false}) {
    Problem problem = make_problem(recipe);
    std::vector<double> x(recipe.n * recipe.d);
    for (double& coordinate : x) coordinate = random.normal();
    problem.x = Stored(x, recipe.n, recipe.d);
    ExactPlan last = solve(problem);
    std::int64_t cold = 0, warm = 0;
    for (int step = 0; step < 5; ++step) {
      if (points_move) {
        for (double& coordinate : x) coordinate += 1e-3 * random.normal();
        problem.x = Stored(x, recipe.n, recipe.d);
      } else {
        for (double& weight : problem.a) weight *= random.uniform(0.99, 1.01);
        problem.a[step] = 0;
        double const total = std::accumulate(problem.a.begin(), problem.a.end(), 0.0);
        for (double& weight : problem.a) weight *= std::accumulate(problem.b.begin(), problem.b.end(), 0.0) / total;
      }
      cold += solve(problem).report.pivots;
      last = solve_from(last, problem);
      expect_proof(problem, last);
      warm += last.report.pivots;
    }
    EXPECT_LT(warm, cold / 2) << points_move;
  }
}

TEST(Exact, AnyPlanIsAStart) {
  Random random(6);
  for (int trial = 0; trial < 200; ++trial) {  // Ties, forbidden pairs, and points that get or lose all mass.
    std::int64_t const n = 1 + trial % 13, m = 1 + trial / 13 % 11;
    auto const make = [&] { return whole_problem(random, n, m, trial % 5, 1 + trial % 4, trial % 3 * 0.3); };
    ExactPlan const plan = solve(make());
    Problem const problem = make();
    expect_proof(problem, solve(problem, {.start = &plan}), 0);
  }
  Problem const other = make_problem({.n = 350, .m = 390, .d = 2, .seed = 1});
  ExactPlan const of_other = solve(other), partial = solve(other, {.mass = 0.3});
  ExactPlan const relaxed = solve(other, {.penalty_a = 0.3, .penalty_b = 0.2});
  Problem const problem =
      make_problem({.n = 350, .m = 390, .d = 2, .weights = Weights::with_zeros, .place = Place::shifted, .seed = 2});
  for (ExactPlan const* start : {&of_other, &partial, &relaxed}) {
    solve_from(*start, problem);
    solve_from(*start, problem, {.mass = 0.5});
    solve_from(*start, problem, {.penalty_a = 0.2, .penalty_b = 0.3});
  }
}

TEST(Exact, IsolatedPointsWithoutMassHaveInfinitePotentials) {
  for (std::int64_t const m : {20, 60, 360}) {
    std::int64_t const n = m + 20;
    std::vector<double> cost(n * m, 1.0);
    for (std::int64_t j = 0; j < m; ++j) cost[3 * m + j] = kInfinity;
    for (std::int64_t i = 0; i < n; ++i) cost[i * m + 5] = kInfinity;
    std::vector<double> a(n, 1), b(m, 1);
    a[3] = b[5] = 0;
    b[0] += 20;
    Problem const problem = make_matrix_problem(cost, a, b);
    ExactPlan const plan = solve(problem);
    expect_proof(problem, plan);
    EXPECT_EQ(plan.f[3], kInfinity);
    EXPECT_EQ(plan.g[5], kInfinity);
  }
}

TEST(Exact, RefusesProblemsWithoutAPlan) {
  for (std::int64_t const size : {4, 60, 364}) {  // All pairs at once, and candidates.
    std::vector<double> cost(size * size, 1.0);
    // The first half of the rows and one more may go to the first half of the columns alone.
    for (std::int64_t i = 0; i <= size / 2; ++i) {
      for (std::int64_t j = size / 2; j < size; ++j) cost[i * size + j] = kInfinity;
    }
    Problem const problem = make_matrix_problem(cost, std::vector<double>(size, 1), std::vector<double>(size, 1));
    std::string const refusal = refusal_of([&] { solve(problem); });
    EXPECT_NE(refusal.find("cost: forbids too many pairs"), std::string::npos) << refusal;
  }
}

TEST(Exact, RefusesBadArguments) {
  Problem const problem = make_problem({.n = 5, .m = 4, .d = 2});
  EXPECT_NE(refusal_of([&] { solve(problem, {.tolerance = 0}); }).find("tolerance: is 0"), std::string::npos);
  EXPECT_NE(refusal_of([&] { solve(problem, {.f = problem.a}); }).find("g: is missing"), std::string::npos);
  ExactPlan plan = solve(make_problem({.n = 5, .m = 3, .d = 2}));
  EXPECT_NE(refusal_of([&] { solve(problem, {.start = &plan}); }).find("start: is a plan of 5 x 3 points; must be one"),
            std::string::npos);
  plan = solve(problem);
  plan.column_indices[0] = 4;
  EXPECT_NE(refusal_of([&] { solve(problem, {.start = &plan}); }).find("start: is no CSR matrix"), std::string::npos);
  std::vector<double> const more(4, 1.0);
  EXPECT_NE(refusal_of([&] { solve_exact(Context::cpu(), problem.geometry(), problem.a, more); }).find("or mass"),
            std::string::npos);
  std::vector<double> const bad{1, std::nan(""), 2, 3};
  CostMatrix const costs{{bad.data(), 2, 2}};
  EXPECT_NE(refusal_of([&] { solve_exact(Context::cpu(), costs, {}, {}); }).find("cost: row 0, column 1 is nan"),
            std::string::npos);
}

/// The finite costs of a matrix, backwards within each row.
struct SparseProblem {
  explicit SparseProblem(Problem const& problem) : columns(problem.m()), row_begin{0} {
    std::vector<double> const costs = problem.costs();
    for (std::int64_t i = 0; i < problem.n(); ++i) {
      for (std::int64_t j = columns; j-- > 0;) {
        if (std::isinf(costs[i * columns + j])) continue;
        column_indices.push_back(j);
        values.push_back(costs[i * columns + j]);
      }
      row_begin.push_back(std::ssize(values));
    }
  }
  SparseCost view() const {
    return {columns,
            {row_begin.data(), std::ssize(row_begin)},
            {column_indices.data(), std::ssize(column_indices)},
            values};
  }

  std::int64_t columns;
  std::vector<std::int64_t> row_begin, column_indices;
  std::vector<double> values;
};

// The same as a matrix whose other costs are infinite, whose proof is over all pairs.
TEST(Exact, SparseCostsAreThoseOfAMatrixWithForbiddenPairs) {
  Random random(21);
  for (auto const& [n, m] : {std::pair{1, 1}, {12, 12}, {40, 30}, {370, 360}}) {
    for (double const forbidden : {0.0, 0.6, 0.95}) {
      SCOPED_TRACE(testing::Message() << n << " x " << m << ", " << forbidden);
      Problem const problem = whole_problem(random, n, m, 3, 1000, forbidden);
      SparseProblem const sparse(problem);
      auto const solve_sparse = [&](ExactOptions const& options) {
        return solve_exact(Context::cpu(2), sparse.view(), problem.a, problem.b, options);
      };
      ExactPlan const plan = solve_sparse({});
      expect_proof(problem, plan);
      ExactPlan const again = solve_sparse({.start = &plan});
      expect_proof(problem, again);
      EXPECT_EQ(again.report.pivots, 0);
      expect_proof(problem, solve_sparse({.f = again.f, .g = again.g}));
      double const mass = std::floor(0.6 * plan.report.mass);
      for (ExactOptions const& options : {ExactOptions{.mass = mass}, {.penalty_a = 300, .penalty_b = 500}})
        EXPECT_EQ(solve_sparse(options).report.value, solve(problem, options).report.value);  // Whole numbers.
    }
  }
}

// Forbidden pairs split the points into two parts. 0.1 + 0.2 exceeds 0.3 in floating point.
TEST(Exact, PartsMayDifferByTheRoundingOfWeights) {
  std::vector<double> const cost{1, kInfinity, 2, kInfinity, kInfinity, 3};
  for (double const more : {0.0, 1e-13}) {
    Problem const problem = make_matrix_problem(cost, {0.1, 0.2, 0.5}, {0.3 + more, 0.5 - more});
    SparseProblem const sparse(problem);
    for (ExactPlan const& plan : {solve(problem), solve_exact(Context::cpu(), sparse.view(), problem.a, problem.b),
                                  solve(problem, {.penalty_a = 10})}) {
      EXPECT_EQ(plan.report.status, ExactStatus::optimal) << plan.report.message;
      EXPECT_NEAR(plan.report.value, 2.0, 20 * (more + 0x1p-50));  // At penalty 10, and for 3 of cost.
      EXPECT_NEAR(plan.report.dual, plan.report.value, 20 * (more + 0x1p-50));
      EXPECT_NEAR(plan.report.transported_mass, 0.8, more + 0x1p-50);
    }
  }
  Problem const apart = make_matrix_problem(cost, {0.1, 0.2, 0.5}, {0.3 + 1e-10, 0.5 - 1e-10});
  EXPECT_NE(refusal_of([&] { solve(apart); }).find("cost: forbids too many pairs"), std::string::npos);
  // Parts whose points have next to no mass at all.
  ExactPlan const tiny = solve(make_matrix_problem(cost, {0.1, 0.2, 1e-20}, {0.1 + 0.2, 2e-20}));
  EXPECT_EQ(tiny.report.status, ExactStatus::optimal) << tiny.report.message;
  EXPECT_NEAR(tiny.report.value, 0.5, 0x1p-50);
}

TEST(Exact, RefusesSparseCostsThatAreNone) {
  auto const refusal = [](std::vector<std::int64_t> const& begin, std::vector<std::int64_t> const& columns,
                          std::vector<double> const& values, ExactOptions const& options = {}) {
    SparseCost const cost{3, {begin.data(), std::ssize(begin)}, {columns.data(), std::ssize(columns)}, values};
    return refusal_of([&] { solve_exact(Context::cpu(), cost, {}, {}, options); });
  };
  auto const expect_refusal = [](std::string const& refusal, char const* words) {
    EXPECT_NE(refusal.find(words), std::string::npos) << refusal;
  };
  expect_refusal(refusal({0, 2, 3}, {0, 1, 3}, {1, 1, 1}), "column_indices: element 2 is 3; must be in [0, 3)");
  expect_refusal(refusal({0, 2, 3}, {1, 1, 2}, {1, 1, 1}), "column_indices: row 0 has column 1 twice");
  expect_refusal(refusal({0, 4, 3}, {0, 1, 2}, {1, 1, 1}), "row_begin: element 1 is 4; must be in [0, 3]");
  expect_refusal(refusal({0, 2, 2}, {0, 1, 2}, {1, 1, 1}), "row_begin: is 0 at the first and 2 at the last");
  expect_refusal(refusal({0, 2, 3}, {0, 1, 2}, {1, 1}), "values: has size 2; must be 3");
  expect_refusal(refusal({0, 2, 3}, {0, 1, 2}, {1, std::nan(""), 1}), "cost: row 0, column 1 is nan");
  expect_refusal(refusal({0}, {}, {}), "cost: is 0 x 3");
  std::int64_t const begin[] = {0, 0}, most = std::int64_t{1} << 40;
  SparseCost const wide{most, {begin, 2}, {}, {}};
  expect_refusal(refusal_of([&] { solve_exact(Context::cpu(), wide, {}, {}); }),
                 "cost: is 1 x 1099511627776; must have");
  expect_refusal(refusal({0, 0, 0}, {}, {}), "cost: forbids too many pairs");
  expect_refusal(refusal({0, 2, 3}, {0, 1, 1}, {1, 1, 1}), "cost: forbids too many pairs");
  expect_refusal(refusal({0, 1, 2}, {1, 1}, {1, 1}, {.mass = 0.5}), "mass: is 0.5; must be at most 0.333");
}

// Each stop has feasible potentials. Once mass has places, their value is near the optimum: potentials from the middle
// of a price would be up to 30 % off.
TEST(Exact, StoppedSolvesHaveALowerBound) {
  Problem const problem = make_problem({.n = 1000, .m = 900, .d = 8, .weights = Weights::skewed});
  std::vector<long double> const costs = dense_costs(problem);
  int calls = 0;
  auto const count = [&](ExactProgress const&) { return ++calls > 0; };
  double const optimum = solve(problem, {.progress = count}).report.transport_cost;
  ASSERT_GT(calls, 8);
  for (int last = 1; last < calls; ++last) {
    SCOPED_TRACE(last);
    int call = 0;
    double missing = 1;
    auto const stop = [&](ExactProgress const& state) {
      missing = state.missing;
      return ++call < last;
    };
    ExactPlan const plan = solve(problem, {.progress = stop});
    ASSERT_EQ(plan.report.status, ExactStatus::stopped);
    EXPECT_EQ(std::isnan(plan.report.gap), plan.report.missing_mass > 0);
    EXPECT_LE(plan.report.dual, optimum * (1 + 1e-12));
    EXPECT_GT(plan.report.dual, (missing < 1 ? 0.9 : 0.5) * optimum);
    double const slack = 1e-12 * plan.report.cost_scale;
    for (std::int64_t k = 0; k < std::ssize(costs); ++k) {
      if (costs[k] - plan.f[k / problem.m()] - plan.g[k % problem.m()] < -slack) FAIL() << "pair " << k;
    }
  }
}

// Costs >= 0 have a lower bound >= 0, whatever the potentials of the start are.
TEST(Exact, StoppedSolvesOfBadStartsHaveTheBoundOfZero) {
  for (std::int64_t const n : {40, 400}) {  // All pairs are candidates, or some.
    Problem const problem = make_problem({.n = n, .m = n, .d = 3, .weights = Weights::skewed});
    Random random(3);
    std::vector<double> const f(n, 0);
    std::vector<double> g(n);
    for (double& potential : g) potential = 30 * random.normal();
    for (ExactOptions options : {ExactOptions{}, {.penalty_a = 2, .penalty_b = 3}, {.mass = 0.5}}) {
      options.f = f;
      options.g = g;
      options.progress = [](ExactProgress const&) { return false; };
      ExactPlan const plan = solve(problem, options);
      ASSERT_EQ(plan.report.status, ExactStatus::stopped);
      EXPECT_GE(plan.report.dual, -1e-13 * plan.report.cost_scale);
    }
  }
}

/// Half of the costs are `large`, in no order, and the others below 1.
std::vector<double> costs_with_large_ones(std::int64_t n, double large) {
  Random random(3);
  std::vector<double> costs(n * n);
  for (double& cost : costs) cost = random.uniform() < 0.5 ? large : random.uniform();
  return costs;
}

// Potentials of the size of the large costs would lose all digits of the small costs. The solve of n = 20 starts from
// potentials of 0, the solve of n = 300 from the potentials of entropic sweeps.
TEST(Exact, LargeCostsCostOthersNoDigits) {
  for (std::int64_t const n : {20, 300}) {
    std::vector<double> const ones(n, 1);
    ExactPlan const expected = solve(make_matrix_problem(costs_with_large_ones(n, kInfinity), ones, ones));
    ExactPlan const plan = solve(make_matrix_problem(costs_with_large_ones(n, 1e30), ones, ones));
    EXPECT_EQ(plan.report.status, ExactStatus::optimal) << plan.report.message;
    EXPECT_NEAR(plan.report.value, expected.report.value, 1e-14 * expected.report.value);
    for (double const f : plan.f) ASSERT_LT(std::abs(f), 2);
    for (double const g : plan.g) ASSERT_LT(std::abs(g), 2);
  }
}

// A pass over all pairs rounds to 1e14 here, so nothing is proved, even if the plan is right.
TEST(Exact, AGapThatRoundingMayHideIsNoProof) {
  std::int64_t const n = 400;
  std::vector<double> const ones(n, 1);
  ExactReport const report = solve(make_matrix_problem(costs_with_large_ones(n, 1e30), ones, ones)).report;
  EXPECT_EQ(report.status, ExactStatus::precision_limit);
  EXPECT_NE(report.message.find("forbid the largest"), std::string::npos);
  EXPECT_EQ(solve(make_matrix_problem(costs_with_large_ones(n, kInfinity), ones, ones)).report.status,
            ExactStatus::optimal);
  // Costs that are not that large leave the others their digits.
  EXPECT_EQ(solve(make_matrix_problem(costs_with_large_ones(n, 1e4), ones, ones)).report.status, ExactStatus::optimal);
}

// Costs |x - y|^p: for large p most lie far below the rounding of the largest.
TEST(Exact, CostsMaySpanManyDecades) {
  std::int64_t const n = 60;
  std::vector<double> const ones(n, 1);
  auto const solve_power = [&](double p, double most) {
    Random random(9);
    std::vector<double> x(n), y(n), costs;
    for (double& place : x) place = random.normal();
    for (double& place : y) place = random.normal();
    for (double const from : x) {
      for (double const to : y) costs.push_back(std::pow(std::abs(from - to), p));
    }
    for (double& cost : costs) cost = cost > most ? kInfinity : cost;
    return solve(make_matrix_problem(costs, ones, ones)).report;
  };
  ExactReport const report = solve_power(40, kInfinity);
  EXPECT_EQ(report.status, ExactStatus::optimal) << report.message;
  // The optimum of points on a line has them in order, whatever p is: no distance of it is large.
  ExactReport const forbidden = solve_power(40, std::pow(1.5, 40));
  EXPECT_EQ(forbidden.status, ExactStatus::optimal) << forbidden.message;
  EXPECT_NEAR(forbidden.value, report.value, 1e-12 * report.value);
}

// Points without mass have no potential in the basis, so they cost no digits. Costs are exp(10 z) for normal z.
TEST(Exact, PointsWithoutMassCostNoDigits) {
  Random random(11);
  for (int trial = 0; trial < 100; ++trial) {
    std::int64_t const n = 12 + trial % 37, m = 10 + trial % 41;
    Problem problem = whole_problem(random, n, m, 2, 1);
    std::vector<double> all(n * m), some, a, b;
    for (double& cost : all) cost = std::exp(10 * random.normal());
    problem = make_matrix_problem(all, problem.a, problem.b);
    for (double const weight : problem.a) {
      if (weight > 0) a.push_back(weight);
    }
    for (double const weight : problem.b) {
      if (weight > 0) b.push_back(weight);
    }
    for (std::int64_t k = 0; k < n * m; ++k) {
      if (problem.a[k / m] > 0 && problem.b[k % m] > 0) some.push_back(all[k]);
    }
    ExactReport const with = solve(problem).report, without = solve(make_matrix_problem(some, a, b)).report;
    EXPECT_EQ(with.status, ExactStatus::optimal) << trial << ": " << with.message;
    EXPECT_NEAR(with.value, without.value, 1e-13 * without.value);
    EXPECT_LE(with.dual, with.value);
    EXPECT_LE(with.value - with.dual, 1e-6 * with.value);
  }
}

// Row 0 has the same large cost to all columns, and next to no weight. Up to terms of the size of that weight, the
// optimum is the optimum of the other rows plus the cost of row 0. The potential of row 0 may cost the others their
// digits; the status then says so.
TEST(Exact, OptimalPlansHaveTheOptimumBesidePointsOfNextToNoMass) {
  Random random(14);
  for (auto const& [n, m] : {std::pair{5, 4}, {41, 40}, {401, 380}}) {
    std::vector<double> costs(n * m), a(n, 1.0 / (n - 1)), b(m, 1.0 / m);
    for (double& cost : costs) cost = random.uniform();
    auto const others = [&](ExactOptions const& options) {
      return solve(make_matrix_problem({costs.begin() + m, costs.end()}, {a.begin() + 1, a.end()}, b), options).report;
    };
    auto const expect_honest = [&](double weight, double dear, ExactOptions const& options, double optimum) {
      std::fill_n(costs.begin(), m, dear);
      a[0] = weight;
      for (bool const turned : {false, true}) {
        CostMatrix const matrix{MatrixView(costs.data(), n, m), turned};
        ExactReport const report = solve_exact(Context::cpu(2), matrix, turned ? b : a, turned ? a : b, options).report;
        SCOPED_TRACE(testing::Message() << n << " x " << m << ", weight " << weight << ", cost " << dear << ", turned "
                                        << turned << ": " << report.message);
        double const slack = 2e-6 * optimum + 1e-11;  // Twice the gap of an optimal plan, whose rows cost at most 1.
        EXPECT_LE(report.value, optimum + report.gap + slack);
        if (report.status == ExactStatus::optimal) {
          EXPECT_NEAR(report.value, optimum, slack);
        }
      }
    };
    double const optimum = others({}).value;
    for (auto const& [weight, dear] : {std::pair{1e-30, 1e16}, {1e-20, 1e15}, {1e-13, 1e12}})
      expect_honest(weight, dear, {}, optimum + weight * dear);
    // Row 0 has weight, but stays.
    ExactOptions const part{.mass = 0.5};
    expect_honest(0.1, 1e16, part, others(part).value);
  }
}

// Row 0 has a pair of cost 0, and the same weight as that column.
TEST(Exact, OptimalPlansHaveTheOptimumBesideDearRowsOfAFreePair) {
  Random random(15);
  for (std::int64_t const n : {40, 400}) {
    for (double const dear : {1e15, 1e20}) {
      std::vector<double> costs(n * n), a(n);
      for (double& cost : costs) cost = random.uniform();
      for (double& weight : a) weight = std::floor(random.uniform(1, 1000));  // Whole, so totals have no rounding.
      std::vector<double> b(a);
      std::rotate(b.begin() + 1, b.begin() + 2, b.end());
      std::fill_n(costs.begin() + 1, n - 1, kInfinity);
      costs[0] = 0;
      double const optimum = solve(make_matrix_problem(costs, a, b)).report.value;
      std::fill_n(costs.begin() + 1, n - 1, dear);
      ExactReport const report = solve(make_matrix_problem(costs, a, b)).report;
      EXPECT_LE(report.value, optimum + report.gap * (1 + 1e-6));
      if (report.status == ExactStatus::optimal) {
        EXPECT_NEAR(report.value, optimum, 2e-6 * optimum) << n << ' ' << dear << ' ' << report.gap;
      }
    }
  }
}

// Masses are multiples of about 2^-100 of the total.
TEST(Exact, TheGapHasTheCostOfWeightsThatRoundToNone) {
  auto const report_of = [](double cost, double weight, bool turned) {
    std::vector<double> const costs{0, 1, 1, 0, cost, cost}, a{0.5, 0.5, weight}, b{0.5, 0.5};
    CostMatrix const matrix{MatrixView(costs.data(), 3, 2), turned};
    return solve_exact(Context::cpu(2), matrix, turned ? b : a, turned ? a : b).report;
  };
  for (bool const turned : {false, true}) {
    for (double const cost : {1e50, -1e50}) {
      ExactReport const report = report_of(cost, 1e-40, turned);
      double const optimum = cost * 1e-40;
      EXPECT_EQ(report.status, ExactStatus::precision_limit);
      EXPECT_GE(report.gap, 0.9 * std::abs(optimum));
      EXPECT_LE(report.dual, 0.9 * std::min(optimum, 0.0));
      EXPECT_NE(report.message.find("count as 0"), std::string::npos) << report.message;
    }
    ExactReport const report = report_of(1e10, 1e-40, turned);
    EXPECT_EQ(report.status, ExactStatus::optimal) << report.message;
  }
}

/// Three clusters on a line, of width 1e-3 and `distance` apart. A quarter of the targets have no mass.
Problem clusters(std::int64_t size, double distance) {
  Random random(12);
  std::vector<double> x, y, a(3 * size, 1), b(3 * size, 1);
  for (std::int64_t i = 0; i < 3 * size; ++i) {
    double const place = distance * static_cast<double>(i / size);
    x.insert(x.end(), {place + 1e-3 * random.normal(), 1e-3 * random.normal()});
    y.insert(y.end(), {place + 1e-3 * random.normal(), 1e-3 * random.normal()});
    b[i] = i % 4 == 0 ? 0 : i % 4 == 1 ? 2 : 1;
  }
  return {.x = Stored(x, 3 * size, 2), .y = Stored(y, 3 * size, 2), .a = a, .b = b};
}

TEST(Exact, ClustersFarApartAreProved) {
  Problem const near = clusters(128, 100);
  expect_proof(near, solve(near));
  // Sums that leave all mass of the smaller side a place, or a part of it.
  double const total = std::accumulate(near.a.begin(), near.a.end(), 0.0);
  Problem more = near;
  for (double& weight : more.b) weight *= 2;
  for (ExactOptions const& options : {ExactOptions{.mass = total}, ExactOptions{.mass = total / 2}})
    expect_relaxed_proof(more, solve(more, options), options);
  // Far apart the pass rounds to more than the optimum, so its bound is below it, by the gap.
  Problem const far = clusters(128, 1e6);
  ExactReport const report = solve(far).report;
  EXPECT_EQ(report.status, ExactStatus::precision_limit);
  EXPECT_LT(report.dual, report.value);
  EXPECT_NEAR(report.gap, report.value - report.dual, 0.1 * report.gap);
}

TEST(Exact, CostsOfZeroAreProved) {
  Random random(13);
  for (auto const& [n, m] : {std::pair{60, 70}, {100, 100}, {1001, 1001}, {1024, 1025}, {2000, 2000}}) {
    Problem problem;
    problem.x = Stored(std::vector<double>(2 * n, 1.0), n, 2);
    problem.y = Stored(std::vector<double>(2 * m, 1.0), m, 2);
    for (bool const uniform : {true, false}) {  // The totals have rounding.
      problem.a.assign(n, 1.0 / n);
      problem.b.assign(m, 1.0 / m);
      for (double& weight : problem.a) weight = uniform ? weight : random.uniform();
      double const total = std::accumulate(problem.a.begin(), problem.a.end(), 0.0);
      for (double& weight : problem.b) weight = uniform ? weight : total / m;
      ExactReport const report = solve(problem).report;
      EXPECT_EQ(report.status, ExactStatus::optimal) << n << ' ' << uniform << ": " << report.message;
      EXPECT_EQ(report.value, 0);
      EXPECT_EQ(report.gap, 0);
      EXPECT_LE(report.dual, 0);
    }
  }
}

// The entropic start uses 1 / eps, which must be finite. The pass measures costs in a unit, which must be below all
// costs.
TEST(Exact, CostsMayBeTiny) {
  std::int64_t const n = 400, m = 420;
  Random random(0);
  std::vector<double> costs(n * m), a(n), b(m);
  for (double& cost : costs) cost = random.uniform();
  for (double& weight : a) weight = random.uniform();
  for (double& weight : b) weight = random.uniform();
  double const scale = std::accumulate(a.begin(), a.end(), 0.0) / std::accumulate(b.begin(), b.end(), 0.0);
  for (double& weight : b) weight *= scale;
  auto const solve_scaled = [&](double factor, ExactOptions options = {}) {
    std::vector<double> scaled(costs);
    for (double& cost : scaled) cost *= factor;
    options.penalty_a *= factor;
    options.penalty_b *= factor;
    ExactReport const report = solve(make_matrix_problem(scaled, a, b), options).report;
    EXPECT_EQ(report.status, ExactStatus::optimal) << factor << ": " << report.message;
    EXPECT_LE(report.dual, report.value);
    return report.value / factor;
  };
  for (ExactOptions const& options : {ExactOptions{}, ExactOptions{.penalty_a = 0.05, .penalty_b = 0.05},
                                      ExactOptions{.mass = 0.4 * std::accumulate(a.begin(), a.end(), 0.0)}}) {
    double const expected = solve_scaled(1, options);
    for (double const factor : {1e-290, 1e-300, 1e-306, 1e-308, 1e-310})
      EXPECT_NEAR(solve_scaled(factor, options), expected, 1e-10 * expected);
  }
}

TEST(Exact, CostsWhoseSumsOverflowAreRefused) {
  for (std::int64_t const n : {2, 40, 400}) {
    Random random(2);
    std::vector<double> costs(n * n);
    for (double const largest : {1e303, 1e308}) {
      for (double& cost : costs) cost = largest * random.uniform();
      Problem const problem = make_matrix_problem(costs, std::vector<double>(n, 1), std::vector<double>(n, 1));
      if (largest < 1e304) {
        expect_proof(problem, solve(problem));
      } else {
        std::string const refusal = refusal_of([&] { solve(problem); });
        EXPECT_NE(refusal.find("cost: is up to"), std::string::npos) << refusal;
      }
    }
  }
}

// The optimum by the mass has a kink where a side has no more mass: the price is the derivative from the left.
// The mass may be any share of a weight: a plan has it to the rounding of its entries, and the pair of least cost.
TEST(Exact, AnyPartOfAWeightMoves) {
  std::vector<double> const b{0.5, 0.5};
  for (std::vector<double> const& a : {b, {0.4, 0.6}}) {
    for (double const mass : {0.3, 1e-9, 1e-10, 1e-29, 1e-100, 1e-300}) {
      for (std::vector<double> const& cost : {std::vector{1.0, 2.0, 3.0, 2.0}, std::vector(4, 1.0)}) {
        ExactOptions const options{.mass = mass};
        ExactPlan const plan = solve(make_matrix_problem(cost, a, b), options);
        EXPECT_EQ(plan.report.status, ExactStatus::optimal) << plan.report.message;
        EXPECT_NEAR(plan.report.transported_mass, mass, 0x1p-50 * mass);
        EXPECT_NEAR(plan.report.value, mass, 0x1p-50 * mass);
        EXPECT_NEAR(plan.report.dual, mass, 0x1p-47 * mass);
        EXPECT_DOUBLE_EQ(plan.report.mass_price, 1);
      }
    }
  }
}

TEST(Exact, ThePriceOfAllMassIsALeftDerivative) {
  Random random(4);
  for (int trial = 0; trial < 60; ++trial) {
    std::int64_t const n = 1 + trial % 7, m = 1 + trial % 5;
    std::vector<double> costs(n * m), a(n), b(m);
    for (double& cost : costs) cost = random.uniform();
    for (double& weight : a) weight = std::ceil(8 * random.uniform());
    for (double& weight : b) weight = std::ceil(8 * random.uniform());
    if (trial % 4 == 1) a[0] = 0;
    a[n - 1] += 1;
    double const most = std::min(std::accumulate(a.begin(), a.end(), 0.0), std::accumulate(b.begin(), b.end(), 0.0));
    Problem const problem = make_matrix_problem(costs, a, b);
    ExactOptions const all{.mass = most};
    ExactPlan const plan = solve(problem, all);
    expect_relaxed_proof(problem, plan, all);
    double const step = 0x1p-10;  // Whole masses: the optimum is linear over the last unit.
    double const before = solve(problem, {.mass = most - step}).report.value;
    EXPECT_NEAR(plan.report.mass_price, (plan.report.value - before) / step, 1e-9) << trial;
  }
}

TEST(Exact, ThePriceOfFreeMassIsPositiveZero) {
  for (double const mass : {0.5, 1.0}) {
    Problem const problem = make_matrix_problem(std::vector<double>(6, 0.0), {0.5, 0.5}, {0.25, 0.25, 0.5});
    double const price = solve(problem, {.mass = mass}).report.mass_price;
    EXPECT_EQ(price, 0);
    EXPECT_FALSE(std::signbit(price)) << mass;
  }
}

TEST(Exact, RefusesCostsOfLabelsThatAreNotFinite) {
  for (std::int64_t const n : {20, 60, 400}) {
    Problem const problem = make_problem({.n = n, .m = n, .d = 2});
    std::vector<std::int64_t> const labels(n, 0);
    for (double const bad : {kInfinity, std::nan("")}) {
      std::vector<double> const costs{0, bad, 0, 0};
      PointCloud clouds = std::get<PointCloud>(problem.geometry());
      clouds.labels = {{labels.data(), n}, {labels.data(), n}, {costs.data(), 2, 2}};
      std::string const refusal = refusal_of([&] { solve_exact(Context::cpu(), clouds, {}, {}); });
      EXPECT_NE(refusal.find("label_cost: row 0, column 1 is"), std::string::npos) << refusal;
    }
  }
}

// A start of another scale, and squares that overflow float32.
TEST(Exact, TheScaleOfAStartOrOfPointsCostsNoDigits) {
  for (std::int64_t const n : {40, 400}) {
    Problem const problem = make_problem({.n = n, .m = n, .d = 3, .weights = Weights::skewed});
    ExactPlan const cold = solve(problem);
    for (double const factor : {100.0, 1e6, 1e12, -1e12}) {
      std::vector<double> f(cold.f), g(cold.g);
      for (double& potential : f) potential *= factor;
      for (double& potential : g) potential *= factor;
      ExactPlan const warm = solve(problem, {.f = f, .g = g});
      expect_proof(problem, warm);
      EXPECT_NEAR(warm.report.value, cold.report.value, 1e-13 * cold.report.value) << factor;
    }
    std::vector<double> x(problem.x.values()), y(problem.y.values());
    for (double& coordinate : x) coordinate *= 0x1p70;
    for (double& coordinate : y) coordinate *= 0x1p70;
    PointCloud const large{MatrixView(x.data(), n, 3), MatrixView(y.data(), n, 3)};
    ExactReport const report = solve_exact(Context::cpu(2), large, problem.a, problem.b).report;
    EXPECT_EQ(report.status, ExactStatus::optimal) << report.message;
    EXPECT_NEAR(report.value, 0x1p140 * cold.report.value, 1e-13 * report.value);
  }
}

TEST(Exact, TheLimitOfRoundsIsNoProof) {
  Problem const problem = make_problem({.n = 400, .m = 350, .d = 2, .weights = Weights::skewed});
  ExactPlan const plan = solve(problem, {.candidates = 1, .rounds = 1});
  EXPECT_EQ(plan.report.status, ExactStatus::round_limit);
  EXPECT_NEAR(plan.report.transported_mass, plan.report.mass, 1e-14);
  EXPECT_GT(plan.report.gap, 0);
  EXPECT_NEAR(plan.report.gap, plan.report.transport_cost - plan.report.dual, 1e-12);
}

}  // namespace
}  // namespace monge::oracle
