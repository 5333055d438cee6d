// Solves of cost matrices: they agree with the points, and change as they must when the matrix does.
#include <cmath>
#include <limits>

#include "oracle/backend_test.hpp"

namespace monge::oracle {
namespace {

class MatrixSolve : public BackendTest {
 protected:
  SolveOptions options(double eps) const {
    return {.eps = eps, .tolerance = is_float64() ? 1e-9 : 1e-4, .precision = precision()};
  }
  Plan solve(Problem const& problem, double eps) const {
    return monge::solve(context(), problem.geometry(), problem.a, problem.b, options(eps));
  }
};
MONGE_FOR_EACH_OF(MatrixSolve, all_targets());

TEST_P(MatrixSolve, of_squared_distances_agrees_with_the_points) {
  for (Place const place : {Place::origin, Place::shifted, Place::apart}) {
    // Points are centred; in their matrix the distance of the clouds is a range of costs that takes digits.
    if (place == Place::apart && !is_float64()) continue;
    Recipe recipe{60, 70, 3, Weights::with_zeros, place};
    Problem const points = oracle::make_problem(recipe);
    recipe.costs = Costs::distances;
    Problem const matrix = oracle::make_problem(recipe);
    double const eps = 0.05 * Magnitudes(points).spread();
    Plan const expected = solve(points, eps), actual = solve(matrix, eps);
    ASSERT_EQ(expected.status(), Status::converged) << expected.report().message;
    ASSERT_EQ(actual.status(), Status::converged) << actual.report().message;
    // Both are within the tolerance of one optimum, in total variation; values of the columns average alike.
    std::vector<double> map(180), average(180);
    std::vector<double> const y = points.y.values();
    expected.barycentric_projection(MutableMatrixView(map.data(), 60, 3));
    actual.barycentric_projection(MatrixView(y.data(), 70, 3), MutableMatrixView(average.data(), 60, 3));
    double const allowed = (is_float64() ? 1e-6 : 2e-2) * std::sqrt(Magnitudes(points).largest_square(Side::columns));
    for (std::size_t k = 0; k < map.size(); ++k) EXPECT_NEAR(average[k], map[k], allowed) << k;
    double const largest = static_cast<double>(Dense(points).largest_cost());
    EXPECT_NEAR(actual.report().transport_cost, expected.report().transport_cost,
                8 * options(eps).tolerance * largest + 1e-12 * largest);
  }
}

// A row of no weight may have no partner: its potential is infinite, and a solve can start from it all the same.
TEST_P(MatrixSolve, goes_on_from_potentials_of_rows_without_partner) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  std::vector<double> const cost{0, 1, 2, kInfinity, kInfinity, kInfinity, 2, 1, 0};
  std::vector<double> const a{0.5, 0, 0.5}, b{0.25, 0.5, 0.25};
  Problem const problem = make_matrix_problem(cost, a, b);
  Plan const plan = solve(problem, 0.5);
  std::vector<double> const f = plan.f(), g = plan.g();
  ASSERT_EQ(f[1], kInfinity);
  SolveOptions warm = options(0.5);
  warm.f = f;
  warm.g = g;
  Plan const other = monge::solve(context(), problem.geometry(), a, b, warm);
  EXPECT_EQ(other.status(), Status::converged);
  EXPECT_LE(other.report().iterations, 10);
  EXPECT_EQ(other.f()[1], kInfinity);
  // Where there is weight, an infinite potential is an error.
  std::vector<double> const wrong{kInfinity, 0, 0};
  warm.f = wrong;
  EXPECT_THROW(monge::solve(context(), problem.geometry(), a, b, warm), Error);
}

// The problem of the transpose has the roles of rows and columns exchanged.
TEST_P(MatrixSolve, of_the_transpose_is_the_transposed_plan) {
  Recipe recipe{45, 70, 1};
  recipe.costs = Costs::random;
  Problem const problem = oracle::make_problem(recipe);
  Problem exchanged = problem;
  std::swap(exchanged.a, exchanged.b);
  exchanged.transposed = !problem.transposed;
  Plan const plan = solve(problem, 0.1), other = solve(exchanged, 0.1);
  ASSERT_EQ(plan.status(), Status::converged) << plan.report().message;
  ASSERT_EQ(other.status(), Status::converged) << other.report().message;
  EXPECT_NEAR(plan.report().transport_cost, other.report().transport_cost, 12 * options(0.1).tolerance);
  Random random(3);
  std::vector<double> const v = gaussian_points(70, 2, random);
  std::vector<double> product(90), transposed(90);
  plan.apply(MatrixView(v.data(), 70, 2), MutableMatrixView(product.data(), 45, 2));
  other.apply_transpose(MatrixView(v.data(), 70, 2), MutableMatrixView(transposed.data(), 45, 2));
  // The plans differ by a few tolerances in total variation.
  for (std::size_t k = 0; k < product.size(); ++k)
    EXPECT_NEAR(product[k], transposed[k], 40 * options(0.1).tolerance) << k;
}

// Assignment: with eps far below the gaps the plan is the best permutation, and a forbidden pair is never in it.
TEST_P(MatrixSolve, at_a_small_eps_is_the_best_assignment) {
  double const never = std::numeric_limits<double>::infinity();
  std::vector<double> const costs{never, 1, 3, 2, 0, 5, 3, 1, 2};
  Problem const problem =
      make_matrix_problem(costs, std::vector<double>(3, 1.0 / 3), std::vector<double>(3, 1.0 / 3), DataType::float32);
  Plan const plan = solve(problem, 0.02);
  std::vector<double> const identity{1, 0, 0, 0, 1, 0, 0, 0, 1};
  std::vector<double> entries(9);
  plan.apply(MatrixView(identity.data(), 3, 3), MutableMatrixView(entries.data(), 3, 3));
  for (std::size_t k = 0; k < 9; ++k) EXPECT_NEAR(entries[k], k == 1 || k == 3 || k == 8 ? 1.0 / 3 : 0, 1e-3) << k;
  EXPECT_EQ(entries[0], 0);
  EXPECT_NEAR(plan.report().transport_cost, 5.0 / 3, 1e-2);
}

}  // namespace
}  // namespace monge::oracle
