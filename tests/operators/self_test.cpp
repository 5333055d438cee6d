// Operators of a measure against itself: one potential, and half of a symmetric sweep.
#include <algorithm>
#include <cmath>
#include <limits>

#include "operators/cases.hpp"

namespace monge::oracle {
namespace {

Problem self_of(Problem const& problem, Side side) {
  bool const rows = side == Side::rows;
  Stored const& points = rows ? problem.x : problem.y;
  std::vector<double> const& weights = rows ? problem.a : problem.b;
  return {points, points, weights, weights, problem.scale};
}

/// One is enough of each recipe; the larger ones are dense sums of their squares.
Side side_of(Recipe const& recipe) {
  return recipe.seed % 2 == 0 ? Side::columns : Side::rows;
}

class SelfOperator : public OperatorTest {
 protected:
  /// f = g: of a plan of moderate size that is not feasible.
  Case self_case(Recipe const& recipe, Side side) const {
    Case test(self_of(oracle::make_problem(recipe), side), recipe, arithmetic(recipe.d));
    Vector const zeros(test.problem.a.size(), 0);
    Vector& f = test.potentials.f = sweep(test.dense, {test.eps, true}, 4, {zeros, zeros}).potentials.f;
    Random random(recipe.seed);
    for (Real& value : f) value = static_cast<double>(value + random.uniform(-test.eps, test.eps));
    test.potentials.g = f;
    return test;
  }
  /// At the case's potential, and the operator that it shares its points with.
  struct Operators {
    std::unique_ptr<EntropicOperator> cross, self;
  };
  Operators make_operators(Recipe const& recipe, Side side, Case const& test, double cache_bytes = 1e9) const {
    Problem const problem = oracle::make_problem(recipe);
    Operators made{make_operator(problem, cache_bytes), nullptr};
    Geometry const geometry = test.problem.geometry();
    Marginals const marginals{test.problem.a, test.problem.b};
    OperatorInput const input{geometry,
                              marginals,
                              {precision(), cache_bytes, {}, truncation(problem.d())},
                              nullptr,
                              {made.cross.get(), side}};
    made.self = std::move(backend_of(context()).entropic_operators({&input, 1})[0]);
    made.self->set_potentials(narrow(test.potentials.f), narrow(test.potentials.f));
    return made;
  }
  void expect_sweeps(int count) const {
    for (Recipe const& recipe : covering_recipes()) {
      Side const side = side_of(recipe);
      SCOPED_TRACE(testing::Message() << recipe << (side == Side::rows ? ", rows" : ", columns"));
      Case const test = self_case(recipe, side);
      Sweep const kind{test.eps, true};
      SweepResult const expected = sweep(test.dense, kind, count, test.potentials);
      // A point's products with itself are squares: what tensor cores truncate from their sum has one sign.
      Real const truncation = context().device().type == DeviceType::cuda && !is_float64() ? 2 : 1;
      Real const error = truncation * test.tolerance.sweeps(kind, count, expected);
      Operators const made = make_operators(recipe, side, test);
      made.self->sweep(kind, count);
      expect_iterates(test.dense, test.tolerance, test.eps, potentials_of(*made.self), expected.potentials, error);
      SweepErrors const errors = made.self->errors();
      Real const allowed = test.tolerance.sweep_errors(expected, error);
      expect_close("row error", errors.row, expected.row_error, allowed);
      EXPECT_EQ(errors.column, errors.row);
      expect_close("gradient norm", errors.gradient_norm, expected.gradient_norm, allowed);
    }
  }
};
MONGE_FOR_EACH_OF(SelfOperator,
                  (all_targets() + std::vector<Target>{{DeviceType::cuda, Precision::float32, Costs::points, true}}));
MONGE_FOR_EACH_ORDERED(SelfOperator);

TEST_P(SelfOperator, sweeps_once) {
  expect_sweeps(1);
}

TEST_P(SelfOperator, sweeps_seven_times) {
  expect_sweeps(7);
}

TEST_P(SelfOperator, keeps_scores_of_any_memory) {
  for (std::int64_t const d : {3, 40}) {
    Recipe const recipe{650, 20, d, Weights::skewed};
    Case const test = self_case(recipe, Side::rows);
    Sweep const kind{test.eps, true};
    SweepResult const expected = sweep(test.dense, kind, 2, test.potentials);
    for (double const cache_bytes : {0.0, 1e9}) {
      Operators const made = make_operators(recipe, Side::rows, test, cache_bytes);
      made.self->evaluate(test.eps);  // All pairs, before those of the sweeps.
      made.self->sweep(kind, 2);
      expect_close("f", narrow(potentials_of(*made.self).f), expected.potentials.f,
                   Vector(650, test.tolerance.sweeps(kind, 2, expected)));
    }
  }
}

TEST_P(SelfOperator, evaluates_like_any_other) {
  for (Recipe const& recipe : covering_recipes()) {
    Side const side = side_of(recipe);
    SCOPED_TRACE(testing::Message() << recipe << (side == Side::rows ? ", rows" : ", columns"));
    Case const test = self_case(recipe, side);
    Operators const made = make_operators(recipe, side, test);
    EvaluationTolerance const tolerance = test.tolerance.evaluation(test.dense, test.potentials);
    DenseEvaluation const truth = evaluate(test.dense, test.eps, test.potentials);
    Vector const expected = test.dense.marginal(Side::rows, test.eps, test.potentials);
    Vector allowed = test.tolerance.plan(Side::rows, test.potentials);
    for (std::size_t i = 0; i < allowed.size(); ++i) allowed[i] *= expected[i];
    for (int k = 0; k < 2; ++k) {
      VectorOperations const& vectors = made.self->vectors();
      auto const row = vectors.make(Side::rows), column = vectors.make(Side::columns);
      Evaluation const actual = made.self->evaluate(test.eps, row.get(), column.get());
      for (monge::Vector const* const marginal : {row.get(), column.get()}) {
        std::vector<double> values(made.self->size(Side::rows));
        vectors.write(*marginal, values);
        expect_close("marginal", values, expected, allowed);
      }
      expect_close("mass", actual.mass, truth.mass, tolerance.mass);
      expect_close("row_error", actual.row_error, truth.row_error, tolerance.row_error);
      expect_close("column_error", actual.column_error, truth.column_error, tolerance.column_error);
      expect_close("transport_cost", actual.transport_cost, truth.transport_cost, tolerance.transport_cost);
      expect_close("primal", actual.primal, truth.primal, tolerance.primal);
      expect_close("dual", actual.dual, truth.dual, tolerance.dual);
      // A sweep may keep scores; these are not all that an evaluation wants.
      made.self->sweep({test.eps, true}, 1);
      made.self->set_potentials(narrow(test.potentials.f), narrow(test.potentials.f));
    }
  }
}

// So far off that sums leave the range of float32.
TEST_P(SelfOperator, recovers_from_stray_potentials) {
  Recipe const recipe{40, 50, 2, Weights::uniform, Place::origin, 0.01};
  Case test = self_case(recipe, Side::rows);
  for (double const far : {-800.0, -200.0, 90.0, 800.0}) {
    SCOPED_TRACE(testing::Message() << "one f by " << far << " eps");
    Potentials start{Vector(40, 0), Vector(40, 0)};
    start.f[17] = start.g[17] = far * test.eps;
    test.potentials = start;
    Operators const made = make_operators(recipe, Side::rows, test);
    Sweep const kind{test.eps, true};
    made.self->sweep(kind, 1);
    SweepResult const expected = sweep(test.dense, kind, 1, start);
    Real allowed = test.tolerance.sweeps(kind, 1, expected);
    Vector const stored = test.tolerance.stored(Side::rows, start.f);
    allowed += *std::max_element(stored.begin(), stored.end());
    expect_iterates(test.dense, test.tolerance, test.eps, potentials_of(*made.self), expected.potentials, allowed);
  }
}

TEST_P(SelfOperator, has_the_mean_cost_of_its_points) {
  for (Place const place : {Place::origin, Place::shifted, Place::apart}) {
    Recipe const recipe{60, 45, 12, Weights::with_zeros, place};
    for (Side const side : {Side::rows, Side::columns}) {
      Case const test = self_case(recipe, side);
      Operators const made = make_operators(recipe, side, test);
      auto const alone = make_operator(test.problem);
      EXPECT_NEAR(made.self->cost_size().mean, alone->cost_size().mean, 1e-10 * alone->cost_size().mean);
      EXPECT_EQ(made.self->cost_size().centred_bound, alone->cost_size().centred_bound);
      EXPECT_TRUE(made.self->is_self());
      EXPECT_FALSE(alone->is_self());
    }
  }
}

// A plan has two sides; its potentials are the one.
TEST_P(SelfOperator, makes_plans) {
  Recipe const recipe{70, 50, 12, Weights::skewed, Place::apart};
  Case const test = self_case(recipe, Side::columns);
  std::unique_ptr<PlanOperator> plan;
  Operators const made = make_operators(recipe, Side::columns, test);
  plan = made.self->plan(test.eps);
  std::vector<double> f(50), g(50), row(50), column(50);
  plan->potentials(f, g);
  EXPECT_EQ(f, g);
  plan->vectors().write(plan->marginal(Side::rows), row);
  plan->vectors().write(plan->marginal(Side::columns), column);
  Vector const expected = test.dense.marginal(Side::rows, test.eps, test.potentials);
  Vector allowed = test.tolerance.plan(Side::rows, test.potentials);
  for (std::size_t i = 0; i < allowed.size(); ++i) allowed[i] *= expected[i];
  expect_close("row", row, expected, allowed);
  expect_close("column", column, expected, allowed);
}

TEST_P(SelfOperator, has_twins_that_are_self_too) {
  Recipe const recipe{70, 50, 12, Weights::with_zeros, Place::apart};
  Case const test = self_case(recipe, Side::columns);
  Operators const made = make_operators(recipe, Side::columns, test);
  auto const twin = backend_of(context()).entropic_operator(test.problem.geometry(), {test.problem.a, test.problem.b},
                                                            {.precision = Precision::float64}, made.self.get());
  EXPECT_TRUE(twin->is_self());
  copy_potentials(*made.self, *twin);
  made.self->sweep({test.eps, true}, 3);
  twin->sweep({test.eps, true}, 3);
  SweepResult const expected = sweep(test.dense, {test.eps, true}, 3, test.potentials);
  expect_iterates(test.dense, test.tolerance, test.eps, potentials_of(*twin), expected.potentials,
                  test.tolerance.sweeps({test.eps, true}, 3, expected));
}

using OperatorTwin = OperatorTest;
MONGE_FOR_EACH_COST_TARGET(OperatorTwin);
MONGE_FOR_EACH_ORDERED(OperatorTwin);

TEST_P(OperatorTwin, is_the_operator_that_packs_for_itself) {
  for (std::int64_t const d : {3, 40}) {
    for (Place const place : {Place::origin, Place::apart}) {
      SCOPED_TRACE(testing::Message() << "d " << d << ", place " << static_cast<int>(place));
      Case const test = make_case({150, 130, d, Weights::with_zeros, place});
      Problem const& problem = test.problem;
      Backend const& backend = backend_of(context());
      Marginals const marginals{problem.a, problem.b};
      auto const first = make_operator(problem);
      first->sweep({test.eps}, 3);
      for (Precision const other : {Precision::float32, Precision::float64}) {
        auto const twin = backend.entropic_operator(problem.geometry(), marginals, {other, 0}, first.get());
        auto const alone =
            backend.entropic_operator(problem.geometry(), marginals, {other, 0, {}, truncation(problem.d())});
        if (std::isfinite(alone->cost_size().mean)) {
          EXPECT_EQ(twin->cost_size().mean, alone->cost_size().mean);
        }
        for (EntropicOperator* entropic : {twin.get(), alone.get()}) entropic->sweep({test.eps}, 3);
        EXPECT_EQ(potentials_of(*twin).f, potentials_of(*alone).f);
        EXPECT_EQ(potentials_of(*twin).g, potentials_of(*alone).g);
        Evaluation const value = twin->evaluate(test.eps), expected = alone->evaluate(test.eps);
        EXPECT_EQ(value.primal, expected.primal);
        EXPECT_EQ(value.gap, expected.gap);
      }
    }
  }
}

using TwinOfMatrix = BackendTest;
MONGE_FOR_EACH_DEVICE(TwinOfMatrix);

TEST_P(TwinOfMatrix, does_not_read_the_matrix) {
  std::vector<double> cost{1, 2, 3, 4, 5, 6};
  Geometry const geometry = CostMatrix{{cost.data(), 2, 3}};
  Marginals const marginals{{0.5, 0.5}, {0.25, 0.25, 0.5}};
  Backend const& backend = backend_of(context());
  for (Precision const other : {Precision::float32, Precision::float64}) {
    cost[4] = 5;
    auto const first = backend.entropic_operator(geometry, marginals, {precision(), 0});
    cost[4] = std::numeric_limits<double>::quiet_NaN();
    EXPECT_THROW(backend.entropic_operator(geometry, marginals, {other, 0}), Error);
    EXPECT_EQ(backend.entropic_operator(geometry, marginals, {other, 0}, first.get())->cost_size().mean,
              first->cost_size().mean);
  }
}

}  // namespace
}  // namespace monge::oracle
