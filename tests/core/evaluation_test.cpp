// The values of a certificate from marginals and potentials.
#include "core/evaluation.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "oracle/backend_test.hpp"

namespace monge::oracle {
namespace {

struct Half {
  std::vector<double> weight, marginal, potential, shift;
  SideValues values() const { return {weight, marginal, potential, shift}; }
};

struct Inputs {
  Half rows, columns;
  double centred_cost = 0;
  DenseEvaluation truth{};
};

/// The plan of an infeasible pair, its potentials split as a backend would hand them in.
Inputs inputs_of(Problem const& problem, double eps) {
  Dense const dense(problem);
  Magnitudes const magnitudes(problem);
  Random random(11);
  Potentials potentials{Vector(problem.n()), Vector(problem.m())};
  Inputs inputs;
  for (Side const side : {Side::rows, Side::columns}) {
    Half& half = side == Side::rows ? inputs.rows : inputs.columns;
    half.weight = dense.weights(side);
    half.shift = magnitudes.shift(side);
    for (std::size_t i = 0; i < half.weight.size(); ++i) {
      half.potential.push_back(random.uniform(0, eps));
      potentials.of(side)[i] = Real(half.potential[i]) + half.shift[i];
    }
  }
  inputs.rows.marginal = narrow(dense.marginal(Side::rows, eps, potentials));
  inputs.columns.marginal = narrow(dense.marginal(Side::columns, eps, potentials));
  Vector const plan = dense.plan(eps, potentials);
  Real centred = 0;
  for (std::int64_t i = 0; i < problem.n(); ++i) {
    for (std::int64_t j = 0; j < problem.m(); ++j) {
      centred +=
          plan[i * problem.m() + j] * (dense.cost(Side::rows, i, j) - inputs.rows.shift[i] - inputs.columns.shift[j]);
    }
  }
  inputs.centred_cost = static_cast<double>(centred);
  inputs.truth = evaluate(dense, eps, potentials);
  return inputs;
}

TEST(EvaluatePlan, follows_the_definitions) {
  for (Place const place : {Place::origin, Place::shifted, Place::apart}) {
    SCOPED_TRACE(testing::Message() << "place " << static_cast<int>(place));
    double const eps = 3;
    Inputs const inputs = inputs_of(make_problem({40, 50, 3, Weights::with_zeros, place, 1, {}, 0, 0.5, 2.5}), eps);
    Evaluation const actual = evaluate_plan(eps, inputs.rows.values(), inputs.columns.values(), inputs.centred_cost);
    DenseEvaluation const& truth = inputs.truth;
    Real const magnitude = 1e-14L * (1 + std::abs(truth.primal) + std::abs(truth.dual));
    expect_close("mass", actual.mass, truth.mass, magnitude);
    expect_close("row_error", actual.row_error, truth.row_error, magnitude);
    expect_close("column_error", actual.column_error, truth.column_error, magnitude);
    expect_close("transport_cost", actual.transport_cost, truth.transport_cost, magnitude);
    expect_close("primal", actual.primal, truth.primal, magnitude);
    expect_close("dual", actual.dual, truth.dual, magnitude);
    expect_close("gap", actual.gap, truth.gap, magnitude);
  }
}

// A constant moved from g to f is not seen by P; the gap must not see it either, beyond its rounding.
TEST(EvaluatePlan, ignores_the_constant_of_the_potentials) {
  double const eps = 3;
  Inputs inputs = inputs_of(make_problem({40, 50, 3}), eps);
  double const gap = evaluate_plan(eps, inputs.rows.values(), inputs.columns.values(), inputs.centred_cost).gap;
  for (double& value : inputs.rows.shift) value += 1e6;
  for (double& value : inputs.columns.shift) value -= 1e6;
  EXPECT_NEAR(evaluate_plan(eps, inputs.rows.values(), inputs.columns.values(), inputs.centred_cost).gap, gap, 1e-8);
}

}  // namespace
}  // namespace monge::oracle
