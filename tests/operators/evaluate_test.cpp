// Marginals and values of the plan, at potentials that are not feasible.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "operators/cases.hpp"

namespace monge::oracle {
namespace {

class Evaluate : public OperatorTest {};
MONGE_FOR_EACH_COST_TARGET(Evaluate);
MONGE_FOR_EACH_ORDERED(Evaluate);

class EvaluateProducts : public OperatorTest {};
MONGE_FOR_EACH_OF(EvaluateProducts, with_point_costs({Costs::labels, Costs::cosine, Costs::dot}));

class EvaluateBounds : public OperatorTest {};
MONGE_FOR_EACH_OF(EvaluateBounds, with_point_costs({Costs::points, Costs::labels, Costs::cosine, Costs::dot,
                                                    Costs::euclidean, Costs::p_norm}));

class EvaluatePoints : public OperatorTest {};
MONGE_FOR_EACH_POINT_TARGET(EvaluatePoints);
MONGE_FOR_EACH_ORDERED(EvaluatePoints);

TEST_P(Evaluate, values_equal_the_oracle) {
  for (Recipe const& recipe : recipes()) {
    Case const test = make_case(recipe);
    std::vector<Penalties> every_penalty = penalties_for(test);
    every_penalty.push_back({});
    for (Penalties const& penalties : every_penalty) {
      SCOPED_TRACE(testing::Message() << "penalties " << penalties.a << " and " << penalties.b << ", " << recipe);
      auto const entropic = make_operator(test, 1e9, penalties);
      Evaluation const actual = entropic->evaluate(test.eps);
      DenseEvaluation const truth = evaluate(test.dense, test.eps, test.potentials, penalties);
      if (std::abs(truth.dual) > 1e300) continue;  // exp(-f / rho), of costs far below 0.
      EvaluationTolerance const tolerance = test.tolerance.evaluation(test.dense, test.potentials, penalties);
      expect_close("mass", actual.mass, truth.mass, tolerance.mass);
      expect_close("row_error", actual.row_error, truth.row_error, tolerance.row_error);
      expect_close("column_error", actual.column_error, truth.column_error, tolerance.column_error);
      expect_close("transport_cost", actual.transport_cost, truth.transport_cost, tolerance.transport_cost);
      expect_close("primal", actual.primal, truth.primal, tolerance.primal);
      expect_close("dual", actual.dual, truth.dual, tolerance.dual);
      expect_close("gap", actual.gap, truth.gap, tolerance.gap);
    }
  }
}

TEST_P(Evaluate, outliers_without_mass_are_not_in_the_bound) {
  Problem problem = make_problem({.n = 37, .m = 70, .d = 3});
  problem.a[0] = 0;
  double const bound = make_operator(problem)->cost_size().centred_bound;
  // The least cost of a matrix is that of all pairs, so an outlier may take the least one away.
  EXPECT_LE(make_operator(with_outlier_without_mass(problem))->cost_size().centred_bound, 1.000001 * bound);
}

TEST_P(Evaluate, gives_the_marginals_on_the_way) {
  for (Recipe const& recipe : recipes()) {
    SCOPED_TRACE(testing::Message() << recipe);
    Case const test = make_case(recipe);
    auto const entropic = make_operator(test);
    VectorOperations const& vectors = entropic->vectors();
    Evaluation const without = entropic->evaluate(test.eps);
    for (Side const side : {Side::rows, Side::columns}) {
      Vector const expected = test.dense.marginal(side, test.eps, test.potentials);
      Vector allowed = test.tolerance.plan(side, test.potentials);
      for (std::size_t i = 0; i < allowed.size(); ++i) allowed[i] *= expected[i];
      auto const alone = vectors.make(side), one = vectors.make(Side::rows), other = vectors.make(Side::columns);
      bool const rows = side == Side::rows;
      EXPECT_EQ(entropic->evaluate(test.eps, rows ? alone.get() : nullptr, rows ? nullptr : alone.get()).gap,
                without.gap);
      EXPECT_EQ(entropic->evaluate(test.eps, one.get(), other.get()).gap, without.gap);
      std::vector<double> actual(entropic->size(side)), again(actual);
      vectors.write(*alone, actual);
      vectors.write(rows ? *one : *other, again);
      EXPECT_EQ(actual, again);
      expect_close(rows ? "row" : "column", actual, expected, allowed);
    }
  }
}

TEST_P(Evaluate, a_plan_has_the_marginals_and_the_transport_cost_of_the_oracle) {
  for (Recipe const& recipe : recipes()) {
    SCOPED_TRACE(testing::Message() << recipe);
    Case const test = make_case(recipe);
    auto const plan = make_plan(test);
    for (Side const side : {Side::rows, Side::columns}) {
      Vector const expected = test.dense.marginal(side, test.eps, test.potentials);
      Vector allowed = test.tolerance.plan(side, test.potentials);
      for (std::size_t i = 0; i < allowed.size(); ++i) allowed[i] *= expected[i];
      std::vector<double> actual(plan->size(side));
      plan->vectors().write(plan->marginal(side), actual);
      expect_close(side == Side::rows ? "row" : "column", actual, expected, allowed);
    }
    expect_close("transport_cost", plan->transport_cost(),
                 evaluate(test.dense, test.eps, test.potentials).transport_cost,
                 test.tolerance.evaluation(test.dense, test.potentials).transport_cost);
  }
}

/// The largest |z_i| from the origin, not from the centre.
Real reach(Stored const& cloud) {
  std::vector<double> const values = cloud.values();
  Real largest = 0;
  for (auto row = values.begin(); row != values.end(); row += cloud.columns())
    largest = std::max(largest, std::inner_product(row, row + cloud.columns(), row, Real(0)));
  return std::sqrt(largest);
}

// Float64, whatever the precision. The sums are of positive terms with d + 8 roundings each. A running mean of n points
// is off by at most (n + 2) u times the largest point, which meets the cost to first order through the distance |w| of
// the centres, 2 |w| times it.
TEST_P(EvaluatePoints, the_mean_cost_is_that_of_all_pairs) {
  for (Recipe const& recipe : recipes()) {
    SCOPED_TRACE(testing::Message() << recipe);
    Case const test = make_case(recipe);
    Problem const& problem = test.problem;
    Real cost = 0, mass = 0;
    for (std::int64_t i = 0; i < problem.n(); ++i) {
      for (std::int64_t j = 0; j < problem.m(); ++j) {
        Real const weight = Real(problem.a[i]) * problem.b[j];
        cost += weight * test.dense.cost(Side::rows, i, j);
        mass += weight;
      }
    }
    Real const s = problem.scale, w = std::sqrt(test.tolerance.magnitudes().offset() / s);
    Real const centres = (problem.n() + 2) * reach(problem.x) + (problem.m() + 2) * reach(problem.y);
    Real const allowed = 0x1p-53L * ((problem.d() + 8) * cost / mass + 2 * s * w * centres);
    expect_close("mean_cost", make_operator(test)->cost_size().mean, cost / mass, allowed);
  }
}

// As for squared distances; what the terms are made of may have either sign, and the centres are those of the features.
TEST_P(EvaluateProducts, the_mean_cost_is_that_of_all_pairs) {
  for (Recipe const& recipe : recipes()) {
    SCOPED_TRACE(testing::Message() << recipe);
    Case const test = make_case(recipe);
    Problem const& problem = test.problem;
    Real cost = 0, size = 0, mass = 0;
    for (std::int64_t i = 0; i < problem.n(); ++i) {
      for (std::int64_t j = 0; j < problem.m(); ++j) {
        Real const weight = Real(problem.a[i]) * problem.b[j];
        cost += weight * test.dense.cost(Side::rows, i, j);
        size += weight * std::abs(test.dense.cost(Side::rows, i, j));
        mass += weight;
      }
    }
    bool const directions = problem.cost_function == CostFunction::cosine;
    Real const largest = directions ? 1 : std::max(reach(problem.x), reach(problem.y));
    Real const centres = (problem.n() + problem.m() + 4 + problem.d()) * largest * largest * problem.scale;
    Real const labels =
        problem.has_labels() ? (problem.n() + problem.m() + 8) * test.tolerance.magnitudes().offset() : 0;
    Real const allowed = 0x1p-53L * ((problem.d() + 8) * size / mass + 2 * centres + labels);
    expect_close("mean_cost", make_operator(test)->cost_size().mean, cost / mass, allowed);
  }
}

// The ladder of annealing starts at the bound: it must hold for the centred costs, whatever their sign. The points that
// it is made of are rounded.
TEST_P(EvaluateBounds, no_centred_cost_is_above_the_bound) {
  for (Recipe recipe : recipes()) {
    if (recipe.n * recipe.m > 40000) continue;
    // Where points cost next to nothing the labels alone decide.
    if (GetParam().costs == Costs::labels && recipe.seed % 2 == 0) recipe.scale = 1e-9;
    SCOPED_TRACE(testing::Message() << recipe);
    Case const test = make_case(recipe);
    Magnitudes const& magnitudes = test.tolerance.magnitudes();
    double const bound = make_operator(test)->cost_size().centred_bound;
    Real largest = 0, rounding = 0;
    for (std::int64_t i = 0; i < test.problem.n(); ++i) {
      for (std::int64_t j = 0; j < test.problem.m(); ++j) {
        Real const cost = test.dense.cost(Side::rows, i, j);
        if (std::isinf(cost) || test.problem.a[i] == 0 || test.problem.b[j] == 0) continue;
        Real const row = magnitudes.shift(Side::rows)[i], column = magnitudes.shift(Side::columns)[j];
        largest = std::max(largest, std::abs(cost - row - column));
        rounding = std::max(rounding, 0x1p-50L * (std::abs(cost) + std::abs(row) + std::abs(column)));
        rounding = std::max(rounding, 0x1p-63L * magnitudes.origin());
      }
    }
    EXPECT_GE(bound * (1 + 0x1p-20), largest - rounding);
  }
}

TEST_P(Evaluate, agrees_with_the_errors_of_the_next_sweep) {
  Case const test = make_case({50, 40, 5, Weights::skewed});
  auto const entropic = make_operator(test);
  Evaluation const before = entropic->evaluate(test.eps);
  EvaluationTolerance const tolerance = test.tolerance.evaluation(test.dense, test.potentials);
  entropic->sweep({test.eps, true}, 1);
  EXPECT_NEAR(entropic->errors().row, before.row_error, 2 * tolerance.row_error);
  EXPECT_NEAR(entropic->errors().column, before.column_error, 2 * tolerance.column_error);
}

TEST_P(Evaluate, is_bitwise_repeatable) {
  Case const test = make_case({333, 257, 37});
  auto const entropic = make_operator(test);
  Evaluation const first = entropic->evaluate(test.eps);
  Evaluation const second = entropic->evaluate(test.eps);
  EXPECT_EQ(first.transport_cost, second.transport_cost);
  EXPECT_EQ(first.gap, second.gap);
  EXPECT_EQ(first.row_error, second.row_error);
  EXPECT_EQ(first.column_error, second.column_error);
}

}  // namespace
}  // namespace monge::oracle
