// Half-steps against the oracle.
#include "operators/cases.hpp"

namespace monge::oracle {
namespace {

class Softmin : public OperatorTest {};
MONGE_FOR_EACH_TARGET(Softmin);

void expect_softmin(EntropicOperator& entropic, Case const& test, Side side, Potentials const& potentials) {
  Vector const& given = potentials.of(other(side));
  Vector const expected = test.dense.softmin(side, test.eps, given);
  std::vector<double> actual(expected.size());
  entropic.softmin(side, test.eps, actual);
  expect_close(side == Side::rows ? "rows" : "columns", actual, expected,
               test.tolerance.softmin(side, given, expected));
}

TEST_P(Softmin, equals_the_oracle) {
  for (Recipe const& recipe : covering_recipes()) {
    SCOPED_TRACE(testing::Message() << recipe);
    Case const test(recipe, arithmetic(recipe.d));
    auto const entropic = make_operator(test.problem);
    entropic->set_potentials(narrow(test.potentials.f), narrow(test.potentials.g));
    for (Side const side : {Side::rows, Side::columns}) expect_softmin(*entropic, test, side, test.potentials);
  }
}

TEST_P(Softmin, empty_potentials_are_zeros_of_the_users_cost) {
  for (Place const place : {Place::origin, Place::shifted, Place::apart}) {
    SCOPED_TRACE(testing::Message() << "place " << static_cast<int>(place));
    Case const test({40, 50, 3, Weights::uniform, place}, arithmetic(3));
    auto const entropic = make_operator(test.problem);
    Potentials const zeros{Vector(40, 0), Vector(50, 0)};
    entropic->set_potentials(narrow(test.potentials.f), narrow(test.potentials.g));
    entropic->set_potentials({}, {});
    for (Side const side : {Side::rows, Side::columns}) expect_softmin(*entropic, test, side, zeros);
  }
}

TEST_P(Softmin, changes_no_potential) {
  Case const test({40, 50, 3, Weights::skewed}, arithmetic(3));
  auto const entropic = make_operator(test.problem);
  entropic->set_potentials(narrow(test.potentials.f), narrow(test.potentials.g));
  Potentials const before = potentials_of(*entropic);
  std::vector<double> out(40);
  entropic->softmin(Side::rows, test.eps, out);
  Potentials const after = potentials_of(*entropic);
  EXPECT_EQ(before.f, after.f);
  EXPECT_EQ(before.g, after.g);
}

TEST_P(Softmin, writes_float32_and_strided_outputs) {
  Case const test({40, 50, 3, Weights::with_zeros}, arithmetic(3));
  auto const entropic = make_operator(test.problem);
  entropic->set_potentials(narrow(test.potentials.f), narrow(test.potentials.g));
  std::vector<double> plain(40);
  entropic->softmin(Side::rows, test.eps, plain);
  for (DataType const type : {DataType::float32, DataType::float64}) {
    StoredVector out(std::vector<double>(40), type, 3);
    entropic->softmin(Side::rows, test.eps, out.mutable_view());
    EXPECT_TRUE(out.padding_untouched());
    std::vector<double> expected = plain;
    if (type == DataType::float32) {
      for (double& value : expected) value = static_cast<float>(value);
    }
    EXPECT_EQ(out.values(), expected);
  }
}

// The oldest way to break a log-sum-exp: one far term, all terms far, coinciding points.
TEST_P(Softmin, survives_extreme_potentials) {
  Case const test({20, 30, 2, Weights::with_zeros}, arithmetic(2));
  auto const entropic = make_operator(test.problem);
  for (double const size : {1e3, -1e3, 1e6}) {
    SCOPED_TRACE(testing::Message() << "one potential of " << size << " eps");
    Potentials potentials{Vector(20, 0), Vector(30, 0)};
    potentials.f[3] = potentials.g[5] = size * test.eps;
    entropic->set_potentials(narrow(potentials.f), narrow(potentials.g));
    for (Side const side : {Side::rows, Side::columns}) expect_softmin(*entropic, test, side, potentials);
  }
}

TEST_P(Softmin, of_coinciding_points_is_a_mean) {
  Problem problem = make_problem({5, 7, 2});
  problem.x = Stored(std::vector<double>(10, 3.0), 5, 2);
  problem.y = Stored(std::vector<double>(14, 3.0), 7, 2);
  auto const entropic = make_operator(problem);
  std::vector<double> out(5, 1.0);
  entropic->softmin(Side::rows, 0.5, out);
  for (double const value : out) EXPECT_NEAR(value, 0, 8 * arithmetic(2).unit);
}

}  // namespace
}  // namespace monge::oracle
