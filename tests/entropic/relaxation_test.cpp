// The choice of omega from errors alone.
#include "entropic/policy/relaxation.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <complex>

namespace monge {
namespace {

constexpr int kSweeps = 10;  // Between observations.

/// The larger root rho of (rho + omega - 1)^2 = omega^2 lambda rho in modulus.
double rate(double omega, double lambda) {
  std::complex<double> const half = omega * omega * lambda / 2 - (omega - 1);
  std::complex<double> const root = std::sqrt(half * half - (omega - 1) * (omega - 1));
  return std::max(std::abs(half + root), std::abs(half - root));
}

double best_omega(double lambda) {
  return 2 / (1 + std::sqrt(1 - lambda));
}

/// Observes an error that falls at rate(omega, lambda), so many times.
void converge(AdaptiveRelaxation& relaxation, double lambda, int observations) {
  double error = 1;
  for (int k = 0; k < observations; ++k) {
    error *= std::pow(rate(relaxation.omega(), lambda), kSweeps);
    relaxation.observe(error, kSweeps);
  }
}

void observe_no_progress(AdaptiveRelaxation& relaxation, int observations) {
  for (int k = 0; k < observations; ++k) relaxation.observe(1, kSweeps);
}

TEST(AdaptiveRelaxationTest, finds_the_best_omega_of_a_steady_rate) {
  for (double const lambda : {0.5, 0.9, 0.97}) {
    AdaptiveRelaxation relaxation;
    converge(relaxation, lambda, 2);
    EXPECT_NEAR(relaxation.omega(), best_omega(lambda), 1e-6) << lambda;
  }
}

TEST(AdaptiveRelaxationTest, finds_it_to_a_tenth_where_plain_sweeps_hardly_get_on) {
  AdaptiveRelaxation relaxation;
  double const lambda = 0.999;
  converge(relaxation, lambda, 60);
  double const best = 2 - best_omega(lambda);
  EXPECT_GE(2 - relaxation.omega(), 0.9 * best);
  EXPECT_LE(2 - relaxation.omega(), 1.11 * best);
}

TEST(AdaptiveRelaxationTest, an_error_that_does_not_fall_raises_omega_up_to_a_bound) {
  AdaptiveRelaxation relaxation;
  double last = 1;
  for (int k = 0; k < 200; ++k) {
    observe_no_progress(relaxation, 1);
    EXPECT_GE(relaxation.omega(), last);
    last = relaxation.omega();
  }
  EXPECT_GT(last, 1.95);
  EXPECT_LT(last, 1.98);
}

TEST(AdaptiveRelaxationTest, an_error_that_grows_is_one_that_does_not_fall) {
  AdaptiveRelaxation still, growing;
  for (int k = 0; k < 50; ++k) {
    observe_no_progress(still, 1);
    growing.observe(std::pow(1.1, k), kSweeps);
    EXPECT_EQ(growing.omega(), still.omega());
  }
}

TEST(AdaptiveRelaxationTest, comes_back_from_an_omega_that_is_too_large) {
  double const lambda = 0.9;
  AdaptiveRelaxation relaxation;
  observe_no_progress(relaxation, 100);
  ASSERT_GT(relaxation.omega(), best_omega(lambda));
  converge(relaxation, lambda, 100);
  EXPECT_LE(2 - relaxation.omega(), 2 * (2 - best_omega(lambda)));
  EXPECT_GE(2 - relaxation.omega(), 0.9 * (2 - best_omega(lambda)));
}

TEST(AdaptiveRelaxationTest, stays_plain_where_there_is_nothing_to_gain) {
  AdaptiveRelaxation relaxation;
  converge(relaxation, 0.05, 20);
  EXPECT_EQ(relaxation.omega(), 1);
}

TEST(AdaptiveRelaxationTest, takes_the_rate_of_the_first_window) {
  AdaptiveRelaxation relaxation;
  relaxation.observe(1, kSweeps);
  EXPECT_EQ(relaxation.omega(), 1) << "one error is no rate";
  relaxation.observe(std::pow(0.9, 5), 5);
  EXPECT_NEAR(relaxation.omega(), best_omega(0.9), 1e-12);
}

TEST(AdaptiveRelaxationTest, takes_no_rate_across_an_interruption) {
  AdaptiveRelaxation relaxation;
  for (int k = 0; k < 20; ++k) {
    relaxation.observe(std::pow(0.9, k * kSweeps), kSweeps);
    relaxation.interrupt();
  }
  EXPECT_EQ(relaxation.omega(), 1);
}

TEST(AdaptiveRelaxationTest, stays_plain_once_disabled) {
  AdaptiveRelaxation relaxation;
  converge(relaxation, 0.9, 2);
  ASSERT_GT(relaxation.omega(), 1);
  relaxation.disable();
  EXPECT_EQ(relaxation.omega(), 1);
  observe_no_progress(relaxation, 100);
  EXPECT_EQ(relaxation.omega(), 1);
}

}  // namespace
}  // namespace monge
