// SPLR on operators: where it ends, what it costs, and that neither units nor layouts matter.
#include "second_order/splr.hpp"
#include "core/numbers.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "operators/cases.hpp"
#include "oracle/synthetic.hpp"

namespace monge::oracle {
namespace {

constexpr int kManyPasses = 10000;

class Splr : public OperatorTest {
 protected:
  using OperatorTest::make_operator;

  struct Run {
    SplrResult result;
    std::vector<SplrCheck> checks;
    Potentials potentials;
  };

  static Run run(EntropicOperator& entropic, Problem const& problem, double eps, SplrLimits limits,
                 SplrOptions const& options = {}) {
    Run run{};
    auto const go_on = limits.observe;
    limits.observe = [&](SplrCheck const& check) {
      run.checks.push_back(check);
      return !go_on || go_on(check);
    };
    run.result = run_splr(entropic, {problem.a, problem.b}, eps, options, limits);
    std::vector<double> f(problem.a.size()), g(problem.b.size());
    entropic.plan(eps)->potentials(f, g);
    run.potentials = {widen(f), widen(g)};
    return run;
  }
  Run run(Problem const& problem, double eps, SplrLimits const& limits, SplrOptions const& options = {}) const {
    return run(*make_operator(problem), problem, eps, limits, options);
  }

  /// Its plan and that of many Sinkhorn sweeps. Both have marginals right to 1e-11 of the mass, which leaves the
  /// problem a condition of 1e5.
  void expect_plan_of_sinkhorn(Problem const& problem, double eps, SplrOptions const& options = {}) const {
    Run const run = this->run(problem, eps, {1e-11, kManyPasses}, options);
    ASSERT_EQ(run.result.status, Status::converged) << run.result.last.l1_error;
    Dense const dense(problem);
    Vector const plan = dense.plan(eps, run.potentials), truth = dense.plan(eps, oracle::solve(dense, eps, 1e-11));
    Real difference = 0, total = 0;
    for (std::size_t k = 0; k < plan.size(); ++k) {
      difference += std::fabs(plan[k] - truth[k]);
      total += truth[k];
    }
    EXPECT_LE(difference, 1e-6 * total);
  }
};
MONGE_FOR_EACH_OF(Splr, with_all_costs(all_devices()));
INSTANTIATE_TEST_SUITE_P(ordered, Splr, testing::Values(ordered_targets().back()), target_name);  // In float64.

/// Those of costs of points, where the costs of the target change nothing.
class SplrOnPoints : public Splr {};
MONGE_FOR_EACH_OF(SplrOnPoints, all_devices());

TEST_P(Splr, ends_at_the_plan_of_sinkhorn) {
  for (Recipe const& recipe :
       {Recipe{30, 20, 3}, Recipe{17, 65, 2, Weights::skewed, Place::shifted, 0.1, DataType::float32, 3},
        Recipe{65, 33, 5, Weights::with_zeros, Place::apart, 0.1, DataType::float64, 1, 1, 3, 2},
        Recipe{129, 40, 4, Weights::uniform, Place::origin, 0.02, DataType::float64, 0, 2, 1, 4}}) {
    SCOPED_TRACE(recipe);
    Case const test = make_case(recipe);
    expect_plan_of_sinkhorn(test.problem, test.eps);
  }
}

TEST_P(Splr, single_points_have_the_product_plan) {
  for (auto const& [n, m] : {std::pair{1, 1}, {1, 40}, {40, 1}, {2, 1}, {2, 2}}) {
    SCOPED_TRACE(testing::Message() << n << " x " << m);
    Case const test = make_case({n, m, 2});
    expect_plan_of_sinkhorn(test.problem, test.eps);
  }
}

// Among them the first row and the first column, which are always in the sparse part.
TEST_P(Splr, points_of_no_weight_take_no_part) {
  Case const all = make_case({24, 30, 2});
  Problem problem = all.problem;
  double lost_a = 0, lost_b = 0;
  for (std::size_t const i : {0, 1, 7, 23}) lost_a += std::exchange(problem.a[i], 0.0);
  for (std::size_t const j : {0, 5, 28, 29}) lost_b += std::exchange(problem.b[j], 0.0);
  problem.a[3] += lost_a;
  problem.b[3] += lost_b;
  expect_plan_of_sinkhorn(problem, all.eps);
  Run const run = this->run(problem, all.eps, {1e-11, kManyPasses});
  for (Side const side : {Side::rows, Side::columns}) {
    for (Real const value : run.potentials.of(side)) EXPECT_TRUE(std::isfinite(value));
  }
}

TEST_P(Splr, ends_there_without_its_accelerations_too) {
  Case const test = make_case({60, 45, 3, Weights::uniform, Place::origin, 0.02});
  for (SplrOptions const& options : {SplrOptions{.candidate_sweeps = 0}, SplrOptions{.pattern_reuse = 1},
                                     SplrOptions{.pattern_reuse = 1, .candidate_sweeps = 0}, SplrOptions{.density = 1},
                                     SplrOptions{.shift = 1e-6}}) {
    SCOPED_TRACE(testing::Message() << "reuse " << options.pattern_reuse << ", sweeps " << options.candidate_sweeps
                                    << ", density " << options.density << ", shift " << options.shift);
    expect_plan_of_sinkhorn(test.problem, test.eps, options);
  }
}

// It takes steps by differences of the dual that are small terms, and reports the dual itself, whose rounding is 2^-53
// of its largest terms, cost and mass.
TEST_P(Splr, the_dual_never_falls) {
  Case const test = make_case({50, 60, 3, Weights::uniform, Place::shifted, 0.02});
  double const rounding = 100 * kUnitRoundoff * static_cast<double>(test.dense.largest_cost());
  Run const run = this->run(test.problem, test.eps, {1e-9, kManyPasses});
  EXPECT_EQ(run.result.status, Status::converged);
  for (std::size_t k = 1; k < run.checks.size(); ++k)
    EXPECT_GE(run.checks[k].dual, run.checks[k - 1].dual - rounding) << "iteration " << run.checks[k].iteration;
}

TEST_P(Splr, a_start_at_the_optimum_stays_there) {
  Case const test = make_case({40, 50, 3});
  auto const entropic = make_operator(test.problem);
  Run const first = run(*entropic, test.problem, test.eps, {1e-9, kManyPasses});
  Run const second = run(*entropic, test.problem, test.eps, {1e-9, kManyPasses});
  EXPECT_EQ(second.result.status, Status::converged);
  EXPECT_EQ(second.result.last.iteration, 0);
  EXPECT_EQ(second.result.last.passes, 1);
  EXPECT_EQ(second.potentials.f, first.potentials.f);
  EXPECT_EQ(second.potentials.g, first.potentials.g);
}

TEST_P(Splr, a_start_near_the_optimum_is_used) {
  Case const test = make_case({60, 50, 3, Weights::uniform, Place::origin, 0.02});
  auto const entropic = make_operator(test.problem);
  Run const rough = run(*entropic, test.problem, test.eps, {1e-3, kManyPasses});
  Run const rest = run(*entropic, test.problem, test.eps, {1e-6, kManyPasses});
  Run const cold = run(test.problem, test.eps, {1e-6, kManyPasses});
  EXPECT_EQ(rest.result.status, Status::converged);
  EXPECT_LT(rest.result.last.passes, cold.result.last.passes);
}

TEST_P(Splr, the_same_bits_again) {
  Case const test = make_case({70, 40, 3});
  Run const once = run(test.problem, test.eps, {1e-9, kManyPasses});
  Run const again = run(test.problem, test.eps, {1e-9, kManyPasses});
  EXPECT_EQ(once.result.last.passes, again.result.last.passes);
  EXPECT_EQ(once.potentials.f, again.potentials.f);
  EXPECT_EQ(once.potentials.g, again.potentials.g);
}

// A constant that moves from g to f is the same plan, and the same dual to the rounding of the potentials.
TEST_P(Splr, the_gauge_of_the_start_does_not_matter) {
  Case const test = make_case({40, 30, 3});
  auto const entropic = make_operator(test.problem);
  double const constant = 100 * test.eps;
  entropic->set_potentials(std::vector<double>(40, constant), std::vector<double>(30, -constant));
  Run const moved = run(*entropic, test.problem, test.eps, {1e-10, kManyPasses});
  EXPECT_EQ(moved.result.status, Status::converged);
  auto const other = make_operator(test.problem);
  other->set_potentials({}, {});
  Run const plain = run(*other, test.problem, test.eps, {1e-10, kManyPasses});
  // The duals are off by the product of an error of the marginals and one of the potentials, and their rounding.
  double const scale = static_cast<double>(test.dense.largest_cost()) + constant;
  EXPECT_NEAR(moved.result.last.dual, plain.result.last.dual, (1e-10 + 100 * kUnitRoundoff) * scale);
}

TEST_P(Splr, says_how_it_ended) {
  Case const test = make_case({50, 40, 3, Weights::uniform, Place::origin, 0.02});
  Run const capped = run(test.problem, test.eps, {1e-12, 20});
  EXPECT_EQ(capped.result.status, Status::iteration_limit);
  EXPECT_GE(capped.result.last.passes, 20);
  EXPECT_LE(capped.result.last.passes, 20 + 1 + 3 + 1 + 20) << "an iteration more: pairs, sweeps, candidate, search";
  Run const stopped =
      run(test.problem, test.eps, {1e-12, kManyPasses, [](SplrCheck const& check) { return check.iteration < 3; }});
  EXPECT_EQ(stopped.result.status, Status::stopped);
  EXPECT_EQ(stopped.result.last.iteration, 3);
  EXPECT_EQ(stopped.checks.size(), 5u) << "the start, the rows' half of a sweep, three iterations";
  Run const exact = run(test.problem, test.eps, {0, kManyPasses});
  EXPECT_EQ(exact.result.status, Status::precision_limit);
  EXPECT_LE(exact.result.last.l1_error, 1e-12);
}

TEST_P(SplrOnPoints, units_do_not_matter) {
  Problem const problem = gaussian_problem(60, 45, 1, 3, 5);
  Run const run = this->run(problem, 0.002, {1e-8, kManyPasses});
  EXPECT_EQ(run.result.status, Status::converged);
  Problem scaled = problem;
  scaled.scale *= 64;
  for (std::vector<double>* weights : {&scaled.a, &scaled.b}) {
    for (double& weight : *weights) weight *= 0.25;
  }
  // The rounding changes with the logarithms of the weights. The mass of the start, before any step, is not in units.
  Run const same = this->run(scaled, 64 * 0.002, {1e-8, kManyPasses});
  ASSERT_EQ(same.result.status, Status::converged);
  for (std::size_t k = 1; k < 6; ++k) {
    EXPECT_EQ(run.checks[k].passes, same.checks[k].passes);
    EXPECT_NEAR(run.checks[k].l1_error, same.checks[k].l1_error, 1e-6 * run.checks[k].l1_error);
    EXPECT_NEAR(run.checks[k].l2_error, same.checks[k].l2_error, 1e-6 * run.checks[k].l2_error);
  }
}

TEST_P(SplrOnPoints, a_matrix_is_as_good_as_its_points) {
  Problem const points = gaussian_problem(67, 45, 1, 4, 5);
  for (bool const transposed : {false, true}) expect_plan_of_sinkhorn(as_matrix(points, transposed), 0.005);
}

// What the paper is about: to 1e-6 at small eps, on clouds of one distribution.
TEST_P(SplrOnPoints, takes_far_fewer_passes_than_sinkhorn) {
  Problem const problem = as_matrix(gaussian_problem(200, 150, 0, 1));
  Run const run = this->run(problem, 1e-3, {1e-6, kManyPasses});
  ASSERT_EQ(run.result.status, Status::converged);
  auto const entropic = make_operator(problem);
  entropic->sweep({.eps = 1e-3}, 3 * run.result.last.passes);
  EXPECT_GT(entropic->errors().row, 1e-6) << "of three times as many sweeps";
}

TEST_P(SplrOnPoints, candidates_are_counted) {
  Problem const problem = gaussian_problem(60, 45, 1, 5, 5);
  auto const passes_of = [&](int sweeps) {
    SplrLimits const limits{0, kManyPasses, [](SplrCheck const& check) { return check.iteration < 1; }};
    return run(problem, 0.01, limits, {.candidate_sweeps = sweeps}).result.last.passes;
  };
  EXPECT_EQ(passes_of(4) - passes_of(0), 4 + 1) << "sweeps and an evaluation";
}

// From a cold start 20 sweeps go further than a step; where sweeps have become slow, a step further than one of them.
TEST_P(SplrOnPoints, the_next_iterate_is_the_better_of_step_and_sweeps) {
  Problem const problem = gaussian_problem(60, 45, 1, 5, 5);
  double const eps = 0.003, rounding = 100 * kUnitRoundoff;
  for (auto const& [before, sweeps] : {std::pair{0, 20}, {20, 1}}) {
    SCOPED_TRACE(testing::Message() << sweeps << " sweeps after " << before);
    auto const dual_of = [&](int candidate_sweeps) {
      auto const entropic = make_operator(problem);
      entropic->sweep({.eps = eps}, before);
      SplrLimits const limits{0, kManyPasses, [](SplrCheck const& check) { return check.iteration < 1; }};
      return run(*entropic, problem, eps, limits, {.density = 1, .candidate_sweeps = candidate_sweeps})
          .checks.back()
          .dual;
    };
    auto const entropic = make_operator(problem);
    entropic->sweep({.eps = eps}, before + sweeps);
    double const swept = entropic->evaluate(eps).dual, step = dual_of(0);
    EXPECT_GT(before > 0 ? step - swept : swept - step, 1e-6) << "unsuitable";
    EXPECT_NEAR(dual_of(sweeps), std::max(step, swept), rounding);
  }
}

TEST(SplrCandidate, has_the_higher_dual_and_not_ten_times_the_gradient) {
  EXPECT_TRUE(takes_candidate({-2, 1}, {-1, 1}));
  EXPECT_FALSE(takes_candidate({-1, 0.1}, {-1, 1}));
  EXPECT_FALSE(takes_candidate({-1, 0.1}, {-2, 1}));
  EXPECT_TRUE(takes_candidate({-2, 9.9}, {-1, 1}));
  EXPECT_FALSE(takes_candidate({-2, 10.1}, {-1, 1}));
  double const nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_FALSE(takes_candidate({nan, 1}, {-1, 1}));
  EXPECT_FALSE(takes_candidate({-2, nan}, {-1, 1}));
}

TEST_P(SplrOnPoints, pairs_are_kept_as_long_as_was_asked) {
  Problem const problem = gaussian_problem(100, 80, 1, 5, 5);
  for (int const reuse : {1, 2, 5}) {
    SplrLimits const limits{0, kManyPasses, [](SplrCheck const& check) { return check.iteration < 11; }};
    Run const run = this->run(problem, 0.002, limits, {.pattern_reuse = reuse});
    // There is a pair a row at first, and a hundredth fewer or a tenth more next.
    for (std::size_t k = 3; k < run.checks.size(); ++k) {
      bool const chosen = (run.checks[k].iteration - 1) % reuse == 0;
      EXPECT_EQ(run.checks[k].per_row != run.checks[k - 1].per_row, chosen) << "iteration " << run.checks[k].iteration;
    }
  }
}

}  // namespace
}  // namespace monge::oracle
