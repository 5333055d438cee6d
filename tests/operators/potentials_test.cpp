// Potentials in and out of an operator, and its bound of the cost.
#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "operators/cases.hpp"

namespace monge::oracle {
namespace {

class PotentialsTest : public OperatorTest {};
MONGE_FOR_EACH_TARGET(PotentialsTest);
MONGE_FOR_EACH_ORDERED(PotentialsTest);
class PotentialsOfPoints : public OperatorTest {};
MONGE_FOR_EACH_POINT_TARGET(PotentialsOfPoints);
MONGE_FOR_EACH_ORDERED(PotentialsOfPoints);

TEST_P(PotentialsTest, come_back_as_they_were_set) {
  for (Recipe const& recipe : covering_recipes()) {
    SCOPED_TRACE(testing::Message() << recipe);
    Case const test = make_case(recipe);
    auto const entropic = make_operator(test);
    Potentials const actual = potentials_of(*entropic);
    for (Side const side : {Side::rows, Side::columns}) {
      expect_close(side == Side::rows ? "f" : "g", narrow(actual.of(side)), test.potentials.of(side),
                   test.tolerance.stored(side, test.potentials.of(side)));
    }
  }
}

TEST_P(PotentialsTest, are_read_and_written_in_both_types_and_with_strides) {
  Case const test = make_case({40, 50, 3, Weights::with_zeros});
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
    Case const test = make_case(recipe);
    double const bound = make_operator(test.problem)->cost_size().centred_bound;
    Magnitudes const& magnitudes = test.tolerance.magnitudes();
    double largest = magnitudes.spread();
    if (test.problem.has_points()) {
      double reach = 0;
      for (Side const side : {Side::rows, Side::columns}) {
        std::vector<double> const& squares = magnitudes.square(side);
        reach += std::sqrt(*std::max_element(squares.begin(), squares.end()));
      }
      largest = reach * reach;
    }
    for (std::int64_t i = 0; i < recipe.n; ++i) {
      for (std::int64_t j = 0; j < recipe.m; ++j) {
        Real const centred =
            test.dense.cost(Side::rows, i, j) - magnitudes.shift(Side::rows)[i] - magnitudes.shift(Side::columns)[j];
        if (std::isinf(centred) || test.problem.a[i] == 0 || test.problem.b[j] == 0) continue;
        ASSERT_GE(bound, static_cast<double>(centred) * (1 - 1e-6) - 1e-6);
      }
    }
    EXPECT_LE(bound, 2 * largest + 1e-12);
  }
}

TEST_P(PotentialsOfPoints, bound_of_the_cost_of_coinciding_points) {
  Problem problem = make_problem({5, 7, 2});
  problem.x = Stored(std::vector<double>(10, 3.0), 5, 2);
  problem.y = Stored(std::vector<double>(14, 3.0), 7, 2);
  EXPECT_GE(make_operator(problem)->cost_size().centred_bound, 0);
}

TEST_P(PotentialsTest, in_the_operators_gauge_are_the_twins) {
  for (Place const place : {Place::shifted, Place::apart}) {
    Case const test = make_case({40, 50, 3, Weights::with_zeros, place});
    auto const entropic = make_operator(test);
    auto const twin = make_operator(test.problem);
    for (Side const side : {Side::rows, Side::columns}) {
      Term const copy[] = {{1.0, &std::as_const(*entropic).potential(side)}};
      entropic->vectors().combine(copy, twin->potential(side));
    }
    Potentials const actual = potentials_of(*twin), expected = potentials_of(*entropic);
    EXPECT_EQ(actual.f, expected.f);
    EXPECT_EQ(actual.g, expected.g);
  }
}

// What a sweep knows of the logits from the sweep before does not outlive potentials that were written since.
TEST_P(PotentialsTest, written_between_sweeps_are_swept_as_if_set) {
  Case const test = make_case({60, 80, 3, Weights::uniform, Place::origin, 0.01});
  auto const entropic = make_operator(test);
  auto const fresh = make_operator(test);
  Sweep const kind{test.eps};
  entropic->sweep(kind, 3);
  for (Side const side : {Side::rows, Side::columns}) {
    Term const copy[] = {{1.0, &std::as_const(*fresh).potential(side)}};
    entropic->vectors().combine(copy, entropic->potential(side));
  }
  entropic->sweep(kind, 1);
  fresh->sweep(kind, 1);
  EXPECT_EQ(potentials_of(*entropic).f, potentials_of(*fresh).f);
  EXPECT_EQ(potentials_of(*entropic).g, potentials_of(*fresh).g);
}

// Packing finds the first coordinate that is not finite, for both clouds and both types, and names it.
TEST_P(PotentialsOfPoints, packing_rejects_points_that_are_not_finite) {
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
