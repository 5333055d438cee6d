// Schedules: explicit ones are followed to the letter, from zero or from a warm start, with or without the ladder.
#include <algorithm>
#include <cmath>

#include "cpu/runtime/threads.hpp"
#include "oracle/backend_test.hpp"

namespace monge::oracle {
namespace {

class ScheduleTest : public BackendTest {
 protected:
  Plan solve(Problem const& problem, SolveOptions options) const {
    options.precision = precision();
    return monge::solve(context(), problem.geometry(), problem.a, problem.b, options);
  }
  /// A tolerance that this precision reaches on problems of moderate eps.
  double reachable() const {
    if (is_float64()) return 1e-10;
    return precision() == Precision::tf32 ? 1e-2 : 1e-5;
  }
};
MONGE_FOR_EACH_TARGET(ScheduleTest);

TEST_P(ScheduleTest, fixed_sweeps_are_the_iterates_of_the_paper) {
  for (Recipe const& recipe : {Recipe{50, 60, 3, Weights::skewed, Place::origin, 0.05},
                               Recipe{61, 43, 40, Weights::uniform, Place::shifted, 0.01},
                               Recipe{40, 40, 2, Weights::with_zeros, Place::apart, 0.1}}) {
    for (Schedule const schedule : {Schedule::alternating, Schedule::symmetric}) {
      for (int const iterations : {1, 2, 13}) {
        SCOPED_TRACE(testing::Message() << iterations << " " << name(schedule) << ", " << recipe);
        Problem const problem = make_problem(recipe);
        double const eps = recipe.eps_over_spread * Magnitudes(problem).spread();
        std::vector<double> const f(recipe.n, 0), g(recipe.m, 0);
        SolveOptions options{
            .eps = eps, .tolerance = 0, .iterations = iterations, .schedule = schedule, .annealing = 1};
        options.f = f;
        options.g = g;
        Plan const plan = solve(problem, options);
        Report const& report = plan.report();
        EXPECT_EQ(report.status, Status::completed);
        EXPECT_EQ(report.iterations, iterations);
        EXPECT_EQ(report.annealing_iterations, 0);

        Sweep const kind{eps, schedule == Schedule::symmetric};
        Dense const dense(problem);
        SweepResult const expected = sweep(dense, kind, iterations, {Vector(recipe.n, 0), Vector(recipe.m, 0)});
        Tolerance const tolerance(problem, eps, arithmetic(recipe.d));
        expect_iterates(dense, tolerance, eps, potentials_of(plan), expected.potentials,
                        tolerance.sweeps(kind, iterations, expected));
      }
    }
  }
}

TEST_P(ScheduleTest, every_schedule_converges_to_the_same_potentials) {
  Problem const problem = make_problem({80, 70, 3, Weights::uniform, Place::shifted});
  Dense const dense(problem);
  double const eps = 0.05 * Magnitudes(problem).spread();
  Potentials const truth = oracle::solve(dense, eps, 1e-14L);
  for (Schedule const schedule : {Schedule::overrelaxed, Schedule::alternating, Schedule::symmetric}) {
    for (double const annealing : {1.0, 0.5, 0.1}) {
      SCOPED_TRACE(testing::Message() << name(schedule) << ", annealing " << annealing);
      Plan const plan =
          solve(problem, {.eps = eps, .tolerance = reachable(), .schedule = schedule, .annealing = annealing});
      ASSERT_EQ(plan.status(), Status::converged) << plan.report().message;
      EXPECT_LE(plan.report().marginal_error, reachable());
      // Potentials are unique up to a constant. A marginal error e moves them by eps e / min weight / (1 - rate),
      // about.
      double const constant = plan.f()[0] - static_cast<double>(truth.f[0]);
      Vector expected = truth.f;
      for (Real& value : expected) value += constant;
      expect_close("f", plan.f(), expected, Vector(80, 80 * 10 * eps * reachable()));
    }
  }
}

TEST_P(ScheduleTest, ladder_counts_its_sweeps_and_ends_at_eps) {
  Problem const problem = make_problem({60, 60, 2});
  double const eps = 0.0005 * Magnitudes(problem).spread();
  Plan const plan = solve(problem, {.eps = eps, .tolerance = reachable(), .annealing = 0.5});
  Report const& report = plan.report();
  EXPECT_GT(report.annealing_iterations, 0);
  EXPECT_LT(report.annealing_iterations, report.iterations);
  ASSERT_FALSE(report.history.empty());
  EXPECT_EQ(report.history.back().eps, eps);
  EXPECT_EQ(report.history.front().eps, eps) << "the start that is on trial";
  double last = std::numeric_limits<double>::infinity();
  int iteration = 0;
  for (Check const& check : report.history) {
    EXPECT_LE(check.eps, last);
    EXPECT_GE(check.eps, eps);
    EXPECT_GE(check.iteration, iteration);
    EXPECT_TRUE(std::isfinite(check.marginal_error) && check.marginal_error >= 0);
    EXPECT_GE(check.relaxation, 1);
    EXPECT_LT(check.relaxation, 2);
    bool const on_trial = std::isinf(last) && check.eps == eps;
    if (!on_trial) last = check.eps;
    iteration = check.iteration;
  }
  EXPECT_EQ(iteration, report.iterations);
}

// A diameter to its circle: the means agree, so both solves start from f = g = 0 and only the ladder tells them apart.
TEST_P(ScheduleTest, ladder_helps_at_small_eps) {
  std::int64_t const n = 80;
  std::vector<double> x, y;
  for (std::int64_t i = 0; i < n; ++i) {
    double const t = (static_cast<double>(i) + 0.5) / static_cast<double>(n);
    x.insert(x.end(), {2 * t - 1, 0});
    y.insert(y.end(), {std::cos(2 * M_PI * t), std::sin(2 * M_PI * t)});
  }
  std::vector<double> const weights(n, 1.0 / static_cast<double>(n));
  Problem const problem{Stored(x, n, 2), Stored(y, n, 2), weights, weights};
  double const eps = 0.001 * Magnitudes(problem).spread();
  SolveOptions options{.eps = eps, .tolerance = 1e-2, .schedule = Schedule::alternating, .check_every = 1};
  Report const with = solve(problem, options).report();
  options.annealing = 1;
  Report const without = solve(problem, options).report();
  EXPECT_EQ(with.status, Status::converged) << with.message;
  EXPECT_EQ(without.status, Status::converged) << without.message;
  EXPECT_LT(2 * with.iterations, without.iterations);
}

TEST_P(ScheduleTest, cap_includes_the_ladder) {
  Problem const problem = make_problem({60, 60, 2});
  double const eps = 1e-3 * Magnitudes(problem).spread();
  for (Schedule const schedule : {Schedule::overrelaxed, Schedule::alternating, Schedule::symmetric}) {
    for (int const iterations : {1, 3, 17}) {
      for (double const tolerance : {0.0, 1e-9}) {
        SCOPED_TRACE(testing::Message() << iterations << " " << name(schedule) << " to " << tolerance);
        Plan const plan =
            solve(problem, {.eps = eps, .tolerance = tolerance, .iterations = iterations, .schedule = schedule});
        EXPECT_EQ(plan.report().iterations, iterations);
        EXPECT_EQ(plan.status(), tolerance == 0 ? Status::completed : Status::iteration_limit);
        expect_report_matches(plan.report(), problem, eps, potentials_of(plan));
      }
    }
  }
}

TEST_P(ScheduleTest, warm_start_ends_at_once) {
  for (Schedule const schedule : {Schedule::overrelaxed, Schedule::alternating, Schedule::symmetric}) {
    SCOPED_TRACE(testing::Message() << name(schedule));
    Problem const problem = make_problem({80, 70, 3, Weights::with_zeros, Place::apart});
    double const eps = 0.02 * Magnitudes(problem).spread();
    // Potentials near 1e6, as float64 numbers, have the plan to 1e-9.
    double const tolerance = std::max(reachable(), 1e-8);
    SolveOptions options{.eps = eps, .tolerance = tolerance, .schedule = schedule};
    Plan const cold = solve(problem, options);
    ASSERT_EQ(cold.status(), Status::converged) << cold.report().message;
    std::vector<double> const f = cold.f(), g = cold.g();
    options.f = f;
    options.g = g;
    options.tolerance = 2 * tolerance;
    Plan const warm = solve(problem, options);
    EXPECT_EQ(warm.status(), Status::converged) << warm.report().message;
    EXPECT_LE(warm.report().iterations, options.check_every);
    EXPECT_EQ(warm.report().annealing_iterations, 0);
    expect_report_matches(warm.report(), problem, eps, potentials_of(warm));
  }
}

TEST_P(ScheduleTest, warm_start_is_where_the_sweeps_begin) {
  Problem const problem = make_problem({30, 40, 3});
  double const eps = 0.05 * Magnitudes(problem).spread();
  Random random(3);
  std::vector<double> f(30), g(40);
  for (double& value : f) value = random.uniform(-1, 1);
  for (double& value : g) value = random.uniform(-1, 1);
  for (Schedule const schedule : {Schedule::alternating, Schedule::symmetric}) {
    SolveOptions options{.eps = eps, .tolerance = 0, .iterations = 2, .schedule = schedule};
    options.f = f;
    options.g = g;
    Plan const plan = solve(problem, options);
    Sweep const kind{eps, schedule == Schedule::symmetric};
    SweepResult const expected = sweep(Dense(problem), kind, 2, {widen(f), widen(g)});
    Real const allowed = Tolerance(problem, eps, arithmetic(3)).sweeps(kind, 2, expected);
    expect_close("f", plan.f(), expected.potentials.f, Vector(30, allowed));
    expect_close("g", plan.g(), expected.potentials.g, Vector(40, allowed));
  }
}

TEST_P(ScheduleTest, checks_are_a_matter_of_reporting) {
  Problem const problem = make_problem({50, 60, 3});
  double const eps = 0.02 * Magnitudes(problem).spread();
  std::vector<double> f;
  for (int const check_every : {1, 7, 1000}) {
    Plan const plan = solve(problem, {.eps = eps,
                                      .tolerance = 0,
                                      .iterations = 20,
                                      .schedule = Schedule::alternating,
                                      .annealing = 1,
                                      .check_every = check_every});
    EXPECT_EQ(plan.report().iterations, 20);
    if (f.empty()) f = plan.f();
    SCOPED_TRACE(testing::Message() << "check_every " << check_every);
    SweepResult const result{potentials_of(plan)};
    expect_close("f", plan.f(), widen(f), Vector(50, Tolerance(problem, eps, arithmetic(3)).sweeps({eps}, 1, result)));
  }
}

TEST_P(ScheduleTest, empty_weights_are_uniform) {
  Problem const problem = make_problem({30, 40, 3});
  std::vector<double> const a(30, 2.5 / 30), b(40, 2.5 / 40);
  SolveOptions const options{.eps = 1, .tolerance = reachable(), .precision = precision()};
  Plan const implied = monge::solve(context(), problem.geometry(), options);
  EXPECT_EQ(implied.report().mass, 1);
  Plan const given = monge::solve(context(), problem.geometry(), problem.a, problem.b, options);
  EXPECT_NEAR(implied.report().primal, given.report().primal, 1e-12);
  Plan const half = monge::solve(context(), problem.geometry(), a, {}, options);
  Plan const both = monge::solve(context(), problem.geometry(), a, b, options);
  EXPECT_NEAR(half.report().mass, 2.5, 1e-12);
  EXPECT_NEAR(half.report().primal, both.report().primal, 1e-12 * std::abs(both.report().primal));
}

TEST_P(ScheduleTest, is_bitwise_repeatable) {
  Problem const problem = make_problem({150, 170, 5, Weights::skewed});
  double const eps = 0.01 * Magnitudes(problem).spread();
  for (Schedule const schedule : {Schedule::overrelaxed, Schedule::alternating, Schedule::symmetric}) {
    SolveOptions const options{.eps = eps, .tolerance = reachable(), .iterations = 200, .schedule = schedule};
    Plan const first = solve(problem, options), second = solve(problem, options);
    EXPECT_EQ(first.f(), second.f());
    EXPECT_EQ(first.g(), second.g());
    EXPECT_EQ(first.report().iterations, second.report().iterations);
    EXPECT_EQ(first.report().primal, second.report().primal);
    EXPECT_EQ(first.report().marginal_error, second.report().marginal_error);
  }
}

TEST_P(ScheduleTest, stored_scores_change_nothing_but_rounding) {
  for (std::int64_t const d : {2, 40}) {
    Problem const problem = make_problem({150, 120, d});
    double const eps = 0.05 * Magnitudes(problem).spread();
    SolveOptions options{.eps = eps, .tolerance = reachable(), .schedule = Schedule::alternating};
    Plan const stored = solve(problem, options);
    options.cache_bytes = 0;
    Plan const streamed = solve(problem, options);
    EXPECT_EQ(stored.status(), Status::converged);
    EXPECT_EQ(streamed.status(), Status::converged);
    double const allowed = 4 * reachable() * static_cast<double>(Dense(problem).largest_cost());
    EXPECT_NEAR(stored.report().transport_cost, streamed.report().transport_cost, allowed);
    EXPECT_NEAR(stored.report().iterations, streamed.report().iterations, 10);
  }
}

TEST(Threads, change_nothing_but_rounding) {
  Problem const problem = make_problem({600, 700, 5});
  constexpr int kSweeps = 10;
  std::vector<double> const zeros_f(600, 0), zeros_g(700, 0);
  ASSERT_EQ(useful_threads(3, 600, 700), 3);
  double const eps = 0.02 * Magnitudes(problem).spread();
  for (Precision const precision : {Precision::float32, Precision::float64}) {
    SolveOptions const options{.eps = eps,
                               .tolerance = 0,
                               .iterations = kSweeps,
                               .schedule = Schedule::alternating,
                               .precision = precision,
                               .f = zeros_f,
                               .g = zeros_g};
    Dense const dense(problem);
    Sweep const kind{eps};
    SweepResult const expected = sweep(dense, kind, kSweeps, {Vector(600, 0), Vector(700, 0)});
    Tolerance const tolerance(problem, eps, arithmetic({}, precision, 5));
    for (int const threads : {1, 2, 3}) {
      Plan const plan = solve(Context::cpu(threads), problem.geometry(), problem.a, problem.b, options);
      expect_close("g", plan.g(), expected.potentials.g, Vector(700, tolerance.sweeps(kind, kSweeps, expected)));
    }
  }
}

}  // namespace
}  // namespace monge::oracle
