// Duality and feasibility: relations that hold for every solution, whatever the problem.
#include <cmath>
#include <numeric>

#include "oracle/backend_test.hpp"

namespace monge::oracle {
namespace {

class Duality : public BackendTest {
 protected:
  Plan solve(Problem const& problem, SolveOptions options) const {
    options.precision = precision();
    return monge::solve(context(), problem.geometry(), problem.a, problem.b, options);
  }
  double reachable() const {
    if (is_float64()) return 1e-9;
    return precision() == Precision::tf32 ? 1e-2 : 1e-5;
  }
};
MONGE_FOR_EACH_TARGET(Duality);

std::vector<Recipe> const& recipes() {
  static std::vector<Recipe> const table{
      {60, 80, 2},
      {80, 60, 3, Weights::skewed, Place::shifted, 0.02},
      {70, 70, 10, Weights::with_zeros, Place::apart, 0.1, DataType::float32, 0, 0.5},
      {50, 90, 60, Weights::uniform, Place::origin, 0.05, DataType::float64, 0, 1, 3},
  };
  return table;
}

TEST_P(Duality, dual_stays_below_the_optimum_and_grows) {
  for (Recipe const& recipe : recipes()) {
    SCOPED_TRACE(testing::Message() << recipe);
    Problem const problem = make_problem(recipe);
    double const eps = recipe.eps_over_spread * Magnitudes(problem).spread();
    Dense const dense(problem);
    double const optimum = static_cast<double>(evaluate(dense, eps, oracle::solve(dense, eps, 1e-14L)).dual);
    double last = -std::numeric_limits<double>::infinity();
    for (int const iterations : {1, 2, 4, 8, 16}) {
      Report const report =
          solve(problem, {.eps = eps, .tolerance = 0, .iterations = iterations, .annealing = 1}).report();
      double const rounding = 1e-9 * std::abs(optimum) + eps * recipe.mass * 1e3 * arithmetic(recipe.d).product;
      EXPECT_LE(report.dual, optimum + rounding);
      EXPECT_GE(report.dual, last - rounding);
      last = report.dual;
    }
  }
}

TEST_P(Duality, values_meet_at_convergence) {
  for (Recipe const& recipe : recipes()) {
    for (Schedule const schedule : {Schedule::overrelaxed, Schedule::alternating, Schedule::symmetric}) {
      SCOPED_TRACE(testing::Message() << name(schedule) << ", " << recipe);
      Problem const problem = make_problem(recipe);
      double const eps = recipe.eps_over_spread * Magnitudes(problem).spread();
      Plan const plan = solve(problem, {.eps = eps, .tolerance = reachable(), .schedule = schedule});
      Report const& report = plan.report();
      ASSERT_EQ(report.status, Status::converged) << report.message;
      // |gap| = |<f, P 1 - a> + <g, P^T 1 - b>| <= largest potential times the error, constants apart.
      double largest = 0;
      for (double const value : plan.f()) largest = std::max(largest, std::abs(value));
      for (double const value : plan.g()) largest = std::max(largest, std::abs(value));
      EXPECT_LE(std::abs(report.gap), largest * report.marginal_error * (1 + 1e-9));
      EXPECT_NEAR(report.primal - report.dual, report.gap, 1e-12 * (std::abs(report.primal) + largest * recipe.mass));
      // <C, P> is below primal by eps KL, and KL is >= 0 up to the difference of the masses of P and a b^T.
      double const excess = recipe.mass * recipe.mass - recipe.mass;
      EXPECT_GE(report.primal, report.transport_cost + eps * std::min(0.0, excess) - eps * report.marginal_error);
      Dense const dense(problem);
      EXPECT_NEAR(report.dual, static_cast<double>(evaluate(dense, eps, oracle::solve(dense, eps, 1e-14L)).dual),
                  2 * static_cast<double>(dense.largest_cost()) * reachable() * recipe.mass);
    }
  }
}

TEST_P(Duality, marginals_are_the_weights) {
  for (Recipe const& recipe : recipes()) {
    SCOPED_TRACE(testing::Message() << recipe);
    Problem const problem = make_problem(recipe);
    double const eps = recipe.eps_over_spread * Magnitudes(problem).spread();
    Plan const plan = solve(problem, {.eps = eps, .tolerance = reachable()});
    std::vector<double> row(recipe.n), column(recipe.m);
    plan.marginals(row, column);
    double error = 0;
    for (std::int64_t i = 0; i < recipe.n; ++i) error += std::abs(row[i] - problem.a[i]);
    for (std::int64_t j = 0; j < recipe.m; ++j) error += std::abs(column[j] - problem.b[j]);
    Tolerance const tolerance(problem, eps, arithmetic(recipe.d));
    EvaluationTolerance const allowed = tolerance.evaluation(Dense(problem), potentials_of(plan));
    EXPECT_NEAR(error, plan.report().marginal_error, allowed.row_error + allowed.column_error);
    EXPECT_NEAR(std::accumulate(row.begin(), row.end(), 0.0), std::accumulate(column.begin(), column.end(), 0.0),
                2 * allowed.mass);
  }
}

}  // namespace
}  // namespace monge::oracle
