// Plans of given potentials: their results are those of a solve's plan, without a sweep.
#include <algorithm>
#include <cmath>
#include <limits>

#include "operators/cases.hpp"
#include "oracle/refusal.hpp"

namespace monge::oracle {
namespace {

class PlanOf : public OperatorTest {
 protected:
  SolveOptions options(Case const& test) const { return {.eps = test.eps, .precision = precision()}; }
};
MONGE_FOR_EACH_COST_TARGET(PlanOf);

TEST_P(PlanOf, has_the_marginals_of_its_potentials) {
  for (Recipe const& recipe : recipes()) {
    if (recipe.n * recipe.m > 40000) continue;
    SCOPED_TRACE(testing::Message() << recipe);
    Case const test = make_case(recipe);
    std::vector<double> const f = narrow(test.potentials.f), g = narrow(test.potentials.g);
    SolveOptions given = options(test);
    given.f = f;
    given.g = g;
    Plan const plan = plan_of(context(), test.problem.geometry(), test.problem.a, test.problem.b, given);
    Report const& report = plan.report();
    EXPECT_EQ(report.status, Status::completed);
    EXPECT_EQ(report.iterations, 0);
    EXPECT_EQ(report.eps, test.eps);
    EXPECT_EQ(report.precision, precision());
    EXPECT_FALSE(report.certified);
    EXPECT_TRUE(std::isnan(report.dual) && std::isnan(report.marginal_error));
    std::vector<double> row(f.size()), column(g.size());
    plan.marginals(row, column);
    for (Side const side : kSides) {
      Vector const expected = test.dense.marginal(side, test.eps, test.potentials);
      Vector allowed = test.tolerance.plan(side, test.potentials);
      for (std::size_t i = 0; i < allowed.size(); ++i) allowed[i] *= expected[i];
      expect_close("marginal", side == Side::rows ? row : column, expected, allowed);
    }
  }
}

class PlanOfCalls : public OperatorTest {};
MONGE_FOR_EACH_DEVICE(PlanOfCalls);

TEST_P(PlanOfCalls, say_what_is_missing) {
  Problem const problem = make_problem({6, 8, 2});
  std::vector<double> const f(6), g(8);
  auto const call = [&](VectorView rows, VectorView columns, double eps = 1) {
    return oracle::refusal_of(
        [&] { plan_of(context(), problem.geometry(), problem.a, problem.b, {.eps = eps, .f = rows, .g = columns}); });
  };
  EXPECT_EQ(call(f, g), "no error");
  EXPECT_EQ(call({}, {}), "f: is missing; a plan of potentials needs both f and g");
  EXPECT_EQ(call(f, {}), "g: is missing; a plan of potentials needs both f and g");
  EXPECT_EQ(call(g, g), "f: has 8 entries; must have 6");
  EXPECT_EQ(call(f, g, 0), "no error");  // eps is 5 % of the mean cost, as in a solve.
  EXPECT_EQ(call(f, g, -1), "eps: is -1; must be finite and > 0");
  EXPECT_EQ(call(f, g, 1e-311), "eps: is 1e-311; must be at least 2.23e-308, whose reciprocal is finite");
  std::vector<double> const huge(8, 1e300);
  EXPECT_EQ(call(f, huge),
            "g: entry 0 is 1e+300; must be at most 2^53 eps, 9.01e+15, in size, else the plan has no digits");
  EXPECT_EQ(oracle::refusal_of([&] {
              plans_of(context(), std::vector<BatchProblem>{{problem.geometry(), {}, {}, f, g}, {problem.geometry()}},
                       {.eps = 1});
            }),
            "problem 1: f: is missing; a plan of potentials needs both f and g");
  DivergenceProblem divergence{problem.clouds(), problem.a, problem.b, {f, g}, {f, f}};
  EXPECT_EQ(oracle::refusal_of([&] { divergence_of(context(), divergence, {.eps = 1}); }),
            "f_bb: is missing; a plan of potentials needs both f_bb and g_bb");
  divergence.bb = {g, huge};
  EXPECT_EQ(oracle::refusal_of([&] { divergence_of(context(), divergence, {.eps = 1}); }),
            "g_bb: entry 0 is 1e+300; must be at most 2^53 eps, 9.01e+15, in size, else the plan has no digits");
  divergence.bb = {g, f};
  EXPECT_EQ(oracle::refusal_of([&] { divergence_of(context(), divergence, {.eps = 1}); }),
            "g_bb: has 6 entries; must have 8");
  EXPECT_EQ(oracle::refusal_of([&] { divergence_of(context(), divergence, {.eps = 1, .f = f, .g = g}); }),
            "f: is given in the options; must be given with the problem");
}

// A plan of given potentials has the same relative precision as the plan of a solve.
TEST_P(PlanOfCalls, has_the_derivatives_of_a_solve) {
  for (double const penalty : {std::numeric_limits<double>::infinity(), 0.7}) {
    Problem const problem = make_problem({30, 40, 3, Weights::with_zeros, Place::shifted});
    SolveOptions options{.eps = 0.5, .penalty_a = penalty, .penalty_b = penalty, .precision = precision()};
    Plan const solved = solve(context(), problem.geometry(), problem.a, problem.b, options);
    std::vector<double> const f = solved.f(), g = solved.g();
    options.f = f;
    options.g = g;
    Plan const given = plan_of(context(), problem.geometry(), problem.a, problem.b, options);
    std::vector<double> expected(30 * 3), found(30 * 3), by_a(30), by_a_found(30);
    GradientReport const report = solved.gradients({.x = {expected.data(), 30, 3}, .a = by_a});
    EXPECT_NEAR(given.gradients({.x = {found.data(), 30, 3}, .a = by_a_found}).scale, report.scale,
                1e-12 * std::abs(report.scale));
    EXPECT_TRUE(std::isnan(given.gradients({}, {.error_iterations = 0, .scale = false}).scale));
    // Float64, in whose units the potentials, of size 10, are rounded: 20 / eps 2^-53 of an entry.
    for (std::size_t k = 0; k < found.size(); ++k) EXPECT_NEAR(found[k], expected[k], 1e-13);
    for (std::size_t i = 0; i < by_a.size(); ++i) EXPECT_NEAR(by_a_found[i], by_a[i], 1e-12);
  }
}

struct Six {
  explicit Six(Divergence const& d) : values{d.ab.f(), d.ab.g(), d.aa.f(), d.aa.g(), d.bb.f(), d.bb.g()} {}
  DivergenceProblem with(DivergenceProblem problem) const {
    problem.ab = {values[0], values[1]};
    problem.aa = {values[2], values[3]};
    problem.bb = {values[4], values[5]};
    return problem;
  }
  std::vector<double> values[6];
};

class DivergenceOf : public OperatorTest {
 protected:
  /// tf32 rounds logits of size 30 to 2^-11 of them.
  SolveOptions options() const {
    return {.eps = 0.4, .tolerance = precision() == Precision::tf32 ? 5e-2 : 1e-4, .precision = precision()};
  }
};
MONGE_FOR_EACH_POINT_TARGET(DivergenceOf);

TEST_P(DivergenceOf, has_the_gradients_of_the_divergence) {
  Problem const problem = make_problem({30, 40, 3, Weights::skewed, Place::shifted});
  DivergenceProblem const given{problem.clouds(), problem.a, problem.b};
  Divergence const solved = sinkhorn_divergence(context(), given, options());
  Six potentials(solved);
  for (int k : {2, 3, 4, 5}) {  // The plans stay the same: a self term takes the mean of both.
    for (double& value : potentials.values[k]) value += k % 2 == 0 ? 1 : -1;
  }
  Divergence const made = divergence_of(context(), potentials.with(given), options());
  EXPECT_TRUE(std::isnan(made.value) && std::isnan(made.gap));
  EXPECT_EQ(made.status(), Status::completed);
  auto const gradients = [](Divergence const& divergence) {
    std::vector<double> all(30 * 3 + 40 * 3 + 30 + 40);
    double* const at = all.data();
    divergence.gradients({.x = {at, 30, 3}, .y = {at + 90, 40, 3}, .a = {at + 210, 30}, .b = {at + 240, 40}}, false);
    return all;
  };
  std::vector<double> const expected = gradients(solved), found = gradients(made);
  // Both plans have the same potentials, up to rounding in float64. Their logits are of size 40 and are rounded, too.
  double const unit = is_float64() ? 0x1p-53 : precision() == Precision::tf32 ? 0x1p-11 : 0x1p-24;
  for (std::size_t k = 0; k < found.size(); ++k) EXPECT_NEAR(found[k], expected[k], 100 * unit) << k;
}

TEST_P(DivergenceOf, starts_of_all_parts_save_their_sweeps) {
  for (Costs const costs : {Costs::points, Costs::dot}) {
    Problem const problem = oracle::make_problem({.n = 50, .m = 60, .d = 3, .costs = costs});
    DivergenceProblem const cold{problem.clouds(), problem.a, problem.b};
    Divergence const first = sinkhorn_divergence(context(), cold, options());
    EXPECT_EQ(first.status(), Status::converged);
    Divergence const again = sinkhorn_divergence(context(), Six(first).with(cold), options());
    EXPECT_EQ(again.status(), Status::converged);
    for (auto const& [one, other] : {std::pair{&first.ab, &again.ab}, {&first.aa, &again.aa}, {&first.bb, &again.bb}})
      EXPECT_LE(other->report().iterations, std::min(3, one->report().iterations));
    // Each value is right to within its gap.
    EXPECT_NEAR(again.value, first.value, again.gap + first.gap + 1e-12);
  }
}

TEST_P(DivergenceOf, of_a_batch_has_the_bits_of_single_ones) {
  std::vector<Problem> problems;
  for (std::int64_t const n : {20, 70, 33}) problems.push_back(make_problem({n, n + 9, 3, Weights::with_zeros}));
  std::vector<DivergenceProblem> given;
  for (Problem const& problem : problems) given.push_back({problem.clouds(), problem.a, problem.b});
  std::vector<int> seen;
  SolveOptions watched = options();
  watched.progress = [&](Progress const& progress) {
    seen.push_back(progress.problem);
    return true;
  };
  std::vector<Divergence> const batch = sinkhorn_divergence_batch(context(), given, watched);
  for (std::size_t k = 0; k < given.size(); ++k) {
    Divergence const alone = sinkhorn_divergence(context(), given[k], options());
    EXPECT_EQ(batch[k].value, alone.value);
    EXPECT_EQ(Six(batch[k]).values[3], Six(alone).values[3]);
    EXPECT_EQ(batch[k].bb.report().iterations, alone.bb.report().iterations);
  }
  for (int index = 0; index < 9; ++index) EXPECT_NE(std::find(seen.begin(), seen.end(), index), seen.end());
  given[1].bb = {problems[0].a, problems[0].a};
  EXPECT_EQ(oracle::refusal_of([&] { sinkhorn_divergence_batch(context(), given, options()); }),
            "problem 1: f_bb: has 20 entries; must have 79");
}

}  // namespace
}  // namespace monge::oracle
