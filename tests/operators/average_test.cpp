// P V, P^T U and the averages P V / P 1, against the oracle.
#include <cmath>

#include "operators/cases.hpp"

namespace monge::oracle {
namespace {

class Average : public OperatorTest {
 protected:
  /// Relative error of a weight times the largest sum of |weight V|, per row; plus the rounding of a sum of products.
  static Vector allowed(Case const& test, Side side, std::span<double const> magnitudes, std::int64_t p,
                        bool normalized) {
    std::vector<double> const positive(magnitudes.begin(), magnitudes.end());
    Vector result = test.dense.average(side, test.eps, test.potentials, positive, p, normalized);
    Vector const relative = normalized ? test.tolerance.shares(side, test.potentials.of(other(side)))
                                       : test.tolerance.plan(side, test.potentials);
    for (std::size_t k = 0; k < result.size(); ++k) {
      result[k] *= relative[k / p] + test.tolerance.sum_error(side);
    }
    return result;
  }

  std::vector<double> run(EntropicOperator& entropic, Side side, double eps, MatrixView v, std::int64_t p,
                          bool normalized) {
    Stored out(std::vector<double>(entropic.size(side) * p), entropic.size(side), p, DataType::float64, 2);
    entropic.average(side, eps, v, out.mutable_view(), normalized);
    EXPECT_TRUE(out.padding_untouched());
    return out.values();
  }
};
MONGE_FOR_EACH_TARGET(Average);

TEST_P(Average, of_values_equals_the_oracle) {
  static constexpr std::int64_t kWidths[] = {1, 3, 64, 65};
  int index = 0;
  for (Recipe const& recipe : covering_recipes()) {
    std::int64_t const p = kWidths[index++ % 4];
    SCOPED_TRACE(testing::Message() << "p " << p << ", " << recipe);
    Case const test(recipe, arithmetic(recipe.d));
    auto const entropic = make_operator(test.problem);
    entropic->set_potentials(narrow(test.potentials.f), narrow(test.potentials.g));
    for (Side const side : {Side::rows, Side::columns}) {
      Random random(recipe.seed);
      std::int64_t const count = entropic->size(other(side));
      Stored const v(gaussian_points(count, p, random), count, p, recipe.storage, recipe.padding);
      std::vector<double> const values = v.values();
      std::vector<double> sizes = values;
      for (double& value : sizes) value = std::abs(value);
      for (bool const normalized : {false, true}) {
        Vector const expected = test.dense.average(side, test.eps, test.potentials, values, p, normalized);
        expect_close(normalized ? "shares V" : "P V", run(*entropic, side, test.eps, v.view(), p, normalized), expected,
                     allowed(test, side, sizes, p, normalized));
      }
    }
  }
}

// The digits that matter are those of the cloud, however far away it lies: the average is the centre, which is known to
// float64, and an average of y - centre.
TEST_P(Average, of_the_points_loses_no_digits_to_their_place) {
  for (Recipe const& recipe : covering_recipes()) {
    SCOPED_TRACE(testing::Message() << recipe);
    Case const test(recipe, arithmetic(recipe.d));
    auto const entropic = make_operator(test.problem);
    entropic->set_potentials(narrow(test.potentials.f), narrow(test.potentials.g));
    for (Side const side : {Side::rows, Side::columns}) {
      Side const far = other(side);
      std::vector<double> const points = (far == Side::rows ? test.problem.x : test.problem.y).values();
      double const radius = std::sqrt(test.tolerance.magnitudes().largest_square(far) / recipe.scale);
      std::vector<double> const sizes(points.size(), radius);
      Vector allowed_error = allowed(test, side, sizes, recipe.d, true);
      Vector const expected = test.dense.average(side, test.eps, test.potentials, points, recipe.d, true);
      for (std::size_t k = 0; k < expected.size(); ++k) {
        allowed_error[k] += arithmetic(recipe.d).unit * radius + 0x1p-51 * std::abs(expected[k]);
      }
      expect_close("map", run(*entropic, side, test.eps, {}, recipe.d, true), expected, allowed_error);

      std::vector<double> absolute = points;
      for (double& value : absolute) value = std::abs(value);
      expect_close("P y", run(*entropic, side, test.eps, {}, recipe.d, false),
                   test.dense.average(side, test.eps, test.potentials, points, recipe.d, false),
                   allowed(test, side, absolute, recipe.d, false));
    }
  }
}

TEST_P(Average, of_ones_is_the_marginal) {
  Case const test({50, 60, 3, Weights::with_zeros}, arithmetic(3));
  auto const entropic = make_operator(test.problem);
  entropic->set_potentials(narrow(test.potentials.f), narrow(test.potentials.g));
  Stored const ones(std::vector<double>(60, 1.0), 60, 1);
  std::vector<double> row(50), column(60);
  entropic->marginals(test.eps, row, column);
  std::vector<double> const product = run(*entropic, Side::rows, test.eps, ones.view(), 1, false);
  Vector const relative = test.tolerance.plan(Side::rows, test.potentials);
  std::vector<double> const shares = run(*entropic, Side::rows, test.eps, ones.view(), 1, true);
  for (std::size_t i = 0; i < row.size(); ++i) {
    EXPECT_NEAR(product[i], row[i], static_cast<double>(relative[i] * row[i]));
    EXPECT_NEAR(shares[i], 1, static_cast<double>(relative[i]));
    if (test.problem.a[i] == 0) {
      EXPECT_EQ(product[i], 0);
    }
  }
}

TEST_P(Average, writes_float32) {
  Case const test({50, 60, 3}, arithmetic(3));
  auto const entropic = make_operator(test.problem);
  entropic->set_potentials(narrow(test.potentials.f), narrow(test.potentials.g));
  std::vector<double> expected = run(*entropic, Side::rows, test.eps, {}, 3, true);
  for (double& value : expected) value = static_cast<float>(value);
  Stored out(expected, 50, 3, DataType::float32, 1);
  entropic->average(Side::rows, test.eps, {}, out.mutable_view(), true);
  EXPECT_TRUE(out.padding_untouched());
  EXPECT_EQ(out.values(), expected);
}

}  // namespace
}  // namespace monge::oracle
