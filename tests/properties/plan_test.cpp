// A plan as an operator and as an object: products, maps, potentials elsewhere; lifetime, moves, output types.
#include <cmath>
#include <optional>
#include <utility>

#include "oracle/backend_test.hpp"

namespace monge::oracle {
namespace {

class PlanTest : public BackendTest {
 protected:
  Plan solve(Problem const& problem, double eps, double tolerance = 1e-3) const {
    SolveOptions const options{.eps = eps, .tolerance = tolerance, .precision = precision()};
    return monge::solve(context(), problem.geometry(), problem.a, problem.b, options);
  }
  /// Plans of tf32 solves multiply in float32.
  Arithmetic products(std::int64_t d) const {
    Precision const own = precision() == Precision::tf32 ? Precision::float32 : precision();
    return oracle::arithmetic({GetParam().device}, own, d);
  }
};
MONGE_FOR_EACH_TARGET(PlanTest);
class PlanOfPoints : public PlanTest {};
MONGE_FOR_EACH_POINT_TARGET(PlanOfPoints);

std::vector<Recipe> const& plan_recipes() {
  static std::vector<Recipe> const table{
      {50, 60, 3, Weights::with_zeros, Place::origin, 0.05, DataType::float32, 1},
      {60, 50, 30, Weights::skewed, Place::apart, 0.1},
      {1, 40, 2},
      {65, 129, 70, Weights::uniform, Place::shifted, 0.02, DataType::float32, 0, 0.5, 4},
  };
  return table;
}

double eps_of(Recipe const& recipe, Problem const& problem) {
  return recipe.eps_over_spread * Magnitudes(problem).spread();
}

std::vector<double> identity(std::int64_t size) {
  std::vector<double> result(size * size);
  for (std::int64_t i = 0; i < size; ++i) result[i * size + i] = 1;
  return result;
}

TEST_P(PlanTest, products_equal_the_oracle) {
  for (Recipe const& recipe : plan_recipes()) {
    SCOPED_TRACE(testing::Message() << recipe);
    Problem const problem = make_problem(recipe);
    double const eps = eps_of(recipe, problem);
    Plan const plan = solve(problem, eps);
    ASSERT_EQ(plan.rows(), recipe.n);
    ASSERT_EQ(plan.columns(), recipe.m);
    Dense const dense(problem);
    Potentials const potentials = potentials_of(plan);
    Tolerance const tolerance(problem, eps, products(problem.d()));
    Random random(4);
    std::int64_t const p = 5;
    for (Side const side : {Side::rows, Side::columns}) {
      std::int64_t const count = dense.size(other(side));
      Stored const v(gaussian_points(count, p, random), count, p, DataType::float64, 3);
      Stored out(std::vector<double>(dense.size(side) * p), dense.size(side), p, DataType::float64, 2);
      if (side == Side::rows) {
        plan.apply(v.view(), out.mutable_view());
      } else {
        plan.apply_transpose(v.view(), out.mutable_view());
      }
      EXPECT_TRUE(out.padding_untouched());
      expect_close("product", out.values(), dense.average(side, eps, potentials, v.values(), p, false),
                   tolerance.product(dense, side, potentials, v.values(), p, false));

      std::vector<double> row(recipe.n), column(recipe.m);
      plan.marginals(row, column);
      Vector const marginal = dense.marginal(side, eps, potentials);
      Vector marginal_error = tolerance.plan(side, potentials);
      for (std::size_t i = 0; i < marginal.size(); ++i) marginal_error[i] *= marginal[i];
      expect_close("marginal", side == Side::rows ? row : column, marginal, marginal_error);
    }
    EvaluationTolerance const float64 =
        Tolerance(problem, eps, oracle::arithmetic({}, Precision::float64, problem.d())).evaluation(dense, potentials);
    expect_close("transport_cost", plan.transport_cost(), evaluate(dense, eps, potentials).transport_cost,
                 float64.transport_cost);
  }
}

TEST_P(PlanTest, weighted_and_repeated_products_equal_the_oracle) {
  for (Recipe const& recipe : plan_recipes()) {
    SCOPED_TRACE(testing::Message() << recipe);
    Problem const problem = make_problem(recipe);
    double const eps = eps_of(recipe, problem);
    Plan const plan = solve(problem, eps);
    Dense const dense(problem);
    Potentials const potentials = potentials_of(plan);
    Tolerance const tolerance(problem, eps, products(problem.d()));
    Random random(5);
    std::int64_t const k = 4, p = 2;
    Stored const l(gaussian_points(recipe.n, k, random), recipe.n, k, DataType::float32, 1);
    Stored const r(gaussian_points(recipe.m, k, random), recipe.m, k, DataType::float64, 2);
    for (Side const side : {Side::rows, Side::columns}) {
      bool const by_rows = side == Side::rows;
      std::int64_t const size = dense.size(side), count = dense.size(other(side));
      Stored const v(gaussian_points(count, p, random), count, p, DataType::float64, 3);
      Stored out(std::vector<double>(size * p), size, p, DataType::float64, 2);
      if (by_rows) {
        plan.apply_hadamard(l.view(), r.view(), v.view(), out.mutable_view());
      } else {
        plan.apply_hadamard_transpose(l.view(), r.view(), v.view(), out.mutable_view());
      }
      EXPECT_TRUE(out.padding_untouched());
      std::vector<double> const left = (by_rows ? l : r).values(), right = (by_rows ? r : l).values();
      expect_close("(P o l r^T) v", out.values(), dense.hadamard(side, eps, potentials, left, right, k, v.values(), p),
                   tolerance.hadamard(dense, side, potentials, left, right, k, v.values(), p, products(k)));

      StoredVector const weights(gaussian_points(count, 1, random), DataType::float32, 2);
      StoredVector const in(gaussian_points(size, 1, random), DataType::float64, 3);
      StoredVector gram(std::vector<double>(size), DataType::float64, 2);
      if (by_rows) {
        plan.apply_gram_transpose(weights.view(), in.view(), gram.mutable_view());
      } else {
        plan.apply_gram(weights.view(), in.view(), gram.mutable_view());
      }
      EXPECT_TRUE(gram.padding_untouched());
      Vector inner = dense.average(other(side), eps, potentials, in.values(), 1, false);
      std::vector<double> const w = weights.values();
      for (std::size_t i = 0; i < inner.size(); ++i) inner[i] *= w[i];
      expect_close("P^T diag(w) P v", gram.values(), dense.average(side, eps, potentials, narrow(inner), 1, false),
                   tolerance.gram(dense, side, potentials, w, in.values()));
    }
  }
}

TEST_P(PlanTest, transport_cost_without_a_certificate_is_the_plans_own) {
  for (Recipe const& recipe : plan_recipes()) {
    SCOPED_TRACE(testing::Message() << recipe);
    Problem const problem = make_problem(recipe);
    double const eps = eps_of(recipe, problem);
    SolveOptions const options{.eps = eps, .tolerance = 1e-2, .precision = precision(), .certificate = false};
    Plan const plan = monge::solve(context(), problem.geometry(), problem.a, problem.b, options);
    Potentials const potentials = potentials_of(plan);
    Dense const dense(problem);
    expect_close("transport_cost", plan.transport_cost(), evaluate(dense, eps, potentials).transport_cost,
                 Tolerance(problem, eps, products(problem.d())).evaluation(dense, potentials).transport_cost);
  }
}

TEST_P(PlanOfPoints, maps_equal_the_oracle_and_each_other) {
  for (Recipe const& recipe : plan_recipes()) {
    SCOPED_TRACE(testing::Message() << recipe);
    Problem const problem = make_problem(recipe);
    double const eps = eps_of(recipe, problem);
    Plan const plan = solve(problem, eps);
    Dense const dense(problem);
    Potentials const potentials = potentials_of(plan);
    Tolerance const tolerance(problem, eps, products(problem.d()));
    std::int64_t const d = recipe.d;
    Vector const expected = dense.average(Side::rows, eps, potentials, problem.y.values(), d, true);
    double const radius = std::sqrt(tolerance.magnitudes().largest_square(Side::columns) / recipe.scale);
    Vector const shares = tolerance.shares(Side::rows, potentials.g);
    Vector allowed(expected.size());
    for (std::size_t k = 0; k < allowed.size(); ++k) {
      allowed[k] = (shares[k / d] + products(d).unit) * radius + 0x1p-51 * std::abs(expected[k]);
    }
    Stored out(std::vector<double>(recipe.n * d), recipe.n, d, DataType::float64, 1);
    plan.barycentric_projection(out.mutable_view());
    EXPECT_TRUE(out.padding_untouched());
    expect_close("barycentric projection", out.values(), expected, allowed);
    plan.map(problem.x.view(), out.mutable_view());
    expect_close("map at x", out.values(), expected, allowed);

    StoredVector potential(std::vector<double>(recipe.n), DataType::float64, 2);
    plan.potential(problem.x.view(), potential.mutable_view());
    EXPECT_TRUE(potential.padding_untouched());
    Vector const softmin = dense.softmin(Side::rows, eps, potentials.g);
    expect_close("potential at x", potential.values(), softmin, tolerance.softmin(Side::rows, potentials.g, softmin));
  }
}

TEST_P(PlanOfPoints, map_of_a_far_point_is_its_nearest_target) {
  Problem const problem = make_problem({40, 50, 2});
  Plan const plan = solve(problem, 0.5);
  // <z, y_j> decides: the target farthest in this direction wins.
  std::vector<double> const y = problem.y.values();
  std::vector<double> const z{1e5, 2e4};
  std::size_t best = 0;
  for (std::size_t j = 1; j < 50; ++j) {
    if (z[0] * y[2 * j] + z[1] * y[2 * j + 1] > z[0] * y[2 * best] + z[1] * y[2 * best + 1]) best = j;
  }
  std::vector<double> out(2), potential(1);
  plan.map(MatrixView(z.data(), 1, 2), MutableMatrixView(out.data(), 1, 2));
  EXPECT_NEAR(out[0], y[2 * best], 1e-5);
  EXPECT_NEAR(out[1], y[2 * best + 1], 1e-5);
  plan.potential(MatrixView(z.data(), 1, 2), potential);
  double const cost = std::pow(z[0] - y[2 * best], 2) + std::pow(z[1] - y[2 * best + 1], 2);
  EXPECT_NEAR(potential[0], cost - plan.g()[best] + 0.5 * std::log(50.0), 1e-6 * cost);
}

TEST_P(PlanOfPoints, of_no_points_or_no_columns_writes_nothing) {
  Problem const problem = make_problem({10, 12, 2});
  Plan const plan = solve(problem, 0.5);
  std::vector<double> nothing;
  EXPECT_NO_THROW(plan.map(MatrixView(nothing.data(), 0, 2), MutableMatrixView(nothing.data(), 0, 2)));
  EXPECT_NO_THROW(plan.potential(MatrixView(nothing.data(), 0, 2), MutableVectorView(nothing)));
  std::vector<double> const l(20, 1.0), r(24, 1.0);
  EXPECT_NO_THROW(plan.apply(MatrixView(nothing.data(), 12, 0), MutableMatrixView(nothing.data(), 10, 0)));
  EXPECT_NO_THROW(plan.apply_hadamard(MatrixView(l.data(), 10, 2), MatrixView(r.data(), 12, 2),
                                      MatrixView(nothing.data(), 12, 0), MutableMatrixView(nothing.data(), 10, 0)));
}

TEST_P(PlanOfPoints, writes_both_types) {
  Problem const problem = make_problem({40, 50, 3, Weights::with_zeros});
  Plan const plan = solve(problem, 0.5);
  std::vector<double> f(40), g(50);
  plan.potentials(f, g);
  EXPECT_EQ(f, plan.f());
  EXPECT_EQ(g, plan.g());
  StoredVector f_float(f, DataType::float32, 2), g_float(g, DataType::float32, 3);
  StoredVector f_out(std::vector<double>(40), DataType::float32, 2),
      g_out(std::vector<double>(50), DataType::float32, 3);
  plan.potentials(f_out.mutable_view(), g_out.mutable_view());
  EXPECT_TRUE(f_out.padding_untouched() && g_out.padding_untouched());
  EXPECT_EQ(f_out.values(), f_float.values());
  EXPECT_EQ(g_out.values(), g_float.values());

  Stored wide(std::vector<double>(120), 40, 3), narrow_out(std::vector<double>(120), 40, 3, DataType::float32, 5);
  plan.barycentric_projection(wide.mutable_view());
  plan.barycentric_projection(narrow_out.mutable_view());
  EXPECT_TRUE(narrow_out.padding_untouched());
  EXPECT_EQ(narrow_out.values(), Stored(wide.values(), 40, 3, DataType::float32).values());
}

// Entries found one by one, and those that a product with the identity shows: both are off by the error of P, and by
// the rounding of a float32 output.
TEST_P(PlanTest, entries_belong_together) {
  std::int64_t const n = 60, m = 50, k = 4;
  double const eps = 0.5;
  Problem const problem = make_problem({n, m, 3, Weights::with_zeros});
  Plan const plan = solve(problem, eps);
  std::vector<double> const eye = identity(m);
  std::vector<double> dense(n * m);
  plan.apply(MatrixView(eye.data(), m, m), MutableMatrixView(dense.data(), n, m));
  Tolerance const tolerance(problem, eps, products(3));
  double relative = 0;
  for (Side const side : {Side::rows, Side::columns}) {
    for (Real const error : tolerance.plan(side, potentials_of(plan)))
      relative = std::max(relative, 2 * static_cast<double>(error) + 0x1p-23);
  }
  auto const expect_entry = [&](double value, std::int64_t i, std::int64_t j) {
    double const expected = dense[i * m + j];
    EXPECT_NEAR(value, expected, relative * expected) << i << ", " << j;
  };

  std::vector<std::int64_t> rows(n * k), columns(m * k), begin(n + 1);
  std::vector<float> row_values(n * k);
  std::vector<double> column_values(m * k);
  plan.top_k({rows.data(), n, k, k, {}}, MutableMatrixView(row_values.data(), n, k));
  plan.top_k_transpose({columns.data(), m, k, k, {}}, MutableMatrixView(column_values.data(), m, k));
  for (std::int64_t at = 0; at < n * k; ++at) expect_entry(row_values[at], at / k, rows[at]);
  for (std::int64_t at = 0; at < m * k; ++at) expect_entry(column_values[at], columns[at], at / k);

  double const threshold = 1e-3;
  std::int64_t const total = plan.count_above(threshold, {begin.data(), n + 1, 1, 1, {}});
  std::vector<std::int64_t> above(total);
  std::vector<float> values(total);
  plan.entries_above(threshold, {begin.data(), n + 1, 1, 1, {}}, {above.data(), total, 1, 1, {}}, values);
  ASSERT_GT(total, 0);
  for (std::int64_t i = 0; i < n; ++i) {
    for (std::int64_t at = begin[i]; at < begin[i + 1]; ++at) expect_entry(values[at], i, above[at]);
  }
  plan.count_above(1.0, {begin.data(), n + 1, 1, 1, {}});
  plan.entries_above(1.0, {begin.data(), n + 1, 1, 1, {}}, {nullptr, 0, 1, 1, {}}, std::vector<double>{});

  std::vector<std::int64_t> pairs(200);
  plan.sample(3, {pairs.data(), 100, 2, 2, {}});
  for (std::int64_t p = 0; p < 100; ++p) EXPECT_GT(dense[pairs[2 * p] * m + pairs[2 * p + 1]], 0);
  plan.sample(3, {nullptr, 0, 2, 2, {}});
}

struct Results {
  std::vector<double> f, g, product, map;
  friend bool operator==(Results const&, Results const&) = default;
};

Results results_of(Plan const& plan) {
  Results results{plan.f(), plan.g(), std::vector<double>(plan.rows()), std::vector<double>(3 * plan.rows())};
  std::vector<double> const ones(plan.columns(), 1.0);
  plan.apply(MatrixView(ones.data(), plan.columns(), 1), MutableMatrixView(results.product.data(), plan.rows(), 1));
  plan.barycentric_projection(MutableMatrixView(results.map.data(), plan.rows(), 3));
  return results;
}

TEST_P(PlanOfPoints, outlives_its_inputs_and_its_context) {
  auto problem = std::make_unique<Problem>(make_problem({40, 50, 3, Weights::skewed}));
  std::optional<Context> own = make_context(GetParam().device);
  SolveOptions const options{.eps = 0.5, .tolerance = 1e-3, .precision = precision()};
  Plan const plan = monge::solve(*own, problem->geometry(), problem->a, problem->b, options);
  Results const before = results_of(plan);
  own.reset();
  for (Stored* cloud : {&problem->x, &problem->y}) {  // freed memory may keep its values: spoil it first
    MutableMatrixView const view = cloud->mutable_view();
    std::fill_n(view.as<double>(), view.rows() * view.row_stride(), std::nan(""));
  }
  problem.reset();
  EXPECT_EQ(results_of(plan), before);
}

TEST_P(PlanOfPoints, moves) {
  Problem const problem = make_problem({40, 50, 3});
  Plan first = solve(problem, 0.5);
  Results const expected = results_of(first);
  Plan second = std::move(first);
  EXPECT_EQ(results_of(second), expected);
  Plan third = solve(make_problem({5, 6, 3}), 1);
  third = std::move(second);
  EXPECT_EQ(results_of(third), expected);
  EXPECT_EQ(third.rows(), 40);
  static_assert(!std::is_copy_constructible_v<Plan> && !std::is_copy_assignable_v<Plan>);
  static_assert(std::is_nothrow_move_constructible_v<Plan> && std::is_nothrow_move_assignable_v<Plan>);
}

TEST_P(PlanOfPoints, operations_change_no_result) {
  Problem const problem = make_problem({40, 50, 3});
  Plan const plan = solve(problem, 0.5);
  Results const first = results_of(plan);
  std::vector<double> out(150), potential(50);
  plan.map(problem.y.view(), MutableMatrixView(out.data(), 50, 3));
  plan.potential(problem.y.view(), potential);
  plan.transport_cost();
  EXPECT_EQ(results_of(plan), first);
}

TEST_P(PlanOfPoints, contexts_serve_many_plans) {
  Problem const problem = make_problem({40, 50, 3});
  Plan const first = solve(problem, 0.5);
  Results const expected = results_of(first);
  Plan const larger = solve(make_problem({150, 160, 3}), 0.5);
  Plan const smaller = solve(make_problem({4, 5, 3}), 0.5);
  EXPECT_EQ(results_of(first), expected);
  EXPECT_EQ(results_of(solve(problem, 0.5)), expected);
}

}  // namespace
}  // namespace monge::oracle
