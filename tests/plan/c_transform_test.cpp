// Hard c-transforms against minima over the oracle's costs.
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>

#include <monge/c_transform.hpp>

#include "operators/cases.hpp"

namespace monge::oracle {
namespace {

constexpr std::int64_t kUntouched = -7;

/// What a call leaves in strided outputs.
struct Result {
  std::vector<double> values;
  std::vector<std::int64_t> argmin;
};

class CTransform : public OperatorTest {
 protected:
  Result transform(Geometry const& geometry, Side side, VectorView given, std::int64_t size,
                   DataType type = DataType::float64) const {
    StoredVector out(std::vector<double>(size), type, 2);
    std::vector<std::int64_t> indices(size * 2, kUntouched);
    MutableIndexView const argmin{indices.data(), size, 1, 2, {}};
    auto const call = side == Side::rows ? c_transform : c_transform_transpose;
    call(context(), geometry, given, out.mutable_view(), argmin);
    EXPECT_TRUE(out.padding_untouched());
    Result result{out.values(), {}};
    for (std::int64_t i = 0; i < size; ++i) {
      result.argmin.push_back(indices[2 * i]);
      EXPECT_EQ(indices[2 * i + 1], kUntouched);
    }
    return result;
  }

  /// What C_ij - g_j may be off by, i of `side`, from the analysis of logits in oracle/tolerance.hpp: eps only divides
  /// there, but for log b_j, which is 0 here, and for what is lost in exponentials and their sums, in units of eps; the
  /// eps of the implementation is below a 64th of the range.
  Vector allowed(Problem problem, Dense const& dense, Side side, std::vector<double> const& given,
                 Vector const& result) const {
    Side const from = other(side);
    problem.a.assign(problem.a.size(), 1.0);
    problem.b.assign(problem.b.size(), 1.0);
    Magnitudes const magnitudes(problem);
    std::vector<double> const& shift = magnitudes.shift(from);
    double most = 0;
    for (std::size_t j = 0; j < given.size(); ++j) most = std::max(most, std::abs(given[j] - shift[j]));
    double const eps = (magnitudes.spread() + 2 * most) / 64;
    if (eps == 0) return Vector(dense.size(side), 0);
    Tolerance const tolerance(problem, eps, arithmetic(problem.d()));
    Vector finite = result;
    for (Real& value : finite) value = std::isfinite(value) ? value : 0;
    return tolerance.softmin(side, widen(given), finite);
  }

  void expect_transform(Problem const& problem, Side side, std::vector<double> const& given, Result const& actual) {
    Dense const dense(problem);
    std::int64_t const size = dense.size(side), others = dense.size(other(side));
    Vector expected(size), chosen(size);
    for (std::int64_t i = 0; i < size; ++i) {
      expected[i] = std::numeric_limits<Real>::infinity();
      for (std::int64_t j = 0; j < others; ++j) expected[i] = std::min(expected[i], dense.cost(side, i, j) - given[j]);
      std::int64_t const j = actual.argmin[i];
      ASSERT_TRUE(j >= 0 && j < others) << j;
      chosen[i] = dense.cost(side, i, j) - given[j];
    }
    Vector tolerance = allowed(problem, dense, side, given, expected);
    expect_close("values", actual.values, expected, tolerance);
    for (Real& value : tolerance) value *= 2;  // Both candidates are off.
    expect_close("costs of argmin", narrow(chosen), expected, tolerance);
  }
};
MONGE_FOR_EACH_OF(CTransform, ::monge::oracle::with_all_costs(::monge::oracle::all_devices()));

/// In float64, which is all there is.
std::vector<Target> targets_of_all_costs() {
  std::vector<Target> targets = with_all_costs(all_devices()) + with_point_costs(kPointCosts);
  std::erase_if(targets, [](Target const& target) { return target.precision != Precision::float64; });
  return targets;
}
class CTransformOfAllCosts : public CTransform {};
MONGE_FOR_EACH_OF(CTransformOfAllCosts, targets_of_all_costs());

class CTransformOfPoints : public CTransform {};
MONGE_FOR_EACH_DEVICE(CTransformOfPoints);

TEST_P(CTransformOfAllCosts, equals_the_oracle) {
  Random random(5);
  for (Recipe const& recipe : recipes()) {
    SCOPED_TRACE(testing::Message() << recipe);
    Problem const problem = make_problem(recipe);
    double const size = Magnitudes(problem).spread();
    for (Side const side : {Side::rows, Side::columns}) {
      std::vector<double> given(side == Side::rows ? recipe.m : recipe.n);
      for (double& value : given) value = 5 + random.uniform(-size, size);
      std::int64_t const results = side == Side::rows ? recipe.n : recipe.m;
      expect_transform(problem, side, given, transform(problem.geometry(), side, given, results));
      if (HasFatalFailure()) return;
    }
  }
}

// A cell of a diagram is wrong where float32, or points that are not centred, lose the digits of an offset.
TEST_P(CTransformOfPoints, keeps_every_cell_at_an_offset) {
  std::int64_t const n = 400, m = 50;
  for (std::int64_t const d : {2, 12}) {
    for (double const offset : {0.0, 100.0, 1e5}) {
      SCOPED_TRACE(testing::Message() << "d " << d << ", offset " << offset);
      Random random(7);
      auto const cloud = [&](std::int64_t size) {
        std::vector<double> points(size * d);
        for (double& value : points) value = offset + random.uniform();
        return Stored(points, size, d, DataType::float64);
      };
      Problem const problem{cloud(n), cloud(m), std::vector<double>(n, 1.0), std::vector<double>(m, 1.0)};
      std::vector<double> g(m);
      for (double& value : g) value = random.uniform(-0.01, 0.01);
      Result const actual = transform(problem.geometry(), Side::rows, g, n);
      Dense const dense(problem);
      int wrong = 0;
      for (std::int64_t i = 0; i < n; ++i) {
        std::vector<Real> score(m);
        for (std::int64_t j = 0; j < m; ++j) score[j] = dense.cost(Side::rows, i, j) - g[j];
        wrong += std::min_element(score.begin(), score.end()) - score.begin() != actual.argmin[i] ? 1 : 0;
      }
      EXPECT_EQ(wrong, 0);
      expect_transform(problem, Side::rows, g, actual);
    }
  }
}

// Numbers of few bits make C_ij - g_j exact, so the smallest j among ties is that of the definition.
TEST_P(CTransform, takes_the_first_of_ties) {
  std::int64_t const n = 23, m = 700;
  Random random(11);
  std::vector<double> costs(n * m), g(m);
  for (double& value : costs) value = std::floor(random.uniform(0, 6)) / 4;
  for (double& value : g) value = std::floor(random.uniform(0, 3)) / 4;
  Problem problem = make_matrix_problem(costs, std::vector<double>(n, 1.0), std::vector<double>(m, 1.0));
  if (GetParam().costs == Costs::points) {
    // The centres of these are 0: each point has its opposite.
    std::vector<double> x(n), y(m);
    for (std::int64_t i = 0; i + 1 < n; i += 2) x[i] = -(x[i + 1] = std::floor(random.uniform(0, 5)) / 2);
    for (std::int64_t j = 0; j < m; j += 2) y[j] = -(y[j + 1] = std::floor(random.uniform(0, 5)));
    problem = {Stored(x, n, 1), Stored(y, m, 1), problem.a, problem.b};
  }
  Result const actual = transform(problem.geometry(), Side::rows, g, n);
  Dense const dense(problem);
  int ties = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    Vector score(m);
    for (std::int64_t j = 0; j < m; ++j) score[j] = dense.cost(Side::rows, i, j) - g[j];
    auto const least = std::min_element(score.begin(), score.end());
    ties += std::count(score.begin(), score.end(), *least) > 1 ? 1 : 0;
    EXPECT_EQ(actual.argmin[i], least - score.begin()) << "row " << i;
    EXPECT_NEAR(actual.values[i], static_cast<double>(*least), 1e-15) << "row " << i;
  }
  EXPECT_GT(ties, n / 2);
}

// There is no scale but that of the potential.
TEST_P(CTransformOfPoints, of_one_place_is_the_least_potential) {
  std::vector<double> const points(14, 3.0);
  PointCloud const clouds{{points.data(), 5, 2}, {points.data(), 7, 2}};
  for (double const level : {0.0, 1e-30, -2.5, 1e12}) {
    SCOPED_TRACE(testing::Message() << "level " << level);
    std::vector<double> g(7, level);
    Result const even = transform(clouds, Side::rows, g, 5);
    EXPECT_EQ(even.argmin, std::vector<std::int64_t>(5, 0));
    g[4] += std::max(1e-3 * std::abs(level), 1e-33);
    Result const uneven = transform(clouds, Side::rows, g, 5);
    EXPECT_EQ(uneven.argmin, std::vector<std::int64_t>(5, 4));
    // A bound of costs that are all 0 may be the least float32, 1.4e-45.
    for (double const value : even.values) EXPECT_NEAR(value, -level, 1e-15 * std::abs(level) + 1e-45);
    for (double const value : uneven.values) EXPECT_NEAR(value, -g[4], 1e-15 * std::abs(level) + 1e-45);
  }
}

TEST_P(CTransformOfPoints, writes_float32) {
  Problem const problem = make_problem({30, 40, 3});
  std::vector<double> const g(40, 0.25);
  Result const wide = transform(problem.geometry(), Side::rows, g, 30);
  Result const narrow = transform(problem.geometry(), Side::rows, g, 30, DataType::float32);
  EXPECT_EQ(narrow.argmin, wide.argmin);
  for (std::size_t i = 0; i < 30; ++i) EXPECT_EQ(narrow.values[i], static_cast<float>(wide.values[i]));
}

// The semi-dual value of any potential is a lower bound; that of an entropic potential at a small eps is the optimum.
TEST_P(CTransformOfPoints, bounds_the_cost_of_every_plan) {
  std::vector<double> const x{0, 1, 2, 3}, y{0.9, 5.2, -0.3, 2.1};
  double const best = (0.09 + 0.01 + 0.01 + 4.84) / 4;  // Points of the line in their order.
  PointCloud const clouds{{x.data(), 4, 1}, {y.data(), 4, 1}};
  std::vector<double> f(4);
  std::vector<std::int64_t> argmin(4);
  auto const value_at = [&](std::vector<double> const& g) {
    c_transform(context(), clouds, g, f, {argmin.data(), 4, 1, 1, {}});
    return semi_dual_value(context(), {}, {}, f, g);
  };
  EXPECT_LT(value_at({0, 0, 0, 0}), best);
  EXPECT_LT(value_at({0.3, -2, 1, 0.1}), best);
  Plan const plan = solve(context(), clouds, {.eps = 1e-3, .tolerance = 1e-9, .precision = Precision::float64});
  EXPECT_NEAR(value_at(plan.g()), best, 1e-12);  // eps is far below what other assignments cost more.
  EXPECT_EQ(argmin, (std::vector<std::int64_t>{2, 0, 3, 1}));
}

TEST_P(CTransformOfPoints, weighs_the_semi_dual_value) {
  std::vector<double> const f{1, 2}, g{3, 5, 7}, a{1, 3}, b{2, 0, 2};
  EXPECT_DOUBLE_EQ(semi_dual_value(context(), {}, {}, f, g), 1.5 + 5);
  EXPECT_DOUBLE_EQ(semi_dual_value(context(), a, b, f, g), 7 + 20);
  EXPECT_DOUBLE_EQ(semi_dual_value(context(), a, {}, f, g), 7 + 20);
  EXPECT_THROW(semi_dual_value(context(), a, std::vector<double>{1, 1, 1}, f, g), Error);
}

TEST_P(CTransformOfPoints, refuses_what_it_cannot_use) {
  Problem const problem = make_problem({3, 4, 2});
  std::vector<double> f(3), g(4);
  std::vector<std::int64_t> argmin(3);
  auto const expect_refused = [&](VectorView given, MutableVectorView out, std::int64_t indices, char const* message) {
    try {
      c_transform(context(), problem.geometry(), given, out, {argmin.data(), indices, 1, 1, {}});
      ADD_FAILURE() << "must throw: " << message;
    } catch (Error const& error) {
      EXPECT_STREQ(error.what(), message);
    }
  };
  expect_refused(f, f, 3, "g: has 3 entries; must have 4");
  expect_refused(g, g, 3, "f: has 4 entries; must have 3");
  expect_refused(g, f, 2, "argmin: is 2 x 1; must be 3 x 1");
  g[2] = std::numeric_limits<double>::infinity();
  expect_refused(g, f, 3, "g: entry 2 is inf; potentials must be finite");
}

}  // namespace
}  // namespace monge::oracle
