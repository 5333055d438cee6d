// solve_regularized() from input to report: what it reaches, says and refuses. The values of operators are tested in
// regularized/splitting_test.cpp.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <monge/monge.hpp>

#include "oracle/backend_test.hpp"
#include "oracle/refusal.hpp"
#include "oracle/regularized.hpp"

namespace monge {
namespace {

using oracle::BackendTest;
using oracle::dense;
using oracle::refusal_of;

struct Case {
  std::int64_t n, m;
  std::vector<double> cost, p, q;
  CostMatrix matrix() const { return {{cost.data(), n, m}}; }
};

std::vector<double> normalized(std::vector<double> weights) {
  double const total = std::accumulate(weights.begin(), weights.end(), 0.0);
  for (double& weight : weights) weight /= total;
  return weights;
}

/// Squared distances of points of the plane, over the largest; the first point of each side has no mass.
Case make_case(std::int64_t n, std::int64_t m, unsigned seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal;
  std::vector<double> x(static_cast<std::size_t>(2 * n)), y(static_cast<std::size_t>(2 * m));
  for (double& value : x) value = normal(random);
  for (double& value : y) value = 0.5 + normal(random);
  Case result{n, m, {}, {}, {}};
  for (std::int64_t i = 0; i < n; ++i) {
    for (std::int64_t j = 0; j < m; ++j)
      result.cost.push_back(std::hypot(x[2 * i] - y[2 * j], x[2 * i + 1] - y[2 * j + 1]));
  }
  double const most = *std::max_element(result.cost.begin(), result.cost.end());
  for (double& cost : result.cost) cost = (cost / most) * (cost / most);
  std::uniform_real_distribution<double> weight(0.5, 1.5);
  for (std::int64_t i = 0; i < n; ++i) result.p.push_back(i == 0 && n > 1 ? 0 : weight(random));
  for (std::int64_t j = 0; j < m; ++j) result.q.push_back(j == 0 && m > 1 ? 0 : weight(random));
  result.p = normalized(result.p);
  result.q = normalized(result.q);
  return result;
}

class Splitting : public BackendTest {
 protected:
  Splitting() : BackendTest(2) {}
  RegularizedOptions options(double tolerance) const {
    RegularizedOptions result;
    result.method = RegularizedMethod::splitting;
    result.precision = precision();
    result.tolerance = tolerance;
    return result;
  }
  /// What both precisions reach, all terms in some thousand iterations.
  static constexpr double kTolerance = 1e-4;
};

/// The terms of h, each alone and those that go together.
struct Terms {
  std::vector<std::int64_t> groups;
  std::vector<double> weights, mask;
  std::vector<Regularizer> all;
  explicit Terms(Case const& problem) {
    for (std::int64_t i = 0; i < problem.n; ++i) groups.push_back(i * 7 % 5 % std::min<std::int64_t>(5, problem.n));
    for (std::size_t k = 0; k < problem.cost.size(); ++k) {
      weights.push_back(static_cast<double>(k % 7) / 7);
      mask.push_back(k % 13 == 3 ? 0 : 1);
    }
    Regularizer none, quadratic, group, l1, hypentropy, masked, sum, entropic_groups;
    quadratic.quadratic = 3;
    group.group_lasso = 0.02;
    group.groups = {groups.data(), problem.n};
    l1.l1 = 0.3;
    l1.l1_weights = {weights.data(), problem.n, problem.m};
    hypentropy.hypentropy = 0.05;
    hypentropy.hypentropy_width = 1e-3;
    masked.mask = {mask.data(), problem.n, problem.m};
    sum = group;
    sum.quadratic = 1;
    sum.l1 = l1.l1;
    sum.l1_weights = l1.l1_weights;
    sum.mask = masked.mask;
    entropic_groups = group;
    entropic_groups.hypentropy = hypentropy.hypentropy;
    entropic_groups.hypentropy_width = hypentropy.hypentropy_width;
    all = {none, quadratic, group, l1, hypentropy, masked, sum, entropic_groups};
  }
};

/// The least cost of an allowed pair of points with mass.
double least_cost(Case const& problem, Regularizer const& h) {
  double least = std::numeric_limits<double>::infinity();
  std::size_t const m = problem.q.size();
  for (std::size_t k = 0; k < problem.cost.size(); ++k) {
    bool const is_allowed = !h.mask.data() || static_cast<double const*>(h.mask.data())[k] != 0;
    if (is_allowed && problem.p[k / m] > 0 && problem.q[k % m] > 0) least = std::min(least, problem.cost[k]);
  }
  return least;
}

// Each row has a partner, but six rows have the same one, whose mass is less than theirs.
std::vector<double> mask_without_plan(Case const& problem) {
  std::vector<double> mask(problem.cost.size(), 1.0);
  for (std::int64_t i = 1; i < 7; ++i) {
    for (std::int64_t j = 0; j + 1 < problem.m; ++j) mask[static_cast<std::size_t>(i * problem.m + j)] = 0;
  }
  return mask;
}

TEST_P(Splitting, EveryTermConvergesToItsCertificate) {
  Case const problem = make_case(61, 47, 3);
  Terms const terms(problem);
  for (std::size_t k = 0; k < terms.all.size(); ++k) {
    SCOPED_TRACE(k);
    // A linear program takes long; W makes this one the longest.
    double const tolerance = k == 3 ? 10 * kTolerance : kTolerance;
    RegularizedPlan const plan =
        solve_regularized(context(), problem.matrix(), problem.p, problem.q, terms.all[k], options(tolerance));
    RegularizedReport const& report = plan.report();
    EXPECT_EQ(report.status, Status::converged) << report.message;
    EXPECT_TRUE(report.message.starts_with("converged after ")) << report.message;
    EXPECT_LE(std::abs(report.gap), tolerance * report.primal);
    EXPECT_NEAR(report.gap, report.primal - report.dual, 1e-15);
    EXPECT_NEAR(report.primal,
                report.transport_cost + report.regularization +
                    least_cost(problem, terms.all[k]) * (report.mass - report.transported_mass),
                1e-15);
    // |(p, q)|_2 < 1.
    EXPECT_LE(report.primal_residual, tolerance);
    std::vector<double> const x = dense(plan);
    EXPECT_EQ(report.nonzeros, std::count_if(x.begin(), x.end(), [](double value) { return value != 0; }));
    for (std::int64_t j = 0; j < problem.m; ++j) EXPECT_LE(x[static_cast<std::size_t>(j)], tolerance);
    ASSERT_FALSE(report.history.empty());
    EXPECT_EQ(report.history.back().iteration, report.iterations);
    EXPECT_EQ(report.history.back().nonzeros, report.nonzeros);
  }
}

// The dual value of any case bounds the primal values of all others with the same h: those of other tolerances.
TEST_P(Splitting, DualValuesAreBounds) {
  Case const problem = make_case(40, 55, 5);
  Terms const terms(problem);
  for (std::size_t k = 0; k < terms.all.size(); ++k) {
    SCOPED_TRACE(k);
    auto const solve = [&](double tolerance) {
      RegularizedOptions given = options(tolerance);
      given.criterion = RegularizedCriterion::residual;
      return solve_regularized(context(), problem.matrix(), problem.p, problem.q, terms.all[k], given);
    };
    RegularizedPlan const rough = solve(1e-2), fine = solve(kTolerance);
    // The fine plan is off its marginals by the tolerance, at potentials of at most 2.
    EXPECT_LE(rough.report().dual, fine.report().primal + 2 * fine.report().marginal_error);
  }
}

TEST_P(Splitting, UnitsOfCostsAndMassesScaleTheReport) {
  Case const problem = make_case(23, 31, 7);
  Regularizer h;
  h.quadratic = 2;
  RegularizedPlan const plan =
      solve_regularized(context(), problem.matrix(), problem.p, problem.q, h, options(kTolerance));
  // C' = 64 C + 512 and masses of 4: powers of two, but for what the offset takes from the digits of C.
  Case other = problem;
  for (double& cost : other.cost) cost = 64 * cost + 512;
  for (double& p : other.p) p *= 4;
  for (double& q : other.q) q *= 4;
  h.quadratic = 2 * 64.0 / 4;
  RegularizedPlan const scaled = solve_regularized(context(), other.matrix(), other.p, other.q, h, options(kTolerance));
  EXPECT_EQ(scaled.report().iterations, plan.report().iterations);
  EXPECT_NEAR(scaled.report().primal, 4 * (64 * plan.report().primal + 512),
              512 * scaled.report().marginal_error + 1e-3);
  EXPECT_NEAR(scaled.report().gap, 256 * plan.report().gap, 256 * 1e-6);
  std::vector<double> const x = dense(plan), y = dense(scaled);
  for (std::size_t k = 0; k < x.size(); ++k) EXPECT_NEAR(y[k], 4 * x[k], 1e-6);
}

TEST_P(Splitting, SmallAndExtremeProblems) {
  for (auto const& [n, m] : {std::pair{1, 1}, {1, 9}, {9, 1}, {2, 3}}) {
    SCOPED_TRACE(std::to_string(n) + " x " + std::to_string(m));
    Case const problem = make_case(n, m, 11);
    for (double const weight : {0.0, 1e-6, 1.0, 1e6}) {
      Regularizer h;
      h.quadratic = weight;
      RegularizedPlan const plan =
          solve_regularized(context(), problem.matrix(), problem.p, problem.q, h, options(1e-4));
      EXPECT_EQ(plan.status(), Status::converged) << weight << ": " << plan.report().message;
    }
    Terms const terms(problem);
    for (double const weight : {1e-6, 1e6}) {
      Regularizer group = terms.all[2], hypentropy = terms.all[4];
      group.group_lasso = weight;
      hypentropy.hypentropy = weight;
      for (Regularizer const& h : {group, hypentropy}) {
        RegularizedPlan const plan =
            solve_regularized(context(), problem.matrix(), problem.p, problem.q, h, options(1e-3));
        EXPECT_EQ(plan.status(), Status::converged) << weight << ": " << plan.report().message;
      }
    }
  }
}

/// A weight that is next to nothing leaves the value of none, and its certificate; one that is huge a plan that knows
/// no costs. Either has numbers.
TEST_P(Splitting, WeightsAsSmallAndAsLargeAsNumbersAre) {
  Case const problem = make_case(30, 25, 37);
  Terms const terms(problem);
  auto const solve = [&](Regularizer const& h) {
    RegularizedPlan const plan =
        solve_regularized(context(), problem.matrix(), problem.p, problem.q, h, options(10 * kTolerance));
    EXPECT_EQ(plan.status(), Status::converged) << plan.report().message;
    for (std::vector<double> const& potentials : {plan.u(), plan.v()})
      EXPECT_TRUE(std::ranges::all_of(potentials, [](double value) { return std::isfinite(value); }));
    EXPECT_TRUE(std::isfinite(plan.report().dual));
    return plan.report();
  };
  double const value = solve({}).dual;
  for (double const weight : {0.0, 1e-300, 1e-30, 1e-9, 1e30, 9e99}) {
    SCOPED_TRACE(weight);
    for (std::size_t const k : {1, 2, 3, 4}) {
      SCOPED_TRACE(k);
      Regularizer h = terms.all[k];
      for (double* const term : {&h.quadratic, &h.group_lasso, &h.l1, &h.hypentropy}) {
        if (*term > 0) *term = weight;
      }
      RegularizedReport const report = solve(h);
      // Terms are at most some times their weight, asinh(1 / beta) and groups of sqrt(mass) among them.
      if (weight <= 1e-9) {
        EXPECT_NEAR(report.dual, value, 10 * kTolerance * value + 10 * weight);
      }
    }
  }
}

/// Values of costs without a range come from h alone. Tolerances are relative to these, whatever the weights, the costs
/// and the masses are.
TEST_P(Splitting, ConstantCostsHaveTheUnitsOfTheTerms) {
  for (double const cost : {0.0, 5.0}) {
    for (double const mass : {1.0, 1e-20, 1e20}) {
      Case problem = make_case(9, 7, 5);
      std::ranges::fill(problem.cost, cost);
      for (std::vector<double>* const side : {&problem.p, &problem.q}) {
        for (double& weight : *side) weight *= mass;
      }
      Terms const terms(problem);
      for (double const weight : {1e-100, 1e-12, 1e-6, 1.0, 1e20, 1e80}) {
        double const table[] = {0, 0, 0.02 * mass, weight, 1.1 * mass, 2 * weight};
        std::vector<Regularizer> all{terms.all[1], terms.all[2], terms.all[4], {}};
        all[0].quadratic = all[1].group_lasso = all[2].hypentropy = weight;
        all[2].hypentropy_width = 0.01 * mass;
        all[3].slopes = {table, 3, 2};
        for (std::size_t k = 0; k < all.size(); ++k) {
          SCOPED_TRACE(testing::Message()
                       << "cost " << cost << ", mass " << mass << ", weight " << weight << ", " << k);
          for (RegularizedMethod const method : {RegularizedMethod::splitting, RegularizedMethod::automatic}) {
            RegularizedOptions given = options(kTolerance);
            given.method = method;
            if (method == RegularizedMethod::automatic) given.precision = Precision::automatic;
            RegularizedReport const report =
                solve_regularized(context(), problem.matrix(), problem.p, problem.q, all[k], given).report();
            EXPECT_EQ(report.status, Status::converged) << report.message;
            EXPECT_GT(report.regularization, 0);
            EXPECT_LE(std::abs(report.gap), kTolerance * report.regularization);
          }
        }
      }
    }
  }
}

TEST_P(Splitting, WeightsBeyondNumbersAreErrors) {
  Case problem = make_case(3, 4, 2);
  problem.cost = {1, 1, 2, 5, 1, 1, 2, 5, 1, 1, 2, 5};
  Terms const terms(problem);
  auto const message_of = [&](Regularizer const& h, RegularizedMethod method) {
    RegularizedOptions given = options(1e-3);
    given.method = method;
    if (method == RegularizedMethod::newton) given.precision = Precision::automatic;
    return refusal_of([&] { solve_regularized(context(), problem.matrix(), problem.p, problem.q, h, given); });
  };
  using enum RegularizedMethod;
  Regularizer quadratic, group = terms.all[2], hypentropy, width;
  quadratic.quadratic = 1e101;
  for (RegularizedMethod const method : {splitting, newton})
    EXPECT_EQ(message_of(quadratic, method),
              "quadratic: is 1e+101; must be at most 4e+100, 1e100 times the range of the costs over the mass");
  std::vector<double> const weights(3, 2.0);
  group.group_lasso = 1e101;
  group.group_weights = {weights.data(), std::ranges::max(terms.groups) + 1};
  EXPECT_EQ(message_of(group, splitting),
            "group_lasso: is 1e+101; must be at most 2e+100, 1e100 times the range of the costs over the largest of "
            "group_weights");
  hypentropy.hypentropy = 1e200;
  EXPECT_EQ(message_of(hypentropy, splitting),
            "hypentropy: is 1e+200; must be at most 4e+100, 1e100 times the range of the costs");
  width.hypentropy = 1;
  width.hypentropy_width = 1e-200;
  EXPECT_EQ(
      message_of(width, splitting),
      is_float64()
          ? "hypentropy_width: is 1e-200; must be from 1e-100 to 1e+100, 1e-100 to 1e+100 times the mass, in "
            "float64"
          : "hypentropy_width: is 1e-200; must be from 1e-30 to 1e+20, 1e-30 to 1e+20 times the mass, in float32");
}

/// Beyond what float32 holds auto takes float64. A width far above all entries leaves no term; any has its certificate.
TEST_P(Splitting, WidthsOfAnySizeHaveTheirOptimum) {
  Case const problem = make_case(20, 17, 53);
  RegularizedOptions given = options(kTolerance);
  double const value = solve_regularized(context(), problem.matrix(), problem.p, problem.q, {}, given).report().dual;
  Regularizer h;
  h.hypentropy = 1e-3;
  for (double const width : {1e-99, 1e-44, 1e-42, 1e-31, 1e-30, 1e-9, 1e20, 1e21, 1e39, 1e99}) {
    SCOPED_TRACE(width);
    h.hypentropy_width = width;
    given.precision = precision();
    bool const float32_holds = width >= 1e-30 && width <= 1e20;
    if (!is_float64() && !float32_holds) {
      std::string const message =
          refusal_of([&] { solve_regularized(context(), problem.matrix(), problem.p, problem.q, h, given); });
      EXPECT_NE(message.find("must be from 1e-30 to 1e+20"), std::string::npos) << message;
      given.precision = Precision::automatic;
    }
    RegularizedReport const report =
        solve_regularized(context(), problem.matrix(), problem.p, problem.q, h, given).report();
    EXPECT_EQ(report.precision, is_float64() || !float32_holds ? Precision::float64 : Precision::float32);
    EXPECT_EQ(report.status, Status::converged) << report.message;
    EXPECT_GE(report.dual, value * (1 - kTolerance));
    if (width >= 1e20) {
      EXPECT_LE(report.dual, value * (1 + kTolerance));
    } else {  // lambda sum_ij X_ij (ln(X_ij / beta) + ln 2 - 1) with all entries of at least 1 / (n m), and less X_ij.
      double const least = value + h.hypentropy * (std::log(2 / (20 * 17 * width)) - 1);
      double const most = value + h.hypentropy * (std::log(2 / width));
      EXPECT_GE(report.dual, least * (1 - 2 * kTolerance));
      EXPECT_LE(report.dual, most * (1 + 2 * kTolerance));
    }
  }
}

/// A bad step is slow. It never says that there is no plan, nor more than the optimum.
TEST_P(Splitting, NoStepMakesAFalseBound) {
  Case const problem = make_case(9, 7, 41);
  for (Regularizer const& h : Terms(problem).all) {
    RegularizedOptions given = options(kTolerance);
    double const value = solve_regularized(context(), problem.matrix(), problem.p, problem.q, h, given).report().dual;
    for (double const step : {1e-6, 1e-3, 1e3, 1e6}) {
      SCOPED_TRACE(step);
      given.step = step;
      given.iterations = 2000;
      RegularizedReport const report =
          solve_regularized(context(), problem.matrix(), problem.p, problem.q, h, given).report();
      EXPECT_LE(report.dual, value * (1 + 2 * kTolerance));
      EXPECT_LE(report.step, step);
      bool const names_default = report.message.find("the default step of 2") != std::string::npos;
      EXPECT_EQ(names_default, report.status == Status::iteration_limit) << report.message;
    }
    given.step = 2;
    given.iterations = 1;
    std::string const message =
        solve_regularized(context(), problem.matrix(), problem.p, problem.q, h, given).report().message;
    EXPECT_EQ(message.find("step"), std::string::npos) << message;
    given.step = 1e-30;
    EXPECT_EQ(refusal_of([&] { solve_regularized(context(), problem.matrix(), problem.p, problem.q, h, given); }),
              "step: is 1e-30; must be in [1e-06, 1000000]");
  }
}

/// A weight may go to 0, and with it what else the term takes is checked as before; without the term's data it is not.
TEST_P(Splitting, DataOfTermsIsCheckedWhateverTheirWeights) {
  Case const problem = make_case(6, 5, 43);
  Terms const terms(problem);
  std::vector<std::int64_t> const wrong(6, 9);
  std::vector<double> const negative(5, -1.0);
  auto const message_of = [&](auto&& change) {
    for (double const weight : {0.0, 0.5}) {
      Regularizer h = terms.all[6];
      h.group_lasso = h.l1 = weight;
      change(h);
      try {
        solve_regularized(context(), problem.matrix(), problem.p, problem.q, h, options(1e-3));
        if (weight == 0.5) return std::string();
      } catch (Error const& error) {
        return std::string(error.what());
      }
    }
    return std::string();
  };
  EXPECT_EQ(message_of([](Regularizer&) {}), "");
  EXPECT_EQ(message_of([&](Regularizer& h) {
              h.groups = {wrong.data(), 6};
            }),
            "groups: entry 0 is 9; must be from 0 to 5, the rows less one");
  EXPECT_EQ(message_of([&](Regularizer& h) {
              h.groups = {wrong.data(), 4};
            }),
            "groups: has 4 entries; must have 6, one for each row of C");
  EXPECT_EQ(message_of([&](Regularizer& h) {
              h.group_weights = {negative.data(), 2};
            }),
            "group_weights: has 2 entries; must have 5, one for each group");
  EXPECT_EQ(message_of([&](Regularizer& h) {
              h.l1_weights = {terms.weights.data(), 5, 6};
            }),
            "l1_weights: is 5 x 6; must be 6 x 5");
  EXPECT_EQ(message_of([](Regularizer& h) { h.hypentropy_width = 0; }),
            "hypentropy_width: is 0; must be finite and > 0");
  EXPECT_EQ(message_of([](Regularizer& h) { h.l1_weights = {}; }),
            "l1_weights: is missing; l1, which is 0.5, needs a weight for each pair");
  EXPECT_EQ(message_of([&](Regularizer& h) {
              h.groups = {};
              h.group_weights = {terms.weights.data(), 2};
              h.group_lasso = 0;
            }),
            "groups: is missing; group_weights needs it");
  if (GetParam().device != DeviceType::cpu) return;
  std::vector<std::int64_t> labels(30, 3);
  auto const takes_pairs = [&](Regularizer& h) {
    h.groups = {};
    h.pair_groups = {labels.data(), 6, 5, 5};
  };
  EXPECT_EQ(message_of(takes_pairs), "");
  labels[13] = 30;
  EXPECT_EQ(message_of(takes_pairs),
            "pair_groups: row 2, column 3 is 30; must be from -1 to 29, the number of pairs less one");
  labels[13] = -2;
  EXPECT_EQ(message_of(takes_pairs),
            "pair_groups: row 2, column 3 is -2; must be from -1 to 29, the number of pairs less one");
  labels[13] = -1;
  EXPECT_EQ(message_of([&](Regularizer& h) {
              takes_pairs(h);
              h.group_weights = {terms.weights.data(), 3};
            }),
            "group_weights: has 3 entries; must have 4, one for each group");
  EXPECT_EQ(message_of([&](Regularizer& h) {
              h.pair_groups = {labels.data(), 6, 5, 5};
            }),
            "pair_groups: is given with groups; must be given without");
  EXPECT_EQ(message_of([&](Regularizer& h) {
              h.groups = {};
              h.pair_groups = {labels.data(), 5, 6, 6};
            }),
            "pair_groups: is 5 x 6; must be 6 x 5, as the costs");
  EXPECT_EQ(message_of([&](Regularizer& h) {
              takes_pairs(h);
              h.hypentropy = 0.1;
            }),
            "hypentropy: is 0.1; must be 0 with groups of pairs");
}

/// Groups of rows are groups of pairs, each of one column. A group that no pair is in changes nothing.
TEST_P(Splitting, GroupsOfPairsMayBeThoseOfRows) {
  Case const problem = make_case(23, 17, 5);
  Terms const terms(problem);
  Regularizer rows = terms.all[2], pairs = rows;
  std::vector<std::int64_t> labels;
  std::vector<double> weights(static_cast<std::size_t>(17 * 6), 1.0), of_rows{1, 0.5, 0, 2, 1};
  for (std::int64_t i = 0; i < 23; ++i) {
    for (std::int64_t j = 0; j < 17; ++j) {
      std::int64_t const group = terms.groups[static_cast<std::size_t>(i)];
      labels.push_back(j * 6 + group);
      weights[static_cast<std::size_t>(j * 6 + group)] = of_rows[static_cast<std::size_t>(group)];
    }
  }
  rows.group_weights = {of_rows.data(), 5};
  pairs.groups = {};
  pairs.pair_groups = {labels.data(), 23, 17, 17};
  pairs.group_weights = {weights.data(), 16 * 6 + 5};
  if (GetParam().device != DeviceType::cpu) {
    try {
      solve_regularized(context(), problem.matrix(), problem.p, problem.q, pairs, options(kTolerance));
      FAIL();
    } catch (Error const& error) {
      EXPECT_EQ(error.code(), ErrorCode::unsupported);
      EXPECT_EQ(std::string(error.what()),
                "pair_groups: is given; must be solved on the CPU, a GPU takes groups of rows");
    }
    return;
  }
  std::vector<RegularizedProblem> problems;
  for (Regularizer const& h : {rows, pairs}) problems.push_back({problem.matrix(), problem.p, problem.q, h});
  std::vector<RegularizedPlan> const plans = solve_regularized_batch(context(), problems, options(kTolerance));
  for (RegularizedPlan const& plan : plans) EXPECT_EQ(plan.status(), Status::converged);
  double const value = plans[0].report().primal;
  EXPECT_NEAR(plans[1].report().primal, value, 2 * kTolerance * value);
  EXPECT_NEAR(plans[1].report().dual, plans[0].report().dual, 2 * kTolerance * value);
}

/// All pairs in none: no term.
TEST_P(Splitting, GroupsOfNoPairAreNoTerm) {
  if (GetParam().device != DeviceType::cpu) return;
  Case const problem = make_case(7, 9, 5);
  std::vector<std::int64_t> const labels(63, -1);
  Regularizer h;
  h.group_lasso = 1;
  h.pair_groups = {labels.data(), 7, 9, 9};
  RegularizedPlan const plan =
      solve_regularized(context(), problem.matrix(), problem.p, problem.q, h, options(kTolerance));
  EXPECT_EQ(plan.status(), Status::converged);
  EXPECT_EQ(plan.report().regularization, 0);
}

TEST_P(Splitting, WhatNewtonDoesNotReadKeepsItsDefault) {
  Case const problem = make_case(6, 5, 43);
  Regularizer h;
  h.quadratic = 1;
  auto const message_of = [&](auto&& change) {
    RegularizedOptions given;
    change(given);
    RegularizedPlan const plan = solve_regularized(context(), problem.matrix(), problem.p, problem.q, h, given);
    EXPECT_EQ(plan.report().method, RegularizedMethod::newton);  // auto may come to splitting.
    given.method = RegularizedMethod::newton;
    try {
      solve_regularized(context(), problem.matrix(), problem.p, problem.q, h, given);
    } catch (Error const& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(message_of([](RegularizedOptions&) {}), "");
  EXPECT_EQ(message_of([](RegularizedOptions& given) { given.step = 3; }),
            "step: is 3; must be 2, the default, with method newton, which has no use for it");
  EXPECT_EQ(message_of([](RegularizedOptions& given) { given.accelerate = true; }),
            "accelerate: is true; must be false, the default, with method newton, which has no use for it");
  EXPECT_EQ(message_of([](RegularizedOptions& given) { given.check_every = 10; }),
            "check_every: is 10; must be 20, the default, with method newton, which has no use for it");
}

TEST_P(Splitting, PointsTakeEitherMethod) {
  std::vector<double> const x{0, 1, 2}, weights(3, 1.0 / 3);
  Regularizer h;
  h.quadratic = 1;
  auto const message_of = [&](auto&& change) {
    RegularizedOptions given;
    change(given);
    try {
      PointCloud const clouds{{x.data(), 3, 1}, {x.data(), 3, 1}};
      RegularizedReport const report = solve_regularized(context(), clouds, weights, weights, h, given).report();
      return std::string(name(report.method));
    } catch (Error const& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(message_of([](RegularizedOptions&) {}), "newton");
  EXPECT_EQ(message_of([](RegularizedOptions& given) { given.tolerance = 0; }), "splitting");
  EXPECT_EQ(message_of([](RegularizedOptions& given) { given.precision = Precision::float32; }), "splitting");
  EXPECT_EQ(message_of([](RegularizedOptions& given) { given.method = RegularizedMethod::splitting; }), "splitting");
}

/// Points have the plan and the certificate of their matrix of costs, whatever the terms.
TEST_P(Splitting, PointsHaveThePlanOfTheirCosts) {
  std::int64_t const n = 40, m = 31, d = 3;
  std::mt19937_64 random(61);
  std::normal_distribution<double> normal;
  std::vector<double> x(static_cast<std::size_t>(n * d)), y(static_cast<std::size_t>(m * d));
  for (double& value : x) value = 1000 + normal(random);  // Far from the origin.
  for (double& value : y) value = 1000.5 + normal(random);
  Case problem = make_case(n, m, 62);
  for (std::int64_t i = 0; i < n; ++i) {
    for (std::int64_t j = 0; j < m; ++j) {
      double sum = 0;
      for (std::int64_t k = 0; k < d; ++k) {
        double const by = x[static_cast<std::size_t>(i * d + k)] - y[static_cast<std::size_t>(j * d + k)];
        sum += by * by;
      }
      problem.cost[static_cast<std::size_t>(i * m + j)] = sum / 10;
    }
  }
  Terms const terms(problem);
  RegularizedOptions given = options(kTolerance);
  PointCloud const clouds{{x.data(), n, d}, {y.data(), m, d}, 0.1};
  for (std::size_t k = 0; k < terms.all.size(); ++k) {
    if (terms.all[k].mask.data()) continue;
    SCOPED_TRACE(k);
    given.tolerance = k == 3 ? 10 * kTolerance : kTolerance;
    RegularizedReport const of_points =
        solve_regularized(context(), clouds, problem.p, problem.q, terms.all[k], given).report();
    RegularizedReport const of_matrix =
        solve_regularized(context(), problem.matrix(), problem.p, problem.q, terms.all[k], given).report();
    EXPECT_EQ(of_points.status, Status::converged) << of_points.message;
    EXPECT_EQ(of_points.method, RegularizedMethod::splitting);
    EXPECT_LE(std::abs(of_points.gap), given.tolerance * of_points.primal);
    EXPECT_NEAR(of_points.primal, of_matrix.primal, 3 * given.tolerance * of_matrix.primal);
    EXPECT_LE(of_points.dual, of_matrix.primal + 2 * given.tolerance * of_matrix.primal);
  }
}

/// From its own solution a solve is at its end with the first check; from a near problem's it takes fewer iterations.
TEST_P(Splitting, StartsFromAPlanAndPotentials) {
  Case const problem = make_case(45, 38, 71);
  Case other = problem;
  for (std::size_t k = 0; k < other.cost.size(); ++k) other.cost[k] *= 1 + 1e-3 * std::sin(static_cast<double>(k));
  Terms const terms(problem);
  for (std::size_t const k : {1, 2, 4, 7}) {
    SCOPED_TRACE(k);
    RegularizedOptions given = options(kTolerance);
    RegularizedPlan const cold =
        solve_regularized(context(), problem.matrix(), problem.p, problem.q, terms.all[k], given);
    int const without =
        solve_regularized(context(), other.matrix(), other.p, other.q, terms.all[k], given).report().iterations;
    std::vector<double> const x = dense(cold), u = cold.u(), v = cold.v();
    given.u = u;
    given.v = v;
    given.plan = {x.data(), problem.n, problem.m};
    RegularizedReport const again =
        solve_regularized(context(), problem.matrix(), problem.p, problem.q, terms.all[k], given).report();
    EXPECT_EQ(again.status, Status::converged) << again.message;
    EXPECT_EQ(again.iterations, given.check_every);
    RegularizedReport const warm =
        solve_regularized(context(), other.matrix(), other.p, other.q, terms.all[k], given).report();
    EXPECT_EQ(warm.status, Status::converged) << warm.message;
    EXPECT_LT(warm.iterations, without);
  }
  RegularizedOptions given;
  std::vector<double> const x(problem.cost.size(), 0.1);
  given.plan = {x.data(), problem.n, problem.m};
  Regularizer h;
  h.quadratic = 1;
  EXPECT_EQ(solve_regularized(context(), problem.matrix(), problem.p, problem.q, h, given).report().method,
            RegularizedMethod::newton);
  auto const message_of = [&] {
    try {
      solve_regularized(context(), problem.matrix(), problem.p, problem.q, h, given);
    } catch (Error const& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  given.method = RegularizedMethod::newton;
  EXPECT_EQ(message_of(), "plan: is given; must not be with method newton, which begins with u and v");
  given.method = RegularizedMethod::splitting;
  given.plan = {x.data(), problem.m, problem.n};
  EXPECT_EQ(message_of(), "plan: is 38 x 45; must be 45 x 38");
}

TEST_P(Splitting, RunsAsManyIterationsAsAskedFor) {
  Case const problem = make_case(20, 30, 13);
  for (int const iterations : {1, 2, 19, 20, 21, 45}) {
    RegularizedOptions given = options(0);
    given.iterations = iterations;
    RegularizedPlan const plan = solve_regularized(context(), problem.matrix(), problem.p, problem.q, {}, given);
    EXPECT_EQ(plan.status(), Status::completed);
    EXPECT_EQ(plan.report().iterations, iterations);
    std::vector<double> const x = dense(plan);
    EXPECT_GE(*std::min_element(x.begin(), x.end()), 0);
  }
}

TEST_P(Splitting, BatchesGiveTheBitsOfSingleSolves) {
  std::vector<Case> cases;
  for (std::int64_t k = 0; k < 5; ++k)
    cases.push_back(make_case(10 + 17 * k, 40 - 7 * k, 20 + static_cast<unsigned>(k)));
  std::vector<Terms> terms(cases.begin(), cases.end());
  std::vector<RegularizedProblem> problems;
  for (std::size_t k = 0; k < cases.size(); ++k)
    problems.push_back({cases[k].matrix(), cases[k].p, cases[k].q, terms[k].all[(k + 1) % terms[k].all.size()]});
  std::vector<RegularizedPlan> const plans = solve_regularized_batch(context(), problems, options(1e-4));
  ASSERT_EQ(plans.size(), cases.size());
  for (std::size_t k = 0; k < cases.size(); ++k) {
    SCOPED_TRACE(k);
    RegularizedPlan const alone = solve_regularized(context(), problems[k].geometry, problems[k].p, problems[k].q,
                                                    problems[k].regularizer, options(1e-4));
    EXPECT_EQ(plans[k].report().iterations, alone.report().iterations);
    EXPECT_EQ(dense(plans[k]), dense(alone));
    EXPECT_EQ(plans[k].u(), alone.u());
  }
}

/// On a CPU the small ones go side by side; the one of 2^18 pairs has all threads.
TEST_P(Splitting, BatchesOfNewtonsMethodGiveTheBitsOfSingleSolves) {
  std::vector<Case> cases;
  for (unsigned k = 0; k < 9; ++k) cases.push_back(make_case(20 + 5 * k, 60 - 4 * k, 50 + k));
  cases.insert(cases.begin() + 3, make_case(512, 520, 60));
  std::vector<RegularizedProblem> problems;
  for (Case const& problem : cases) {
    problems.push_back({problem.matrix(), problem.p, problem.q, {}});
    problems.back().regularizer.quadratic = problems.size() % 3 == 0 ? 0 : 0.1;
  }
  RegularizedOptions given;
  given.method = RegularizedMethod::newton;
  std::vector<RegularizedPlan> const plans = solve_regularized_batch(context(), problems, given);
  std::vector<int> seen(cases.size(), 0);
  std::thread::id const caller = std::this_thread::get_id();
  int stopped = -1;
  given.progress = [&](RegularizedProgress const& state) {
    EXPECT_EQ(std::this_thread::get_id(), caller);
    return ++seen[static_cast<std::size_t>(state.problem)] < 3 || state.problem != stopped;
  };
  std::vector<RegularizedPlan> const watched = solve_regularized_batch(context(), problems, given);
  for (stopped = 0; stopped < 4; stopped += 3) {  // A small problem, and the large one.
    std::fill(seen.begin(), seen.end(), 0);
    std::vector<RegularizedPlan> const others = solve_regularized_batch(context(), problems, given);
    for (std::size_t k = 0; k < cases.size(); ++k) {
      RegularizedReport const& report = others[k].report();
      bool const is_stopped = static_cast<int>(k) == stopped;
      EXPECT_EQ(report.status, is_stopped ? Status::stopped : Status::converged) << k;
      EXPECT_EQ(report.history.size(), is_stopped ? 3 : plans[k].report().history.size()) << k;
      EXPECT_EQ(seen[k], static_cast<int>(report.history.size())) << k;
    }
  }
  given.progress = {};
  for (std::size_t k = 0; k < cases.size(); ++k) {
    SCOPED_TRACE(k);
    RegularizedPlan const alone = solve_regularized(context(), problems[k].geometry, problems[k].p, problems[k].q,
                                                    problems[k].regularizer, given);
    EXPECT_GT(seen[k], 0);
    for (RegularizedPlan const* const plan : {&plans[k], &watched[k]}) {
      EXPECT_EQ(plan->report().status, Status::converged);
      EXPECT_EQ(plan->report().iterations, alone.report().iterations);
      EXPECT_EQ(plan->report().history.size(), alone.report().history.size());
      EXPECT_EQ(plan->report().dual, alone.report().dual);
      EXPECT_EQ(dense(*plan), dense(alone));
      EXPECT_EQ(plan->u(), alone.u());
      EXPECT_EQ(plan->v(), alone.v());
    }
  }
  std::vector<double> const mask = mask_without_plan(cases[2]), other = mask_without_plan(cases[7]);
  for (auto const& [k, forbidden] : {std::pair{std::size_t{2}, &mask}, {std::size_t{7}, &other}})
    problems[k].regularizer.mask = {forbidden->data(), cases[k].n, cases[k].m};
  EXPECT_EQ(refusal_of([&] { solve_regularized_batch(context(), problems, given); }),
            "problem 2: cost: forbids too many pairs, with the mask; must leave a plan with these marginals");
}

TEST_P(Splitting, BatchesNameTheProblemThatIsWrong) {
  Case const good = make_case(5, 6, 1);
  Case bad = good;
  bad.cost[8] = std::nan("");
  std::vector<RegularizedProblem> const problems{{good.matrix()}, {bad.matrix()}};
  EXPECT_EQ(refusal_of([&] { solve_regularized_batch(context(), problems, options(1e-4)); }),
            "problem 1: cost: row 1, column 2 is nan; must be finite or +infinity");
}

// Iterations find this error, after problems of both methods have begun.
TEST_P(Splitting, BatchesNameTheProblemWhoseMaskLeavesNoPlan) {
  Case const problem = make_case(8, 5, 23);
  std::vector<double> const mask = mask_without_plan(problem);
  Regularizer newton, splits, bad;
  newton.quadratic = 1;
  splits.hypentropy = bad.hypentropy = 0.1;
  splits.hypentropy_width = bad.hypentropy_width = 0.1;
  bad.mask = {mask.data(), 8, 5};
  std::vector<RegularizedProblem> problems;
  for (Regularizer const& h : {newton, splits, bad}) problems.push_back({problem.matrix(), problem.p, problem.q, h});
  RegularizedOptions given = options(1e-4);
  given.method = RegularizedMethod::automatic;
  EXPECT_EQ(refusal_of([&] { solve_regularized_batch(context(), problems, given); }),
            "problem 2: cost: forbids too many pairs, with the mask; must leave a plan with these marginals");
}

TEST_P(Splitting, MasksThatLeaveNoPlanAreErrors) {
  Case const problem = make_case(8, 5, 23);
  Terms const terms(problem);
  std::vector<double> const mask = mask_without_plan(problem);
  for (RegularizedMethod const method : {RegularizedMethod::splitting, RegularizedMethod::automatic}) {
    for (Regularizer h : terms.all) {
      h.mask = {mask.data(), problem.n, problem.m};
      RegularizedOptions given = options(1e-4);
      given.method = method;
      EXPECT_EQ(refusal_of([&] { solve_regularized(context(), problem.matrix(), problem.p, problem.q, h, given); }),
                "cost: forbids too many pairs, with the mask; must leave a plan with these marginals")
          << name(method);
    }
  }
}

// An offset says nothing of which pairs are the best; neither does a cost that no plan pays, nor one of no mass.
TEST_P(Splitting, AccuracyKnowsNoOffsetAndNoUnusedCost) {
  Case const problem = make_case(30, 25, 29);
  RegularizedOptions given = options(kTolerance);
  given.method = is_float64() ? RegularizedMethod::automatic : RegularizedMethod::splitting;
  Regularizer h;
  h.quadratic = is_float64() ? 0 : 0.5;
  double const value = solve_regularized(context(), problem.matrix(), problem.p, problem.q, h, given).report().primal;
  auto const expect_value = [&](Case const& other, double offset, double unit) {
    RegularizedReport const report = solve_regularized(context(), other.matrix(), other.p, other.q, h, given).report();
    EXPECT_EQ(report.status, Status::converged) << report.message;
    // What X lacks of the mass costs the offset: it is in the primal value, not in <C, X>.
    EXPECT_NEAR(report.primal - offset, value, 3 * kTolerance * value + unit);
    EXPECT_NEAR(report.transport_cost + report.regularization - offset * report.transported_mass, value,
                3 * kTolerance * value + unit);
    EXPECT_NEAR(report.primal - report.dual, report.gap, unit + 1e-15);
    EXPECT_LE(std::abs(report.gap), kTolerance * (value + unit));
    EXPECT_LE(report.dual, offset + value + 2 * kTolerance * value + unit);
  };
  Case offset = problem, unused = problem;
  for (double const added : {1e4, 1e6}) {
    for (std::size_t k = 0; k < problem.cost.size(); ++k) offset.cost[k] = problem.cost[k] + added;
    expect_value(offset, added, 4 * std::numeric_limits<double>::epsilon() * added);
  }
  unused.cost[0] = 1e9;  // Its row and column have no mass.
  expect_value(unused, 0, 0);
}

/// Each term with each method that takes it.
struct Solve {
  Regularizer h;
  RegularizedMethod method;
};

std::vector<Solve> solves_of(Terms const& terms, bool is_float64) {
  std::vector<Solve> solves;
  for (std::size_t k : {1, 2, 4, 6, 7}) solves.push_back({terms.all[k], RegularizedMethod::splitting});
  if (is_float64) {
    for (std::size_t k : {0, 1, 5}) solves.push_back({terms.all[k], RegularizedMethod::newton});
  }
  return solves;
}

// Dear pairs take part in no iteration. So the entries have the bits of the problem that forbids these pairs.
TEST_P(Splitting, DearPairsAreAsGoodAsForbidden) {
  Case const problem = make_case(23, 18, 31);
  Terms const terms(problem);
  double const infinity = std::numeric_limits<double>::infinity();
  auto const with = [&](std::vector<double> const& dear) {
    Case result = problem;
    for (std::size_t k = 0; k < dear.size(); ++k) result.cost[(k + 1) * 18 + k + 1] = dear[k];  // Both have mass.
    return result;
  };
  for (std::vector<double> const& dear :
       {std::vector{1e3}, {1e6}, {1e9}, {1e12}, {1e15}, {1e100}, {1e300}, {1e3, 1e6, 1e5, 1e9, 1e12, 1e300, 1e40}}) {
    for (Solve const& solve : solves_of(terms, is_float64())) {
      RegularizedOptions given = options(kTolerance);
      given.method = solve.method;
      Case const costs = with(dear), forbidden = with(std::vector<double>(dear.size(), infinity));
      RegularizedPlan const plan = solve_regularized(context(), costs.matrix(), problem.p, problem.q, solve.h, given);
      RegularizedPlan const expected =
          solve_regularized(context(), forbidden.matrix(), problem.p, problem.q, solve.h, given);
      SCOPED_TRACE(fmt::format("cost {}, quadratic {}, group lasso {}, hypentropy {}, method {}", dear.back(),
                               solve.h.quadratic, solve.h.group_lasso, solve.h.hypentropy,
                               static_cast<int>(solve.method)));
      RegularizedReport const &report = plan.report(), &expected_report = expected.report();
      EXPECT_EQ(report.status, Status::converged) << report.message;
      EXPECT_LE(std::abs(report.gap), kTolerance * report.primal);
      EXPECT_EQ(report.iterations, expected_report.iterations);
      EXPECT_EQ(report.primal, expected_report.primal);
      EXPECT_EQ(dense(plan), dense(expected));
    }
  }
}

// Costs of points without mass change no value.
TEST_P(Splitting, PointsWithoutMassMayHaveAnyCosts) {
  Case const problem = make_case(23, 18, 37);
  Terms const terms(problem);
  for (Solve const& solve : solves_of(terms, is_float64())) {
    RegularizedOptions given = options(kTolerance);
    given.method = solve.method;
    RegularizedReport const expected =
        solve_regularized(context(), problem.matrix(), problem.p, problem.q, solve.h, given).report();
    for (double const cost : {-1e3, -1e6, -1e15, -1e300, 1e6, 1e15, 1e300}) {
      Case padded = problem;
      for (std::size_t i = 0; i < 23; ++i) padded.cost[i * 18] = cost;
      for (std::size_t j = 0; j < 18; ++j) padded.cost[j] = cost / 2;
      SCOPED_TRACE(fmt::format("cost {}, quadratic {}, group lasso {}, hypentropy {}, method {}", cost,
                               solve.h.quadratic, solve.h.group_lasso, solve.h.hypentropy,
                               static_cast<int>(solve.method)));
      RegularizedPlan const plan = solve_regularized(context(), padded.matrix(), problem.p, problem.q, solve.h, given);
      RegularizedReport const& report = plan.report();
      EXPECT_EQ(report.status, Status::converged) << report.message;
      EXPECT_LE(std::abs(report.gap), kTolerance * report.primal);
      EXPECT_NEAR(report.primal, expected.primal, 2 * kTolerance * expected.primal);
      // The potentials of these points lie as low as their costs, but for l1, of at most 0.3, and slacks.
      std::vector<double> const u = plan.u(), v = plan.v();
      auto const expect_below = [&](std::size_t i, std::size_t j) {
        if (solve.h.mask.data() && terms.mask[i * 18 + j] == 0) return;
        double const allowed = padded.cost[i * 18 + j] + 0.4 + 1e-15 * std::abs(cost);
        EXPECT_LE(u[i] + v[j], allowed) << i << ", " << j;
      };
      for (std::size_t j = 0; j < 18; ++j) expect_below(0, j);
      for (std::size_t i = 0; i < 23; ++i) expect_below(i, 0);
    }
  }
}

// Two of three pairs join points of different classes, and are dear. Their number gives no proof that no plan needs
// them.
TEST_P(Splitting, GapsAreSmallBesideTheCostsThatPlansUse) {
  Case problem = make_case(24, 24, 41), forbidden = problem;
  problem.p.assign(24, 1.0 / 24);
  problem.q = problem.p;
  for (double const dear : {1e3, 1e6, 1e9, 1e12, 1e15}) {
    for (std::size_t k = 0; k < problem.cost.size(); ++k) {
      if (k / 24 % 3 == k % 24 % 3) continue;
      problem.cost[k] = dear;
      forbidden.cost[k] = std::numeric_limits<double>::infinity();
    }
    Terms const terms(problem);
    for (Solve const& solve : solves_of(terms, is_float64())) {
      if (solve.h.mask.data()) continue;
      RegularizedOptions given = options(kTolerance);
      given.method = solve.method;
      given.iterations = 3000;
      SCOPED_TRACE(fmt::format("cost {}, quadratic {}, group lasso {}, hypentropy {}, method {}", dear,
                               solve.h.quadratic, solve.h.group_lasso, solve.h.hypentropy,
                               static_cast<int>(solve.method)));
      RegularizedReport const report =
          solve_regularized(context(), problem.matrix(), problem.p, problem.q, solve.h, given).report();
      if (report.status != Status::converged) {
        EXPECT_NE(report.message.find("forbid by inf"), std::string::npos) << report.message;
        continue;
      }
      given.iterations = 20000;
      double const value =
          solve_regularized(context(), forbidden.matrix(), problem.p, problem.q, solve.h, given).report().primal;
      EXPECT_NEAR(report.primal, value, 3 * kTolerance * value);
    }
  }
}

// Few pairs are allowed, and one of them is dear.
TEST_P(Splitting, GapsAreSmallBesideTheCostsOfFewPairs) {
  Case problem = make_case(40, 40, 47);
  problem.p.assign(40, 1.0 / 40);
  problem.q = problem.p;
  std::vector<double> mask(problem.cost.size());
  for (std::size_t i = 0; i < 40; ++i) {
    for (std::size_t k = 0; k < 4; ++k) mask[i * 40 + (i + k) % 40] = 1;
  }
  Regularizer h;
  h.quadratic = 3;
  h.mask = {mask.data(), 40, 40};
  RegularizedOptions given = options(kTolerance);
  Case forbidden = problem;
  forbidden.cost[0] = std::numeric_limits<double>::infinity();
  double const value = solve_regularized(context(), forbidden.matrix(), problem.p, problem.q, h, given).report().primal;
  given.iterations = 3000;
  for (double const dear : {1e6, 1e9, 1e12}) {
    problem.cost[0] = dear;
    RegularizedReport const report =
        solve_regularized(context(), problem.matrix(), problem.p, problem.q, h, given).report();
    if (report.status == Status::converged) {
      EXPECT_NEAR(report.primal, value, 3 * kTolerance * value) << dear;
    } else {
      EXPECT_NE(report.message.find("forbid by inf"), std::string::npos) << report.message;
    }
  }
}

// Surveys of the dear pairs go on for some problems of a batch alone.
TEST_P(Splitting, BatchesWithDearPairsGiveTheBitsOfSingleSolves) {
  std::vector<Case> cases(4, make_case(23, 18, 43));
  cases[1].cost[19] = 1e9;
  cases[2].cost[20] = 1e6;
  cases[2].cost[50] = 1e12;
  cases[3].cost[0] = -1e6;
  Regularizer h;
  h.quadratic = 3;
  std::vector<RegularizedProblem> problems;
  for (Case const& one : cases) problems.push_back({one.matrix(), one.p, one.q, h});
  std::vector<RegularizedPlan> const plans = solve_regularized_batch(context(), problems, options(1e-4));
  for (std::size_t k = 0; k < cases.size(); ++k) {
    SCOPED_TRACE(k);
    RegularizedPlan const alone =
        solve_regularized(context(), cases[k].matrix(), cases[k].p, cases[k].q, h, options(1e-4));
    EXPECT_EQ(plans[k].report().iterations, alone.report().iterations);
    EXPECT_EQ(dense(plans[k]), dense(alone));
    EXPECT_EQ(plans[k].u(), alone.u());
  }
}

TEST_P(Splitting, ProgressStopsAndKeepsWhatThereIs) {
  Case const problem = make_case(30, 30, 19);
  RegularizedOptions given = options(1e-9);
  given.precision = Precision::float64;
  int seen = 0;
  given.progress = [&](RegularizedProgress const& state) {
    EXPECT_EQ(state.iteration, 20 * (seen + 1));
    return ++seen < 3;
  };
  RegularizedPlan const plan = solve_regularized(context(), problem.matrix(), problem.p, problem.q, {}, given);
  EXPECT_EQ(plan.status(), Status::stopped);
  EXPECT_EQ(plan.report().iterations, 60);
  EXPECT_GT(plan.report().transported_mass, 0);
}

/// Costs that no geometry is in.
Case random_case(std::int64_t n, std::int64_t m, unsigned seed) {
  Case result = make_case(n, m, seed);
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> cost;
  for (double& value : result.cost) value = cost(random);
  return result;
}

/// The accelerated run never has more iterations than the plain one, but for those of one check and one trial, and none
/// before that has had 300.
TEST_P(Splitting, AccelerationEndsWithinTwiceTheIterations) {
  int least = 100, most = 0;  // Percent of the iterations without.
  for (Case const& problem :
       {make_case(61, 47, 3), make_case(50, 50, 4), random_case(40, 57, 5), random_case(45, 45, 6)}) {
    Terms const terms(problem);
    std::vector<Regularizer> all = terms.all;
    for (double const weight : {1e-3, 0.1}) {
      all.push_back({});
      all.back().quadratic = weight;
    }
    for (Regularizer const& h : all) {
      RegularizedOptions given = options(kTolerance);
      given.iterations = 100000;
      RegularizedReport const plain =
          solve_regularized(context(), problem.matrix(), problem.p, problem.q, h, given).report();
      given.accelerate = true;
      RegularizedReport const report =
          solve_regularized(context(), problem.matrix(), problem.p, problem.q, h, given).report();
      ASSERT_EQ(plain.status, Status::converged) << plain.message;
      EXPECT_EQ(report.status, Status::converged) << report.message;
      EXPECT_LE(report.primal_residual, kTolerance);
      EXPECT_LE(std::abs(report.gap), kTolerance * report.primal);
      EXPECT_LE(report.iterations, plain.iterations <= 300 ? plain.iterations : 2 * plain.iterations + 22);
      least = std::min(least, 100 * report.iterations / plain.iterations);
      most = std::max(most, 100 * report.iterations / plain.iterations);

      // What the plain run sees is what it sees alone, to the bit.
      auto const* seen = report.history.data();
      auto const* const end = seen + report.history.size();
      std::size_t found = 0;
      for (RegularizedCheck const& check : plain.history) {
        while (seen != end && seen->primal_residual != check.primal_residual) ++seen;
        if (seen == end) break;
        ++found;
        ++seen;
      }
      EXPECT_GE(20 * found + 22, static_cast<std::size_t>(report.iterations / 2));
    }
  }
  // Some gain much: the accelerated run converges, and before the other.
  EXPECT_LE(least, 50);
  EXPECT_GT(most, 100);
}

/// The better of the two runs is what remains of iterations that do not do.
TEST_P(Splitting, AccelerationEndsWithTheBetterRun) {
  Case const problem = random_case(60, 83, 8);
  RegularizedOptions given = options(1e-9);
  given.criterion = RegularizedCriterion::residual;
  given.accelerate = true;
  for (bool const is_stopped : {false, true}) {
    for (int const iterations : {299, 641, 1000, 2000}) {
      SCOPED_TRACE(testing::Message() << iterations << (is_stopped ? ", stopped" : ""));
      given.iterations = is_stopped ? 20000 : iterations;
      if (is_stopped) given.progress = [=](RegularizedProgress const& state) { return state.iteration < iterations; };
      RegularizedReport const report =
          solve_regularized(context(), problem.matrix(), problem.p, problem.q, {}, given).report();
      EXPECT_EQ(report.status, is_stopped ? Status::stopped : Status::iteration_limit);
      // The plain run has taken all that were allowed; a stopped solve counts both.
      EXPECT_GE(report.iterations, iterations);
      EXPECT_LE(report.iterations, is_stopped ? iterations + 22 : 2 * iterations + 22);
      double plain = 1, accelerated = 1;  // At their last checks; steps tell which is which.
      for (RegularizedCheck const& check : report.history)
        (check.step == 2 ? plain : accelerated) = check.primal_residual;
      double squares = 0;
      for (auto const* side : {&problem.p, &problem.q}) {
        for (double const share : *side) squares += share * share;
      }
      // Checks of float32 plans have sums in float32.
      EXPECT_LE(report.primal_residual, std::min(plain, accelerated) * std::sqrt(squares) * (1 + 1e-3));
      if (is_stopped) continue;
      RegularizedOptions alone = given;
      alone.accelerate = false;
      RegularizedReport const unaided =
          solve_regularized(context(), problem.matrix(), problem.p, problem.q, {}, alone).report();
      EXPECT_EQ(unaided.iterations, iterations);
      EXPECT_LE(report.primal_residual, unaided.primal_residual);
    }
  }
}

TEST_P(Splitting, TakesWeightsThatAreTooSmallForNewton) {
  Case const problem = random_case(20, 23, 9);
  RegularizedOptions given = options(1e-6);
  given.method = RegularizedMethod::automatic;
  given.precision = Precision::automatic;
  given.iterations = 100000;
  Regularizer h;
  for (double const weight : {1e-1, 1e-13, 1e-20, 1e-300}) {
    h.quadratic = weight;
    RegularizedReport const report =
        solve_regularized(context(), problem.matrix(), problem.p, problem.q, h, given).report();
    EXPECT_EQ(report.status, Status::converged) << report.message;
    EXPECT_EQ(report.method, weight == 1e-1 ? RegularizedMethod::newton : RegularizedMethod::splitting) << weight;
  }
  given.method = RegularizedMethod::newton;
  given.accelerate = true;
  EXPECT_THROW(solve_regularized(context(), problem.matrix(), problem.p, problem.q, h, given), Error);
}

TEST_P(Splitting, AcceleratedBatchesGiveTheBitsOfSingleSolves) {
  std::vector<Case> cases;
  for (unsigned k = 0; k < 3; ++k) cases.push_back(random_case(30 + 9 * k, 40, 40 + k));
  std::vector<RegularizedProblem> problems;
  for (Case const& problem : cases) problems.push_back({problem.matrix(), problem.p, problem.q, {}});
  RegularizedOptions given = options(1e-3);
  given.accelerate = true;
  std::vector<RegularizedPlan> const plans = solve_regularized_batch(context(), problems, given);
  for (std::size_t k = 0; k < cases.size(); ++k) {
    RegularizedPlan const alone =
        solve_regularized(context(), problems[k].geometry, problems[k].p, problems[k].q, {}, given);
    EXPECT_EQ(plans[k].report().iterations, alone.report().iterations);
    EXPECT_EQ(dense(plans[k]), dense(alone));
    EXPECT_EQ(plans[k].v(), alone.v());
  }
}

MONGE_FOR_EACH_OF(Splitting, oracle::with_point_costs({oracle::Costs::points}));

}  // namespace
}  // namespace monge
