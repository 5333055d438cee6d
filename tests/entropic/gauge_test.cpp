// The constant of potentials that are unique up to (f + t, g - t): <a, f> = <b, g>, whichever side comes first.
#include <algorithm>
#include <cmath>

#include "oracle/backend_test.hpp"

namespace monge::oracle {
namespace {

class Gauge : public BackendTest {
 protected:
  Plan solve(Problem const& problem, SolveOptions const& options) const {
    return monge::solve(context(), problem.geometry(), problem.a, problem.b, options);
  }
  /// Distances of clouds that lie apart are beyond float32.
  static Recipe of_target(Recipe recipe) {
    recipe.costs = GetParam().costs;
    if (recipe.costs == Costs::euclidean && recipe.place == Place::apart) recipe.place = Place::shifted;
    return recipe;
  }
};
MONGE_FOR_EACH_OF(Gauge,
                  with_all_costs(all_targets()) + with_point_costs({Costs::labels, Costs::dot, Costs::euclidean}));

class Exchange : public Gauge {};
MONGE_FOR_EACH_OF(Exchange, with_all_costs(all_targets()) + with_point_costs({Costs::dot, Costs::euclidean}));

double reachable(Precision precision) {
  return precision == Precision::float64 ? 1e-9 : precision == Precision::float32 ? 1e-4 : 1e-2;
}

Real inner(std::vector<double> const& weight, std::vector<double> const& potential) {
  Real sum = 0;
  for (std::size_t i = 0; i < weight.size(); ++i) sum += Real(weight[i]) * Real(potential[i]);
  return sum;
}

Real largest(std::vector<double> const& values) {
  Real most = 0;
  for (double const value : values) most = std::max(most, std::abs(Real(value)));
  return most;
}

/// The same problem with its sides exchanged.
Problem exchanged(Problem problem) {
  std::swap(problem.x, problem.y);
  std::swap(problem.a, problem.b);
  problem.transposed = !problem.transposed;
  return problem;
}

std::vector<SolveOptions> all_options(double eps, Precision precision) {
  std::vector<SolveOptions> all;
  for (Method const method : {Method::automatic, Method::sinkhorn, Method::newton, Method::splr}) {
    bool const is_second_order = method == Method::newton || method == Method::splr;
    if (is_second_order && precision != Precision::float64) continue;
    all.push_back({.eps = eps, .method = method, .tolerance = reachable(precision), .precision = precision});
  }
  return all;
}

TEST_P(Gauge, is_the_same_for_both_sides) {
  for (Recipe recipe : {Recipe{50, 41, 3, Weights::with_zeros}, Recipe{37, 50, 20, Weights::skewed, Place::apart},
                        Recipe{1, 30, 2, Weights::uniform, Place::shifted, 0.1, DataType::float64, 0, 1, 3}}) {
    recipe = of_target(recipe);
    Problem const problem = make_problem(recipe);
    double const spread = Magnitudes(problem).spread();
    double const eps = 0.05 * (spread > 0 ? spread : 1);
    for (SolveOptions const& options : all_options(eps, precision())) {
      SCOPED_TRACE(testing::Message() << recipe << ", " << name(options.method));
      Plan const plan = solve(problem, options);
      ASSERT_EQ(plan.status(), Status::converged) << plan.report().message;
      Real const mass = recipe.mass, size = largest(plan.f()) + largest(plan.g()) + Magnitudes(problem).offset();
      // Rounding: of the potentials, and of sums that run in four parts or more.
      Real const rounding = (8 + recipe.n + recipe.m) * 0x1p-53 * size;
      EXPECT_LE(std::abs(inner(problem.a, plan.f()) - inner(problem.b, plan.g())), mass * rounding);
    }
  }
}

TEST_P(Exchange, exchanging_the_sides_exchanges_the_potentials) {
  Recipe const recipe = of_target({60, 60, 3, Weights::uniform, Place::apart});
  Problem const problem = make_problem(recipe);
  double const eps = 0.05 * Magnitudes(problem).spread();
  for (SolveOptions const& options : all_options(eps, precision())) {
    SCOPED_TRACE(name(options.method));
    Plan const plan = solve(problem, options), other = solve(exchanged(problem), options);
    ASSERT_EQ(plan.status(), Status::converged) << plan.report().message;
    ASSERT_EQ(other.status(), Status::converged) << other.report().message;
    // A marginal error e moves potentials by eps e / min weight / (1 - rate), about.
    Vector const allowed(60, 60 * 10 * eps * options.tolerance + 0x1p-50 * Magnitudes(problem).offset());
    expect_close("f", other.g(), widen(plan.f()), allowed);
    expect_close("g", other.f(), widen(plan.g()), allowed);
  }
}

TEST_P(Gauge, a_constant_of_the_start_is_taken_back) {
  Recipe recipe{50, 41, 3};
  recipe.costs = GetParam().costs;
  Problem const problem = make_problem(recipe);
  double const eps = 0.05 * Magnitudes(problem).spread(), constant = 1000 * eps;
  SolveOptions options{.eps = eps, .tolerance = reachable(precision()), .precision = precision()};
  Plan const plan = solve(problem, options);
  std::vector<double> f = plan.f(), g = plan.g();
  for (double& value : f) value += constant;
  for (double& value : g) value -= constant;
  options.f = f;
  options.g = g;
  Plan const moved = solve(problem, options);
  ASSERT_EQ(moved.status(), Status::converged) << moved.report().message;
  EXPECT_LE(std::abs(inner(problem.a, moved.f()) - inner(problem.b, moved.g())), 100 * 0x1p-53 * constant);
  // The constant costs products no digits: both plans agree to rounding.
  std::vector<double> const ones(41, 1.0);
  std::vector<double> product(50);
  moved.apply(MatrixView(ones.data(), 41, 1), MutableMatrixView(product.data(), 50, 1));
  Vector const expected = Dense(problem).marginal(Side::rows, eps, potentials_of(moved));
  Tolerance const tolerance(problem, eps, arithmetic(recipe.d));
  Vector allowed = tolerance.plan(Side::rows, potentials_of(moved));
  for (std::size_t i = 0; i < allowed.size(); ++i) allowed[i] *= 2 * expected[i];
  expect_close("P 1", product, expected, allowed);
}

// A constant of 1e13 eps in both potentials would round all logits to multiples of 2e-3.
TEST_P(Gauge, a_start_whose_dual_value_no_plan_has_is_moved) {
  Recipe recipe{50, 41, 3};
  recipe.costs = GetParam().costs;
  Problem const problem = make_problem(recipe);
  double const eps = 0.05 * Magnitudes(problem).spread();
  SolveOptions options{.eps = eps, .tolerance = reachable(precision()), .precision = precision()};
  int const cold = solve(problem, options).report().iterations;
  std::vector<double> const f(50, 1e13 * eps), g(41, 1e13 * eps);
  options.f = f;
  options.g = g;
  Plan const plan = solve(problem, options);
  EXPECT_EQ(plan.status(), Status::converged) << plan.report().message;
  EXPECT_LE(plan.report().iterations, cold + 10);  // 10 sweeps of the trial.
}

TEST_P(Gauge, without_a_tolerance_the_iterates_stay_as_they_are) {
  Recipe recipe{50, 41, 3};
  recipe.costs = GetParam().costs;
  Problem const problem = make_problem(recipe);
  double const eps = 0.1 * Magnitudes(problem).spread();
  std::vector<double> const f(50, 100 * eps), g(41, -100 * eps);
  Plan const plan = solve(problem, {.eps = eps,
                                    .tolerance = 0,
                                    .iterations = 3,
                                    .schedule = Schedule::alternating,
                                    .annealing = 1,
                                    .precision = precision(),
                                    .f = f,
                                    .g = g});
  EXPECT_GT(inner(problem.a, plan.f()), 50 * eps);
  EXPECT_LT(inner(problem.b, plan.g()), -50 * eps);
}

}  // namespace
}  // namespace monge::oracle
