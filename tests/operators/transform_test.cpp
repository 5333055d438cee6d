// What a plan says of its potentials: soft c-transforms, against the oracle, and the potentials themselves.
#include "operators/cases.hpp"

namespace monge::oracle {
namespace {

class Transform : public OperatorTest {};
MONGE_FOR_EACH_COST_TARGET(Transform);
MONGE_FOR_EACH_ORDERED(Transform);
class TransformOfPoints : public OperatorTest {};
MONGE_FOR_EACH_POINT_TARGET(TransformOfPoints);
MONGE_FOR_EACH_ORDERED(TransformOfPoints);

std::vector<double> transform(PlanOperator& plan, Side side) {
  std::vector<double> result(plan.size(side));
  plan.transform(side, result);
  return result;
}

void expect_transform(PlanOperator& plan, Case const& test, Side side, Potentials const& potentials) {
  Vector const& given = potentials.of(other(side));
  Vector const expected = test.dense.softmin(side, test.eps, given);
  expect_close(side == Side::rows ? "rows" : "columns", transform(plan, side), expected,
               test.tolerance.softmin(side, given, expected));
}

TEST_P(Transform, equals_the_oracle) {
  for (Recipe const& recipe : recipes()) {
    SCOPED_TRACE(testing::Message() << recipe);
    Case const test = make_case(recipe);
    auto const plan = make_plan(test);
    for (Side const side : {Side::rows, Side::columns}) expect_transform(*plan, test, side, test.potentials);
  }
}

TEST_P(Transform, of_empty_potentials_is_that_of_zeros_of_the_users_cost) {
  for (Place const place : {Place::origin, Place::shifted, Place::apart}) {
    SCOPED_TRACE(testing::Message() << "place " << static_cast<int>(place));
    Case const test = make_case({40, 50, 3, Weights::uniform, place});
    auto const entropic = make_operator(test);
    Potentials const zeros{Vector(40, 0), Vector(50, 0)};
    entropic->set_potentials({}, {});
    auto const plan = entropic->plan(test.eps);
    for (Side const side : {Side::rows, Side::columns}) expect_transform(*plan, test, side, zeros);
  }
}

// A plan has the potentials that it was made of; where a point has no weight, the soft c-transform.
TEST_P(Transform, stands_in_for_potentials_of_points_without_weight) {
  for (Recipe const& recipe : recipes()) {
    SCOPED_TRACE(testing::Message() << recipe);
    Case const test = make_case(recipe);
    auto const plan = make_plan(test);
    std::vector<double> f(recipe.n), g(recipe.m);
    plan->potentials(f, {});
    plan->potentials({}, g);
    for (Side const side : {Side::rows, Side::columns}) {
      Vector const& given = test.potentials.of(other(side));
      Vector const transforms = test.dense.softmin(side, test.eps, given);
      Vector expected = test.potentials.of(side);
      Vector allowed = test.tolerance.stored(side, expected);
      Vector const transform_error = test.tolerance.softmin(side, given, transforms);
      for (std::size_t i = 0; i < expected.size(); ++i) {
        if (test.dense.weights(side)[i] > 0) continue;
        expected[i] = transforms[i];
        allowed[i] = transform_error[i];
      }
      expect_close(side == Side::rows ? "f" : "g", side == Side::rows ? f : g, expected, allowed);
    }
  }
}

TEST_P(Transform, writes_float32_and_strided_outputs) {
  Case const test = make_case({40, 50, 3, Weights::with_zeros});
  auto const plan = make_plan(test);
  std::vector<double> const plain = transform(*plan, Side::rows);
  std::vector<double> f(40), g(50);
  plan->potentials(f, g);
  for (DataType const type : {DataType::float32, DataType::float64}) {
    auto const expect_written = [&](std::vector<double> expected, auto const& write) {
      StoredVector out(std::vector<double>(expected.size()), type, 3);
      write(out.mutable_view());
      EXPECT_TRUE(out.padding_untouched());
      if (type == DataType::float32) {
        for (double& value : expected) value = static_cast<float>(value);
      }
      EXPECT_EQ(out.values(), expected);
    };
    expect_written(plain, [&](MutableVectorView out) { plan->transform(Side::rows, out); });
    expect_written(f, [&](MutableVectorView out) { plan->potentials(out, {}); });
    expect_written(g, [&](MutableVectorView out) { plan->potentials({}, out); });
  }
}

// The oldest way to break a log-sum-exp: one far term, all terms far, coinciding points.
TEST_P(Transform, survives_extreme_potentials) {
  Case const test = make_case({20, 30, 2, Weights::with_zeros});
  auto const entropic = make_operator(test.problem);
  for (double const size : {1e3, -1e3, 1e6}) {
    SCOPED_TRACE(testing::Message() << "one potential of " << size << " eps");
    Potentials potentials{Vector(20, 0), Vector(30, 0)};
    potentials.f[3] = potentials.g[5] = size * test.eps;
    entropic->set_potentials(narrow(potentials.f), narrow(potentials.g));
    auto const plan = entropic->plan(test.eps);
    for (Side const side : {Side::rows, Side::columns}) expect_transform(*plan, test, side, potentials);
  }
}

TEST_P(TransformOfPoints, of_coinciding_points_is_a_mean) {
  Problem problem = make_problem({5, 7, 2});
  problem.x = Stored(std::vector<double>(10, 3.0), 5, 2);
  problem.y = Stored(std::vector<double>(14, 3.0), 7, 2);
  auto const plan = make_operator(problem)->plan(0.5);
  for (double const value : transform(*plan, Side::rows)) EXPECT_NEAR(value, 0, 8 * arithmetic(2).unit);
}

}  // namespace
}  // namespace monge::oracle
