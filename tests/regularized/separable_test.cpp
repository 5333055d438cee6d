// solve_regularized() with a separable term of the user's own, whose functions are those of terms with known plans.
#include <atomic>
#include <cmath>
#include <limits>
#include <numeric>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include <monge/monge.hpp>

#include "oracle/backend_test.hpp"
#include "regularized/splitting_rule.hpp"

namespace monge {
namespace {

using oracle::BackendTest;
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

struct Case {
  std::int64_t n, m;
  std::vector<double> cost, p, q;
  CostMatrix matrix() const { return {{cost.data(), n, m}}; }
};

/// Costs 512 + 64 (s - t)^2 of points of [0, 1] in a scrambled order, and a mass of 4.
Case scrambled(std::int64_t n, std::int64_t m) {
  Case result{n, m, {}, {}, {}};
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
  RegularizedPlan solve(Case const& problem, Regularizer const& h, RegularizedOptions const& given) const {
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

std::vector<double> dense(RegularizedPlan const& plan) {
  std::vector<double> values(static_cast<std::size_t>(plan.rows() * plan.columns()));
  plan.dense({values.data(), plan.rows(), plan.columns()});
  return values;
}

/// The user's hypentropy takes the iterations of the library's, in all units. Both proxes end within a few roundings of
/// the root, and a rounding of float32 is 6e-8.
TEST_P(Separable, TermsOfTheLibraryHaveTheirPlan) {
  Case const problem = scrambled(40, 33);
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
  Case const problem = scrambled(20, 25);
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
  Case const problem = scrambled(20, 25);
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
  Case const problem = scrambled(12, 9);
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
  Case const large = scrambled(700, 600);
  solve(large, h, given);
  EXPECT_EQ(calls, 3 * 19);  // One call for each 32 columns.
  std::vector<Case> problems;
  for (std::int64_t k = 0; k < 6; ++k) problems.push_back(scrambled(30 + k, 40));
  std::vector<RegularizedProblem> batch;
  for (Case const& problem : problems) batch.push_back({problem.matrix(), problem.p, problem.q, h});
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
            "separable: is given; must be solved on the CPU, since a GPU cannot call its functions");
}

}  // namespace
}  // namespace monge
