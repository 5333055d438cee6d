// solve_regularized() with a separable term of the user's own: functions, of terms with known plans, and slope tables.
#include <atomic>
#include <cmath>
#include <limits>
#include <numeric>
#include <span>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include <monge/monge.hpp>

#include "oracle/backend_test.hpp"
#include "oracle/regularized.hpp"
#include "regularized/splitting_rule.hpp"

namespace monge {
namespace {

using oracle::BackendTest;
using oracle::dense;
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

struct SeparableCase {
  std::int64_t n, m;
  std::vector<double> cost, p, q;
  CostMatrix matrix() const { return {{cost.data(), n, m}}; }
};

/// Costs 512 + 64 (s - t)^2 of points of [0, 1] in a scrambled order, and a mass of 4.
SeparableCase scrambled(std::int64_t n, std::int64_t m) {
  SeparableCase result{n, m, {}, {}, {}};
  auto const place = [](std::int64_t k, std::int64_t size) {
    return std::fmod(0.618033988749895 * static_cast<double>(k), 1.0) + 0.1 / static_cast<double>(size);
  };
  for (std::int64_t i = 0; i < n; ++i) {
    for (std::int64_t j = 0; j < m; ++j) {
      double const by = place(i, n) - place(j + 5, m);
      result.cost.push_back(512 + 64 * by * by);
    }
  }
  auto const fill = [](std::vector<double>& side, std::int64_t size) {
    for (std::int64_t k = 0; k < size; ++k) side.push_back(1 + static_cast<double>(k % 5));
    double const total = std::accumulate(side.begin(), side.end(), 0.0);
    for (double& share : side) share *= 4 / total;
  };
  fill(result.p, n);
  fill(result.q, m);
  return result;
}

template <class Function>
auto each(Function function) {
  return [=](std::span<double const> from, std::span<double> to) {
    for (std::size_t k = 0; k < from.size(); ++k) to[k] = function(from[k]);
  };
}

/// lambda (x asinh(x / beta) - sqrt(x^2 + beta^2) + beta)
SeparableTerm hypentropy(double lambda, double beta) {
  SeparableTerm term;
  term.prox = [=](double step, std::span<double const> v, std::span<double> x) {
    EntryProx<double> const prox{1, step * lambda, beta};
    for (std::size_t k = 0; k < v.size(); ++k) x[k] = prox(v[k]);
  };
  term.value = each([=](double x) { return lambda * (x * std::asinh(x / beta) - std::hypot(x, beta) + beta); });
  term.conjugate = each([=](double z) { return lambda * beta * (std::cosh(z / lambda) - 1); });
  return term;
}

/// 0 for x up to `most`, +infinity above.
SeparableTerm capacity(double most) {
  SeparableTerm term;
  term.prox = [=](double, std::span<double const> v, std::span<double> x) {
    for (std::size_t k = 0; k < v.size(); ++k) x[k] = std::min(v[k], most);
  };
  term.value = each([=](double x) { return x <= most * (1 + 1e-6) ? 0 : kInfinity; });
  term.conjugate = each([=](double z) { return most * z; });
  return term;
}

class Separable : public BackendTest {
 protected:
  Separable() : BackendTest(2) {}
  RegularizedOptions options(double tolerance) const {
    RegularizedOptions result;
    result.precision = precision();
    result.tolerance = tolerance;
    return result;
  }
  RegularizedPlan solve(SeparableCase const& problem, Regularizer const& h, RegularizedOptions const& given) const {
    return solve_regularized(context(), problem.matrix(), problem.p, problem.q, h, given);
  }
  std::string message_of(Regularizer const& h, RegularizedOptions const& given,
                         ErrorCode code = ErrorCode::invalid_argument) const {
    try {
      solve(scrambled(12, 9), h, given);
    } catch (Error const& error) {
      EXPECT_EQ(error.code(), code);
      return error.what();
    }
    return "";
  }
};
MONGE_FOR_EACH_OF(Separable, (std::vector<oracle::Target>{{DeviceType::cpu, Precision::float32},
                                                          {DeviceType::cpu, Precision::float64}}));

/// The user's hypentropy takes the iterations of the library's, in all units. Both proxes end within a few roundings of
/// the root, and a rounding of float32 is 6e-8.
TEST_P(Separable, TermsOfTheLibraryHaveTheirPlan) {
  SeparableCase const problem = scrambled(40, 33);
  std::vector<double> weights(problem.cost.size());
  for (std::size_t k = 0; k < weights.size(); ++k) weights[k] = static_cast<double>(k % 3);
  for (bool const with_l1 : {false, true}) {
    Regularizer own, known;
    own.separable = hypentropy(3, 0.02);
    known.hypentropy = 3;
    known.hypentropy_width = 0.02;
    if (with_l1) {
      own.l1 = known.l1 = 2;
      own.l1_weights = known.l1_weights = {weights.data(), problem.n, problem.m};
    }
    RegularizedOptions given = options(0);
    given.iterations = 100;
    RegularizedPlan const plan = solve(problem, own, given), expected = solve(problem, known, given);
    std::vector<double> const x = dense(plan), y = dense(expected);
    double const rounding = is_float64() ? 1e-12 : 1e-4;
    for (std::size_t k = 0; k < x.size(); ++k) EXPECT_NEAR(x[k], y[k], 4 * rounding) << k;
    EXPECT_NEAR(plan.report().regularization, expected.report().regularization, 100 * rounding);
    EXPECT_NEAR(plan.report().dual, expected.report().dual, 1000 * rounding);

    RegularizedReport const report = solve(problem, own, options(1e-4)).report();
    EXPECT_EQ(report.status, Status::converged) << report.message;
    EXPECT_EQ(report.method, RegularizedMethod::splitting);
    EXPECT_LE(std::abs(report.gap), 1e-4 * (report.primal - 4 * 512));
  }
}

/// A conjugate with slopes of `most` certifies a plan under a capacity, and the plan keeps it.
TEST_P(Separable, CapacitiesBoundEachEntry) {
  SeparableCase const problem = scrambled(20, 25);
  double const without = solve(problem, {}, options(1e-3)).report().primal;
  for (double const most : {4.0, 0.05, 0.02}) {
    SCOPED_TRACE(most);
    Regularizer h;
    h.separable = capacity(most);
    RegularizedPlan const plan = solve(problem, h, options(1e-3));
    RegularizedReport const& report = plan.report();
    EXPECT_EQ(report.status, Status::converged) << report.message;
    EXPECT_EQ(report.regularization, 0);
    for (double const x : dense(plan)) EXPECT_LE(x, most * (1 + 1e-6));
    if (most == 4) {
      EXPECT_NEAR(report.primal, without, 4e-3 * (without - 4 * 512));
    } else {
      EXPECT_GT(report.dual, without);
    }
  }
}

TEST_P(Separable, WithoutConjugateThereIsNoDualValue) {
  SeparableCase const problem = scrambled(20, 25);
  Regularizer h;
  h.separable = hypentropy(3, 0.02);
  h.separable.conjugate = {};
  RegularizedOptions given = options(1e-3);
  EXPECT_EQ(message_of(h, given),
            "criterion: is gap; must be residual with a separable term that has no conjugate, and so no dual value");
  given.criterion = RegularizedCriterion::residual;
  RegularizedReport const report = solve(problem, h, given).report();
  EXPECT_EQ(report.status, Status::converged) << report.message;
  EXPECT_TRUE(std::isnan(report.dual) && std::isnan(report.gap));
  EXPECT_GT(report.regularization, 0);
}

TEST_P(Separable, WrongFunctionsAreErrors) {
  RegularizedOptions const given = options(1e-4);
  auto const message_with = [&](auto&& change) {
    Regularizer h;
    h.separable = hypentropy(3, 0.02);
    change(h.separable);
    return message_of(h, given);
  };
  EXPECT_EQ(message_with([](SeparableTerm&) {}), "");
  EXPECT_EQ(message_with([](SeparableTerm& term) { term.prox = {}; }),
            "separable: has no prox; must have prox and value");
  EXPECT_EQ(message_with([](SeparableTerm& term) { term.value = {}; }),
            "separable: has no value; must have prox and value");
  EXPECT_EQ(message_with([](SeparableTerm& term) { term.value = each([](double x) { return x + 1; }); }),
            "separable: value is 1 at 0; must be 0");
  auto const begins = [](std::string const& message, std::string const& text) {
    EXPECT_EQ(message.substr(0, text.size()), text);
  };
  auto const prox = [](double factor) {
    return [=](double, std::span<double const> v, std::span<double> x) {
      for (std::size_t k = 0; k < v.size(); ++k) x[k] = factor * v[k];
    };
  };
  begins(message_with([&](SeparableTerm& term) { term.prox = prox(1.5); }), "separable: prox is ");
  begins(message_with([&](SeparableTerm& term) { term.prox = prox(-0.5); }), "separable: prox is -");
  begins(message_with([&](SeparableTerm& term) { term.prox = prox(kNaN); }), "separable: prox is nan at ");
  begins(
      message_with([](SeparableTerm& term) { term.prox = [](double, std::span<double const>, std::span<double>) {}; }),
      "separable: prox is nan at ");
  begins(message_with([](SeparableTerm& term) { term.value = each([](double x) { return x > 0 ? kNaN : 0; }); }),
         "separable: value is nan at ");
  begins(message_with([](SeparableTerm& term) { term.conjugate = each([](double) { return kNaN; }); }),
         "separable: conjugate is nan at ");
  begins(message_with([](SeparableTerm& term) { term.conjugate = each([](double) { return -kInfinity; }); }),
         "separable: conjugate is -inf at ");
  // Too small: the dual value would be above the optimum.
  begins(message_with([](SeparableTerm& term) {
           auto const right = term.conjugate;
           term.conjugate = [right](std::span<double const> z, std::span<double> out) {
             right(z, out);
             for (double& value : out) value *= 0.9;
           };
         }),
         "separable: conjugate is ");
  // Too large: the bound is loose, the result is not wrong.
  Regularizer h;
  h.separable = hypentropy(3, 0.02);
  h.separable.conjugate = each([](double z) { return z > 0 ? kInfinity : 0; });
  RegularizedOptions loose = given;
  loose.iterations = 400;
  SeparableCase const problem = scrambled(12, 9);
  RegularizedReport const report = solve(problem, h, loose).report();
  EXPECT_EQ(report.status, Status::iteration_limit);
  EXPECT_LT(report.dual, report.primal);
}

TEST_P(Separable, ExceptionsEndTheSolve) {
  for (int const calls : {0, 3, 40}) {
    Regularizer h;
    h.separable = hypentropy(3, 0.02);
    auto const left = std::make_shared<int>(calls);
    h.separable.prox = [left, prox = h.separable.prox](double step, std::span<double const> v, std::span<double> x) {
      if ((*left)-- == 0) throw std::runtime_error("mine");
      prox(step, v, x);
    };
    try {
      solve(scrambled(30, 40), h, options(1e-6));
      ADD_FAILURE() << "no error";
    } catch (std::runtime_error const& error) {
      EXPECT_EQ(std::string(error.what()), "mine");
    }
    EXPECT_LT(*left, 0);
    EXPECT_GE(*left, -1);  // Nothing is called after the exception.
  }
}

/// Problems of a batch and the threads of a large one take turns.
TEST_P(Separable, OneThreadAtATimeCallsTheFunctions) {
  std::atomic<int> inside = 0, calls = 0;
  std::atomic<bool> crowded = false;
  Regularizer h;
  h.separable = hypentropy(3, 0.02);
  h.separable.prox = [&, prox = h.separable.prox](double step, std::span<double const> v, std::span<double> x) {
    if (++inside > 1) crowded = true;
    ++calls;
    prox(step, v, x);
    --inside;
  };
  RegularizedOptions given = options(0);
  given.iterations = 3;
  SeparableCase const large = scrambled(700, 600);
  solve(large, h, given);
  EXPECT_EQ(calls, 3 * 19);  // One call for each 32 columns.
  std::vector<SeparableCase> problems;
  for (std::int64_t k = 0; k < 6; ++k) problems.push_back(scrambled(30 + k, 40));
  std::vector<RegularizedProblem> batch;
  for (SeparableCase const& problem : problems) batch.push_back({problem.matrix(), problem.p, problem.q, h});
  std::vector<RegularizedPlan> const plans = solve_regularized_batch(context(), batch, given);
  EXPECT_FALSE(crowded);
  for (std::size_t k = 0; k < problems.size(); ++k) EXPECT_EQ(dense(plans[k]), dense(solve(problems[k], h, given)));
}

TEST_P(Separable, OtherTermsAndMethodsAreRefused) {
  Regularizer h;
  h.separable = capacity(1);
  h.quadratic = 0.5;
  EXPECT_EQ(message_of(h, options(1e-4), ErrorCode::unsupported),
            "separable: is given with quadratic, which is 0.5; must be alone or with l1 and mask");
  h.quadratic = 0;
  RegularizedOptions given;
  given.method = RegularizedMethod::newton;
  EXPECT_EQ(message_of(h, given, ErrorCode::unsupported),
            "separable: is given; must not be with method newton, which knows a quadratic term");
}

class SeparableOnCuda : public Separable {};
MONGE_FOR_EACH_OF(SeparableOnCuda, (std::vector<oracle::Target>{{DeviceType::cuda, Precision::float64}}));

TEST_P(SeparableOnCuda, IsRefused) {
  Regularizer h;
  h.separable = capacity(1);
  EXPECT_EQ(message_of(h, options(1e-4), ErrorCode::unsupported),
            "separable: is given; must be solved on the CPU, or be a table of slopes, as GPUs call no function");
}

/// The slope of phi is `at_0` + `rise` x up to the mass `bend`, and `after` from there to the mass `most`.
struct Ramp {
  double at_0 = 3, rise = 400, bend = 0.01, after = 10, most = 0.05;

  std::vector<double> table() const {
    return {0, at_0, bend, at_0 + rise * bend, bend, after, most, after, most, kInfinity};
  }
  double phi(double x) const {
    double const low = std::min(x, bend);
    return at_0 * low + rise * low * low / 2 + after * (x - low);
  }
  double prox(double step, double v) const {
    double const low = (v - step * at_0) / (1 + step * rise);
    if (low <= bend) return std::max(low, 0.0);
    return std::clamp(v - step * after, bend, most);
  }
  double conjugate(double z) const {
    if (z <= at_0) return 0;
    if (z <= at_0 + rise * bend) return (z - at_0) * (z - at_0) / (2 * rise);
    return z <= after ? z * bend - phi(bend) : z * most - phi(most);
  }
  SeparableTerm functions() const {
    SeparableTerm term;
    term.prox = [ramp = *this](double step, std::span<double const> v, std::span<double> x) {
      for (std::size_t k = 0; k < v.size(); ++k) x[k] = ramp.prox(step, v[k]);
    };
    term.value = each([ramp = *this](double x) { return ramp.phi(x); });
    term.conjugate = each([ramp = *this](double z) { return ramp.conjugate(z); });
    return term;
  }
};

/// Numbers with a plan: the table must not die before it.
MatrixView table_view(std::vector<double> const& table) {
  return {table.data(), std::ssize(table) / 2, 2};
}

class Slopes : public Separable {
 protected:
  double rounding() const { return is_float64() ? 1e-12 : 1e-4; }
};
MONGE_FOR_EACH_OF(Slopes, (std::vector<oracle::Target>{{DeviceType::cpu, Precision::float32},
                                                       {DeviceType::cpu, Precision::float64},
                                                       {DeviceType::cuda, Precision::float32},
                                                       {DeviceType::cuda, Precision::float64}}));

/// The oracle is the CPU in float64 with functions of the same phi. Of 1030 x 1000 entries, X may stay in the shared
/// memory of a GPU. Tolerances: TermsOfTheLibraryHaveTheirPlan; the large problem sums 600 times as many entries.
TEST_P(Slopes, TableHasThePlanOfItsFunctions) {
  Context const cpu = Context::cpu(2);
  for (auto const& [n, m, iterations, of_plan, of_value] :
       {std::tuple{40, 33, 100, 4.0, 1e3}, {37, 50, 61, 4.0, 1e3}, {1030, 1000, 41, 4.0, 1e5}}) {
    for (bool const with_l1 : {false, true}) {
      SCOPED_TRACE(testing::Message() << n << " x " << m << (with_l1 ? ", l1" : ""));
      SeparableCase const problem = scrambled(n, m);
      Ramp ramp;
      if (n > 1000) ramp = {.at_0 = 1, .rise = 1e5, .bend = 1e-4, .after = 20, .most = 0.01};
      std::vector<double> weights(problem.cost.size());
      for (std::size_t k = 0; k < weights.size(); ++k) weights[k] = static_cast<double>(k % 3);
      std::vector<double> const table = ramp.table();
      Regularizer by_table, by_functions;
      by_table.slopes = table_view(table);
      by_functions.separable = ramp.functions();
      if (with_l1) {
        for (Regularizer* const h : {&by_table, &by_functions}) {
          h->l1 = 2;
          h->l1_weights = {weights.data(), problem.n, problem.m};
        }
      }
      RegularizedOptions given = options(0);
      given.iterations = iterations;
      RegularizedPlan const plan = solve(problem, by_table, given);
      given.precision = Precision::float64;
      RegularizedPlan const expected =
          solve_regularized(cpu, problem.matrix(), problem.p, problem.q, by_functions, given);
      std::vector<double> const x = dense(plan), y = dense(expected);
      double largest = 0;
      for (std::size_t k = 0; k < x.size(); ++k) largest = std::max(largest, std::abs(x[k] - y[k]));
      EXPECT_LE(largest, of_plan * rounding());
      EXPECT_GT(expected.report().regularization, 0);
      EXPECT_NEAR(plan.report().regularization, expected.report().regularization, of_value * rounding());
      EXPECT_NEAR(plan.report().dual, expected.report().dual, of_value * rounding());
    }
  }
}

/// Without a last slope of +infinity the table ends at the largest entry that a plan can have, so the conjugate is
/// finite; the certificate of a term that is linear from some mass on must still close.
TEST_P(Slopes, CertificatesClose) {
  SeparableCase const problem = scrambled(30, 25);
  for (std::vector<double> const& table : {std::vector<double>{0, 2},         // linear
                                           {0, 0, 100, 3000},                 // 15 x^2, beyond all masses
                                           {0, 0, 0.02, 6, 0.02, 8},          // Huber with a step
                                           {0, 0, 0.05, 0, 0.05, kInfinity},  // a capacity
                                           Ramp().table()}) {
    for (bool const accelerate : {false, true}) {
      SCOPED_TRACE(testing::Message() << table.size() << " numbers, last slope " << table.back());
      Regularizer h;
      h.slopes = table_view(table);
      RegularizedOptions given = options(3e-4);
      given.accelerate = accelerate;
      RegularizedPlan const plan = solve(problem, h, given);
      RegularizedReport const& report = plan.report();
      EXPECT_EQ(report.status, Status::converged) << report.message;
      EXPECT_LE(std::abs(report.gap), 3e-4 * (report.primal - 4 * 512));
      if (table.back() == kInfinity) {
        for (double const x : dense(plan)) EXPECT_LE(x, table[table.size() - 2] * (1 + 1e-6));
      }
      std::vector<RegularizedProblem> const batch(3, {problem.matrix(), problem.p, problem.q, h});
      for (RegularizedPlan const& other : solve_regularized_batch(context(), batch, given))
        EXPECT_EQ(dense(other), dense(plan));
    }
  }
  Regularizer known, own;
  std::vector<double> const line = {0, 0, 100, 3000};
  known.quadratic = 30;
  own.slopes = table_view(line);
  RegularizedOptions given = options(3e-4);
  given.method = RegularizedMethod::splitting;
  RegularizedReport const expected = solve(problem, known, given).report(), found = solve(problem, own, given).report();
  EXPECT_NEAR(found.primal, expected.primal, 6e-4 * (expected.primal - 4 * 512));
}

TEST_P(Slopes, OnePointTakesAllMass) {
  SeparableCase const problem{1, 1, {7}, {2}, {2}};
  std::vector<double> const table = Ramp{.most = 3}.table();
  Regularizer h;
  h.slopes = table_view(table);
  RegularizedReport const report = solve(problem, h, options(1e-4)).report();
  EXPECT_EQ(report.status, Status::converged) << report.message;
  EXPECT_NEAR(report.regularization, Ramp().phi(2), 1e-3 * Ramp().phi(2));
}

TEST_P(Slopes, WrongTablesAreErrors) {
  auto const message = [&](std::vector<double> const& table) {
    Regularizer h;
    h.slopes = table_view(table);
    return message_of(h, options(1e-4));
  };
  EXPECT_EQ(message({0, 1, 2, 3}), "");
  EXPECT_EQ(message({1, 1, 2, 3}), "slopes: row 0 has the mass 1; must be 0");
  EXPECT_EQ(message({0, 1, 2, 3, 1, 4}), "slopes: row 2 has the mass 1; must be at least 2, that of the row before");
  EXPECT_EQ(message({0, 1, 2, 0.5}), "slopes: row 1 has the slope 0.5; must be at least 1, that of the row before");
  EXPECT_EQ(message({0, -1, 2, 0}), "slopes: row 0 has the slope -1; must be >= 0");
  EXPECT_EQ(message({0, 1, kNaN, 2}), "slopes: row 1 has the mass nan; must be finite and >= 0");
  std::string const late =
      "slopes: row 1 has the slope inf; must be finite, except in a last row with the mass of the "
      "row before";
  EXPECT_EQ(message({0, 1, 2, kInfinity}), late);
  EXPECT_EQ(message({0, 1, 0, kInfinity, 0, kInfinity}), late);
  // 12 x 9 entries of at most 0.01 have no mass of 4.
  EXPECT_EQ(message({0, 0, 0.01, 0, 0.01, kInfinity}),
            "slopes: leaves no plan with these marginals on the pairs that cost and mask allow; must leave one");

  Regularizer h;
  std::vector<double> const table = {0, 1, 2, 3};
  h.slopes = {table.data(), 4, 1};
  EXPECT_EQ(message_of(h, options(1e-4)), "slopes: is 4 x 1; must be k x 2, a mass and a slope in each row");
  h.slopes = table_view(table);
  h.hypentropy = 0.5;
  EXPECT_EQ(message_of(h, options(1e-4), ErrorCode::unsupported),
            "slopes: is given with hypentropy, which is 0.5; must be alone or with l1 and mask");
  h.hypentropy = 0;
  RegularizedOptions given;
  given.method = RegularizedMethod::newton;
  EXPECT_EQ(message_of(h, given, ErrorCode::unsupported),
            "slopes: is given; must not be with method newton, which knows a quadratic term");
  h.separable = capacity(1);
  EXPECT_EQ(message_of(h, options(1e-4)), "slopes: is given with separable; must be given without");
}

/// 12 x 9 entries of at most 0.01 have no mass of 4. The functions do not say so: this phi is 0 above, too.
TEST_P(Separable, TermsWithoutPlanAreNamed) {
  Regularizer h;
  h.separable = capacity(0.01);
  h.separable.value = each([](double) { return 0; });
  EXPECT_EQ(message_of(h, options(1e-4)),
            "separable: leaves no plan with these marginals on the pairs that cost and mask allow; must leave one");
}

}  // namespace
}  // namespace monge
