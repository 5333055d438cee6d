// Potentials in and out of an operator, its bound of the cost, and the same problem at other points.
#include <algorithm>
#include <cmath>
#include <limits>

#include "operators/cases.hpp"

namespace monge::oracle {
namespace {

class PotentialsTest : public OperatorTest {};
MONGE_FOR_EACH_TARGET(PotentialsTest);

TEST_P(PotentialsTest, come_back_as_they_were_set) {
  for (Recipe const& recipe : covering_recipes()) {
    SCOPED_TRACE(testing::Message() << recipe);
    Case const test(recipe, arithmetic(recipe.d));
    auto const entropic = make_operator(test.problem);
    entropic->set_potentials(narrow(test.potentials.f), narrow(test.potentials.g));
    Potentials const actual = potentials_of(*entropic);
    for (Side const side : {Side::rows, Side::columns}) {
      expect_close(side == Side::rows ? "f" : "g", narrow(actual.of(side)), test.potentials.of(side),
                   test.tolerance.stored(side, test.potentials.of(side)));
    }
  }
}

TEST_P(PotentialsTest, are_read_and_written_in_both_types_and_with_strides) {
  Case const test({40, 50, 3, Weights::with_zeros}, arithmetic(3));
  auto const entropic = make_operator(test.problem);
  for (DataType const type : {DataType::float32, DataType::float64}) {
    StoredVector const f(narrow(test.potentials.f), type, 3), g(narrow(test.potentials.g), type, 2);
    entropic->set_potentials(f.view(), g.view());
    StoredVector f_out(std::vector<double>(40), type, 2), g_out(std::vector<double>(50), type, 5);
    entropic->get_potentials(f_out.mutable_view(), g_out.mutable_view());
    EXPECT_TRUE(f_out.padding_untouched() && g_out.padding_untouched());
    Vector rounding = test.tolerance.stored(Side::rows, test.potentials.f);
    for (Real& value : rounding) value = 2 * value + (type == DataType::float32 ? 0x1p-22 : 0.0);
    expect_close("f", f_out.values(), widen(f.values()), rounding);
  }
}

TEST_P(PotentialsTest, bound_of_the_cost) {
  for (Recipe const& recipe : covering_recipes()) {
    SCOPED_TRACE(testing::Message() << recipe);
    Case const test(recipe, arithmetic(recipe.d));
    double const bound = make_operator(test.problem)->centred_cost_bound();
    Magnitudes const& magnitudes = test.tolerance.magnitudes();
    double reach = 0;
    for (Side const side : {Side::rows, Side::columns}) {
      std::vector<double> const& squares = magnitudes.square(side);
      reach += std::sqrt(*std::max_element(squares.begin(), squares.end()));
    }
    for (std::int64_t i = 0; i < recipe.n; ++i) {
      for (std::int64_t j = 0; j < recipe.m; ++j) {
        Real const centred =
            test.dense.cost(Side::rows, i, j) - magnitudes.shift(Side::rows)[i] - magnitudes.shift(Side::columns)[j];
        ASSERT_GE(bound, static_cast<double>(centred) * (1 - 1e-6) - 1e-6);
      }
    }
    EXPECT_LE(bound, 2 * reach * reach + 1e-12);
  }
}

TEST_P(PotentialsTest, bound_of_the_cost_of_coinciding_points) {
  Problem problem = make_problem({5, 7, 2});
  problem.x = Stored(std::vector<double>(10, 3.0), 5, 2);
  problem.y = Stored(std::vector<double>(14, 3.0), 7, 2);
  EXPECT_GE(make_operator(problem)->centred_cost_bound(), 0);
}

TEST_P(PotentialsTest, with_points_gives_the_problem_at_other_points) {
  for (Recipe const& recipe : covering_recipes()) {
    SCOPED_TRACE(testing::Message() << recipe);
    Case const test(recipe, arithmetic(recipe.d));
    auto const entropic = make_operator(test.problem);
    entropic->set_potentials(narrow(test.potentials.f), narrow(test.potentials.g));
    for (Side const side : {Side::rows, Side::columns}) {
      std::int64_t const k = 21;
      Recipe moved = recipe;
      moved.n = moved.m = k;
      moved.weights = Weights::uniform;
      moved.seed += 100;
      Problem const fresh = make_problem(moved);
      Problem replaced = test.problem;
      (side == Side::rows ? replaced.x : replaced.y) = side == Side::rows ? fresh.x : fresh.y;
      (side == Side::rows ? replaced.a : replaced.b) = std::vector<double>(k, 1.0);
      Dense const dense(replaced);
      Tolerance const tolerance(replaced, test.eps, arithmetic(recipe.d));

      auto const there = entropic->with_points(side, (side == Side::rows ? replaced.x : replaced.y).view());
      ASSERT_EQ(there->size(side), k);
      ASSERT_EQ(there->size(other(side)), entropic->size(other(side)));
      Vector const& given = test.potentials.of(other(side));
      Vector const expected = dense.softmin(side, test.eps, given);
      std::vector<double> actual(k);
      there->softmin(side, test.eps, actual);
      expect_close("softmin", actual, expected, tolerance.softmin(side, given, expected));

      std::vector<double> const points = (side == Side::rows ? replaced.y : replaced.x).values();
      Potentials at_zero = test.potentials;
      at_zero.of(side) = Vector(k, 0);
      Vector const map = dense.average(side, test.eps, at_zero, points, recipe.d, true);
      Vector allowed(map.size());
      Vector const shares = tolerance.shares(side, given);
      double const radius = std::sqrt(tolerance.magnitudes().largest_square(other(side)) / recipe.scale);
      for (std::size_t i = 0; i < map.size(); ++i) {
        allowed[i] = (shares[i / recipe.d] + arithmetic(recipe.d).unit) * radius + 0x1p-51 * std::abs(map[i]);
      }
      Stored out(std::vector<double>(k * recipe.d), k, recipe.d);
      there->average(side, test.eps, {}, out.mutable_view(), true);
      expect_close("map", out.values(), map, allowed);
    }
  }
}

TEST_P(PotentialsTest, with_points_leaves_the_first_problem_alone) {
  Case const test({30, 40, 4}, arithmetic(4));
  auto const entropic = make_operator(test.problem);
  entropic->set_potentials(narrow(test.potentials.f), narrow(test.potentials.g));
  Potentials const before = potentials_of(*entropic);
  {
    auto const there = entropic->with_points(Side::rows, make_problem({9, 9, 4}).x.view());
    std::vector<double> out(9);
    there->softmin(Side::rows, test.eps, out);
  }
  EXPECT_EQ(potentials_of(*entropic).f, before.f);
  EXPECT_EQ(potentials_of(*entropic).g, before.g);
}

// Packing finds the first coordinate that is not finite, for both clouds and both types, and names it.
TEST_P(PotentialsTest, packing_rejects_points_that_are_not_finite) {
  double const nan = std::numeric_limits<double>::quiet_NaN();
  double const infinity = std::numeric_limits<double>::infinity();
  for (DataType const type : {DataType::float32, DataType::float64}) {
    for (double const bad : {nan, infinity, -infinity}) {
      for (Side const side : {Side::rows, Side::columns}) {
        Problem problem = make_problem({150, 160, 3, Weights::uniform, Place::origin, 0.05, type, 1});
        Stored& cloud = side == Side::rows ? problem.x : problem.y;
        std::vector<double> values = cloud.values();
        values[3 * 133 + 1] = bad;
        values[3 * 140 + 2] = bad;
        cloud = Stored(values, cloud.rows(), 3, type, 1);
        SCOPED_TRACE(testing::Message() << bad << (side == Side::rows ? " in x" : " in y"));
        try {
          make_operator(problem);
          ADD_FAILURE() << "no error";
        } catch (Error const& error) {
          EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
          std::string const message = error.what();
          for (char const* part : {side == Side::rows ? "x" : "y", "row 133", "column 1", "finite"}) {
            EXPECT_NE(message.find(part), std::string::npos) << message << " lacks " << part;
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace monge::oracle
