// Safeguarded overrelaxation against plain Sinkhorn: never worse, and much faster where Sinkhorn is slow.
#include <cmath>

#include "oracle/backend_test.hpp"

namespace monge::oracle {
namespace {

std::vector<Recipe> const& family() {
  static constexpr auto kUniform = Weights::uniform, kSkewed = Weights::skewed, kZeros = Weights::with_zeros;
  static constexpr auto kOrigin = Place::origin;
  static std::vector<Recipe> const table{
      {50, 50, 1, kUniform, kOrigin, 0.1},      {50, 50, 1, kUniform, kOrigin, 0.005},
      {50, 50, 1, kUniform, kOrigin, 0.002},    {60, 40, 2, kUniform, kOrigin, 0.1},
      {60, 40, 2, kUniform, kOrigin, 0.005},    {60, 60, 2, kUniform, kOrigin, 0.003},
      {60, 60, 2, kUniform, kOrigin, 0.001},    {80, 50, 3, kSkewed, kOrigin, 0.05},
      {80, 50, 3, kSkewed, kOrigin, 0.005},     {70, 70, 5, kZeros, Place::apart, 0.02},
      {70, 70, 5, kZeros, Place::apart, 0.005}, {40, 90, 8, kUniform, Place::shifted, 0.01},
      {64, 64, 16, kUniform, kOrigin, 0.02},    {64, 64, 64, kUniform, kOrigin, 0.005},
      {100, 100, 2, kUniform, kOrigin, 10},     {20, 200, 3, kSkewed, kOrigin, 0.01},
      {300, 300, 2, kUniform, kOrigin, 0.002},  {2, 2, 1, kUniform, kOrigin, 0.1},
      {2, 2, 1, kUniform, kOrigin, 0.02},
  };
  return table;
}

class Overrelaxation : public BackendTest {
 protected:
  Report solve(Recipe const& recipe, SolveOptions options) const {
    Problem const problem = make_problem(recipe);
    options.eps = recipe.eps_over_spread * Magnitudes(problem).spread();
    options.precision = precision();
    return monge::solve(context(), problem.geometry(), problem.a, problem.b, options).report();
  }
  /// Where rounding takes over: the error of the marginals of this arithmetic.
  double floor(Recipe const& recipe) const {
    Problem const problem = make_problem(recipe);
    double const eps = recipe.eps_over_spread * Magnitudes(problem).spread();
    double const logits = Magnitudes(problem).spread() / eps + 40;
    return 20 * logits * arithmetic(recipe.d).product + 20 * logits * arithmetic(recipe.d).unit;
  }
};
MONGE_FOR_EACH_TARGET(Overrelaxation);

/// Iteration counts are a matter of float64.
class OverrelaxationCounts : public Overrelaxation {};
MONGE_FOR_EACH_DEVICE(OverrelaxationCounts);

TEST_P(Overrelaxation, is_never_worse_than_plain_sweeps) {
  for (Recipe const& recipe : family()) {
    for (int const iterations : {20, 100, 400}) {
      for (double const annealing : {1.0, 0.5}) {
        SCOPED_TRACE(testing::Message() << iterations << " sweeps, annealing " << annealing << ", " << recipe);
        SolveOptions options{.tolerance = 0, .iterations = iterations, .annealing = annealing};
        double const relaxed = solve(recipe, options).marginal_error;
        options.schedule = Schedule::alternating;
        double const plain = solve(recipe, options).marginal_error;
        EXPECT_LE(relaxed, plain * (1 + 1e-6) + floor(recipe));
      }
    }
  }
}

TEST_P(OverrelaxationCounts, are_never_larger_and_much_smaller_on_slow_problems) {
  double log_speed_up = 0;
  int slow = 0;
  for (Recipe const& recipe : family()) {
    SCOPED_TRACE(testing::Message() << recipe);
    SolveOptions options{.tolerance = 1e-7, .iterations = 5000, .annealing = 1};
    Report const relaxed = solve(recipe, options);
    options.schedule = Schedule::alternating;
    Report const plain = solve(recipe, options);
    EXPECT_LE(relaxed.iterations, plain.iterations + options.check_every);
    if (relaxed.status != Status::converged) {
      EXPECT_LE(relaxed.marginal_error, plain.marginal_error);
    }
    if (plain.iterations < 250) continue;
    ++slow;
    log_speed_up += std::log(static_cast<double>(plain.iterations) / relaxed.iterations);
  }
  ASSERT_GE(slow, 6) << "unsuitable family: too few slow problems";
  EXPECT_GE(std::exp(log_speed_up / slow), 2) << "mean over the slow problems";
}

}  // namespace
}  // namespace monge::oracle
