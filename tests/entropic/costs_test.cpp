// Solves with every cost of points: the certificate is that of the dense oracle, and the solve ends where it should.
#include <algorithm>
#include <cmath>

#include "oracle/backend_test.hpp"
#include "oracle/refusal.hpp"

namespace monge::oracle {
namespace {

class SolveCosts : public BackendTest {
 protected:
  void expect_solved(Recipe const& recipe, double eps_over_spread, double tolerance) {
    SCOPED_TRACE(testing::Message() << recipe << ", eps / spread " << eps_over_spread);
    Problem const problem = make_problem(recipe);
    double const spread = Magnitudes(problem).spread();
    double const eps = eps_over_spread * (spread > 0 ? spread : 1);
    Plan const plan = solve(context(), problem.geometry(), problem.a, problem.b,
                            {.eps = eps, .tolerance = tolerance, .precision = precision()});
    EXPECT_EQ(plan.status(), Status::converged) << plan.report().message;
    expect_report_matches(plan.report(), problem, eps, potentials_of(plan));
  }
};
MONGE_FOR_EACH_OF(SolveCosts, with_point_costs(kPointCosts));

TEST_P(SolveCosts, has_the_certificate_of_the_oracle) {
  double const tolerance = is_float64() ? 1e-8 : 1e-4;
  expect_solved({.n = 50, .m = 41, .d = 3, .weights = Weights::with_zeros}, 0.05, tolerance);
  expect_solved({.n = 37, .m = 50, .d = 20, .weights = Weights::skewed, .scale = 3}, 0.02, tolerance);
  expect_solved({.n = 1, .m = 30, .d = 12}, 0.1, tolerance);
  expect_solved({.n = 30, .m = 1, .d = 2}, 0.1, tolerance);
  expect_solved({.n = 1, .m = 1, .d = 1}, 0.1, tolerance);
}

TEST_P(SolveCosts, converges_where_the_clouds_lie_far_from_the_origin) {
  expect_solved({.n = 50, .m = 41, .d = 3, .place = Place::shifted}, 0.05, 1e-3);
  expect_solved({.n = 50, .m = 41, .d = 20, .place = Place::shifted}, 0.05, 1e-3);
}

TEST_P(SolveCosts, converges_at_a_tiny_eps) {
  if (!is_float64()) GTEST_SKIP() << "float32 rounds logits of 10^4 to 10^-3";
  expect_solved({.n = 40, .m = 40, .d = 2}, 1e-4, 1e-4);
  expect_solved({.n = 40, .m = 40, .d = 12}, 1e-4, 1e-4);
}

TEST_P(SolveCosts, eps_may_be_relative_to_the_mean_cost) {
  for (Recipe const& recipe : {Recipe{.n = 50, .m = 41, .d = 3, .weights = Weights::with_zeros, .mass = 3},
                               Recipe{.n = 37, .m = 500, .d = 20, .weights = Weights::skewed, .scale = 2}}) {
    SCOPED_TRACE(recipe);
    Problem const problem = make_problem(recipe);
    Dense const dense(problem);
    Real mean = 0, total = 0;
    for (std::int64_t i = 0; i < recipe.n; ++i) {
      for (std::int64_t j = 0; j < recipe.m; ++j) {
        Real const weight = Real(problem.a[i]) * Real(problem.b[j]);
        mean += weight * dense.cost(Side::rows, i, j);
        total += weight;
      }
    }
    mean /= total;
    if (!(mean > 0)) continue;  // The dot product, or labels.
    Plan const plan = solve(context(), problem.geometry(), problem.a, problem.b,
                            {.eps_relative = 0.2, .tolerance = 1e-3, .precision = precision()});
    // Sums of n + m terms, and costs off by the roundings of d terms.
    EXPECT_NEAR(plan.report().mean_cost, mean,
                (recipe.n + recipe.m + recipe.d) * 0x1p-53 * Magnitudes(problem).spread());
    EXPECT_DOUBLE_EQ(plan.report().eps, 0.2 * plan.report().mean_cost);
  }
}

TEST_P(SolveCosts, in_a_batch_and_by_a_solver_has_the_same_bits) {
  std::vector<Problem> const problems = {make_problem({.n = 50, .m = 41, .d = 3}),
                                         make_problem({.n = 50, .m = 41, .d = 3, .seed = 2}),
                                         make_problem({.n = 30, .m = 70, .d = 20})};
  SolveOptions const options{
      .eps = 0.1 * Magnitudes(problems[0]).spread(), .tolerance = 1e-3, .precision = precision()};
  std::vector<BatchProblem> batch;
  for (Problem const& problem : problems) batch.push_back({problem.geometry(), problem.a, problem.b});
  std::vector<Plan> const together = solve_batch(context(), batch, options);
  Solver solver(context(), problems[0].geometry(), problems[0].a, problems[0].b, options);
  solver.solve();
  solver.set_geometry(problems[1].geometry());
  solver.set_weights(problems[1].a, problems[1].b);
  EXPECT_EQ(solver.solve().f(), together[1].f());
  for (std::size_t i = 0; i < problems.size(); ++i) {
    Plan const alone = solve(context(), problems[i].geometry(), problems[i].a, problems[i].b, options);
    EXPECT_EQ(together[i].f(), alone.f()) << i;
    EXPECT_EQ(together[i].report().dual, alone.report().dual) << i;
  }
}

TEST_P(SolveCosts, by_a_solver_stay_what_they_are) {
  Problem const problem = make_problem({.n = 20, .m = 30, .d = 3});
  Problem const other = oracle::make_problem({.n = 20, .m = 30, .d = 3});
  Solver solver(context(), problem.geometry(), {.eps = 1, .precision = precision()});
  EXPECT_THROW(solver.set_geometry(other.geometry()), Error);
}

using SolvePNorm = BackendTest;
MONGE_FOR_EACH_OF(SolvePNorm, with_point_costs({Costs::p_norm}));

// With one point of y, f is the cost less g, so f + g shows each distance as the kernel made it: 12 units for
// coordinates, sum, root and logit, all of them at most the largest distance from the common centre.
TEST_P(SolvePNorm, of_any_p_is_exact_to_rounding) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  constexpr std::int64_t kRows = 70, kDimension = 19;
  Random random(4);
  std::vector<double> x = gaussian_points(kRows, kDimension, random), y = gaussian_points(1, kDimension, random);
  std::copy(y.begin(), y.end(), x.begin() + 5 * kDimension);  // distance 0
  std::copy(y.begin(), y.end(), x.begin() + 6 * kDimension);
  x[6 * kDimension + 3] += 1e-9;  // one difference, and a small one
  for (double const p : {1.0, 1.0 + 1e-9, 1.5, 2.0, 2.0 + 1e-9, 20.0, 1e3, 1e300, kInfinity}) {
    SCOPED_TRACE(testing::Message() << "p " << p);
    PointCloud clouds{{x.data(), kRows, kDimension}, {y.data(), 1, kDimension}};
    clouds.cost_function = CostFunction::p_norm;
    clouds.p = p;
    Plan const plan = solve(context(), clouds, {.eps = 1, .tolerance = 1e-2, .precision = precision()});
    std::vector<double> const f = plan.f(), g = plan.g();
    Vector expected(kRows), allowed(kRows);
    std::vector<double> sums(kRows);
    Real largest = 0;
    for (std::int64_t i = 0; i < kRows; ++i) {
      expected[i] = oracle::p_norm({&x[i * kDimension], kDimension}, y, p);
      sums[i] = f[i] + g[0];
      largest = std::max(largest, expected[i]);
    }
    double const unit = is_float64() ? 0x1p-53 : 0x1p-24;
    std::fill(allowed.begin(), allowed.end(), (12 + std::sqrt(Real(kDimension))) * unit * (largest + 1));
    expect_close("distance", sums, expected, allowed);
  }
}

using StridedLabels = BackendTest;
MONGE_FOR_EACH_DEVICE(StridedLabels);

TEST_P(StridedLabels, and_a_transposed_label_cost_change_nothing) {
  Problem const problem = oracle::make_problem({.n = 40, .m = 30, .d = 11, .costs = Costs::labels});
  PointCloud const plain = problem.clouds();
  std::vector<std::int64_t> spread(2 * problem.labels_x.size(), -1);
  for (std::size_t i = 0; i < problem.labels_x.size(); ++i) spread[2 * i] = problem.labels_x[i];
  PointCloud strided = plain;
  strided.labels.x = {spread.data(), problem.n(), 2};
  SolveOptions const options{.eps = 1, .tolerance = 1e-9, .precision = precision()};
  Plan const expected = solve(context(), plain, options);
  EXPECT_EQ(solve(context(), strided, options).f(), expected.f());

  // The other side has the unit vectors then.
  std::vector<double> const cost = problem.label_cost.values();
  std::vector<double> flipped(cost.size());
  for (std::int64_t k = 0; k < kClasses[0]; ++k) {
    for (std::int64_t l = 0; l < kClasses[1]; ++l) flipped[l * kClasses[0] + k] = cost[k * kClasses[1] + l];
  }
  PointCloud swapped{plain.y, plain.x};
  swapped.labels = {plain.labels.y, plain.labels.x, {flipped.data(), kClasses[1], kClasses[0]}, plain.labels.weight};
  Plan const other = solve(context(), swapped, options);
  EXPECT_NEAR(other.report().dual, expected.report().dual, 1e-7 * std::abs(expected.report().dual));
  EXPECT_NEAR(other.report().mean_cost, expected.report().mean_cost, 1e-12 * std::abs(expected.report().mean_cost));
}

using LabelClasses = BackendTest;
MONGE_FOR_EACH_POINT_TARGET(LabelClasses);

/// Adds random classes to `problem`, with costs from `offset` on.
void add_classes(Problem& problem, std::int64_t rows, std::int64_t columns, double offset) {
  Random random(5);
  std::vector<double> cost(rows * columns);
  for (double& entry : cost) entry = offset + random.uniform(0, 2 * static_cast<double>(problem.d()));
  problem.label_cost = Stored(cost, rows, columns, DataType::float64, 2);
  problem.label_weight = 1.5;
  for (std::int64_t i = 0; i < problem.n(); ++i)
    problem.labels_x.push_back(static_cast<std::int64_t>(random.uniform(0, static_cast<double>(rows))));
  for (std::int64_t j = 0; j < problem.m(); ++j)
    problem.labels_y.push_back(static_cast<std::int64_t>(random.uniform(0, static_cast<double>(columns))));
}

/// A backend may keep the scores, or not.
TEST_P(LabelClasses, may_be_any_number) {
  if (precision() == Precision::tf32) GTEST_SKIP() << "products of 11 bits do not reach the tolerance";
  for (Recipe const& recipe :
       {Recipe{.n = 61, .m = 47, .d = 3, .weights = Weights::with_zeros},
        Recipe{.n = 35, .m = 70, .d = 19, .weights = Weights::skewed, .scale = 3},
        Recipe{.n = 1, .m = 33, .d = 40, .storage = DataType::float32}, Recipe{.n = 1203, .m = 1101, .d = 40}}) {
    for (std::int64_t const classes : {1, 2, 100, 1000}) {
      if (recipe.n > 1000 && classes != 100) continue;
      for (auto const& [offset, cache_bytes] : {std::pair{0.0, 1e9}, {1e6, 1e9}, {1e6, 0.0}}) {
        SCOPED_TRACE(testing::Message() << recipe << ", " << classes << " classes, offset " << offset << ", cache "
                                        << cache_bytes);
        Problem problem = oracle::make_problem(recipe);
        std::int64_t const columns = classes + 3;
        add_classes(problem, classes, columns, offset);
        std::vector<double> const cost = problem.label_cost.values();
        double const spread = Magnitudes(problem).spread(), eps = 0.05 * spread;
        Plan const plan = solve(context(), problem.geometry(), problem.a, problem.b,
                                {.eps = eps,
                                 .tolerance = is_float64() ? 1e-8 : 1e-3,
                                 .precision = precision(),
                                 .cache_bytes = cache_bytes});
        EXPECT_EQ(plan.status(), Status::converged) << plan.report().message;
        Potentials const potentials = potentials_of(plan);
        expect_report_matches(plan.report(), problem, eps, potentials);

        // The relative error of an entry of P is the rounding error of its logit. The rounding error of a logit is at
        // most the rounding error of the largest centred cost, divided by eps.
        Vector const entries = Dense(problem).plan(eps, potentials);
        Real truth = 0, size = 0;
        for (std::int64_t e = 0; e < recipe.n * recipe.m; ++e) {
          Real const term =
              entries[e] * cost[problem.labels_x[e / recipe.m] * columns + problem.labels_y[e % recipe.m]];
          truth += term;
          size += std::abs(term);
        }
        double const unit = oracle::arithmetic({GetParam().device}, precision(), problem).product;
        // CUDA adds the centre of the features to each label, one more rounding of the offset.
        double const potential =
            (GetParam().device == DeviceType::cpu ? 1 : 2) * 0x1p-52 * offset * problem.label_weight / eps;
        EXPECT_NEAR(plan.gradients({}, {.error_iterations = 0}).label_weight, truth,
                    size * (4 * unit * spread / eps + potential));
      }
    }
  }
}

class LabelledDistances : public BackendTest {};
MONGE_FOR_EACH_OF(LabelledDistances, all_devices());

TEST_P(LabelledDistances, are_for_the_cpu) {
  Problem const problem = oracle::make_problem({.n = 40, .m = 30, .d = 3, .costs = Costs::labelled_distances});
  auto const call = [&] { solve(context(), problem.geometry(), problem.a, problem.b); };
  if (context().device().type == DeviceType::cpu) return call();
  EXPECT_EQ(refusal_of(call, ErrorCode::unsupported),
            "labels: are given with the cost function euclidean on a CUDA device; it must be sqeuclidean, cosine or "
            "dot there, or the device the CPU");
}

/// After renew() the scores in memory belong to the new points and labels.
TEST_P(LabelClasses, are_renewed) {
  Problem first = oracle::make_problem({.n = 61, .m = 47, .d = 11}), second = oracle::make_problem({61, 47, 11});
  add_classes(first, 40, 50, 0);
  add_classes(second, 40, 50, 0);
  std::ranges::reverse(second.labels_x);
  SolveOptions const options{.eps = 3, .tolerance = 0, .iterations = 20, .precision = precision()};
  Solver solver(context(), first.geometry(), options);
  Potentials const before = potentials_of(solver.solve());
  solver.set_geometry(second.geometry());
  Potentials const after = potentials_of(solver.solve()),
                   alone = potentials_of(solve(context(), second.geometry(), options));
  EXPECT_EQ(after.f, alone.f);
  EXPECT_NE(after.f, before.f);
}

}  // namespace
}  // namespace monge::oracle
