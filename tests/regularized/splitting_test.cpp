// Splitting operators of each backend beside the dense recursion, values and read-outs.
//
// Tolerances. On Y = X + phi 1^T + 1 psi^T an iteration is a non-expansive map of the Frobenius norm, so rounding
// errors of iterations add up. Those of one, with u the unit roundoff of the entries: some 8 u of |X|, |phi|, |psi| and
// s |S| in each entry, and sums of rows and columns off by u (8 + sqrt(the terms that stay in T)), which phi and psi
// keep: k iterations have k (k + 1) / 2 of them. A group's factor is off by the same relative error as a sum. Newton's
// method of a hypentropy term solves for asinh(X / beta), so X is off by that many u more. Potentials are sums of a
// line of Y over its size, a few times.
#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>

#include "oracle/backend_test.hpp"
#include "oracle/regularized.hpp"

namespace monge::oracle {
namespace {

constexpr Real kDouble = 0x1p-53L;

Real norm_of(Vector const& values) {
  Real sum = 0;
  for (Real const value : values) sum += value * value;
  return std::sqrt(sum);
}

/// What an operator has in units of the oracle.
struct Outcome {
  Vector x, u, v;
};

class SplittingOperators : public BackendTest {
 protected:
  SplittingOperators() : BackendTest(3) {}

  std::unique_ptr<SplittingOperator> make(RegularizedData const& data) const {
    RegularizedInput const input = data.input();
    return std::move(make_splitting(backend_of(context()), {&input, 1}, precision())[0]);
  }

  SplittingResidual iterate(SplittingOperator& splitting, int count) const {
    SplittingStep step{&splitting, count};
    backend_of(context()).iterate({&step, 1});
    return step.residual;
  }

  /// A plan lowers the potentials of points without mass. With an oracle, these potentials are raised again, to those
  /// of the iterations.
  static Outcome outcome(SplittingOperator const& splitting, RegularizedOracle const* oracle = nullptr) {
    std::int64_t const n = splitting.rows(), m = splitting.columns();
    CostScale const scale = splitting.scale();
    std::vector<double> x(static_cast<std::size_t>(n * m)), u(static_cast<std::size_t>(n)),
        v(static_cast<std::size_t>(m));
    splitting.dense(MutableMatrixView(x.data(), n, m));
    splitting.potentials(u, v);
    Outcome result{widen(x), widen(u), widen(v)};
    for (Real& value : result.x) value /= scale.mass;
    for (Vector* const potentials : {&result.u, &result.v}) {
      for (Real& value : *potentials) value = (value - Real(scale.offset) / 2) / scale.range;
    }
    if (oracle == nullptr) return result;
    auto const lift = [&](Vector const& shares, Vector& potential) {
      for (std::size_t i = 0; i < shares.size(); ++i) {
        if (shares[i] == 0) potential[i] += Real(scale.depth) / scale.range;
      }
    };
    lift(oracle->p(), result.u);
    lift(oracle->q(), result.v);
    return result;
  }

  Real unit() const { return is_float64() ? kDouble : 0x1p-24L; }
  /// How far potentials are off that went through the caller's units.
  static Real unit_of_potentials(RegularizedOracle const& oracle) {
    return 4 * kDouble * (1 + std::abs(Real(oracle.scale().offset)) / oracle.scale().range);
  }

  /// Error of Y after one iteration from `state`, in the Frobenius norm.
  Real local_error(RegularizedOracle const& oracle, RegularizedOracle::Splitting const& state,
                   RegularizedRecipe const& recipe) const {
    std::int64_t const n = oracle.rows(), m = oracle.columns();
    Vector sizes;
    for (std::int64_t i = 0; i < n; ++i) {
      for (std::int64_t j = 0; j < m; ++j) {
        std::size_t const e = static_cast<std::size_t>(i * m + j);
        Real const cost = std::isfinite(oracle.costs()[e]) ? oracle.costs()[e] : 0;
        sizes.push_back(state.x[e] + std::abs(state.phi[static_cast<std::size_t>(i)]) +
                        std::abs(state.psi[static_cast<std::size_t>(j)]) + state.step * cost);
      }
    }
    Real terms = 8 + std::sqrt(Real(std::min<std::int64_t>(std::max(n, m), 1024)));
    if (recipe.hypentropy > 0) terms += 8 * (1 + std::asinh(1 / recipe.hypentropy_width));
    return unit() * terms * norm_of(sizes);
  }

  void expect_outcome(SplittingOperator const& splitting, RegularizedOracle const& oracle,
                      RegularizedOracle::Splitting const& state, Real error) const {
    Outcome const actual = outcome(splitting, &oracle);
    Real const n = Real(oracle.rows()), m = Real(oracle.columns());
    auto const distance = [](Vector const& a, Vector const& b, Real factor) {
      Vector difference;
      for (std::size_t e = 0; e < a.size(); ++e) difference.push_back(a[e] - factor * b[e]);
      return static_cast<double>(norm_of(difference));
    };
    Real const gauge = unit_of_potentials(oracle);
    expect_close("|X - oracle|", distance(actual.x, state.x, 1), 0, error);
    expect_close("|u - oracle|", distance(actual.u, state.phi, 1 / state.step), 0,
                 5 * error / std::sqrt(m) / state.step + gauge * (std::sqrt(n) + norm_of(actual.u)));
    expect_close("|v - oracle|", distance(actual.v, state.psi, 1 / state.step), 0,
                 5 * error / std::sqrt(n) / state.step + gauge * (std::sqrt(m) + norm_of(actual.v)));
  }

  /// The operator goes as the oracle does in `count` iterations, taken in calls of `chunk`.
  void expect_same_recursion(RegularizedRecipe const& recipe, std::vector<int> const& counts,
                             bool sets_step = false) const {
    SCOPED_TRACE(recipe.name + " " + std::to_string(recipe.n) + " x " + std::to_string(recipe.m));
    RegularizedData const data(recipe);
    RegularizedOracle const oracle(data);
    auto const splitting = make(data);
    double const step = 2.0 / static_cast<double>(recipe.n + recipe.m);
    splitting->start(step);
    auto state = oracle.start(step);
    Real local = 0;
    int iterations = 0;
    for (int const count : counts) {
      SCOPED_TRACE("after " + std::to_string(iterations) + " iterations " + std::to_string(count));
      if (sets_step && iterations > 0) {
        double const next = static_cast<double>(state.step) * 1.7;
        splitting->set_step(next);
        oracle.set_step(state, next);
      }
      SplittingResidual const residual = iterate(*splitting, count);
      for (int k = 0; k < count; ++k, ++iterations) {
        oracle.iterate(state);
        local = std::max(local, local_error(oracle, state, recipe));
      }
      // Scaling phi and psi may expand Y by its factor.
      Real const error = Real(iterations * (iterations + 1)) / 2 * local * (sets_step ? 3 : 1);
      expect_outcome(*splitting, oracle, state, error);
      expect_residual(residual, *splitting, oracle);
    }
  }

  /// Residual of the plan that the operator has, whose sums are off by their own rounding alone.
  void expect_residual(SplittingResidual const& residual, SplittingOperator const& splitting,
                       RegularizedOracle const& oracle) const {
    Outcome const actual = outcome(splitting);
    OracleValues const values = oracle.evaluate(actual.x, actual.u, actual.v);
    Real const expected = std::sqrt(values.residual_squares);
    // A side's sums have a norm of at most |X| sqrt(its partners).
    Real const sums = 2 * norm_of(actual.x) * std::sqrt(Real(std::max(oracle.rows(), oracle.columns())));
    expect_close("residual", std::sqrt(residual.row_squares + residual.column_squares), expected,
                 40 * unit() * sums + 4 * kDouble * expected);
    EXPECT_EQ(residual.nonzeros, values.nonzeros);
  }
};
MONGE_FOR_EACH_OF(SplittingOperators,
                  (std::vector<Target>{
                      {DeviceType::cpu, Precision::float32},
                      {DeviceType::cpu, Precision::float64},
                      {DeviceType::cuda, Precision::float32},
                      {DeviceType::cuda, Precision::float64},
                      {.device = DeviceType::cuda, .precision = Precision::float32, .portable = true},
                      {.device = DeviceType::cuda, .precision = Precision::float64, .portable = true}}));

/// Each term alone and the sums that are allowed.
std::vector<RegularizedRecipe> regularizers(std::int64_t n, std::int64_t m, DeviceType device) {
  std::vector<RegularizedRecipe> recipes;
  auto const add = [&](char const* name, auto&& change) {
    RegularizedRecipe recipe{n, m, name};
    change(recipe);
    recipes.push_back(recipe);
  };
  using R = RegularizedRecipe;
  add("none", [](R&) {});
  add("quadratic", [](R& r) { r.quadratic = 1; });
  add("huge_quadratic", [](R& r) { r.quadratic = 1e6; });
  add("group_lasso", [](R& r) { r.group_lasso = 0.1; });
  add("group_lasso_weights", [](R& r) {
    r.group_lasso = 0.1;
    r.has_group_weights = true;
  });
  add("group_lasso_quadratic", [](R& r) {
    r.group_lasso = 0.05;
    r.quadratic = 2;
  });
  add("l1", [](R& r) { r.l1 = 0.5; });
  add("l1_group_lasso_mask", [](R& r) {
    r.l1 = 0.3;
    r.group_lasso = 0.05;
    r.has_mask = true;
  });
  add("mask", [](R& r) { r.has_mask = true; });
  add("infinite_costs", [](R& r) { r.has_infinite_costs = true; });
  add("hypentropy", [](R& r) { r.hypentropy = 0.05; });
  add("hypentropy_quadratic_l1", [](R& r) {
    r.hypentropy = 0.05;
    r.quadratic = 1;
    r.l1 = 0.2;
  });
  add("hypentropy_group_lasso", [](R& r) {
    r.hypentropy = 0.05;
    r.group_lasso = 0.05;
    r.has_group_weights = true;
  });
  add("hypentropy_quadratic_group_lasso_mask", [](R& r) {
    r.hypentropy = 0.02;
    r.hypentropy_width = 1e-3;
    r.quadratic = 1;
    r.group_lasso = 0.1;
    r.has_mask = true;
  });
  add("points", [](R& r) {
    r.quadratic = 0.5;
    r.has_points = true;
  });
  add("points_l1_group_lasso", [](R& r) {
    r.l1 = 0.3;
    r.group_lasso = 0.05;
    r.has_points = true;
  });
  add("points_hypentropy", [](R& r) {
    r.hypentropy = 0.05;
    r.has_points = true;
  });
  add("zero_shares", [](R& r) {
    r.quadratic = 0.5;
    r.has_zero_shares = true;
  });
  add("zero_shares_group_lasso", [](R& r) {
    r.group_lasso = 0.05;
    r.has_zero_shares = true;
    r.has_mask = true;
  });
  if (device != DeviceType::cpu) return recipes;
  add("pair_groups", [](R& r) {
    r.group_lasso = 0.1;
    r.has_pair_groups = true;
  });
  add("pair_groups_weights_quadratic_l1_mask", [](R& r) {
    r.group_lasso = 0.1;
    r.groups = 7;
    r.has_pair_groups = r.has_group_weights = r.has_mask = true;
    r.quadratic = 1;
    r.l1 = 0.3;
  });
  add("points_pair_groups", [](R& r) {
    r.group_lasso = 0.05;
    r.groups = 40;
    r.has_points = r.has_pair_groups = true;
  });
  add("zero_shares_pair_groups", [](R& r) {
    r.group_lasso = 0.05;
    r.has_zero_shares = r.has_pair_groups = r.has_infinite_costs = true;
  });
  return recipes;
}

TEST_P(SplittingOperators, recursion_is_the_oracles) {
  for (RegularizedRecipe const& recipe : regularizers(37, 53, GetParam().device)) {
    for (std::vector<int> const& counts : {std::vector<int>{1, 1, 1}, {2, 2}, {3, 4}, {7}})
      expect_same_recursion(recipe, counts);
  }
}

TEST_P(SplittingOperators, recursion_of_one_row_or_column) {
  for (auto const& [n, m] : {std::pair{1, 1}, {1, 7}, {7, 1}, {2, 3}, {130, 2}, {3, 130}}) {
    for (RegularizedRecipe recipe : regularizers(n, m, GetParam().device)) {
      recipe.groups = std::min<std::int64_t>(recipe.groups, n);
      expect_same_recursion(recipe, {1, 2, 3});
    }
  }
}

TEST_P(SplittingOperators, recursion_of_many_blocks) {
  for (auto const& [n, m] : {std::pair{2503, 137}, {131, 2503}}) {
    for (RegularizedRecipe const& recipe : regularizers(n, m, GetParam().device)) {
      if (recipe.name != "quadratic" && recipe.name != "l1_group_lasso_mask") continue;
      expect_same_recursion(recipe, {3, 2});
    }
  }
}

TEST_P(SplittingOperators, groups_of_any_size) {
  for (std::int64_t const groups : {1, 2, 16, 61}) {
    RegularizedRecipe recipe{.n = 61, .m = 35, .name = "groups", .group_lasso = 0.05, .groups = groups};
    recipe.seed = 5;
    expect_same_recursion(recipe, {1, 4});
  }
}

/// More rows in a group than a block of a GPU takes. Without clusters no kernel has room for them.
TEST_P(SplittingOperators, groups_of_thousands_of_rows) {
  RegularizedRecipe recipe{.n = 12503, .m = 5, .name = "groups", .group_lasso = 0.05, .groups = 2};
  if (!GetParam().portable) {
    expect_same_recursion(recipe, {1, 4});
    // The slab of the small group has blocks without rows in its cluster.
    recipe.name = "groups of hypentropy";
    recipe.hypentropy = 0.01;
    recipe.groups = 3;
    return expect_same_recursion(recipe, {2});
  }
  recipe.groups = 1;
  RegularizedData const data(recipe);
  try {
    make(data);
    ADD_FAILURE() << "no error";
  } catch (Error const& error) {
    EXPECT_EQ(error.code(), ErrorCode::unsupported);
    EXPECT_EQ(error.what(), "groups: one has 12504 rows; this device supports at most " +
                                std::string(is_float64() ? "2304" : "5120"));
  }
}

/// Groups whose norms before the prox are within some roundings of their thresholds: after it, a norm is far below one
/// rounding of the threshold. A rounding error of a Newton step must not become a norm that is large, or infinite.
TEST_P(SplittingOperators, groups_at_their_thresholds) {
  constexpr std::int64_t kGroups = 1000;
  for (std::int64_t const rows : {1, 4, 9}) {
    SCOPED_TRACE(testing::Message() << "about " << rows << " rows");
    std::int64_t const n = kGroups * rows;
    double const step = 2.0 / static_cast<double>(n + 1);
    // Half of an entry before the prox is a few widths, and the weight takes the other half.
    RegularizedRecipe recipe{.n = n, .m = 1, .group_lasso = 1, .groups = kGroups, .hypentropy = 0.5};
    recipe.hypentropy_width = 0.1 * step;
    RegularizedData data(recipe);
    RegularizedOracle const without_weights(data);
    auto const start = without_weights.start(step);
    Vector squares(kGroups, 0);
    for (std::size_t i = 0; i < data.terms.groups.size(); ++i) {
      Real const v = std::max<Real>(start.phi[i] + start.psi[0] - step * without_weights.costs()[i], 0);
      squares[static_cast<std::size_t>(data.terms.groups[i])] += v * v;
    }
    double const lambda = data.terms.group_lasso / without_weights.scale().range;
    for (std::size_t g = 0; g < squares.size(); ++g) {
      Real const roundings = Real(g % 40) - 8;
      data.terms.group_weights[g] =
          static_cast<double>(std::sqrt(squares[g]) * (1 - roundings * unit())) / (step * lambda);
    }
    RegularizedOracle const oracle(data);
    auto const splitting = make(data);
    splitting->start(step);
    auto state = oracle.start(step);
    iterate(*splitting, 1);
    Real const error = local_error(oracle, state, recipe);
    oracle.iterate(state);
    expect_outcome(*splitting, oracle, state, error);
  }
}

/// So many entries stay in the shared memory of a GPU that is large enough.
TEST_P(SplittingOperators, recursion_of_a_million_entries) {
  expect_same_recursion({.n = 1109, .m = 1013, .name = "quadratic", .quadratic = 1}, {3, 2});
}

TEST_P(SplittingOperators, step_changes_keep_plan_and_potentials) {
  for (RegularizedRecipe const& recipe : regularizers(41, 29, GetParam().device))
    expect_same_recursion(recipe, {2, 3, 2}, true);
}

/// A warm start replaces X, or the potentials, or both; sums of its plan are float64, of entries in the type of X.
TEST_P(SplittingOperators, recursion_goes_on_from_a_start) {
  for (RegularizedRecipe recipe : regularizers(41, 29, GetParam().device)) {
    recipe.mass = 3;
    for (int const parts : {1, 2, 3}) {
      SCOPED_TRACE(recipe.name + " " + std::to_string(parts));
      RegularizedData const data(recipe);
      RegularizedOracle const oracle(data);
      auto const splitting = make(data);
      double const step = 0.03;
      splitting->start(step);
      auto state = oracle.start(step);
      Random random(7);
      std::vector<double> plan(41 * 29), u(41), v(29);
      for (std::size_t e = 0; e < plan.size(); ++e) {
        plan[e] = random.uniform() < 0.3 ? 3 * random.uniform() / 400 : 0;
        if (parts & 1) state.x[e] = Real(plan[e]) / 3;
      }
      for (std::size_t i = 0; i < u.size(); ++i) {
        u[i] = random.uniform() - 0.3;
        if (parts & 2) state.phi[i] = step * Real(u[i]);
      }
      for (std::size_t j = 0; j < v.size(); ++j) {
        v[j] = random.uniform() - 0.3;
        if (parts & 2) state.psi[j] = step * Real(v[j]);
      }
      oracle.set_step(state, step);  // Makes the sums.
      SplittingStart from;
      if (parts & 1) from.plan = MatrixView(plan.data(), 41, 29);
      if (parts & 2) from = {u, v, from.plan};
      splitting->begin_from(from);
      Real const start = local_error(oracle, state, recipe);
      expect_outcome(*splitting, oracle, state, start);
      Real local = 0;
      SplittingResidual const residual = iterate(*splitting, 5);
      for (int k = 0; k < 5; ++k) {
        oracle.iterate(state);
        local = std::max(local, local_error(oracle, state, recipe));
      }
      expect_outcome(*splitting, oracle, state, start + 15 * local);
      expect_residual(residual, *splitting, oracle);
    }
  }
}

TEST_P(SplittingOperators, starts_that_are_not_finite_are_errors) {
  RegularizedData const data({.n = 4, .m = 3, .quadratic = 1});
  auto const splitting = make(data);
  splitting->start(0.1);
  std::vector<double> plan(12, 0.1);
  plan[7] = std::numeric_limits<double>::quiet_NaN();
  try {
    splitting->begin_from({{}, {}, MatrixView(plan.data(), 4, 3)});
    ADD_FAILURE() << "no error";
  } catch (Error const& error) {
    EXPECT_EQ(std::string(error.what()), "plan: row 2 has the sum nan; must be finite");
  }
}

TEST_P(SplittingOperators, costs_may_lie_anywhere_and_have_any_scale) {
  for (DataType const storage : {DataType::float32, DataType::float64}) {
    for (bool const transposed : {false, true}) {
      RegularizedRecipe recipe{.n = 31, .m = 43, .name = "scaled", .quadratic = 1, .l1 = 0.1};
      recipe.has_mask = true;
      recipe.storage = storage;
      recipe.transposed = transposed;
      for (auto const& [offset, range, mass] :
           {std::array{1e6, 1e3, 1.0}, {-3.0, 1e-4, 250.0}, {0.0, 1e12, 1e-6}, {1e6, 1.0, 3.0}}) {
        recipe.offset = offset;
        recipe.range = range;
        recipe.mass = mass;
        expect_same_recursion(recipe, {1, 4});
      }
    }
  }
}

/// Splitting calls take the same iterations however they are cut, to the bit.
TEST_P(SplittingOperators, iterations_do_not_depend_on_calls) {
  for (RegularizedRecipe const& recipe : regularizers(67, 45, GetParam().device)) {
    RegularizedData const data(recipe);
    auto const whole = make(data), cut = make(data);
    for (auto* const splitting : {whole.get(), cut.get()}) splitting->start(0.02);
    iterate(*whole, 9);
    for (int const count : {1, 2, 3, 1, 2}) iterate(*cut, count);
    Outcome const a = outcome(*whole), b = outcome(*cut);
    EXPECT_TRUE(a.x == b.x && a.u == b.u && a.v == b.v) << recipe.name;
  }
}

/// Iterations of another plan, with another step, leave no trace in one that was kept, to the bit.
TEST_P(SplittingOperators, spares_keep_all_that_iterations_need) {
  for (SplittingOperator::Spare const spare : {SplittingOperator::Spare::run, SplittingOperator::Spare::mean}) {
    for (RegularizedRecipe const& recipe : regularizers(67, 45, GetParam().device)) {
      RegularizedData const data(recipe);
      auto const alone = make(data), interrupted = make(data);
      for (auto* const splitting : {alone.get(), interrupted.get()}) {
        splitting->start(0.02);
        iterate(*splitting, 3);
      }
      Outcome const kept = outcome(*alone);
      interrupted->keep(spare);
      interrupted->set_step(0.07);
      iterate(*interrupted, 4);
      interrupted->evaluate();
      Outcome const other = outcome(*interrupted);
      interrupted->exchange(spare);
      Outcome const back = outcome(*interrupted);
      EXPECT_TRUE(back.x == kept.x && back.u == kept.u && back.v == kept.v) << recipe.name;
      SplittingResidual const here = iterate(*interrupted, 5), there = iterate(*alone, 5);
      EXPECT_EQ(here.row_squares, there.row_squares) << recipe.name;
      Outcome const a = outcome(*alone), b = outcome(*interrupted);
      EXPECT_TRUE(a.x == b.x && a.u == b.u && a.v == b.v) << recipe.name;
      interrupted->exchange(spare);
      EXPECT_TRUE(outcome(*interrupted).x == other.x) << recipe.name;
    }
  }
}

/// A mean is off by a rounding of each plan and of each of the steps that it takes, and so is what it is apart from.
/// The root of a sum of squares over rows and then columns has half of the relative error of the sum, 41 + 58
/// roundings.
TEST_P(SplittingOperators, means_are_what_iterations_go_on_from) {
  constexpr auto kMean = SplittingOperator::Spare::mean;
  for (RegularizedRecipe const& recipe : regularizers(41, 58, GetParam().device)) {
    SCOPED_TRACE(recipe.name);
    RegularizedData const data(recipe);
    RegularizedOracle const oracle(data);
    auto const splitting = make(data);
    double const step = 0.03;
    splitting->start(step);
    auto state = oracle.start(step);
    std::fill(state.phi.begin(), state.phi.end(), 0);
    std::fill(state.psi.begin(), state.psi.end(), 0);
    constexpr int kPlans = 3;
    Outcome last;
    for (int k = 0; k < kPlans; ++k) {
      iterate(*splitting, 2);
      if (k == 0) {
        splitting->keep(kMean);
      } else {
        splitting->approach(kMean, 1.0 / (k + 1));
      }
      last = outcome(*splitting, &oracle);
      auto const add = [](Vector& sum, Vector const& values, Real factor) {
        for (std::size_t e = 0; e < sum.size(); ++e) sum[e] += factor * values[e];
      };
      add(state.x, last.x, Real(1) / kPlans);
      add(state.phi, last.u, Real(step) / kPlans);
      add(state.psi, last.v, Real(step) / kPlans);
    }
    oracle.set_step(state, step);  // Makes the sums.

    SplittingDistance const actual = splitting->distance(kMean);
    Vector plan, potentials;
    for (std::size_t e = 0; e < last.x.size(); ++e) {
      std::size_t const i = e / 58, j = e % 58;
      plan.push_back(last.x[e] - state.x[e]);
      potentials.push_back(last.u[i] + last.v[j] - (state.phi[i] + state.psi[j]) / step);
    }
    Real const local = local_error(oracle, state, recipe), gauge = unit_of_potentials(oracle);
    expect_close("|X - mean|", actual.plan, norm_of(plan),
                 2 * kPlans * unit() * norm_of(last.x) + (41 + 58) / Real(2) * unit() * norm_of(plan));
    expect_close("|u + v - mean|", actual.potentials, norm_of(potentials),
                 2 * gauge * (std::sqrt(Real(41 * 58)) + norm_of(potentials)));

    splitting->exchange(kMean);
    splitting->set_step(step);
    expect_outcome(*splitting, oracle, state, 2 * kPlans * unit() * norm_of(last.x));
    iterate(*splitting, 2);
    for (int k = 0; k < 2; ++k) oracle.iterate(state);
    expect_outcome(*splitting, oracle, state, 4 * local);
  }
}

TEST_P(SplittingOperators, values_are_the_oracles) {
  for (RegularizedRecipe recipe : regularizers(45, 71, GetParam().device)) {
    for (double const offset : {0.0, 1e5}) {
      SCOPED_TRACE(recipe.name);
      recipe.offset = offset;
      recipe.mass = offset == 0 ? 1 : 40;
      RegularizedData const data(recipe);
      RegularizedOracle const oracle(data);
      auto const splitting = make(data);
      splitting->start(2.0 / 116);
      iterate(*splitting, 25);
      Outcome const before = outcome(*splitting, &oracle);
      RegularizedValues const actual = splitting->evaluate();
      Outcome const after = outcome(*splitting, &oracle);
      Real const gauge = unit_of_potentials(oracle);
      // The largest feasible v moves by no more than u does.
      Vector const feasible = oracle.feasible(before.u, before.v);
      Vector const allowed(feasible.size(), 8 * gauge);
      expect_close("v", narrow(after.v), feasible, allowed);

      OracleValues const values = oracle.evaluate(after.x, after.u, after.v);
      Real const rounding = 32 * kDouble;
      expect_close("mass", actual.transported_mass, values.transported_mass, rounding * values.transported_mass);
      expect_close("residual", std::sqrt(actual.residual_squares), std::sqrt(values.residual_squares), rounding);
      expect_close("residual_l1", actual.residual_l1, values.residual_l1, rounding * 4);
      expect_close("cost", actual.transport_cost, values.transport_cost, rounding + 4 * gauge);
      expect_close("regularization", actual.regularization, values.regularization,
                   (rounding + 4 * gauge) * (values.regularization + 1));
      expect_close("dual", actual.dual, values.dual,
                   8 * gauge * (2 + values.conjugate_slope) + rounding * values.dual_size);
      EXPECT_EQ(actual.nonzeros, values.nonzeros);
    }
  }
}

/// The potentials of an evaluation are not those that iterations go on from.
TEST_P(SplittingOperators, evaluations_leave_the_recursion_alone) {
  for (RegularizedRecipe const& recipe : regularizers(31, 26, GetParam().device)) {
    RegularizedData const data(recipe);
    auto const evaluated = make(data), plain = make(data);
    for (auto* const splitting : {evaluated.get(), plain.get()}) {
      splitting->start(0.03);
      iterate(*splitting, 2);
      if (splitting == evaluated.get()) splitting->evaluate();
      splitting->set_step(0.05);
      iterate(*splitting, 3);
    }
    Outcome const a = outcome(*evaluated), b = outcome(*plain);
    EXPECT_TRUE(a.x == b.x && a.u == b.u && a.v == b.v) << recipe.name;
  }
}

/// Weak duality holds for what is returned, and the gap closes.
TEST_P(SplittingOperators, gap_closes) {
  for (RegularizedRecipe const& recipe : regularizers(19, 23, GetParam().device)) {
    SCOPED_TRACE(recipe.name);
    RegularizedData const data(recipe);
    auto const splitting = make(data);
    // Where the quadratic term is large so are u and v, and a step of the size of X over theirs is the fast one.
    splitting->start(recipe.quadratic > 100 ? 1 / recipe.quadratic : 2.0 / 42);
    iterate(*splitting, 6000);
    RegularizedValues const values = splitting->evaluate();
    double const primal = values.transport_cost + values.regularization;
    double const tolerance = (is_float64() ? 1e-5 : 1e-4) * (1 + std::abs(primal));
    EXPECT_LT(std::sqrt(values.residual_squares), tolerance);
    EXPECT_NEAR(primal, values.dual, tolerance);
  }
}

class SplittingPlan : public SplittingOperators {
 protected:
  void SetUp() override {
    SplittingOperators::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    data_ = std::make_unique<RegularizedData>(
        RegularizedRecipe{.n = kRows, .m = kColumns, .quadratic = 0.05, .group_lasso = 0.05, .groups = 7, .mass = 3});
    splitting_ = make(*data_);
    splitting_->start(0.01);
    iterate(*splitting_, 60);
    x_.resize(static_cast<std::size_t>(kRows * kColumns));
    splitting_->dense(MutableMatrixView(x_.data(), kRows, kColumns));
  }

  static constexpr std::int64_t kRows = 137, kColumns = 201;
  std::unique_ptr<RegularizedData> data_;
  std::unique_ptr<SplittingOperator> splitting_;
  std::vector<double> x_;
};
MONGE_FOR_EACH_OF(SplittingPlan, (std::vector<Target>{{DeviceType::cpu, Precision::float32},
                                                      {DeviceType::cpu, Precision::float64},
                                                      {DeviceType::cuda, Precision::float32},
                                                      {DeviceType::cuda, Precision::float64}}));

TEST_P(SplittingPlan, dense_may_be_strided_and_float32) {
  Stored out(std::vector<double>(x_.size()), kRows, kColumns, DataType::float32, 5);
  splitting_->dense(out.mutable_view());
  EXPECT_TRUE(out.padding_untouched());
  std::vector<double> const values = out.values();
  for (std::size_t e = 0; e < x_.size(); ++e) ASSERT_EQ(values[e], static_cast<float>(x_[e])) << e;
}

TEST_P(SplittingPlan, entries_are_those_of_the_dense_plan) {
  std::vector<std::int64_t> begin(2 * (kRows + 1), -7);
  MutableIndexView const row_begin{begin.data(), kRows + 1, 1, 2};
  std::int64_t const count = splitting_->nonzeros(row_begin);
  EXPECT_GT(count, 0);
  EXPECT_LT(count, kRows * kColumns);
  std::vector<std::int64_t> columns(static_cast<std::size_t>(2 * count), -7);
  std::vector<double> values(static_cast<std::size_t>(3 * count), -7);
  splitting_->entries(row_begin, {columns.data(), count, 1, 2}, MutableVectorView(values.data(), count, 3));
  std::size_t e = 0;
  for (std::int64_t i = 0; i < kRows; ++i) {
    ASSERT_EQ(begin[static_cast<std::size_t>(2 * i)], static_cast<std::int64_t>(e));
    for (std::int64_t j = 0; j < kColumns; ++j) {
      double const x = x_[static_cast<std::size_t>(i * kColumns + j)];
      if (x == 0) continue;
      ASSERT_LT(static_cast<std::int64_t>(e), count);
      EXPECT_EQ(columns[2 * e], j);
      EXPECT_EQ(values[3 * e], x);
      ++e;
    }
  }
  EXPECT_EQ(static_cast<std::int64_t>(e), count);
  EXPECT_EQ(begin[2 * kRows], count);
  EXPECT_EQ(columns[1], -7);
  EXPECT_EQ(values[1], -7);
}

TEST_P(SplittingPlan, entries_refuse_other_row_pointers) {
  std::vector<std::int64_t> begin(kRows + 1);
  MutableIndexView const row_begin{begin.data(), kRows + 1, 1, 1};
  std::int64_t const count = splitting_->nonzeros(row_begin);
  std::vector<std::int64_t> columns(static_cast<std::size_t>(count));
  std::vector<double> values(static_cast<std::size_t>(count));
  auto const entries = [&](std::int64_t size) {
    splitting_->entries(row_begin, {columns.data(), size, 1, 1}, MutableVectorView(values.data(), size));
  };
  EXPECT_THROW(entries(count - 1), Error);
  begin[5] += 1;
  EXPECT_THROW(entries(count), Error);
}

TEST_P(SplittingPlan, products_and_marginals_are_those_of_the_dense_plan) {
  Random random(4);
  for (Side const side : {Side::rows, Side::columns}) {
    bool const by_rows = side == Side::rows;
    std::int64_t const points = by_rows ? kRows : kColumns, others = by_rows ? kColumns : kRows, width = 5;
    std::vector<double> values(static_cast<std::size_t>(others * width));
    for (double& value : values) value = random.normal();
    Stored const given(values, others, width, DataType::float64, 2);
    auto const x = [&](std::int64_t point, std::int64_t partner) -> Real {
      return x_[static_cast<std::size_t>(by_rows ? point * kColumns + partner : partner * kColumns + point)];
    };
    Vector marginals, sizes;
    for (std::int64_t i = 0; i < points; ++i) {
      Real sum = 0;
      for (std::int64_t j = 0; j < others; ++j) sum += x(i, j);
      marginals.push_back(sum);
      sizes.push_back(256 * kDouble * sum);
    }
    StoredVector marginal(std::vector<double>(static_cast<std::size_t>(points)), DataType::float64, 3);
    splitting_->marginal(side, marginal.mutable_view());
    EXPECT_TRUE(marginal.padding_untouched());
    expect_close("marginal", marginal.values(), marginals, sizes);
    for (bool const averaged : {false, true}) {
      Stored out(std::vector<double>(static_cast<std::size_t>(points * width)), points, width, DataType::float64, 4);
      splitting_->product(side, averaged, given.view(), out.mutable_view());
      EXPECT_TRUE(out.padding_untouched());
      Vector expected, allowed;
      for (std::int64_t i = 0; i < points; ++i) {
        for (std::int64_t p = 0; p < width; ++p) {
          Real sum = 0, size = 0;
          for (std::int64_t j = 0; j < others; ++j) {
            Real const term = x(i, j) * values[static_cast<std::size_t>(j * width + p)];
            sum += term;
            size += std::abs(term);
          }
          Real const total = marginals[static_cast<std::size_t>(i)];
          Real const factor = !averaged ? 1 : total > 0 ? 1 / total : 0;
          expected.push_back(factor * sum);
          allowed.push_back(256 * kDouble * factor * size);
        }
      }
      expect_close(averaged ? "average" : "product", out.values(), expected, allowed);
    }
  }
}

TEST_P(SplittingPlan, averages_of_points_without_mass_are_zero) {
  RegularizedData const data({.n = 20, .m = 16, .quadratic = 0.1, .has_zero_shares = true});
  auto const splitting = make(data);
  splitting->start(0.05);
  iterate(*splitting, 3);
  std::vector<double> const ones(20, 1.0);
  std::vector<double> out(16, -1);
  splitting->product(Side::columns, true, MatrixView(ones.data(), 20, 1), MutableMatrixView(out.data(), 16, 1));
  EXPECT_EQ(out[1], 0);  // All of its costs are infinite.
  EXPECT_NEAR(out[0], 1, 1e-14);
}

/// Threads share the work, and change no bit of what comes out.
TEST_P(SplittingOperators, results_do_not_depend_on_threads) {
  RegularizedRecipe const plain{.n = 1203, .m = 437, .quadratic = 1, .groups = 40};
  std::vector<RegularizedRecipe> recipes(2, plain);
  recipes[1].group_lasso = 0.05;
  if (GetParam().device == DeviceType::cpu) {
    recipes.push_back(recipes[1]);
    recipes[2].has_pair_groups = true;
  }
  for (RegularizedRecipe const& recipe : recipes) {
    RegularizedData const data(recipe);
    RegularizedInput const input = data.input();
    std::vector<Outcome> outcomes;
    std::vector<RegularizedValues> values;
    for (int const threads : {1, 2, 3}) {
      Context const with_threads = make_context(GetParam().device, threads);
      auto const splitting = std::move(make_splitting(backend_of(with_threads), {&input, 1}, precision())[0]);
      splitting->start(2.0 / 1640);
      splitting->iterate(8);
      values.push_back(splitting->evaluate());
      outcomes.push_back(outcome(*splitting));
    }
    for (std::size_t k : {1, 2}) {
      EXPECT_TRUE(outcomes[k].x == outcomes[0].x && outcomes[k].u == outcomes[0].u && outcomes[k].v == outcomes[0].v);
      EXPECT_EQ(values[k].dual, values[0].dual);
      EXPECT_EQ(values[k].residual_squares, values[0].residual_squares);
      EXPECT_EQ(values[k].regularization, values[0].regularization);
    }
  }
}

/// Problems that go side by side get the bits that they get alone.
TEST_P(SplittingOperators, batches_are_as_problems_alone) {
  std::vector<std::unique_ptr<RegularizedData>> data;
  std::vector<RegularizedInput> inputs;
  for (RegularizedRecipe const& recipe : regularizers(29, 38, GetParam().device)) {
    data.push_back(std::make_unique<RegularizedData>(recipe));
    data.push_back(
        std::make_unique<RegularizedData>(RegularizedRecipe{.n = 17 + 40 * std::ssize(data), .m = 53, .quadratic = 1}));
  }
  for (auto const& each : data) inputs.push_back(each->input());
  auto const batch = make_splitting(backend_of(context()), inputs, precision());
  std::vector<SplittingStep> steps;
  for (auto const& splitting : batch) {
    splitting->start(0.02);
    steps.push_back({splitting.get(), static_cast<int>(1 + steps.size() % 5)});
  }
  backend_of(context()).iterate(steps);
  for (std::size_t k = 0; k < data.size(); ++k) {
    auto const alone = make(*data[k]);
    alone->start(0.02);
    SplittingResidual const residual = iterate(*alone, steps[k].count);
    Outcome const a = outcome(*alone), b = outcome(*batch[k]);
    EXPECT_TRUE(a.x == b.x && a.u == b.u && a.v == b.v) << k;
    EXPECT_EQ(residual.row_squares, steps[k].residual.row_squares) << k;
  }
}

class SplittingErrors : public SplittingOperators {
 protected:
  std::string message_of(CostMatrix const& cost, RegularizerTerms const& terms,
                         std::vector<double> const& p = {0.5, 0.5}) const {
    Geometry const geometry = cost;
    std::vector<double> const q{0.5, 0.25, 0.25};
    RegularizedInput const input{geometry, p, q, 1, terms};
    try {
      backend_of(context()).regularized_costs({&input, 1});
    } catch (Error const& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      return error.what();
    }
    return "";
  }
  static constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  static constexpr double kInfinity = std::numeric_limits<double>::infinity();
};
MONGE_FOR_EACH_OF(SplittingErrors, (std::vector<Target>{{DeviceType::cpu, Precision::float32},
                                                        {DeviceType::cpu, Precision::float64},
                                                        {DeviceType::cuda, Precision::float32},
                                                        {DeviceType::cuda, Precision::float64}}));

TEST_P(SplittingErrors, name_the_first_bad_entry) {
  std::vector<double> costs{1, 2, 3, 4, 5, 6}, good(6, 1.0);
  auto const matrix = [](std::vector<double> const& values) { return MatrixView(values.data(), 2, 3); };
  EXPECT_EQ(message_of({matrix(costs)}, {}), "");
  costs[5] = -kInfinity;
  EXPECT_EQ(message_of({matrix(costs)}, {}), "cost: row 1, column 2 is -inf; must be finite or +infinity");
  costs[3] = -kNan;
  EXPECT_EQ(message_of({matrix(costs)}, {}), "cost: row 1, column 0 is nan; must be finite or +infinity");
  EXPECT_EQ(message_of({MatrixView(costs.data(), 3, 2), true}, {}),
            "cost: row 1, column 1 is nan; must be finite or +infinity");
  for (double const bad : {-0.5, kNan, kInfinity}) {
    std::vector<double> weights = good;
    weights[4] = bad;
    RegularizerTerms terms;
    terms.l1 = 1;
    terms.l1_weights = matrix(weights);
    std::string const text = bad < 0 ? "-0.5" : bad > 0 ? "inf" : "nan";
    EXPECT_EQ(message_of({matrix(good)}, terms),
              "l1_weights: row 1, column 1 is " + text + "; must be finite and >= 0");
  }
  std::vector<double> masks = good;
  masks[2] = kNan;
  RegularizerTerms terms;
  terms.mask = matrix(masks);
  EXPECT_EQ(message_of({matrix(good)}, terms), "mask: row 0, column 2 is nan; must be finite");
}

TEST_P(SplittingErrors, name_points_without_partners) {
  std::vector<double> costs{kInfinity, kInfinity, 1, 1, 1, 1}, masks{1, 1, 0, 1, 1, 1};
  RegularizerTerms terms;
  EXPECT_EQ(message_of({MatrixView(costs.data(), 2, 3)}, terms), "");
  terms.mask = MatrixView(masks.data(), 2, 3);
  EXPECT_EQ(message_of({MatrixView(costs.data(), 2, 3)}, terms),
            "cost: row 0 has mass and no allowed pair with a column that has; must have at least one");
  costs = {1, kInfinity, 1, 1, 1, 1};
  masks = {1, 1, 1, 1, 0, 1};
  EXPECT_EQ(message_of({MatrixView(costs.data(), 2, 3)}, terms),
            "cost: column 1 has mass and no allowed pair with a row that has; must have at least one");
  // A partner without mass is none.
  masks[4] = 1;
  EXPECT_EQ(message_of({MatrixView(costs.data(), 2, 3)}, terms, {1, 0}),
            "cost: column 1 has mass and no allowed pair with a row that has; must have at least one");
  costs = {1e308, 1, 1, 1, 1, -1e308};
  EXPECT_EQ(message_of({MatrixView(costs.data(), 2, 3)}, {}),
            "cost: ranges from -1e+308 to 1e+308; the difference must be finite");
}

}  // namespace
}  // namespace monge::oracle
