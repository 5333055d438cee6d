// A plan at other points of one side.
#include <algorithm>
#include <cmath>

#include "operators/cases.hpp"

namespace monge::oracle {
namespace {

class At : public OperatorTest {};
MONGE_FOR_EACH_OF(At, all_targets() + with_point_costs({Costs::cosine, Costs::dot, Costs::euclidean, Costs::p_norm}));
MONGE_FOR_EACH_ORDERED(At);

TEST_P(At, other_points_shares_and_transforms_equal_the_oracle) {
  for (Recipe const& recipe : recipes()) {
    SCOPED_TRACE(testing::Message() << recipe);
    Case const test = make_case(recipe);
    auto const plan = make_plan(test);
    for (Side const side : {Side::rows, Side::columns}) {
      SCOPED_TRACE(side == Side::rows ? "rows" : "columns");
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

      auto const there = plan->points().at(side, {(side == Side::rows ? replaced.x : replaced.y).view()});
      ASSERT_EQ(there->size(side), k);
      ASSERT_EQ(there->size(other(side)), plan->size(other(side)));
      Vector const& given = test.potentials.of(other(side));
      Vector const expected = dense.softmin(side, test.eps, given);
      std::vector<double> actual(k);
      there->transform(side, actual);
      Vector transform_allowed = tolerance.softmin(side, given, expected);
      // The first plan has rounded the potential of the side that stays, where its own shifts put it.
      for (Real& allowed : transform_allowed) allowed += test.tolerance.gauge_error(other(side), given);
      expect_close("transform", actual, expected, transform_allowed);

      std::vector<double> const points = (side == Side::rows ? replaced.y : replaced.x).values();
      Potentials at_zero = test.potentials;
      at_zero.of(side) = Vector(k, 0);
      Vector const map = dense.average(side, test.eps, at_zero, points, recipe.d, true);
      Vector allowed(map.size());
      Vector const shares = tolerance.shares(side, given);
      double const radius = tolerance.magnitudes().radius(other(side));
      for (std::size_t i = 0; i < map.size(); ++i) {
        allowed[i] = (shares[i / recipe.d] + arithmetic(recipe.d).unit) * radius + 0x1p-51 * std::abs(map[i]);
      }
      Stored out(std::vector<double>(k * recipe.d), k, recipe.d);
      there->points().multiply_points(side, Scaling::shares, out.mutable_view());
      expect_close("map", out.values(), map, allowed);
    }
  }
}

TEST_P(At, other_points_the_first_plan_stays) {
  Case const test = make_case({30, 40, 4});
  auto const plan = make_plan(test);
  auto const transform = [&] {
    std::vector<double> out(30);
    plan->transform(Side::rows, out);
    return out;
  };
  std::vector<double> const before = transform();
  {
    auto const there = plan->points().at(Side::rows, {make_problem({9, 9, 4}).x.view()});
    std::vector<double> out(9);
    there->transform(Side::rows, out);
  }
  EXPECT_EQ(transform(), before);
}

TEST_P(At, points_that_are_not_finite_are_rejected) {
  Case const test = make_case({30, 40, 2});
  auto const plan = make_plan(test);
  std::vector<double> points(10, 0.5);
  points[7] = std::nan("");
  try {
    plan->points().at(Side::rows, {MatrixView(points.data(), 5, 2)});
    ADD_FAILURE() << "no error";
  } catch (Error const& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_NE(std::string(error.what()).find("points: row 3, column 1"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace monge::oracle
