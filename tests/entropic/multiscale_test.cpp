// Method multiscale, against sums over all pairs and against solves over all pairs.
#include <cmath>
#include <limits>
#include <string>

#include "oracle/backend_test.hpp"

namespace monge::oracle {
namespace {

/// Clouds of more pairs than the method leaves to dense solves.
constexpr std::int64_t kN = 2300, kM = 2100;

enum class CloudKind { cube, clusters, tails };

Problem cloud_problem(CloudKind kind, std::int64_t d, Weights weights = Weights::uniform, double mass = 1) {
  Random random(9);
  auto const points = [&](std::int64_t n, double power) {
    std::vector<double> values;
    for (std::int64_t i = 0; i < n; ++i) {
      double const stretch = 1 / std::sqrt(random.uniform() + 1e-4);
      for (std::int64_t k = 0; k < d; ++k) {
        if (kind == CloudKind::cube) values.push_back(std::pow(random.uniform(), power));
        if (kind == CloudKind::clusters)
          values.push_back(static_cast<double>((i * 7 + k * 3) % (power > 1 ? 13 : 11)) / 12 + 0.01 * random.normal());
        if (kind == CloudKind::tails) values.push_back(0.5 + 0.05 * stretch * random.normal());
      }
    }
    return values;
  };
  return {.x = Stored(points(kN, 1), kN, d),
          .y = Stored(points(kM, 1.5), kM, d),
          .a = make_weights(weights, kN, mass, random),
          .b = make_weights(weights, kM, mass, random)};
}

SolveOptions multiscale_options(double blur, double tolerance) {
  SolveOptions options;
  options.eps = blur * blur;
  options.tolerance = tolerance;
  options.method = Method::multiscale;
  return options;
}

class Multiscale : public testing::TestWithParam<DeviceType> {
 protected:
  void SetUp() override { require_device(GetParam()); }
  static Context context(int threads = 2) { return make_context(GetParam(), threads); }
  static Plan solve_multiscale(Problem const& problem, SolveOptions const& options, int threads = 2) {
    return monge::solve(context(threads), problem.geometry(), problem.a, problem.b, options);
  }
};
INSTANTIATE_TEST_SUITE_P(on, Multiscale, testing::Values(DeviceType::cpu, DeviceType::cuda),
                         [](testing::TestParamInfo<DeviceType> const& info) {
                           return std::string(info.param == DeviceType::cpu ? "cpu" : "cuda");
                         });

/// Certified values against those of all pairs at the plan's potentials.
void expect_certificate_holds(Plan const& plan, Problem const& problem, double tolerance) {
  Report const& report = plan.report();
  Dense const dense(problem);
  Potentials const potentials{widen(plan.f()), widen(plan.g())};
  Penalties const penalties{report.penalty_a, report.penalty_b};
  DenseEvaluation const truth = evaluate(dense, report.eps, potentials, penalties);
  double const error = static_cast<double>(truth.row_error + truth.column_error), mass = report.mass;
  EXPECT_TRUE(report.certified);
  EXPECT_GE(report.marginal_error, error - 1e-9 * mass);
  EXPECT_LE(report.marginal_error, error + 0.25 * tolerance * mass + 1e-9 * mass);
  EXPECT_GE(report.transported_mass + report.left_out, static_cast<double>(truth.mass) - 1e-9 * mass);
  EXPECT_LE(report.transported_mass, static_cast<double>(truth.mass) + 1e-9 * mass);
  EXPECT_LE(report.dual, static_cast<double>(truth.dual) + 1e-9 * mass);
  EXPECT_GE(report.dual, static_cast<double>(truth.dual) - report.eps * report.left_out - 1e-9 * mass);
}

TEST_P(Multiscale, converges_with_a_certificate_that_holds) {
  struct Given {
    CloudKind kind;
    std::int64_t d;
    double blur;
    Weights weights = Weights::uniform;
  };
  for (Given const& given :
       {Given{CloudKind::cube, 2, 0.05}, Given{CloudKind::cube, 3, 0.1}, Given{CloudKind::cube, 1, 0.02},
        Given{CloudKind::cube, 2, 0.05, Weights::with_zeros}, Given{CloudKind::clusters, 3, 0.05, Weights::skewed},
        Given{CloudKind::clusters, 3, 0.03}, Given{CloudKind::clusters, 3, 0.01}, Given{CloudKind::tails, 3, 0.1},
        Given{CloudKind::tails, 3, 0.03}, Given{CloudKind::tails, 3, 0.01}}) {
    SCOPED_TRACE(testing::Message() << "kind " << static_cast<int>(given.kind) << ", d " << given.d << ", blur "
                                    << given.blur << ", weights " << static_cast<int>(given.weights));
    Problem const problem = cloud_problem(given.kind, given.d, given.weights);
    for (double const tolerance : {1e-2, 1e-4}) {
      Plan const plan = solve_multiscale(problem, multiscale_options(given.blur, tolerance));
      EXPECT_EQ(plan.status(), Status::converged) << plan.report().message;
      expect_certificate_holds(plan, problem, tolerance);
    }
  }
}

TEST_P(Multiscale, has_the_values_and_gradients_of_all_pairs) {
  Problem const problem = cloud_problem(CloudKind::cube, 2);
  SolveOptions options = multiscale_options(0.05, 1e-5);
  Plan const plan = solve_multiscale(problem, options);
  options.method = Method::automatic;
  options.tolerance = 1e-8;
  Plan const whole = solve_multiscale(problem, options);
  EXPECT_LE(plan.report().dual, whole.report().primal + 1e-12);
  // To first order the value of a plan is off by its gap.
  EXPECT_NEAR(plan.report().primal, whole.report().primal, 2 * std::abs(plan.report().gap) + 1e-10);
  std::vector<double> x(kN * 2), all(kN * 2);
  (void)plan.gradients({.x = MutableMatrixView(x.data(), kN, 2)});
  (void)whole.gradients({.x = MutableMatrixView(all.data(), kN, 2)});
  // 2 sum_j P_ij (x_i - y_j): |x - y| <= sqrt(2), and the plans differ by at most the marginal errors and what mass is
  // misplaced between them, which is near the marginal error over the rate of the last sweeps.
  double difference = 0;
  for (std::size_t e = 0; e < x.size(); ++e) difference += std::abs(x[e] - all[e]);
  EXPECT_LE(difference, 100 * 1e-5);
}

TEST_P(Multiscale, takes_penalties) {
  Problem const problem = cloud_problem(CloudKind::cube, 2);
  SolveOptions options = multiscale_options(0.05, 1e-4);
  options.penalty_a = 0.3;
  Plan const plan = solve_multiscale(problem, options);
  EXPECT_EQ(plan.status(), Status::converged) << plan.report().message;
  expect_certificate_holds(plan, problem, 1e-4);
}

TEST_P(Multiscale, is_bitwise_repeatable) {
  Problem const problem = cloud_problem(CloudKind::clusters, 3);
  for (int const threads : {1, 3}) {
    Plan const first = solve_multiscale(problem, multiscale_options(0.05, 1e-3), threads);
    Plan const second = solve_multiscale(problem, multiscale_options(0.05, 1e-3), threads);
    EXPECT_EQ(first.f(), second.f());
    EXPECT_EQ(first.g(), second.g());
  }
}

TEST_P(Multiscale, solvers_solve_again) {
  Problem const problem = cloud_problem(CloudKind::cube, 2);
  SolveOptions options = multiscale_options(0.05, 1e-3);
  Solver solver(context(), problem.geometry(), options);
  Plan const first = solver.solve(), second = solver.solve();
  EXPECT_EQ(first.f(), second.f());
  options.tolerance = 1e-5;
  EXPECT_EQ(solver.solve(options).status(), Status::converged);
}

// Self terms have the order of the points of OT(a, b). With weights that differ, another order would give other values.
TEST_P(Multiscale, divergences_equal_those_of_all_pairs) {
  for (double const penalty : {std::numeric_limits<double>::infinity(), 1.0}) {
    Problem const problem = cloud_problem(CloudKind::cube, 2, Weights::skewed);
    SolveOptions options = multiscale_options(0.05, 1e-5);
    options.penalty_a = options.penalty_b = penalty;
    std::vector<double> gradients[2];
    double values[2];
    for (int const all : {0, 1}) {
      if (all == 1) options.method = Method::sinkhorn;
      Divergence const divergence = sinkhorn_divergence(context(), problem.clouds(), problem.a, problem.b, options);
      EXPECT_EQ(divergence.status(), Status::converged);
      EXPECT_EQ(divergence.aa.report().left_out > 0, all == 0);
      values[all] = divergence.value;
      gradients[all].resize(to_size(kN * 2));
      divergence.gradients({.x = MutableMatrixView(gradients[all].data(), kN, 2)});
    }
    // Three values, each within eps times its error of the optimum. A gradient moves by the mass that moves.
    EXPECT_NEAR(values[0], values[1], 6 * options.eps * options.tolerance);
    for (std::size_t e = 0; e < gradients[0].size(); ++e) EXPECT_NEAR(gradients[0][e], gradients[1][e], 1e-5);
  }
}

TEST_P(Multiscale, divergences_stop_in_a_stage) {
  Problem const problem = cloud_problem(CloudKind::cube, 2);
  SolveOptions options = multiscale_options(0.05, 1e-5);
  int calls = 0;
  options.progress = [&](Progress const&) { return ++calls != 2; };
  Divergence const divergence = sinkhorn_divergence(context(), problem.clouds(), problem.a, problem.b, options);
  EXPECT_EQ(divergence.status(), Status::stopped);
  EXPECT_EQ(calls, 2);
}

// One far point: coarse clouds would tell little about its potential.
TEST_P(Multiscale, auto_leaves_out_pairs_of_compact_clouds_alone) {
  Random random(5);
  std::vector<double> x, y;
  for (int k = 0; k < 2 * 4000; ++k) {
    x.push_back(random.uniform());
    y.push_back(random.uniform());
  }
  SolveOptions options;
  options.eps = 0.01;
  for (double const place : {0.5, 10.0}) {
    x[0] = place;
    PointCloud const clouds{MatrixView(x.data(), 4000, 2), MatrixView(y.data(), 4000, 2)};
    Report const report = monge::solve(context(), clouds, {}, {}, options).report();
    EXPECT_EQ(report.status, Status::converged);
    EXPECT_EQ(report.left_out > 0, place < 1 && GetParam() == DeviceType::cpu);
  }
  options.method = Method::multiscale;
  options.certificate = false;
  PointCloud const clouds{MatrixView(x.data(), 4000, 2), MatrixView(y.data(), 4000, 2)};
  EXPECT_TRUE(std::isnan(monge::solve(context(), clouds, {}, {}, options).report().left_out));
}

// The line through the potentials of two stages may be far off for points that are far from all others.
TEST_P(Multiscale, a_poor_start_gets_the_ladder) {
  std::int64_t const n = 2400;
  int passes = 0, of_auto = 0;
  for (std::uint64_t const seed : {1, 2, 3, 4}) {
    Random random(seed);
    std::vector<double> x, y;
    for (std::int64_t k = 0; k < 3 * n; ++k) {
      x.push_back(random.normal() / std::pow(random.uniform() + 1e-9, 1 / 1.2));
      y.push_back(random.normal());
    }
    std::vector<double> const weights(n, 1.0 / n);
    Problem const problem{.x = Stored(x, n, 3), .y = Stored(y, n, 3), .a = weights, .b = weights};
    double square = 0;
    for (double const value : x) square += value * value / n;
    SolveOptions options = multiscale_options(std::sqrt(2e-3 * square), 1e-3);
    Plan const plan = solve_multiscale(problem, options);
    EXPECT_EQ(plan.status(), Status::converged);
    expect_certificate_holds(plan, problem, 1e-3);
    passes += plan.report().iterations;
    options.method = Method::automatic;
    of_auto += solve_multiscale(problem, options).report().iterations;
  }
  EXPECT_LE(passes, 2 * of_auto + 40);
}

TEST_P(Multiscale, refuses_what_it_cannot_take) {
  SolveOptions const options = multiscale_options(1, 1e-3);
  auto const message = [&](Problem const& given) -> std::string {
    try {
      solve_multiscale(given, options);
    } catch (Error const& error) {
      EXPECT_EQ(error.code(), ErrorCode::unsupported);
      return error.what();
    }
    return "";
  };
  auto const of_costs = [](Costs costs) {
    Recipe recipe{20, 30, 2};
    recipe.costs = costs;
    return make_problem(recipe);
  };
  auto const expect = [&](Problem const& given, std::string const& found) {
    EXPECT_NE(message(given).find("method: is multiscale, given " + found), std::string::npos) << message(given);
  };
  expect(of_costs(Costs::distances), "a cost matrix");
  expect(of_costs(Costs::euclidean), "a cost function other than sqeuclidean");
  expect(of_costs(Costs::labels), "labels");
}

TEST_P(Multiscale, progress_has_the_checks_of_coarse_clouds_and_can_stop_them) {
  Problem const problem = cloud_problem(CloudKind::cube, 2);
  SolveOptions options = multiscale_options(0.1, 1e-3);  // At this blur coarse clouds have fewer points.
  int iteration = 0, checks = 0;
  options.progress = [&](Progress const& check) {
    EXPECT_GT(check.iteration, iteration) << "sweeps of all clouds count";
    iteration = check.iteration;
    if (++checks > 1) return true;
    monge::Potentials const present = check.potentials();
    EXPECT_EQ(std::ssize(present.f), kN);
    EXPECT_EQ(std::ssize(present.g), kM);
    return true;
  };
  Report const report = solve_multiscale(problem, options).report();
  EXPECT_EQ(report.status, Status::converged);
  EXPECT_GT(report.coarse_iterations, 2);
  EXPECT_EQ(iteration, report.coarse_iterations + report.iterations);
  EXPECT_NE(report.message.find("sweeps of coarse clouds and"), std::string::npos) << report.message;

  int calls = 0;
  options.progress = [&](Progress const&) { return ++calls < 2; };
  Plan const stopped = solve_multiscale(problem, options);
  EXPECT_EQ(stopped.status(), Status::stopped);
  EXPECT_EQ(calls, 2);
  EXPECT_GT(stopped.report().coarse_iterations, 0);
  expect_certificate_holds(stopped, problem, 1e-3);
}

}  // namespace
}  // namespace monge::oracle
