// Anderson's mixing on an operator, each step by its formula.
#include "entropic/policy/anderson.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <utility>
#include <vector>

#include "core/numbers.hpp"
#include "oracle/backend_test.hpp"

namespace monge::oracle {
namespace {

class Mixing : public BackendTest {
 protected:
  std::vector<double> potential(EntropicOperator const& entropic, Side side) const {
    std::vector<double> values(to_size(entropic.size(side)));
    entropic.vectors().write(entropic.potential(side), MutableVectorView(values));
    return values;
  }
  /// One sweep of the mixing, whose image is the best so far. Returns the column error that it saw.
  double sweep(EntropicOperator& entropic, AndersonMixing& mixing, double eps) const {
    entropic.sweep({.eps = eps}, 1);
    mixing.add(eps, true);
    return entropic.errors().column;
  }
};
class MixingFloat64 : public Mixing {};
MONGE_FOR_EACH_TARGET(Mixing);
MONGE_FOR_EACH_ORDERED(Mixing);
MONGE_FOR_EACH_DEVICE(MixingFloat64);

// With one difference of residuals d and the last residual r its weight is <d, r> / ((1 + 1e-6) <d, d>).
TEST_P(MixingFloat64, first_combination_has_the_weight_of_the_shortest_residual) {
  Problem const problem = make_problem({.n = 30, .m = 20, .d = 2, .weights = Weights::skewed});
  double const eps = 0.05 * Magnitudes(problem).spread();
  auto const entropic = make_operator(problem);
  AndersonMixing mixing(backend_of(context()), *entropic, problem.b);
  std::vector<double> f[2], g[3]{potential(*entropic, Side::columns)};
  std::vector<Real> residual[2];
  mixing.start();
  for (int k = 0; k < 2; ++k) {
    if (k > 0) mixing.combine();
    EXPECT_EQ(potential(*entropic, Side::columns), g[k]) << "one image is no combination";
    sweep(*entropic, mixing, eps);
    f[k] = potential(*entropic, Side::rows);
    g[k + 1] = potential(*entropic, Side::columns);
    Real mean = 0;
    for (std::size_t j = 0; j < g[k].size(); ++j) mean += Real{problem.b[j]} * (Real{g[k][j]} - g[k + 1][j]);
    for (std::size_t j = 0; j < g[k].size(); ++j)
      residual[k].push_back(-std::sqrt(Real{problem.b[j]}) * std::expm1((Real{g[k][j]} - g[k + 1][j] - mean) / eps));
  }
  Real along = 0, square = 0;
  for (std::size_t j = 0; j < problem.b.size(); ++j) {
    Real const difference = residual[1][j] - residual[0][j];
    along += difference * residual[1][j];
    square += difference * difference;
  }
  Real const weight = along / ((1 + Real{1e-6}) * square);
  mixing.combine();
  // Potentials are a few units of eps, so residuals have a rounding error of some 1e-15. The weight has a similar one.
  for (Side const side : kSides) {
    std::vector<double> const &last = side == Side::rows ? f[1] : g[2], &before = side == Side::rows ? f[0] : g[1];
    Vector expected;
    for (std::size_t i = 0; i < last.size(); ++i) expected.push_back(last[i] - weight * (Real{last[i]} - before[i]));
    expect_close(side == Side::rows ? "f" : "g", potential(*entropic, side), expected,
                 Vector(last.size(), Real{1e-11} * eps));
  }
}

// The residuals of three columns, without a constant, have two dimensions: differences span them from sweep 4 on, and
// combinations converge like the secant method.
TEST_P(MixingFloat64, three_columns_are_solved_in_a_few_sweeps) {
  Problem const problem = make_problem({.n = 12, .m = 3, .d = 2, .weights = Weights::skewed});
  double const eps = 0.01 * Magnitudes(problem).spread();
  auto const plain = make_operator(problem), mixed = make_operator(problem);
  AndersonMixing mixing(backend_of(context()), *mixed, problem.b);
  mixing.start();
  for (int k = 0; k < 15; ++k) {
    if (k > 0) mixing.combine();
    sweep(*mixed, mixing, eps);
  }
  plain->sweep({.eps = eps}, 15);
  EXPECT_LE(mixed->errors().column, 1e-10);
  EXPECT_GE(plain->errors().column, 1e-6);
}

TEST_P(Mixing, an_image_that_is_not_the_best_is_replaced_by_the_best) {
  Problem const problem = make_problem({.n = 30, .m = 20, .d = 2});
  double const eps = 0.05 * Magnitudes(problem).spread();
  auto const entropic = make_operator(problem);
  AndersonMixing mixing(backend_of(context()), *entropic, problem.b);
  mixing.start();
  for (int k = 0; k < 3; ++k) {
    if (k > 0) mixing.combine();
    sweep(*entropic, mixing, eps);
  }
  std::vector<double> const f = potential(*entropic, Side::rows), g = potential(*entropic, Side::columns);
  auto const expect_best = [&] {
    EXPECT_EQ(potential(*entropic, Side::rows), f);
    EXPECT_EQ(potential(*entropic, Side::columns), g);
  };
  for (int k = 0; k < 6; ++k) {
    mixing.combine();
    EXPECT_NE(potential(*entropic, Side::columns), g);
    entropic->sweep({.eps = eps}, 1);
    mixing.add(eps, false);
    expect_best();
  }
  mixing.start();
  expect_best();
  entropic->sweep({.eps = eps}, 1);
  mixing.add(eps, false);
  expect_best();
}

// Residuals of such columns overflow, or are 0: the combination is then an image.
TEST_P(MixingFloat64, points_of_hardly_any_weight_leave_numbers) {
  Problem problem = make_problem({.n = 30, .m = 20, .d = 2});
  problem.b[0] = 1e-300;
  problem.b[1] = 0;
  double const eps = 0.001 * Magnitudes(problem).spread();
  auto const entropic = make_operator(problem);
  AndersonMixing mixing(backend_of(context()), *entropic, problem.b);
  mixing.start();
  for (int k = 0; k < 8; ++k) {
    if (k > 0) mixing.combine();
    EXPECT_TRUE(std::isfinite(sweep(*entropic, mixing, eps)));
  }
}

// Without the return these are 2973 sweeps.
TEST(SlowMixing, returns_where_overrelaxation_is_slower) {
  Random random(4);
  std::vector<double> const x = gaussian_points(600, 16, random);
  std::vector<double> y = gaussian_points(600, 16, random);
  for (double& value : y) value = 0.8 * value + 0.3;
  PointCloud const clouds{{x.data(), 600, 16}, {y.data(), 600, 16}};
  SolveOptions const options{.eps = 0.3, .method = Method::sinkhorn};
  Report const report = solve(Context::cpu(1), clouds, options).report();
  EXPECT_EQ(report.status, Status::converged);
  EXPECT_LE(report.iterations, 500);
}

/// The spread of eps is that of hard_problems.
class MixedSolves : public BackendTest {
 protected:
  bool mixes(Problem const& problem) const { return backend_of(context()).pass_times(problem.geometry(), 0).mixes; }
};
MONGE_FOR_EACH_TARGET(MixedSolves);

// A plain sweep leaves at most the column error that it saw, which the last check includes: a solve that ended at
// another image than the best would have a larger one.
TEST_P(MixedSolves, cap_leaves_the_best_potentials) {
  Problem const problem = make_problem({.n = 40, .m = 50, .d = 3});
  double const eps = 0.002 * Magnitudes(problem).spread();
  double const rounding = is_float64() ? 1e-12 : 1e-3;
  for (int iterations = 1; iterations <= 30; ++iterations) {
    SCOPED_TRACE(testing::Message() << iterations << " sweeps");
    Report const report = solve(context(), problem.geometry(), problem.a, problem.b,
                                {.eps = eps,
                                 .method = Method::sinkhorn,
                                 .tolerance = 1e-14,
                                 .iterations = iterations,
                                 .annealing = 1,
                                 .precision = precision()})
                              .report();
    EXPECT_EQ(report.iterations, iterations);
    EXPECT_LE(report.marginal_error, report.history.back().marginal_error + rounding);
  }
}

TEST_P(MixedSolves, history_has_every_sweep) {
  Problem const problem = make_problem({.n = 40, .m = 50, .d = 3});
  if (!mixes(problem)) GTEST_SKIP() << "this backend does not mix";
  double const eps = 0.02 * Magnitudes(problem).spread();
  double const tolerance = is_float64() ? 1e-8 : 1e-3;
  Report const report =
      solve(context(), problem.geometry(), problem.a, problem.b,
            {.eps = eps, .method = Method::sinkhorn, .tolerance = tolerance, .annealing = 1, .precision = precision()})
          .report();
  EXPECT_EQ(report.status, Status::converged);
  ASSERT_EQ(static_cast<int>(report.history.size()), report.iterations);
  for (std::size_t k = 0; k < report.history.size(); ++k) {
    EXPECT_EQ(report.history[k].iteration, static_cast<int>(k) + 1);
    EXPECT_EQ(report.history[k].relaxation, 1);
    EXPECT_EQ(report.history[k].kind, k < 2 ? StepKind::sweeps : StepKind::mixed) << "a combination has two images";
  }
}

// Problems on the ladder, at its trial and past it go through the same rounds.
TEST_P(MixedSolves, batch_gives_the_bits_of_solves_alone) {
  for (double const penalty : {kInfinity, 5.0}) {
    SolveOptions options{.eps = 0, .tolerance = is_float64() ? 1e-7 : 1e-3, .precision = precision()};
    std::vector<Problem> problems;
    for (double const scale : {0.2, 1.0, 20.0})
      problems.push_back(make_problem({.n = 40, .m = 50, .d = 3, .scale = scale}));
    options.eps = 0.01 * Magnitudes(problems[1]).spread();
    options.penalty_a = options.penalty_b = penalty * options.eps;
    std::vector<BatchProblem> batch;
    for (Problem const& problem : problems) batch.push_back({problem.geometry(), problem.a, problem.b});
    std::vector<Plan> const together = solve_batch(context(), batch, options);
    for (std::size_t k = 0; k < problems.size(); ++k) {
      SCOPED_TRACE(testing::Message() << "problem " << k << ", penalty " << penalty << " eps");
      Plan const alone = solve(context(), batch[k].geometry, batch[k].a, batch[k].b, options);
      EXPECT_EQ(alone.report().iterations, together[k].report().iterations);
      EXPECT_EQ(alone.report().marginal_error, together[k].report().marginal_error);
      EXPECT_EQ(alone.f(), together[k].f());
      EXPECT_EQ(alone.g(), together[k].g());
    }
  }
}

}  // namespace
}  // namespace monge::oracle
