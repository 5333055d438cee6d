// How solves end short of their tolerance, and the progress callback.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>

#include "oracle/backend_test.hpp"
#include "oracle/refusal.hpp"

namespace monge::oracle {
namespace {

class StatusTest : public BackendTest {
 protected:
  Plan solve(Problem const& problem, SolveOptions options) const {
    options.precision = precision();
    return monge::solve(context(), problem.geometry(), problem.a, problem.b, options);
  }
};
MONGE_FOR_EACH_TARGET(StatusTest);

class ShortPrecisionTest : public StatusTest {};
MONGE_FOR_EACH_SHORT_PRECISION(ShortPrecisionTest);

class Float64Test : public StatusTest {};
MONGE_FOR_EACH_DEVICE(Float64Test);

TEST_P(StatusTest, iteration_limit) {
  Problem const problem = make_problem({80, 80, 2});
  double const eps = 0.01 * Magnitudes(problem).spread();
  Plan const plan = solve(problem, {.eps = eps, .tolerance = 1e-9, .iterations = 25, .annealing = 1});
  EXPECT_EQ(plan.status(), Status::iteration_limit);
  EXPECT_EQ(plan.report().iterations, 25);
  EXPECT_GT(plan.report().marginal_error, 1e-9);
  EXPECT_NE(plan.report().message.find("iterations"), std::string::npos) << plan.report().message;
  EXPECT_EQ(plan.report().message.find('\n'), std::string::npos);
}

TEST_P(StatusTest, messages_tell_what_is_judged_and_count_one_sweep) {
  Problem problem = make_problem({40, 30, 2});
  double const eps = 0.05 * Magnitudes(problem).spread(), mass = 8;
  for (std::vector<double>* weights : {&problem.a, &problem.b})
    for (double& weight : *weights) weight *= mass;
  auto const expect_told = [&](Criterion criterion, std::string const& what, std::string const& relative_to,
                               auto const& value) {
    SolveOptions const options{.eps = eps, .tolerance = 1e-14, .criterion = criterion, .iterations = 4};
    Report const report = solve(problem, options).report();
    ASSERT_EQ(report.status, Status::iteration_limit);
    ASSERT_EQ(report.message.rfind(what + ' ', 0), 0u) << report.message;
    std::size_t digits = 0;
    std::string const rest = report.message.substr(what.size() + 1);
    EXPECT_NEAR(std::stod(rest, &digits), value(report), 0.005 * value(report)) << report.message;
    EXPECT_EQ(rest.substr(digits).rfind(" of the " + relative_to + " after 4 sweeps", 0), 0u) << report.message;
  };
  expect_told(Criterion::l1, "marginal error", "mass", [&](Report const& r) { return r.marginal_error / mass; });
  expect_told(Criterion::gradient, "gradient norm", "mass", [&](Report const& r) { return r.gradient_norm / mass; });
  expect_told(Criterion::gap, "gap", "value", [&](Report const& r) {
    double const scale = std::max(std::abs(r.primal), eps * mass), error = r.marginal_error / mass;
    return std::max(std::abs(r.gap) / scale, error * error);
  });
  std::string const one = solve(problem, {.eps = eps, .tolerance = 0, .iterations = 1}).report().message;
  EXPECT_EQ(one.rfind("ran 1 sweep as asked", 0), 0u) << one;
}

// Row 0 may go to column 0 alone, which takes less than row 0 has: no plan has both marginals.
TEST_P(Float64Test, costs_that_allow_no_plan_may_be_why_the_error_hardly_falls) {
  std::vector<double> cost{0.3, std::numeric_limits<double>::infinity(), 0.1, 0.2};
  std::vector<double> const a{0.7, 0.3}, b{0.5, 0.5};
  CostMatrix const geometry{MatrixView(cost.data(), 2, 2)};
  for (Schedule const schedule : {Schedule::overrelaxed, Schedule::alternating, Schedule::symmetric}) {
    SCOPED_TRACE(testing::Message() << name(schedule));
    SolveOptions const options{.eps = 0.1, .iterations = 300, .schedule = schedule};
    Report const report = monge::solve(context(), geometry, a, b, options).report();
    // Potentials grow without end: mixed sweeps come to where float64 has no digits of them.
    EXPECT_TRUE(report.status == Status::iteration_limit || report.status == Status::precision_limit);
    EXPECT_GT(report.marginal_error, 0.1);
    EXPECT_NE(report.message.find("there may be no plan"), std::string::npos) << report.message;
  }
  cost[1] = 0.5;
  SolveOptions const options{.eps = 0.1,
                             .tolerance = 1e-12,
                             .iterations = 3,
                             .schedule = Schedule::alternating,
                             .precision = Precision::float64,
                             .check_every = 1};
  Report const falling = monge::solve(context(), geometry, a, b, options).report();
  EXPECT_EQ(falling.status, Status::iteration_limit);
  EXPECT_EQ(falling.message.find("there may be no plan"), std::string::npos) << falling.message;
}

// Float64 costs are off by more than eps.
TEST_P(Float64Test, an_eps_that_leaves_no_digits_is_the_precision_limit) {
  Problem const problem = make_problem({30, 20, 3});
  double const spread = Magnitudes(problem).spread();
  for (double const relative_eps : {1e-24, 1e-32, 1e-100, 1e-300}) {
    for (Method const method : {Method::automatic, Method::sinkhorn, Method::newton}) {
      SCOPED_TRACE(testing::Message() << "eps " << relative_eps << " of the spread, " << name(method));
      SolveOptions const options{.eps = relative_eps * spread, .method = method, .iterations = 3000};
      Plan const plan = monge::solve(context(), problem.geometry(), problem.a, problem.b, options);
      Report const& report = plan.report();
      EXPECT_EQ(report.status, Status::precision_limit) << report.message;
      EXPECT_LT(report.iterations, 3000);
      EXPECT_NE(report.message.find("larger"), std::string::npos) << report.message;
      if (std::isnan(report.marginal_error)) {
        EXPECT_TRUE(std::isnan(plan.gradients({}).distance));
      }
    }
  }
}

// The value has the term eps sum a sum b.
TEST_P(Float64Test, totals_whose_product_overflows_are_refused) {
  Problem problem = make_problem({30, 20, 3});
  double const eps = Magnitudes(problem).spread();
  auto const solve = [&](double total) {
    std::vector<double> a = problem.a, b = problem.b;
    for (double& weight : a) weight *= total;
    for (double& weight : b) weight *= total;
    return monge::solve(context(), problem.geometry(), a, b, {.eps = eps}).report();
  };
  for (double const total : {1e-310, 1e-300, 1e-100, 1e100, 1e150}) {
    Report const report = solve(total);
    // Entries of the plan are then denormal numbers, which exponentials on CUDA do not have.
    bool const may_end = total < 1e-300 && context().device().type == DeviceType::cuda;
    if (!may_end || report.status != Status::precision_limit) {
      EXPECT_EQ(report.status, Status::converged) << total << ": " << report.message;
      EXPECT_TRUE(std::isfinite(report.primal) && std::isfinite(report.dual)) << total;
    }
  }
  for (double const total : {1e160, 1e300}) {
    EXPECT_EQ(refusal_of([&] { solve(total); }).rfind("a, b: the totals are ", 0), 0u) << total;
  }
}

// A source without mass whose costs are 1e7 eps: the marginal error does not count it.
TEST_P(ShortPrecisionTest, rounding_at_points_without_mass_is_told) {
  for (bool const is_balanced : {true, false}) {
    for (double const away : {0.0, 1e3}) {
      SCOPED_TRACE(testing::Message() << (is_balanced ? "balanced" : "unbalanced") << ", away " << away);
      Problem problem = make_problem({40, 30, 3});
      std::vector<double> x = problem.x.values();
      x[0] += away;
      problem.x = Stored(x, 40, 3);
      if (is_balanced) {
        problem.a[0] = 0;
        for (std::size_t i = 1; i < problem.a.size(); ++i) problem.a[i] *= 40.0 / 39;
      }
      SolveOptions options{.eps = 0.1, .tolerance = 1e-2};
      if (!is_balanced) options.penalty_a = options.penalty_b = 0.5;
      Plan const plan = solve(problem, options);
      bool const told = plan.report().message.find("points without mass") != std::string::npos;
      if (plan.status() == Status::converged) {
        EXPECT_EQ(told, away > 0) << plan.report().message;
      }
    }
  }
}

// Weights down to 1e-314, whose reciprocals overflow.
TEST_P(Float64Test, denormal_weights_take_no_longer_and_leave_derivatives_finite) {
  std::int64_t const n = 120, m = 90;
  std::vector<double> x(n), y(m), a(n), b(m, 1.0 / m);
  for (std::int64_t i = 0; i < n; ++i) {
    x[i] = 38.0 * i / (n - 1);
    a[i] = std::exp(-x[i] * x[i] / 2);
  }
  double const total = std::accumulate(a.begin(), a.end(), 0.0);
  for (double& weight : a) weight /= total;
  for (std::int64_t j = 0; j < m; ++j) y[j] = 4.0 * j / (m - 1);
  ASSERT_LT(a.back(), 1e-310);
  PointCloud const clouds{{x.data(), n, 1}, {y.data(), m, 1}};
  for (Method const method : {Method::automatic, Method::newton, Method::splr}) {
    SCOPED_TRACE(name(method));
    Plan const plan = monge::solve(context(), clouds, a, b, {.eps = 0.1, .method = method, .iterations = 300});
    EXPECT_EQ(plan.status(), Status::converged) << plan.report().message;
    EXPECT_LT(plan.gradients({}).distance, 1e-4);
    std::vector<double> const v(n, 1.0);
    std::vector<double> of_f(n, 0.0), of_g(m, 1.0 / m), product(n), by_b(m);
    of_f[0] = of_f[60] = 0.5;
    EXPECT_EQ(plan.hessian_product({.x = {v.data(), n, 1}}, {.x = {product.data(), n, 1}}).status,
              LinearStatus::converged);
    EXPECT_EQ(plan.potential_gradients(of_f, of_g, {.b = by_b}).status, LinearStatus::converged);
    for (std::vector<double> const& values : {product, by_b})
      EXPECT_TRUE(std::all_of(values.begin(), values.end(), [](double value) { return std::isfinite(value); }));
    of_f[n - 1] = 0.1;
    of_f[0] = 0.4;
    EXPECT_EQ(refusal_of([&] { plan.potential_gradients(of_f, of_g, {.b = by_b}); }).rfind("of_f: is not 0 at", 0), 0u);
  }
}

TEST_P(ShortPrecisionTest, ends_at_a_limit_that_names_the_precision_that_would_help) {
  for (double const relative_eps : {1e-4, 1e-2}) {
    SCOPED_TRACE(testing::Message() << "eps " << relative_eps << " of the spread");
    Problem const problem = make_problem({60, 60, 3});
    double const eps = relative_eps * Magnitudes(problem).spread();
    Plan const plan = solve(problem, {.eps = eps, .tolerance = 1e-13, .iterations = 20000});
    EXPECT_EQ(plan.status(), Status::precision_limit) << plan.report().message;
    EXPECT_NE(plan.report().message.find("float64"), std::string::npos) << plan.report().message;
    EXPECT_LT(plan.report().iterations, 20000) << "a stall should be noticed";
    expect_report_matches(plan.report(), problem, eps, potentials_of(plan));
  }
}

TEST_P(Float64Test, automatic_goes_on_where_float32_cannot) {
  for (double const relative_eps : {1e-3, 1e-2}) {
    SCOPED_TRACE(testing::Message() << "eps " << relative_eps << " of the spread");
    Problem const problem = make_problem({60, 60, 3});
    double const eps = relative_eps * Magnitudes(problem).spread();
    SolveOptions options{.eps = eps, .tolerance = 1e-10, .iterations = 50000};
    Plan const plan = monge::solve(context(), problem.geometry(), problem.a, problem.b, options);
    Report const& report = plan.report();
    EXPECT_EQ(report.status, Status::converged) << report.message;
    EXPECT_EQ(report.precision, Precision::float64);
    EXPECT_GT(report.refinement_iterations, 0);
    EXPECT_NE(report.message.find("float64"), std::string::npos) << report.message;
    expect_report_matches(report, problem, eps, potentials_of(plan));
    // The history says which sweeps were which, and their number is that of both kinds.
    int refined = 0;
    for (std::size_t k = 1; k < report.history.size(); ++k) {
      if (report.history[k].precision == Precision::float64)
        refined += report.history[k].iteration - report.history[k - 1].iteration;
    }
    EXPECT_EQ(refined, report.refinement_iterations);

    options.precision = Precision::float32;
    Plan const told = monge::solve(context(), problem.geometry(), problem.a, problem.b, options);
    EXPECT_EQ(told.status(), Status::precision_limit) << "what was asked for is obeyed";
    EXPECT_EQ(told.report().precision, Precision::float32);
  }
}

TEST_P(Float64Test, automatic_stays_in_float32_where_that_is_enough) {
  Problem const problem = make_problem({60, 60, 3});
  double const eps = 0.1 * Magnitudes(problem).spread();
  Plan const plan = monge::solve(context(), problem.geometry(), problem.a, problem.b, {.eps = eps, .tolerance = 1e-4});
  EXPECT_EQ(plan.status(), Status::converged) << plan.report().message;
  EXPECT_EQ(plan.report().precision, Precision::float32);
  EXPECT_EQ(plan.report().refinement_iterations, 0);
}

TEST_P(Float64Test, gets_there) {
  Problem const problem = make_problem({60, 60, 3});
  double const eps = 1e-2 * Magnitudes(problem).spread();
  Plan const plan = solve(problem, {.eps = eps, .tolerance = 1e-12, .iterations = 50000});
  EXPECT_EQ(plan.status(), Status::converged) << plan.report().message;
  EXPECT_LE(plan.report().marginal_error, 1e-12);
}

TEST_P(StatusTest, progress_is_told_at_checks_and_can_stop) {
  Problem const problem = make_problem({80, 80, 2});
  double const eps = 0.005 * Magnitudes(problem).spread();
  for (Schedule const schedule : {Schedule::overrelaxed, Schedule::alternating, Schedule::symmetric}) {
    SCOPED_TRACE(testing::Message() << name(schedule));
    std::vector<Progress> seen;
    SolveOptions options{.eps = eps, .tolerance = 1e-12, .schedule = schedule, .annealing = 1, .check_every = 5};
    options.progress = [&](Progress const& progress) {
      seen.push_back(progress);
      return seen.size() < 4;
    };
    Plan const plan = solve(problem, options);
    EXPECT_EQ(plan.status(), Status::stopped);
    ASSERT_EQ(seen.size(), 4u);
    EXPECT_EQ(plan.report().iterations, seen.back().iteration);
    for (std::size_t k = 0; k < seen.size(); ++k) {
      Progress const& progress = seen[k];
      EXPECT_LE(progress.iteration, 5 * static_cast<int>(k + 1));
      EXPECT_GT(progress.iteration, k == 0 ? 0 : seen[k - 1].iteration);
      EXPECT_EQ(progress.eps, eps);
      EXPECT_GE(progress.marginal_error, 0);
      EXPECT_LE(progress.marginal_error, k == 0 ? 1e10 : seen[0].marginal_error);
      EXPECT_GE(progress.relaxation, 1);
      EXPECT_LT(progress.relaxation, 2);
      EXPECT_GE(progress.seconds, k == 0 ? 0 : seen[k - 1].seconds);
    }
    // A stopped solve is a result like any other.
    expect_report_matches(plan.report(), problem, eps, potentials_of(plan));
  }
}

class StatusOfPoints : public StatusTest {};
MONGE_FOR_EACH_POINT_TARGET(StatusOfPoints);

// Between rungs or on one, a sweep at eps makes a plan at eps of what there is.
TEST_P(StatusOfPoints, solve_that_is_stopped_on_the_ladder_says_so) {
  Problem const problem = make_problem({50, 60, 3});
  double const eps = 0.001 * Magnitudes(problem).spread();
  for (Schedule const schedule : {Schedule::overrelaxed, Schedule::symmetric}) {
    for (bool const on_ladder : {false, true}) {
      SolveOptions options{.eps = eps, .method = Method::sinkhorn, .schedule = schedule};
      int calls = 0;
      options.progress = [&](Progress const& progress) {
        ++calls;
        return (progress.eps > eps) != on_ladder;
      };
      Plan const plan = solve(problem, options);
      Report const& report = plan.report();
      EXPECT_EQ(report.status, Status::stopped);
      bool const mixes =
          schedule == Schedule::overrelaxed && backend_of(context()).pass_times(problem.geometry(), 0).mixes;
      EXPECT_EQ(report.iterations, on_ladder ? 14 : mixes ? 1 : 3);
      EXPECT_EQ(report.annealing_iterations, on_ladder ? 3 : 0);
      // Symmetric sweeps have an early second check, which shows their rate; mixed ones are checked one by one.
      EXPECT_EQ(calls, !on_ladder ? 1 : mixes ? 11 : schedule == Schedule::symmetric ? 4 : 3);
      EXPECT_EQ(report.message.find("while annealing") != std::string::npos, on_ladder) << report.message;
      expect_report_matches(report, problem, eps, potentials_of(plan));
      // After a sweep that updates the columns last, P has the mass of b.
      EXPECT_TRUE(!on_ladder || report.marginal_error <= 2.001) << report.marginal_error;
    }
  }
}

TEST_P(StatusTest, progress_that_never_stops_changes_nothing) {
  Problem const problem = make_problem({50, 60, 3});
  SolveOptions options{.eps = 0.5, .method = Method::sinkhorn, .tolerance = 1e-4};
  Plan const silent = solve(problem, options);
  int calls = 0;
  double last_eps = std::numeric_limits<double>::infinity();
  options.progress = [&](Progress const& progress) {
    ++calls;
    EXPECT_LE(progress.eps, last_eps);
    last_eps = progress.eps;
    return true;
  };
  Plan const watched = solve(problem, options);
  EXPECT_GT(calls, 0);
  EXPECT_EQ(silent.f(), watched.f());
  EXPECT_EQ(silent.report().iterations, watched.report().iterations);
}

/// A solve that is stopped at its best check returns the potentials that the callback saw, up to (f + t, g - t).
TEST_P(StatusOfPoints, progress_has_the_potentials_of_its_check) {
  Problem const problem = make_problem({50, 60, 3, Weights::with_zeros});
  double const eps = 0.02 * Magnitudes(problem).spread();
  auto const solved = [&](SolveOptions const& options) {
    return monge::solve(context(), problem.geometry(), problem.a, problem.b, options);
  };
  for (Method const method : {Method::sinkhorn, Method::newton, Method::splr}) {
    SCOPED_TRACE(testing::Message() << name(method));
    SolveOptions options{.eps = eps, .method = method, .tolerance = precision() == Precision::float64 ? 1e-9 : 1e-4};
    if (method != Method::splr) options.annealing = 1;
    // tf32 ends before the fourth check, or does not converge.
    if (method == Method::sinkhorn && precision() != Precision::tf32) options.precision = precision();
    monge::Potentials seen;
    int checks = 0;
    double least = std::numeric_limits<double>::infinity();
    options.progress = [&](Progress const& progress) {
      seen = progress.potentials();
      bool const is_best = progress.marginal_error < least;
      least = std::min(least, progress.marginal_error);
      return ++checks < 4 || !is_best;
    };
    Plan const plan = solved(options);
    ASSERT_EQ(plan.status(), Status::stopped);
    std::vector<double> const f = plan.f(), g = plan.g();
    ASSERT_EQ(seen.f.size(), f.size());
    ASSERT_EQ(seen.g.size(), g.size());
    double const rounding = 1e-13 * Magnitudes(problem).spread();
    auto const expect_moved = [&](std::vector<double> const& found, std::vector<double> const& by_callback,
                                  std::vector<double> const& weight, double t) {
      for (std::size_t i = 0; i < found.size(); ++i) {
        if (weight[i] > 0) {
          EXPECT_NEAR(found[i], by_callback[i] + t, rounding) << "point " << i;
        }
      }
    };
    auto const first = std::find_if(problem.a.begin(), problem.a.end(), [](double weight) { return weight > 0; });
    std::size_t const i = static_cast<std::size_t>(first - problem.a.begin());
    expect_moved(f, seen.f, problem.a, f[i] - seen.f[i]);
    expect_moved(g, seen.g, problem.b, seen.f[i] - f[i]);

    options.progress = nullptr;
    int const cold = solved(options).report().iterations;
    options.f = seen.f;
    options.g = seen.g;
    Report const warm = solved(options).report();
    EXPECT_EQ(warm.status, Status::converged) << warm.message;
    EXPECT_LT(warm.iterations, cold);
  }
}

TEST_P(StatusTest, exceptions_of_the_callback_pass_through) {
  Problem const problem = make_problem({30, 30, 2});
  SolveOptions options{.eps = 0.01, .tolerance = 1e-12, .precision = precision()};
  options.progress = [](Progress const&) -> bool { throw std::runtime_error("enough"); };
  EXPECT_THROW(monge::solve(context(), problem.geometry(), options), std::runtime_error);
  options.progress = nullptr;
  options.tolerance = 1e-2;
  options.eps = 1;
  EXPECT_EQ(monge::solve(context(), problem.geometry(), options).status(), Status::converged);
}

TEST_P(StatusTest, seconds_add_up) {
  Problem const problem = make_problem({50, 60, 3});
  auto const seconds = solve(problem, {.eps = 0.5, .tolerance = 1e-3}).report().seconds;
  EXPECT_GE(seconds.setup, 0);
  EXPECT_GT(seconds.sweeps, 0);
  EXPECT_GT(seconds.certificate, 0);
  EXPECT_LE(seconds.setup + seconds.sweeps + seconds.certificate, seconds.total * (1 + 1e-6) + 1e-6);
}

// Nothing overflows or becomes NaN at the ends of the range of eps.
TEST_P(StatusTest, any_eps_ends_with_finite_numbers) {
  Problem const problem = make_problem({20, 30, 3, Weights::skewed});
  for (double const eps : {1e-12, 1e-9, 1e-5, 1e6, 1e12}) {
    SCOPED_TRACE(testing::Message() << "eps " << eps);
    Plan const plan = solve(problem, {.eps = eps, .iterations = 200});
    Report const& report = plan.report();
    for (double const value : plan.f()) ASSERT_TRUE(std::isfinite(value));
    for (double const value : plan.g()) ASSERT_TRUE(std::isfinite(value));
    if (eps > 1) {
      EXPECT_EQ(plan.status(), Status::converged) << report.message;
    } else if (eps < 1e-5) {
      EXPECT_NE(plan.status(), Status::converged) << report.message;
    }
    // Below, potentials rounded to this precision leave a plan that overflows float64, and the report says so.
    bool const within_precision = is_float64() ? eps >= 1e-9 : eps >= 1e-5;
    if (!within_precision) continue;
    for (double const value : {report.marginal_error, report.transport_cost, report.primal, report.dual, report.gap}) {
      EXPECT_TRUE(std::isfinite(value)) << value;
    }
  }
}

// What float32 does not hold is solved in float64 where the precision was left to us, and refused where it was not.
TEST_P(Float64Test, costs_beyond_float32_are_solved_in_float64) {
  for (double const unit : {1e19, 1e25, 1e100}) {
    for (CostFunction const function :
         {CostFunction::sqeuclidean, CostFunction::euclidean, CostFunction::p_norm, CostFunction::dot}) {
      SCOPED_TRACE(testing::Message() << "unit " << unit << ", " << name(function));
      Problem problem = make_problem({30, 40, 3});
      problem.cost_function = function;
      bool const squares = function == CostFunction::sqeuclidean || function == CostFunction::dot;
      SolveOptions options{.eps = 1, .tolerance = 1e-4, .precision = Precision::float64};
      Report const expected = monge::solve(context(), problem.clouds(), problem.a, problem.b, options).report();
      double const scale = squares ? unit * unit : unit;
      for (Stored* const points : {&problem.x, &problem.y}) {
        std::vector<double> values = points->values();
        for (double& value : values) value *= unit;
        *points = Stored(values, points->rows(), points->columns());
      }
      options.eps = scale;
      options.precision = Precision::automatic;
      Report const actual = monge::solve(context(), problem.clouds(), problem.a, problem.b, options).report();
      EXPECT_EQ(actual.status, Status::converged) << actual.message;
      EXPECT_EQ(actual.precision, Precision::float64);
      EXPECT_NEAR(actual.dual / scale, expected.dual, 1e-9 * std::abs(expected.dual));
      // In a divergence each of the three problems is.
      Divergence const divergence = sinkhorn_divergence(context(), problem.clouds(), problem.a, problem.b, options);
      EXPECT_EQ(divergence.status(), Status::converged);
      Solver solver(context(), problem.clouds(), problem.a, problem.b, options);
      for (int k = 0; k < 2; ++k) EXPECT_EQ(solver.solve().report().dual, actual.dual);
      options.precision = Precision::float32;
      try {
        monge::solve(context(), problem.clouds(), problem.a, problem.b, options);
        FAIL() << "no error";
      } catch (Error const& error) {
        EXPECT_NE(std::string(error.what()).find("precision must be float64"), std::string::npos) << error.what();
      }
    }
  }
}

// Coordinates whose squares leave the range of float32 are still a valid problem: 1e15 and 1e-15 scale away. So are
// costs of that size in a matrix.
TEST_P(StatusTest, any_unit_of_length_gives_the_same_plan) {
  for (double const unit : {1e-15, 1e-5, 1e5, 1e15}) {
    SCOPED_TRACE(testing::Message() << "unit " << unit);
    Problem problem = make_problem({30, 40, 3});
    Report const expected = solve(problem, {.eps = 1, .tolerance = 1e-4}).report();
    auto const scale = [](Stored& stored, double factor) {
      std::vector<double> values = stored.values();
      for (double& value : values) value *= factor;
      stored = Stored(values, stored.rows(), stored.columns());
    };
    if (problem.has_points()) {
      scale(problem.x, unit);
      scale(problem.y, unit);
    } else {
      scale(problem.cost, unit * unit);
    }
    Report const report = solve(problem, {.eps = unit * unit, .tolerance = 1e-4}).report();
    EXPECT_EQ(report.status, Status::converged) << report.message;
    EXPECT_NEAR(report.transport_cost / (unit * unit), expected.transport_cost, 1e-2);
  }
}

}  // namespace
}  // namespace monge::oracle
