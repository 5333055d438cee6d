// The line search on functions with known minima, hard ones among them.
#include "second_order/line_search.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <vector>

namespace monge {
namespace {

using Phi = std::function<LinePoint(double)>;

struct Outcome {
  LinePoint start;
  LineSearchResult result;
  std::vector<double> steps;
};

Outcome search(Phi const& phi, double first_step, WolfeOptions const& options = {.most_step = 1e6}) {
  Outcome outcome{phi(0), {}, {}};
  outcome.result = wolfe_search(
      outcome.start, first_step,
      [&](double step) {
        outcome.steps.push_back(step);
        return phi(step);
      },
      options);
  return outcome;
}

void expect_wolfe(Outcome const& outcome, WolfeOptions const& options = {}) {
  auto const& [start, result, steps] = outcome;
  EXPECT_GT(result.point.step, 0);
  EXPECT_EQ(result.point.step, steps.back());
  EXPECT_LE(result.point.value, start.value + options.decrease * result.point.step * start.slope);
  EXPECT_LE(std::fabs(result.point.slope), -options.curvature * start.slope);
}

/// More and Thuente (1994), eq. 5.1: a minimum at 1.4 (beta = 2), concave beyond.
LinePoint concave(double t) {
  double const beta = 2, square = t * t + beta;
  return {t, -t / square, (t * t - beta) / (square * square)};
}
/// Their eq. 5.2: a narrow minimum at 1.6.
LinePoint narrow(double t) {
  double const beta = 0.004, u = t + beta;
  return {t, std::pow(u, 5) - 2 * std::pow(u, 4), 5 * std::pow(u, 4) - 8 * std::pow(u, 3)};
}
/// exp(t) - 10 t, with a minimum at log 10: the dual along a line is a sum of such.
LinePoint exponential(double t) {
  return {t, std::exp(t) - 10 * t, std::exp(t) - 10};
}

TEST(LineSearch, meets_both_conditions_from_any_first_step) {
  for (Phi const& phi : {Phi(concave), Phi(narrow), Phi(exponential)}) {
    for (double const first : {1e-3, 0.1, 1.0, 10.0, 1000.0}) {
      for (double const curvature : {0.9, 0.1, 0.001}) {
        SCOPED_TRACE(testing::Message() << "first step " << first << ", c2 " << curvature);
        WolfeOptions const options{.curvature = curvature, .most_step = 1e6, .evaluations = 60};
        expect_wolfe(search(phi, first, options), options);
      }
    }
  }
}

TEST(LineSearch, takes_a_first_step_that_will_do) {
  Outcome const outcome = search(exponential, 2);
  EXPECT_EQ(outcome.steps, std::vector<double>{2});
  EXPECT_EQ(outcome.result.evaluations, 1);
}

TEST(LineSearch, shortens_steps_to_where_the_function_is_finite) {
  Phi const phi = [](double t) {
    double const value = t < 0.01 ? exponential(100 * t).value : std::numeric_limits<double>::infinity();
    return LinePoint{t, value, t < 0.01 ? 100 * exponential(100 * t).slope : std::numeric_limits<double>::quiet_NaN()};
  };
  expect_wolfe(search(phi, 1));
}

TEST(LineSearch, keeps_to_the_largest_step) {
  Outcome const outcome = search([](double t) { return LinePoint{t, -t, -1}; }, 1, {});
  EXPECT_EQ(outcome.result.point.step, WolfeOptions{}.most_step) << "decrease enough, though the slope stays";
  for (double const step : outcome.steps) EXPECT_LE(step, WolfeOptions{}.most_step);
}

TEST(LineSearch, ends_without_a_step_where_nothing_descends) {
  Outcome const outcome = search([](double t) { return LinePoint{t, t, -1}; }, 1, {});
  EXPECT_EQ(outcome.result.point.step, 0);
  EXPECT_LE(outcome.result.evaluations, WolfeOptions{}.evaluations);
  EXPECT_EQ(outcome.result.evaluations, static_cast<int>(outcome.steps.size()));
}

TEST(LineSearch, when_evaluations_are_spent_takes_the_best_of_them) {
  WolfeOptions const options{.curvature = 2e-4, .most_step = 1e6, .evaluations = 4};
  Outcome const outcome = search(narrow, 10, options);
  EXPECT_EQ(outcome.steps.size(), 4u);
  double best = 0;
  for (double const step : outcome.steps) best = std::min(best, narrow(step).value);
  EXPECT_EQ(outcome.result.point.value, best);
}

// Rounding of the values is 100 times what there is to gain: the slopes alone lead to the minimum, by one secant.
TEST(LineSearch, goes_by_slopes_where_values_are_rounding) {
  double const scale = 1e-18, noise = 1e-16;
  for (double const frequency : {1e6, 2e6, 3e6, 4e6, 5e6}) {
    Phi const phi = [&](double t) {
      double const rounding = noise * std::sin(frequency * t);
      return LinePoint{t, scale * (t * t - 2.4 * t) + rounding, scale * (2 * t - 2.4)};
    };
    WolfeOptions const options{.curvature = 0.1, .resolution = 2 * noise};
    Outcome const outcome = search(phi, 1, options);
    EXPECT_NEAR(outcome.result.point.step, 1.2, 0.12 + 1e-12) << "|phi'(t)| <= 0.1 |phi'(0)|";
    EXPECT_LE(outcome.result.evaluations, 4);
  }
}

}  // namespace
}  // namespace monge
