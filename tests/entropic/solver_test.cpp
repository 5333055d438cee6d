// A prepared solver: the bits of solve(), whatever was solved before, and plans that stay what they are.
#include <limits>
#include <numeric>
#include <stdexcept>
#include <vector>

#include <monge/monge.hpp>

#include "oracle/backend_test.hpp"

namespace monge::oracle {
namespace {

class SolverTest : public BackendTest {
 protected:
  SolveOptions options() const { return {.eps = 0.5, .tolerance = 1e-3, .precision = precision()}; }
};
MONGE_FOR_EACH_TARGET(SolverTest);

void expect_same_plan(Plan const& actual, Plan const& expected) {
  EXPECT_EQ(actual.status(), expected.status());
  EXPECT_EQ(actual.report().iterations, expected.report().iterations);
  EXPECT_EQ(actual.report().refinement_iterations, expected.report().refinement_iterations);
  EXPECT_EQ(actual.report().precision, expected.report().precision);
  EXPECT_EQ(actual.report().primal, expected.report().primal);
  EXPECT_EQ(actual.report().history.size(), expected.report().history.size());
  EXPECT_EQ(actual.f(), expected.f());
  EXPECT_EQ(actual.g(), expected.g());
}

/// What its first products give.
std::vector<double> averages_of(Plan const& plan) {
  std::vector<double> values(static_cast<std::size_t>(plan.columns())), averages(static_cast<std::size_t>(plan.rows()));
  std::iota(values.begin(), values.end(), 1.0);
  plan.barycentric_projection(MatrixView(values.data(), plan.columns(), 1),
                              MutableMatrixView(averages.data(), plan.rows(), 1));
  return averages;
}

TEST_P(SolverTest, gives_the_bits_of_solve_after_every_change) {
  for (std::int64_t const d : {3, 20}) {
    SCOPED_TRACE(testing::Message() << "d " << d);
    Problem const first = make_problem({70, 50, d, Weights::skewed});
    Problem const second =
        make_problem({.n = 70, .m = 50, .d = d, .weights = Weights::with_zeros, .place = Place::apart, .seed = 2});
    Solver solver(context(), first.geometry(), first.a, first.b, options());
    Plan const plain = solve(context(), first.geometry(), first.a, first.b, options());
    for (int repeat = 0; repeat < 3; ++repeat) expect_same_plan(solver.solve(), plain);

    // For points another scale as well.
    Geometry const other = second.has_points() ? PointCloud{second.x.view(), second.y.view(), 0.5} : second.geometry();
    solver.set_geometry(other);
    expect_same_plan(solver.solve(), solve(context(), other, first.a, first.b, options()));
    solver.set_weights(second.a, second.b);
    expect_same_plan(solver.solve(), solve(context(), other, second.a, second.b, options()));
    solver.set_geometry(first.geometry());
    solver.set_weights({}, second.b);
    expect_same_plan(solver.solve(), solve(context(), first.geometry(), {}, second.b, options()));
    solver.set_weights(first.a, first.b);
    expect_same_plan(solver.solve(), plain);
  }
}

/// A cloud that meets itself under symmetric sweeps has an operator of its own kind, with one potential.
TEST_P(SolverTest, of_a_cloud_with_itself_and_of_others) {
  Problem const problem = oracle::make_problem({.n = 60, .m = 60, .d = 9, .weights = Weights::skewed});
  PointCloud const pair = problem.clouds(), self{pair.x, pair.x};
  SolveOptions const plain = options();
  SolveOptions symmetric = plain;
  symmetric.schedule = Schedule::symmetric;
  Solver solver(context(), self, problem.a, problem.a, symmetric);
  auto const expect_all = [&](PointCloud const& clouds, std::vector<double> const& b) {
    for (SolveOptions const& given : {symmetric, plain, symmetric, symmetric})
      expect_same_plan(solver.solve(given), solve(context(), clouds, problem.a, b, given));
  };
  expect_all(self, problem.a);
  EXPECT_EQ(solver.solve().f(), solver.solve().g());
  solver.set_geometry(pair);
  solver.set_weights(problem.a, problem.b);
  expect_all(pair, problem.b);
  solver.set_geometry(self);
  expect_all(self, problem.b);
  solver.set_weights(problem.a, problem.a);
  expect_all(self, problem.a);
}

/// Equal weights of both sides may be one array inside, until one side has others.
TEST_P(SolverTest, takes_weights_of_one_side_where_both_were_equal) {
  Problem const problem = make_problem({.n = 60, .m = 60, .d = 9, .weights = Weights::skewed});
  Geometry const geometry = problem.geometry();
  Solver solver(context(), geometry, {}, {}, options());
  Plan const uniform = solver.solve();
  solver.set_weights(problem.a, {});
  expect_same_plan(solver.solve(), solve(context(), geometry, problem.a, {}, options()));
  solver.set_weights(problem.a, problem.a);
  expect_same_plan(solver.solve(), solve(context(), geometry, problem.a, problem.a, options()));
  solver.set_weights({}, problem.a);
  expect_same_plan(solver.solve(), solve(context(), geometry, {}, problem.a, options()));
  expect_same_plan(uniform, solve(context(), geometry, {}, {}, options()));
}

TEST_P(SolverTest, takes_other_cost_matrices) {
  // The first two lie alike, the third is transposed: nothing that was recorded for the others fits it.
  std::vector<Problem> problems;
  for (std::uint64_t const seed : {1, 3, 2})
    problems.push_back(oracle::make_problem({.n = 70, .m = 50, .d = 1, .seed = seed, .costs = Costs::random}));
  Problem const& first = problems[0];
  Solver solver(context(), first.geometry(), first.a, first.b, options());
  std::vector<Plan> plans;
  for (Problem const& problem : problems) {
    solver.set_geometry(problem.geometry());
    expect_same_plan(solver.solve(), solve(context(), problem.geometry(), first.a, first.b, options()));
    plans.push_back(solver.solve());
  }
  solver.set_weights(problems[1].a, problems[1].b);
  expect_same_plan(solver.solve(), solve(context(), problems[2].geometry(), problems[1].a, problems[1].b, options()));
  for (std::size_t k = 0; k < problems.size(); ++k)
    expect_same_plan(plans[k], solve(context(), problems[k].geometry(), first.a, first.b, options()));
}

TEST_P(SolverTest, takes_other_options_for_one_solve) {
  Problem const problem = make_problem({70, 50, 3});
  Solver solver(context(), problem.geometry(), problem.a, problem.b, options());
  Plan const plain = solver.solve();
  std::vector<SolveOptions> others(8, options());
  others[0].eps = 2;
  others[1].schedule = Schedule::symmetric;
  others[2].precision = Precision::float64;
  others[3].cache_bytes = 0;
  others[4].annealing = 1;
  std::vector<double> const f = plain.f(), g = plain.g();
  others[5].f = f;
  others[5].g = g;
  for (std::size_t const k : {6, 7}) {
    others[k] = {.eps = 0.02, .method = k == 6 ? Method::newton : Method::splr};
  }
  for (SolveOptions const& other : others) {
    expect_same_plan(solver.solve(other), solve(context(), problem.geometry(), problem.a, problem.b, other));
    expect_same_plan(solver.solve(), plain);
  }
}

TEST_P(SolverTest, leaves_earlier_plans_as_they_are) {
  Problem const first = make_problem({70, 50, 20}), second = make_problem({.n = 70, .m = 50, .d = 20, .seed = 2});
  Plan const alone = solve(context(), first.geometry(), first.a, first.b, options());
  Solver solver(context(), first.geometry(), first.a, first.b, options());
  Plan const early = solver.solve();
  std::vector<double> const reversed(first.a.rbegin(), first.a.rend());
  solver.set_geometry(second.geometry());
  solver.set_weights(reversed, {});
  expect_same_plan(solver.solve(), solve(context(), second.geometry(), reversed, {}, options()));
  // Its first products: whatever they read must still be there.
  expect_same_plan(early, alone);
  EXPECT_EQ(averages_of(early), averages_of(alone));
}

class SolverOfPoints : public SolverTest {};
MONGE_FOR_EACH_POINT_TARGET(SolverOfPoints);

TEST_P(SolverOfPoints, goes_on_after_points_that_are_not_finite) {
  Problem const problem = make_problem({30, 20, 3});
  Solver solver(context(), problem.geometry(), problem.a, problem.b, options());
  Plan const plain = solver.solve();
  std::vector<double> values = problem.x.values();
  values[3 * 7 + 1] = std::numeric_limits<double>::quiet_NaN();
  Stored const broken(values, 30, 3);
  solver.set_geometry(PointCloud{broken.view(), problem.y.view()});
  for (int repeat = 0; repeat < 2; ++repeat) {
    try {
      solver.solve();
      ADD_FAILURE() << "no error";
    } catch (Error const& error) {
      EXPECT_NE(std::string(error.what()).find("x: row 7, column 1 is nan"), std::string::npos) << error.what();
    }
  }
  solver.set_geometry(problem.geometry());
  expect_same_plan(solver.solve(), plain);
}

TEST_P(SolverOfPoints, refuses_other_shapes_and_kinds) {
  Problem const problem = make_problem({30, 20, 3}), larger = make_problem({31, 20, 3});
  Solver solver(context(), problem.geometry(), problem.a, problem.b, options());
  auto const expect_refused = [](auto const& call, char const* text) {
    try {
      call();
      ADD_FAILURE() << "no error; expected " << text;
    } catch (Error const& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      EXPECT_STREQ(error.what(), text);
    }
  };
  expect_refused([&] { solver.set_geometry(larger.geometry()); },
                 "geometry: has n 31, m 20, d 3; must have n 30, m 20, d 3 as before");
  std::vector<double> const cost(30 * 20);
  expect_refused([&] { solver.set_geometry(CostMatrix{MatrixView(cost.data(), 30, 20)}); },
                 "geometry: is of another kind; must be two point clouds as before");
  expect_refused([&] { solver.set_weights(larger.a, {}); }, "a: has 31 entries; must have 30, one for each row of x");
  expect_refused([&] { solver.solve({.eps = -1}); }, "eps: is -1; must be finite and > 0");
  expect_same_plan(solver.solve(), solve(context(), problem.geometry(), problem.a, problem.b, options()));
}

TEST(Calls, take_the_default_options_where_none_are_given) {
  std::vector<double> const x = {0, 0, 1, 0, 0, 1}, y = {5, 5, 6, 5, 5, 6, 6, 6};
  Context const cpu = Context::cpu();
  PointCloud const clouds{{x.data(), 3, 2}, {y.data(), 4, 2}};
  Plan const expected = solve(cpu, clouds, {}, {}, SolveOptions{});
  expect_same_plan(solve(cpu, clouds), expected);
  expect_same_plan(solve(cpu, clouds, {}, {}), expected);
  expect_same_plan(Solver(cpu, clouds).solve(), expected);
  expect_same_plan(solve_batch(cpu, std::vector<BatchProblem>{{clouds}})[0], expected);
  double const divergence = sinkhorn_divergence(cpu, clouds, {}, {}, SolveOptions{}).value;
  EXPECT_EQ(sinkhorn_divergence(cpu, clouds, {}, {}).value, divergence);
  EXPECT_EQ(sinkhorn_divergence(cpu, DivergenceProblem{clouds}).value, divergence);
  EXPECT_EQ(solve_regularized(cpu, clouds, {}, {}, {.quadratic = 1}).report().status, Status::converged);

  std::vector<float> const logits(4);
  std::vector<float> out(4);
  project(cpu, {logits.data(), 1, 2, 2}, {out.data(), 1, 2, 2});
  EXPECT_EQ(out, std::vector<float>(4, 0.5F));
}

class RefinedSolver : public BackendTest {};
MONGE_FOR_EACH_DEVICE(RefinedSolver);

// float32 cannot reach the tolerance, so each solve ends in float64 and the next begins in float32 again.
TEST_P(RefinedSolver, begins_in_float32_every_time) {
  Problem const problem = make_problem({60, 50, 3});
  SolveOptions const options{.eps = 0.05 * Magnitudes(problem).spread(), .tolerance = 1e-10};
  Plan const plain = solve(context(), problem.geometry(), problem.a, problem.b, options);
  ASSERT_GT(plain.report().refinement_iterations, 0);
  Solver solver(context(), problem.geometry(), problem.a, problem.b, options);
  std::vector<Plan> plans;
  for (int repeat = 0; repeat < 4; ++repeat) {
    plans.push_back(solver.solve());
    expect_same_plan(plans.back(), plain);
    if (repeat == 1) solver.set_geometry(problem.geometry());
  }
}

// A solve that throws half-way leaves nothing of its problem behind.
TEST_P(RefinedSolver, goes_on_after_a_callback_that_throws) {
  Problem const first = make_problem({60, 50, 3}), second = make_problem({.n = 60, .m = 50, .d = 3, .seed = 2});
  SolveOptions options{.eps = 0.05 * Magnitudes(first).spread(), .tolerance = 1e-10};
  Report const report = solve(context(), first.geometry(), first.a, first.b, options).report();
  ASSERT_GT(report.refinement_iterations, 0);
  int const in_float32 = report.iterations - report.refinement_iterations;
  SolveOptions easy = options;
  easy.tolerance = 1e-2;
  Plan const plain = solve(context(), second.geometry(), first.a, first.b, easy);
  ASSERT_EQ(plain.report().refinement_iterations, 0);
  Solver solver(context(), first.geometry(), first.a, first.b, options);
  SolveOptions throwing = options;
  throwing.progress = [&](Progress const& progress) -> bool {
    if (progress.iteration > in_float32) throw std::runtime_error("enough");
    return true;
  };
  EXPECT_THROW(solver.solve(throwing), std::runtime_error);
  solver.set_geometry(second.geometry());
  for (int repeat = 0; repeat < 3; ++repeat) expect_same_plan(solver.solve(easy), plain);
}

}  // namespace
}  // namespace monge::oracle
