// What a report claims, against the dense evaluation of the potentials that the solve returned.
#include <cmath>

#include "oracle/backend_test.hpp"

namespace monge::oracle {
namespace {

class Certificate : public BackendTest {
 protected:
  Plan solve(Problem const& problem, SolveOptions options) const {
    options.precision = precision();
    return monge::solve(context(), problem.geometry(), problem.a, problem.b, options);
  }
  /// The marginal error of potentials whose plan has the right marginals in this precision.
  double rounding_of_marginals(Problem const& problem, double eps, Potentials const& potentials) const {
    Tolerance const tolerance(problem, eps, arithmetic(problem.d()));
    Dense const dense(problem);
    Real error = 0;
    for (Side const side : {Side::rows, Side::columns}) {
      std::vector<double> const& weights = dense.weights(side);
      Vector const relative = tolerance.plan(side, potentials);
      for (std::size_t i = 0; i < weights.size(); ++i) error += weights[i] == 0 ? 0 : weights[i] * relative[i];
    }
    return static_cast<double>(error);
  }
};
MONGE_FOR_EACH_TARGET(Certificate);

std::vector<Recipe> const& recipes() {
  static std::vector<Recipe> const table{
      {1, 1, 1},
      {1, 40, 3, Weights::skewed},
      {40, 1, 2, Weights::uniform, Place::apart},
      {60, 60, 2, Weights::uniform, Place::origin, 0.01},
      {60, 90, 3, Weights::with_zeros, Place::origin, 0.02, DataType::float32, 2},
      {90, 60, 3, Weights::uniform, Place::apart, 0.05},
      {64, 65, 5, Weights::skewed, Place::shifted, 0.05, DataType::float64, 0, 0.5},
      {65, 33, 16, Weights::uniform, Place::origin, 0.02, DataType::float32, 0, 1, 1000},
      {33, 65, 64, Weights::with_zeros, Place::apart, 0.02, DataType::float64, 3, 1, 1e-3},
      {50, 70, 200, Weights::skewed, Place::origin, 0.1},
      {40, 41, 784, Weights::uniform, Place::shifted, 0.01, DataType::float32},
      {50, 50, 1, Weights::uniform, Place::origin, 10},
      {50, 50, 2, Weights::uniform, Place::origin, 1e-3},
  };
  return table;
}

double eps_of(Recipe const& recipe, Problem const& problem) {
  return recipe.eps_over_spread * std::max(1e-3, Magnitudes(problem).spread());
}

TEST_P(Certificate, equals_the_dense_evaluation) {
  for (Recipe const& recipe : recipes()) {
    for (Schedule const schedule : {Schedule::overrelaxed, Schedule::alternating, Schedule::symmetric}) {
      SCOPED_TRACE(testing::Message() << name(schedule) << ", " << recipe);
      Problem const problem = make_problem(recipe);
      double const eps = eps_of(recipe, problem);
      Plan const plan = solve(problem, {.eps = eps, .tolerance = 1e-4, .iterations = 300, .schedule = schedule});
      Report const& report = plan.report();
      EXPECT_NEAR(report.mass, recipe.mass, 1e-12 * recipe.mass);
      expect_report_matches(report, problem, eps, potentials_of(plan));
      if (report.status == Status::converged) {
        EXPECT_LE(report.marginal_error, 1e-4 * report.mass);
      } else {
        EXPECT_GT(report.marginal_error, 1e-4 * report.mass) << "short of the tolerance by name only";
        EXPECT_TRUE(report.status == Status::iteration_limit || report.status == Status::precision_limit)
            << name(report.status);
      }
    }
  }
}

TEST_P(Certificate, is_honest_far_from_convergence) {
  for (Recipe const& recipe : recipes()) {
    SCOPED_TRACE(testing::Message() << recipe);
    Problem const problem = make_problem(recipe);
    double const eps = eps_of(recipe, problem);
    Plan const plan = solve(problem, {.eps = eps, .tolerance = 0, .iterations = 1, .annealing = 1});
    EXPECT_EQ(plan.status(), Status::completed);
    expect_report_matches(plan.report(), problem, eps, potentials_of(plan));
  }
}

TEST_P(Certificate, default_options_converge) {
  for (Recipe const& recipe : recipes()) {
    SCOPED_TRACE(testing::Message() << recipe);
    Problem const problem = make_problem(recipe);
    double const eps = eps_of(recipe, problem);
    Plan const plan = solve(problem, {.eps = eps});
    Report const& report = plan.report();
    if (!is_float64() && report.status == Status::precision_limit) {
      // A precision may say that it can go no further only where rounding says so too.
      EXPECT_LE(report.marginal_error, 1e-6 * report.mass + rounding_of_marginals(problem, eps, potentials_of(plan)));
    } else if (recipe.eps_over_spread >= 0.01) {  // Below, Sinkhorn may need more sweeps.
      EXPECT_EQ(report.status, Status::converged) << report.message;
      EXPECT_LE(report.marginal_error, 1e-6 * report.mass);
    }
    EXPECT_LE(report.marginal_error, 1e-2 * report.mass);
    expect_report_matches(report, problem, eps, potentials_of(plan));
  }
}

TEST_P(Certificate, can_be_skipped) {
  Problem const problem = make_problem({30, 40, 3});
  Plan const plan = solve(problem, {.eps = 1, .certificate = false});
  Report const& report = plan.report();
  EXPECT_EQ(report.status, Status::converged);
  EXPECT_FALSE(report.certified);
  EXPECT_TRUE(std::isnan(report.transport_cost));
  EXPECT_TRUE(std::isnan(report.primal));
  EXPECT_TRUE(std::isnan(report.dual));
  EXPECT_TRUE(std::isnan(report.gap));
  EXPECT_EQ(report.seconds.certificate, 0);
  Plan const certified = solve(problem, {.eps = 1});
  // The same sweeps; with a certificate a constant has gone from f to g (tests/entropic/gauge_test.cpp).
  double const t = certified.f()[0] - plan.f()[0];
  // A potential is a sum of four terms of the size of the costs or of t, each rounded to 2^-53; so is its partner.
  double const rounding = 0x1p-50 * (Magnitudes(problem).spread() + std::abs(t));
  for (Side const side : kSides) {
    std::vector<double> const values = side == Side::rows ? plan.f() : plan.g();
    std::vector<double> const others = side == Side::rows ? certified.f() : certified.g();
    for (std::size_t i = 0; i < values.size(); ++i)
      EXPECT_NEAR(others[i] - values[i], side == Side::rows ? t : -t, rounding);
  }
  // Asked for later, the value is one of this precision: a sum of errors of the plan's logits.
  double const spread = Magnitudes(problem).spread();
  double const logit_error = (spread + 40) * (arithmetic(problem.d()).unit + arithmetic(problem.d()).product);
  EXPECT_NEAR(plan.transport_cost(), certified.report().transport_cost,
              4 * logit_error * std::abs(certified.report().transport_cost));
}

TEST_P(Certificate, gap_is_primal_minus_dual) {
  Problem const problem = make_problem({60, 70, 3, Weights::skewed, Place::apart});
  Report const report = solve(problem, {.eps = 2, .tolerance = 1e-3}).report();
  EXPECT_NEAR(report.gap, report.primal - report.dual, 1e-12 * std::abs(report.primal));
}

}  // namespace
}  // namespace monge::oracle
