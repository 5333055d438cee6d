// The decisions of Sinkhorn's algorithm, with numbers in the place of an operator.
#include "entropic/policy/sinkhorn_policy.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>
#include <vector>

namespace monge {
namespace {

constexpr double kMass = 2;
constexpr double kTolerance = 1e-4;
constexpr double kAllowed = kTolerance * kMass;
constexpr int kFirst = 3;  // Sweeps.
constexpr int kTrial = 10;
constexpr int kRung = 5;             // Sweeps between later checks of a rung.
constexpr double kRungError = 3e-4;  // As a share of the mass.
constexpr int kPatience = 10;
constexpr int kBlindPatience = 100;
constexpr int kSelfPatience = 3;         // Patience for a measure to itself.
constexpr int kSweepsAfterRefining = 2;  // To the first check in float64.

SolveOptions plain_options() {
  return {.eps = 1,
          .method = Method::sinkhorn,
          .tolerance = kTolerance,
          .iterations = 1000,
          .schedule = Schedule::alternating,
          .annealing = 1};
}

Evaluation evaluation(double row_error, double column_error) {
  Evaluation value{};
  value.row_error = row_error;
  value.column_error = column_error;
  return value;
}

SinkhornPolicy make_policy(SolveOptions const& options, double cost_bound = 10, double level = 0,
                           PassTimes times = {.float64 = 2, .newton = 2}) {
  Precision const first = options.precision == Precision::automatic ? Precision::float32 : options.precision;
  return {options, kMass, cost_bound, level, times, first};
}

/// The policy of a measure to itself, by symmetric sweeps.
SinkhornPolicy make_self_policy(SolveOptions const& options) {
  Precision const first = options.precision == Precision::automatic ? Precision::float32 : options.precision;
  return {options, kMass, 10, 0, {.float64 = 2, .newton = 2}, first, false, true};
}

void expect_finish(SinkhornPolicy const& policy, Status status) {
  ASSERT_EQ(policy.next().action, SinkhornAction::finish);
  EXPECT_EQ(policy.next().status, status) << name(policy.next().status) << ", not " << name(status);
}

/// Sweeps with these errors for as long as the policy asks for sweeps, at most `checks` times.
void sweep_with(SinkhornPolicy& policy, SweepErrors errors, int checks) {
  for (int k = 0; k < checks && policy.next().action == SinkhornAction::sweep; ++k) policy.swept(errors);
}

/// Sweeps whose error falls by `rate` each, until omega is above 1; returns the last error.
double relax(SinkhornPolicy& policy, double error, double rate) {
  for (int k = 0; k < 100 && policy.next().sweep.relaxation == 1; ++k) {
    error *= std::pow(rate, policy.next().count);
    policy.swept({error / 2, error / 2});
  }
  EXPECT_GT(policy.next().sweep.relaxation, 1);
  return error;
}

/// Sweeps of a cold start that leave all mass in the wrong place, up to where the ladder may start.
void fail_trial(SinkhornPolicy& policy) {
  while (policy.next().action == SinkhornAction::sweep && policy.iterations() < kTrial) policy.swept({kMass, kMass});
}

SolveOptions annealing_options(double factor = 0.5) {
  SolveOptions options = plain_options();
  options.tolerance = 1e-6;
  options.annealing = factor;
  return options;
}

/// The eps above that of the options, each of which ends at once.
std::vector<double> ladder(SolveOptions const& options, double cost_bound) {
  SinkhornPolicy policy = make_policy(options, cost_bound);
  fail_trial(policy);
  std::vector<double> all;
  while (policy.next().action == SinkhornAction::sweep && policy.next().sweep.eps > options.eps) {
    all.push_back(policy.next().sweep.eps);
    policy.swept({0, 0});
  }
  int const trial = options.annealing < 1 ? kTrial : kFirst + options.check_every;
  EXPECT_EQ(policy.iterations() - policy.annealing_iterations(), std::min(trial, options.iterations));
  return all;
}

TEST(SinkhornPolicyTest, ladder_falls_from_the_cost_bound) {
  SolveOptions options = annealing_options(0.5);
  EXPECT_EQ(ladder(options, 16), (std::vector<double>{16, 8, 4, 2}));
  EXPECT_EQ(ladder(options, 10), (std::vector<double>{10, 8, 4, 2})) << "the first rung is the bound itself";
  EXPECT_EQ(ladder(options, 17), (std::vector<double>{17, 16, 8, 4, 2}));
  options.annealing = 0.25;
  EXPECT_EQ(ladder(options, 10), (std::vector<double>{10, 4}));
  for (Schedule const schedule : {Schedule::overrelaxed, Schedule::symmetric}) {
    options.schedule = schedule;
    EXPECT_EQ(ladder(options, 10), (std::vector<double>{10, 4})) << name(schedule);
  }
}

TEST(SinkhornPolicyTest, ladder_is_for_starts_that_leave_a_tenth_of_the_mass_in_the_wrong_place) {
  for (double const share : {0.099, 0.101}) {
    SCOPED_TRACE(testing::Message() << share << " of the mass");
    SolveOptions const options = annealing_options();
    SinkhornPolicy policy = make_policy(options);
    sweep_with(policy, {share * kMass / 2, share * kMass / 2}, 2);
    ASSERT_EQ(policy.iterations(), kTrial);
    EXPECT_EQ(policy.next().sweep.eps > options.eps, share > 0.1);
    if (share > 0.1) continue;
    sweep_with(policy, {kMass, kMass}, 5);
    EXPECT_EQ(policy.next().sweep.eps, options.eps) << "there is one trial";
    EXPECT_EQ(policy.annealing_iterations(), 0);
  }
}

TEST(SinkhornPolicyTest, start_within_the_tolerance_is_not_annealed_whatever_that_is) {
  SolveOptions options = annealing_options();
  options.tolerance = 0.5;
  SinkhornPolicy policy = make_policy(options);
  policy.swept({0.4 * kMass, 0.4 * kMass});
  EXPECT_EQ(policy.next().action, SinkhornAction::certify);
  EXPECT_EQ(policy.iterations(), kFirst);
}

TEST(SinkhornPolicyTest, errors_are_beside_the_mass_of_the_plan_where_penalties_make_it_small) {
  for (bool const is_balanced : {false, true}) {
    SolveOptions options = plain_options();
    if (!is_balanced) options.penalty_b = 1;
    SinkhornPolicy policy = make_policy(options);
    policy.swept({0.5 * kAllowed, 0.5 * kAllowed});
    ASSERT_EQ(policy.next().action, SinkhornAction::certify);
    Evaluation found = evaluation(0.5 * kAllowed, 0);
    found.mass = 0.1 * kMass;
    policy.certified(found);
    if (is_balanced) {
      expect_finish(policy, Status::converged);
      continue;
    }
    EXPECT_NEAR(policy.value(), 5 * kTolerance, 1e-12);
    ASSERT_EQ(policy.next().action, SinkhornAction::sweep);
    policy.swept({0.11 * kAllowed, 0.11 * kAllowed});
    ASSERT_EQ(policy.next().action, SinkhornAction::sweep);
    policy.swept({0.09 * kAllowed, 0.09 * kAllowed});
    ASSERT_EQ(policy.next().action, SinkhornAction::certify);
    found.row_error = 0.09 * kAllowed;
    policy.certified(found);
    expect_finish(policy, Status::converged);
  }
}

TEST(SinkhornPolicyTest, trial_takes_ten_sweeps_however_they_are_checked) {
  for (int const check_every : {1, 3, 7, 10, 1000}) {
    SCOPED_TRACE(testing::Message() << "check_every " << check_every);
    SolveOptions options = annealing_options();
    options.check_every = check_every;
    SinkhornPolicy policy = make_policy(options);
    while (policy.next().sweep.eps == options.eps && policy.iterations() < 100) {
      EXPECT_LE(policy.next().count, check_every);
      policy.swept({kMass, kMass});
    }
    EXPECT_EQ(policy.iterations(), kTrial);
    EXPECT_EQ(policy.next().count, std::min(kFirst, check_every));
  }
}

TEST(SinkhornPolicyTest, certificate_that_disagrees_at_the_end_of_the_trial_leaves_it_open) {
  SolveOptions const options = annealing_options();
  SinkhornPolicy policy = make_policy(options);
  policy.swept({kMass, options.tolerance * kMass});
  ASSERT_EQ(policy.next().action, SinkhornAction::certify);
  policy.certified(evaluation(1.4 * options.tolerance * kMass, 0));
  EXPECT_EQ(policy.next().count, kTrial - kFirst);
  policy.swept({kMass, kMass});
  EXPECT_GT(policy.next().sweep.eps, options.eps);
}

TEST(SinkhornPolicyTest, rung_ends_at_its_error_or_at_the_tolerance) {
  for (double const tolerance : {1e-6, 1e-2}) {
    SCOPED_TRACE(testing::Message() << "tolerance " << tolerance);
    SolveOptions options = annealing_options();
    options.tolerance = tolerance;
    double const enough = std::max(kRungError, tolerance) * kMass;
    SinkhornPolicy policy = make_policy(options, 4);
    fail_trial(policy);
    for (double const eps : {4.0, 2.0}) {
      EXPECT_EQ(policy.next().sweep.eps, eps);
      policy.swept({0.51 * enough, 0.51 * enough});
      EXPECT_EQ(policy.next().sweep.eps, eps);
      policy.swept({0.49 * enough, 0.49 * enough});
    }
    EXPECT_EQ(policy.next().sweep.eps, 1);
    EXPECT_EQ(policy.annealing_iterations(), 2 * (kFirst + kRung));
  }
}

TEST(SinkhornPolicyTest, ladder_does_not_end_before_eps_however_small_its_errors_are) {
  SolveOptions const options = annealing_options();
  SinkhornPolicy policy = make_policy(options, 4);
  fail_trial(policy);
  for (double const eps : {4.0, 2.0, 1.0}) {
    ASSERT_EQ(policy.next().action, SinkhornAction::sweep);
    EXPECT_EQ(policy.next().sweep.eps, eps);
    policy.swept({0, 0});
  }
  EXPECT_EQ(policy.next().action, SinkhornAction::certify);
}

TEST(SinkhornPolicyTest, rungs_share_half_of_what_the_cap_leaves) {
  SolveOptions options = annealing_options();
  options.iterations = 210;
  SinkhornPolicy policy = make_policy(options, 16);
  fail_trial(policy);
  policy.swept({0, 0});
  std::vector<int> sweeps(9, 0);
  while (policy.next().action == SinkhornAction::sweep) {
    sweeps[static_cast<int>(policy.next().sweep.eps)] += policy.next().count;
    policy.swept({kMass, kMass});
  }
  EXPECT_EQ(sweeps[8], 32) << "a third of the 97 that the first rung left";
  EXPECT_EQ(sweeps[4], 32);
  EXPECT_EQ(sweeps[2], 33);
  EXPECT_EQ(sweeps[1], 100);
  EXPECT_EQ(policy.iterations(), options.iterations);
}

TEST(SinkhornPolicyTest, cap_shortens_the_ladder_from_above) {
  SolveOptions options = annealing_options();
  for (auto const& [iterations, expected] : {std::pair{kTrial + 9, std::vector<double>{16, 8, 4, 2}},
                                             {kTrial + 5, {4, 2}},
                                             {kTrial + 2, {2}},
                                             {kTrial + 1, {}},
                                             {kTrial, {}},
                                             {1, {}}}) {
    SCOPED_TRACE(testing::Message() << iterations << " iterations");
    options.iterations = iterations;
    EXPECT_EQ(ladder(options, 16), expected);
    SinkhornPolicy policy = make_policy(options, 16);
    double last = 0;
    while (policy.next().action == SinkhornAction::sweep) {
      last = policy.next().sweep.eps;
      policy.swept({kMass, kMass});
    }
    EXPECT_EQ(last, options.eps);
    EXPECT_EQ(policy.iterations(), iterations);
  }
}

TEST(SinkhornPolicyTest, has_no_ladder_without_annealing_or_below_eps) {
  EXPECT_EQ(ladder(annealing_options(1), 16), std::vector<double>{});
  SolveOptions const options = annealing_options();
  EXPECT_EQ(ladder(options, 1), std::vector<double>{});
  EXPECT_EQ(ladder(options, 0.01), std::vector<double>{});
}

// Given potentials climb the ladder, a sweep a rung, up to the rung at which they are good.
TEST(SinkhornPolicyTest, given_potentials_begin_at_the_rung_that_they_fit) {
  SolveOptions const options = annealing_options(0.5);
  SinkhornPolicy policy(options, kMass, 16, 0, {.float64 = 2, .newton = 2}, Precision::float32, true);
  policy.certified(evaluation(kMass, kMass));
  fail_trial(policy);
  EXPECT_TRUE(policy.next().recentres);
  for (double const eps : {2.0, 4.0}) {
    EXPECT_EQ(policy.next().sweep.eps, eps * options.eps);
    EXPECT_EQ(policy.next().count, 1);
    policy.swept({0.51 * kRungError * kMass, 0.5 * kRungError * kMass});
    EXPECT_FALSE(policy.next().recentres);
  }
  EXPECT_EQ(policy.next().sweep.eps, 8 * options.eps);
  policy.swept({0.49 * kRungError * kMass, 0.5 * kRungError * kMass});
  EXPECT_EQ(policy.next().sweep.eps, 4 * options.eps);
  EXPECT_EQ(policy.next().count, kFirst);
}

// With few sweeps left they stay at eps: the upper rungs, which a cold start would lose, are those that matter.
TEST(SinkhornPolicyTest, given_potentials_have_no_ladder_where_the_cap_is_too_low) {
  SolveOptions options = annealing_options(0.5);
  for (int const left : {2 * 4 * kRung - 1, 2 * 4 * kRung}) {
    options.iterations = kTrial + left;
    SinkhornPolicy policy(options, kMass, 16, 0, {.float64 = 2, .newton = 2}, Precision::float32, true);
    policy.certified(evaluation(kMass, kMass));
    fail_trial(policy);
    EXPECT_EQ(policy.next().sweep.eps, left < 2 * 4 * kRung ? options.eps : 2 * options.eps);
  }
}

TEST(SinkhornPolicyTest, rung_that_rounding_holds_up_goes_to_float64_or_ends) {
  // On the rung at 4 eps rounding explains 8 u (1 + bound / eps), which is 9.8e-4.
  double const bound = 16;
  SolveOptions options = annealing_options(0.5);
  options.iterations = 100000;
  options.eps = bound / 8192;
  for (bool const automatic : {true, false}) {
    options.precision = automatic ? Precision::automatic : Precision::float32;
    SinkhornPolicy policy(options, kMass, bound, 0, {.float64 = 2, .newton = 2}, Precision::float32);
    fail_trial(policy);
    while (policy.next().sweep.eps > 4 * options.eps) policy.swept({0, 0});
    double const eps = policy.next().sweep.eps;
    int const before = policy.iterations();
    double const floor = kRungError * kMass;
    while (policy.next().action == SinkhornAction::sweep && policy.next().sweep.eps == eps)
      policy.swept({floor, floor});
    EXPECT_LE(policy.iterations() - before, 110);
    if (automatic) {
      ASSERT_EQ(policy.next().action, SinkhornAction::refine);
      policy.refined();
      EXPECT_EQ(policy.precision(), Precision::float64);
      EXPECT_EQ(policy.next().sweep.eps, eps) << "the rung goes on";
    } else {
      EXPECT_EQ(policy.next().sweep.eps, eps / 2);
    }
  }
}

TEST(SinkhornPolicyTest, omega_is_carried_from_rung_to_rung_and_no_rate_is) {
  SolveOptions options = annealing_options();
  options.schedule = Schedule::overrelaxed;
  SinkhornPolicy policy = make_policy(options, 16);
  fail_trial(policy);
  relax(policy, kMass, 0.9);
  ASSERT_EQ(policy.next().sweep.eps, 16);
  double const omega = policy.next().sweep.relaxation;
  policy.swept({kMass / 100, kMass / 100});
  policy.swept({0, 0});
  ASSERT_EQ(policy.next().sweep.eps, 8);
  EXPECT_EQ(policy.next().sweep.relaxation, omega);
  // Against the errors of the rung above this would be no progress, which raises omega.
  policy.swept({kMass, kMass});
  EXPECT_EQ(policy.next().sweep.relaxation, omega);
}

TEST(SinkhornPolicyTest, other_schedules_come_down_the_ladder_plain) {
  for (Schedule const schedule : {Schedule::alternating, Schedule::symmetric}) {
    SolveOptions options = annealing_options();
    options.schedule = schedule;
    SinkhornPolicy policy = make_policy(options, 16);
    for (int k = 0; k < 20; ++k) {
      EXPECT_EQ(policy.next().sweep.relaxation, 1);
      EXPECT_EQ(policy.next().sweep.symmetric, schedule == Schedule::symmetric);
      policy.swept({kMass * std::pow(0.9, k), kMass * std::pow(0.9, k)});
    }
    EXPECT_GT(policy.next().sweep.eps, options.eps);
  }
}

TEST(SinkhornPolicyTest, sweeps_up_to_each_check_and_no_further_than_the_cap) {
  for (Schedule const schedule : {Schedule::alternating, Schedule::symmetric}) {
    SolveOptions options = plain_options();
    options.iterations = 17;
    options.check_every = 7;
    options.schedule = schedule;
    SinkhornPolicy policy = make_policy(options);
    std::vector<int> const counts =
        schedule == Schedule::symmetric ? std::vector{kFirst, kFirst, 7, 4} : std::vector{kFirst, 7, 7};
    for (int const count : counts) {
      ASSERT_EQ(policy.next().action, SinkhornAction::sweep);
      EXPECT_EQ(policy.next().count, count);
      EXPECT_EQ(policy.next().sweep.eps, options.eps);
      EXPECT_EQ(policy.next().sweep.relaxation, 1);
      EXPECT_EQ(policy.next().sweep.symmetric, schedule == Schedule::symmetric);
      policy.swept({1, 1});
    }
    ASSERT_EQ(policy.next().action, SinkhornAction::certify);
    policy.certified(evaluation(1.5, 0));
    expect_finish(policy, Status::iteration_limit);
    EXPECT_EQ(policy.iterations(), 17);
    EXPECT_EQ(policy.marginal_error(), 1.5);
  }
}

TEST(SinkhornPolicyTest, certificate_at_the_cap_may_find_the_tolerance_reached) {
  SolveOptions options = plain_options();
  options.iterations = kFirst;
  SinkhornPolicy policy = make_policy(options);
  policy.swept({1, 1.01 * kAllowed});
  ASSERT_EQ(policy.next().action, SinkhornAction::certify);
  policy.certified(evaluation(kAllowed, 0));
  expect_finish(policy, Status::converged);
}

TEST(SinkhornPolicyTest, certificate_is_asked_for_when_the_columns_are_within_the_tolerance) {
  SolveOptions const options = plain_options();
  SinkhornPolicy policy = make_policy(options);
  policy.swept({1, 1.01 * kAllowed});
  EXPECT_EQ(policy.next().action, SinkhornAction::sweep);
  policy.swept({1, kAllowed});
  EXPECT_EQ(policy.next().action, SinkhornAction::certify)
      << "a plain sweep leaves rows no worse than the columns were";
  policy.certified(evaluation(0.99 * kAllowed, 0));
  expect_finish(policy, Status::converged);
}

TEST(SinkhornPolicyTest, plain_sweeps_are_checked_where_their_rate_says_that_they_may_do) {
  SolveOptions options = plain_options();
  SinkhornPolicy policy = make_policy(options);
  EXPECT_EQ(policy.next().count, kFirst);
  policy.swept({90 * kAllowed, 30 * kAllowed});
  EXPECT_EQ(policy.next().count, 2) << "each multiplies the error by 1 / 9";
  policy.swept({2 * kAllowed, 1.01 * kAllowed});
  EXPECT_EQ(policy.next().count, 1) << "the last one's rate counts";
  policy.swept({80 * kAllowed, 40 * kAllowed});
  EXPECT_EQ(policy.next().count, 4) << "to half of the tolerance";
  policy.swept({120 * kAllowed, 100 * kAllowed});
  EXPECT_EQ(policy.next().count, options.check_every) << "at 13 sweeps";
  policy.swept({kAllowed, 2 * kAllowed});
  EXPECT_EQ(policy.next().count, 4) << "rounding may let the last sweep grow: the mean since the last check counts";
  policy.swept({2 * kAllowed, 4 * kAllowed});
  EXPECT_EQ(policy.next().count, options.check_every) << "an error that grows";
  policy.swept({10 * kAllowed, kAllowed});
  policy.certified(evaluation(1.4 * kAllowed, 0));
  EXPECT_EQ(policy.next().count, options.check_every) << "the sweeps were wrong about their error";

  // 1 / 4 a sweep to half of the tolerance is 3 sweeps, which with a check must take no longer than check_every.
  for (double const check : {options.check_every - 3.0, options.check_every - 2.9}) {
    SinkhornPolicy costly = make_policy(options, 10, 0, {.float64 = 2, .newton = 2, .check = check});
    costly.swept({40 * kAllowed, 20 * kAllowed});
    EXPECT_EQ(costly.next().count, check <= options.check_every - 3.0 ? 3 : options.check_every) << check;
  }

  options.tolerance = 0;
  SinkhornPolicy fixed = make_policy(options);
  EXPECT_EQ(fixed.next().count, options.check_every);
  fixed.swept({0.1, 1e-9});
  EXPECT_EQ(fixed.next().count, options.check_every);
  options = plain_options();
  options.schedule = Schedule::symmetric;
  SinkhornPolicy symmetric = make_policy(options);
  symmetric.swept({90 * kAllowed, 30 * kAllowed});
  EXPECT_EQ(symmetric.next().count, kFirst) << "both errors are of one pair";
}

TEST(SinkhornPolicyTest, symmetric_sweeps_are_judged_by_both_errors) {
  SolveOptions options = plain_options();
  options.schedule = Schedule::symmetric;
  options.certificate = false;
  SinkhornPolicy policy = make_policy(options);
  policy.swept({0.6 * kAllowed, 0.6 * kAllowed});
  EXPECT_EQ(policy.next().action, SinkhornAction::sweep);
  EXPECT_DOUBLE_EQ(policy.marginal_error(), 1.2 * kAllowed);
  policy.swept({0.5 * kAllowed, 0.4 * kAllowed});
  expect_finish(policy, Status::converged);
  EXPECT_DOUBLE_EQ(policy.marginal_error(), 0.9 * kAllowed);
}

TEST(SinkhornPolicyTest, overrelaxed_sweeps_are_judged_by_both_errors) {
  SolveOptions options = plain_options();
  options.schedule = Schedule::overrelaxed;
  SinkhornPolicy policy = make_policy(options);
  relax(policy, 1, 0.9);
  policy.swept({0.6 * kAllowed, 0.6 * kAllowed});
  EXPECT_EQ(policy.next().action, SinkhornAction::sweep);
  EXPECT_DOUBLE_EQ(policy.marginal_error(), 1.2 * kAllowed);
}

TEST(SinkhornPolicyTest, without_a_certificate_the_sweeps_decide) {
  SolveOptions options = plain_options();
  options.certificate = false;
  SinkhornPolicy policy = make_policy(options);
  policy.swept({1, 2 * kAllowed});
  policy.swept({1, 0.5 * kAllowed});
  expect_finish(policy, Status::converged);
  EXPECT_EQ(policy.marginal_error(), 0.5 * kAllowed);

  options.iterations = kFirst;
  SinkhornPolicy capped = make_policy(options);
  capped.swept({1, 2 * kAllowed});
  expect_finish(capped, Status::iteration_limit);
  EXPECT_EQ(capped.marginal_error(), 2 * kAllowed);
}

TEST(SinkhornPolicyTest, disagreement_of_the_certificate_halves_the_target) {
  SolveOptions options = plain_options();
  options.precision = Precision::float32;
  SinkhornPolicy policy = make_policy(options);
  for (double const target : {1.0, 0.5, 0.25}) {
    SCOPED_TRACE(testing::Message() << "target " << target);
    policy.swept({1, 1.01 * target * kAllowed});
    EXPECT_EQ(policy.next().action, SinkhornAction::sweep);
    policy.swept({1, target * kAllowed});
    ASSERT_EQ(policy.next().action, SinkhornAction::certify);
    policy.certified(evaluation(1.5 * kAllowed, 0));
    EXPECT_EQ(policy.next().action, SinkhornAction::sweep);
  }
}

TEST(SinkhornPolicyTest, disagreement_at_the_cap_is_final_and_not_evaluated_twice) {
  SolveOptions options = plain_options();
  options.iterations = kFirst;
  SinkhornPolicy policy = make_policy(options);
  policy.swept({1, kAllowed});
  ASSERT_EQ(policy.next().action, SinkhornAction::certify);
  policy.certified(evaluation(1.5 * kAllowed, 0));
  expect_finish(policy, Status::iteration_limit);
  EXPECT_EQ(policy.marginal_error(), 1.5 * kAllowed);
}

TEST(SinkhornPolicyTest, a_certificate_holds_until_the_next_sweep) {
  SolveOptions options = plain_options();
  options.iterations = kFirst + options.check_every;
  SinkhornPolicy policy = make_policy(options);
  policy.swept({1, kAllowed});
  policy.certified(evaluation(1.5 * kAllowed, 0));
  EXPECT_EQ(policy.marginal_error(), 1.5 * kAllowed);
  policy.swept({1, 2 * kAllowed});
  EXPECT_EQ(policy.marginal_error(), 2 * kAllowed);
  EXPECT_EQ(policy.next().action, SinkhornAction::certify);
}

TEST(SinkhornPolicyTest, sweeps_that_see_a_tenth_of_the_error_are_at_their_precision_limit) {
  for (Precision const precision : {Precision::automatic, Precision::float32, Precision::tf32, Precision::float64}) {
    SCOPED_TRACE(name(precision));
    SolveOptions options = plain_options();
    options.precision = precision;
    SinkhornPolicy policy = make_policy(options);
    policy.swept({1, kAllowed});
    ASSERT_EQ(policy.next().action, SinkhornAction::certify);
    policy.certified(evaluation(10.1 * kAllowed, 0));
    if (precision == Precision::automatic) {
      EXPECT_EQ(policy.next().action, SinkhornAction::refine);
    } else {
      expect_finish(policy, Status::precision_limit);
    }
  }
}

/// With costs of 1000 eps a logit is rounded by 2^-24 1001 = 6e-5. Sweeps stall at 0.002 of it at the least.
TEST(SinkhornPolicyTest, float64_takes_over_where_the_tolerance_is_below_every_floor) {
  double const rounding = 0x1p-24 * 1001, reachable = 0.002 * rounding;
  auto const policy_at = [&](SolveOptions const& options, double error) {
    SinkhornPolicy policy = make_policy(options, 1000);
    policy.swept({error * rounding * kMass / 2, error * rounding * kMass / 2});
    return policy;
  };
  SolveOptions options = plain_options();
  options.schedule = Schedule::overrelaxed;
  options.tolerance = 0.99 * reachable;
  EXPECT_EQ(policy_at(options, 0.099).next().action, SinkhornAction::refine);
  EXPECT_EQ(policy_at(options, 0.101).next().action, SinkhornAction::sweep);
  options.tolerance = 1.01 * reachable;
  EXPECT_EQ(policy_at(options, 0.099).next().action, SinkhornAction::certify) << "a float64 evaluation has to tell";
  EXPECT_EQ(policy_at(options, 0.101).next().action, SinkhornAction::sweep);
  options.tolerance = 0.031 * rounding;
  EXPECT_EQ(policy_at(options, 0.099).next().action, SinkhornAction::sweep) << "sweeps see errors that small";
  options.tolerance = 0.99 * reachable;
  options.schedule = Schedule::symmetric;
  EXPECT_EQ(policy_at(options, 0.099).next().action, SinkhornAction::sweep);
  options.schedule = Schedule::overrelaxed;
  options.precision = Precision::float32;
  EXPECT_EQ(policy_at(options, 0.099).next().action, SinkhornAction::sweep);
}

TEST(SinkhornPolicyTest, float64_comes_first_where_float32_potentials_have_few_digits) {
  for (double const cost_bound : {0.0, 9e-4, 2e-3}) {
    bool const is_first = cost_bound < 0x1p-10;
    SolveOptions options;
    options.eps = 1;
    EXPECT_EQ(make_policy(options, cost_bound).next().action == SinkhornAction::refine, is_first) << cost_bound;
    options.precision = Precision::float32;
    EXPECT_EQ(make_policy(options, cost_bound).next().action, SinkhornAction::sweep) << cost_bound;
  }
}

TEST(SinkhornPolicyTest, float64_comes_first_where_it_is_expected_to_be_as_fast) {
  PassTimes const times{.float64 = 2, .newton = 2, .float64_up_to = 10};
  double const rounding = 0x1p-24 * 10.9;
  SolveOptions options = plain_options();
  options.tolerance = 1.01 * rounding;
  EXPECT_EQ(make_policy(options, 9.9, 0, times).next().action, SinkhornAction::sweep) << "a plan in float32 will do";
  options.tolerance = 0.99 * rounding;
  EXPECT_EQ(make_policy(options, 10.1, 0, times).next().action, SinkhornAction::sweep);
  SinkhornPolicy policy = make_policy(options, 9.9, 0, times);
  ASSERT_EQ(policy.next().action, SinkhornAction::refine);
  policy.refined();
  EXPECT_EQ(policy.next().action, SinkhornAction::sweep);
  EXPECT_EQ(policy.next().count, kFirst);
  SinkhornPolicy warm(options, kMass, 9.9, 0, times, Precision::float32, true);
  ASSERT_EQ(warm.next().action, SinkhornAction::refine);
  warm.refined();
  EXPECT_EQ(warm.next().action, SinkhornAction::certify) << "of the given potentials";
  options.tolerance = 0;
  EXPECT_EQ(make_policy(options, 9.9, 0, times).next().action, SinkhornAction::sweep);
  options.tolerance = 0.99 * rounding;
  options.certificate = false;
  EXPECT_EQ(make_policy(options, 9.9, 0, times).next().action, SinkhornAction::sweep);
}

/// Options under which an error of `stalled_error()` in float32 is one that rounding explains, with no certificate to
/// tell whether it is.
SolveOptions stalling_options(Precision precision, Schedule schedule = Schedule::alternating) {
  SolveOptions options = plain_options();
  options.tolerance = 1e-15;
  options.precision = precision;
  options.schedule = schedule;
  options.certificate = false;
  return options;
}

/// Units in the last place of float32 in logits up to 1 + 10 / eps, times the mass.
double stalled_error(double unit = 0x1p-24) {
  return 7.9 * unit * 11 * kMass;
}

TEST(SinkhornPolicyTest, stall_at_rounding_refines_to_float64_if_that_was_left_to_it) {
  SolveOptions const options = stalling_options(Precision::automatic);
  SinkhornPolicy policy = make_policy(options);
  SweepErrors const stuck{stalled_error() / 2, stalled_error() / 2};
  sweep_with(policy, stuck, kBlindPatience / options.check_every);
  EXPECT_LT(policy.iterations(), kFirst + kBlindPatience);
  EXPECT_EQ(policy.next().action, SinkhornAction::sweep) << "still patient";
  EXPECT_EQ(policy.precision(), Precision::float32);
  policy.swept(stuck);
  ASSERT_EQ(policy.next().action, SinkhornAction::refine);
  policy.refined();
  EXPECT_EQ(policy.precision(), Precision::float64);
  EXPECT_EQ(policy.refinement_iterations(), 0);
  ASSERT_EQ(policy.next().action, SinkhornAction::sweep);

  // The same errors are no stall in float64, whose rounding does not explain them.
  sweep_with(policy, stuck, 20);
  EXPECT_EQ(policy.next().action, SinkhornAction::sweep);
  int const in_float64 = kSweepsAfterRefining + (20 - kSweepsAfterRefining) * options.check_every;
  EXPECT_EQ(policy.refinement_iterations(), in_float64);
  EXPECT_EQ(policy.iterations(), kFirst + kBlindPatience + in_float64);
  double const exact = stalled_error(0x1p-53);
  sweep_with(policy, {exact / 2, exact / 2}, kBlindPatience / options.check_every + 2);  // The first is of one sweep.
  expect_finish(policy, Status::precision_limit);
}

TEST(SinkhornPolicyTest, patience_begins_anew_in_float64) {
  SolveOptions const options = stalling_options(Precision::automatic);
  SinkhornPolicy policy = make_policy(options);
  SweepErrors const stuck{stalled_error(0x1p-53) / 2, stalled_error(0x1p-53) / 2};
  sweep_with(policy, stuck, kBlindPatience);
  ASSERT_EQ(policy.next().action, SinkhornAction::refine);
  policy.refined();
  sweep_with(policy, stuck, kBlindPatience);
  expect_finish(policy, Status::precision_limit);
  EXPECT_EQ(policy.refinement_iterations(), kSweepsAfterRefining + kBlindPatience);
}

TEST(SinkhornPolicyTest, refinement_starts_again_from_the_tolerance) {
  SolveOptions const options = plain_options();
  SinkhornPolicy policy = make_policy(options);
  policy.swept({1, kAllowed});
  policy.certified(evaluation(1.5 * kAllowed, 0));
  policy.swept({1, kAllowed / 2});
  policy.certified(evaluation(100 * kAllowed, 0));
  ASSERT_EQ(policy.next().action, SinkhornAction::refine);
  policy.refined();
  policy.swept({1, kAllowed});
  EXPECT_EQ(policy.next().action, SinkhornAction::certify);
}

TEST(SinkhornPolicyTest, refinement_at_the_cap_keeps_the_certificate) {
  SolveOptions options = plain_options();
  options.iterations = kFirst;
  SinkhornPolicy policy = make_policy(options);
  policy.swept({1, kAllowed});
  policy.certified(evaluation(100 * kAllowed, 0));
  ASSERT_EQ(policy.next().action, SinkhornAction::refine);
  policy.refined();
  expect_finish(policy, Status::iteration_limit);
  EXPECT_EQ(policy.marginal_error(), 100 * kAllowed);
}

/// Sweeps whose error does not fall until float64 is asked about it; returns how many.
int sweep_into_doubt(SinkhornPolicy& policy) {
  int const since = policy.iterations();
  int last = 0;
  while (policy.next().action == SinkhornAction::sweep && policy.iterations() - since < 1000) {
    last = policy.next().count;
    EXPECT_TRUE(last > 1 || policy.next().sweep.relaxation == 1);
    policy.swept({stalled_error() / 2, stalled_error() / 2});
  }
  EXPECT_EQ(policy.next().action, SinkhornAction::certify);
  EXPECT_EQ(last, 1) << "of plain sweeps one is enough";
  return policy.iterations() - since - 1;
}

TEST(SinkhornPolicyTest, float64_tells_slow_sweeps_from_rounding) {
  for (Schedule const schedule : {Schedule::alternating, Schedule::overrelaxed}) {
    SCOPED_TRACE(name(schedule));
    SolveOptions options = stalling_options(Precision::automatic, schedule);
    options.certificate = true;
    SinkhornPolicy policy = make_policy(options);
    // The first check is where the error stops falling; later it was the one before the question.
    EXPECT_EQ(sweep_into_doubt(policy), kFirst + kPatience);
    double const allowed = options.tolerance * kMass;
    policy.certified(evaluation(5 * allowed, 0.49 * allowed));
    ASSERT_EQ(policy.next().action, SinkhornAction::sweep);
    EXPECT_EQ(policy.precision(), Precision::float32);
    EXPECT_EQ(sweep_into_doubt(policy), options.check_every + 2 * kPatience);
    policy.certified(evaluation(4 * allowed, 0.49 * allowed));
    ASSERT_EQ(policy.next().action, SinkhornAction::refine);
    policy.refined();
    EXPECT_EQ(policy.next().action, SinkhornAction::sweep);
  }
}

/// After a plain sweep the column sums are exact but for rounding, and the rows are off by the sweep's bound at most. A
/// column error that float64 finds is therefore rounding, as is what rows and columns have above the bound.
TEST(SinkhornPolicyTest, certificate_after_a_plain_sweep_tells_that_the_tolerance_is_below_rounding) {
  struct Case {
    double bound, rows, columns;
    bool is_rounding;
  };
  for (Precision const precision : {Precision::automatic, Precision::float32}) {
    for (auto const& [bound, rows, columns, is_rounding] : {Case{0.6, 0.52, 0.49, false}, Case{0.6, 0.45, 0.61, true},
                                                            Case{0.6, 0.99, 0.1, false}, Case{0.5, 1.0, 0.1, true}}) {
      SolveOptions options = plain_options();
      options.precision = precision;
      SinkhornPolicy policy = make_policy(options);
      policy.swept({0.5 * kAllowed, bound * kAllowed});
      ASSERT_EQ(policy.next().action, SinkhornAction::certify);
      policy.certified(evaluation(rows * kAllowed, columns * kAllowed));
      bool const refines = precision == Precision::automatic && is_rounding;
      EXPECT_EQ(policy.next().action, refines ? SinkhornAction::refine : SinkhornAction::sweep) << rows;
    }
  }
}

TEST(SinkhornPolicyTest, sweeps_go_on_down_to_the_rounding_that_a_certificate_has_measured) {
  double const rounding = 0x1p-24 * 1001 * kMass;  // Rounding of a logit.
  SolveOptions options = plain_options();
  options.tolerance = 0.01 * rounding / kMass;
  SinkhornPolicy policy = make_policy(options, 1000);
  policy.swept({0.05 * rounding, 0.045 * rounding});
  ASSERT_EQ(policy.next().action, SinkhornAction::certify);
  policy.certified(evaluation(0.04 * rounding, 0.03 * rounding));
  ASSERT_EQ(policy.next().action, SinkhornAction::sweep);
  policy.swept({0.04 * rounding, 0.031 * rounding});
  ASSERT_EQ(policy.next().action, SinkhornAction::sweep);
  policy.swept({0.04 * rounding, 0.029 * rounding});
  EXPECT_EQ(policy.next().action, SinkhornAction::refine);
}

TEST(SinkhornPolicyTest, rounding_is_the_limit_where_float64_says_so_and_is_not_allowed) {
  SolveOptions options = stalling_options(Precision::float32);
  options.certificate = true;
  SinkhornPolicy policy = make_policy(options);
  sweep_into_doubt(policy);
  policy.certified(evaluation(0.5, 0.5));
  expect_finish(policy, Status::precision_limit);
  EXPECT_EQ(policy.marginal_error(), 1);
}

TEST(SinkhornPolicyTest, sweeps_of_a_measure_to_itself_without_progress_go_on_in_float64_unasked) {
  SolveOptions options = stalling_options(Precision::automatic, Schedule::symmetric);
  options.certificate = true;
  SinkhornPolicy policy = make_self_policy(options);
  // The noise of rounding makes the error fall a little at each check.
  double error = stalled_error();
  policy.swept({error / 2, error / 2});
  ASSERT_EQ(policy.next().action, SinkhornAction::sweep);
  error *= 0.95;
  policy.swept({error / 2, error / 2});
  ASSERT_EQ(policy.next().action, SinkhornAction::refine);
  EXPECT_EQ(policy.iterations(), kFirst + kSelfPatience);
}

TEST(SinkhornPolicyTest, sweeps_of_a_measure_to_itself_foresee_their_floor) {
  SolveOptions options = plain_options();
  options.schedule = Schedule::symmetric;
  double const rounding = 0x1p-24 * 11;  // Rounding of a logit.
  for (double const share : {0.029, 0.031}) {
    options.tolerance = share * rounding;
    SinkhornPolicy policy = make_self_policy(options);
    policy.swept({1.01 * rounding * kMass, 0});
    ASSERT_EQ(policy.next().action, SinkhornAction::sweep);
    policy.swept({0.2 * rounding * kMass, 0});
    EXPECT_EQ(policy.next().action, share < 0.03 ? SinkhornAction::refine : SinkhornAction::sweep) << share;
  }
}

TEST(SinkhornPolicyTest, sweeps_of_a_measure_to_itself_have_halved_the_error_but_for_the_first) {
  for (double const fall : {0.24, 0.26}) {
    SolveOptions options = stalling_options(Precision::automatic, Schedule::symmetric);
    SinkhornPolicy policy = make_self_policy(options);
    policy.swept({stalled_error(), 0});
    policy.swept({fall * stalled_error(), 0});
    EXPECT_EQ(policy.next().action, fall < 0.25 ? SinkhornAction::sweep : SinkhornAction::refine) << fall;
  }
}

TEST(SinkhornPolicyTest,
     sweeps_of_a_measure_to_itself_go_on_in_float64_where_a_certificate_finds_more_error_than_they_saw) {
  SolveOptions options = stalling_options(Precision::automatic, Schedule::symmetric);
  options.certificate = true;
  double const seen = 0.8 * options.tolerance * kMass, allowed = options.tolerance * kMass;
  for (bool const more : {false, true}) {
    options.criterion = more ? Criterion::l1 : Criterion::gap;
    SinkhornPolicy policy = make_self_policy(options);
    policy.swept({seen / 2, seen / 2});
    ASSERT_EQ(policy.next().action, SinkhornAction::certify);
    Evaluation found = evaluation(more ? 1.1 * allowed : 0.5 * seen, 0);
    found.gap = kMass;  // Far above the tolerance.
    policy.certified(found);
    EXPECT_EQ(policy.next().action, more ? SinkhornAction::refine : SinkhornAction::sweep);
  }
}

TEST(SinkhornPolicyTest, sweeps_of_a_measure_to_itself_leave_at_most_half_of_the_error_that_they_see) {
  SolveOptions options = plain_options();
  options.schedule = Schedule::symmetric;
  options.precision = Precision::float32;
  for (double const error : {2.1, 1.9}) {
    SinkhornPolicy policy = make_self_policy(options);
    policy.swept({error * kAllowed, 0});
    EXPECT_EQ(policy.next().action, error < 2 ? SinkhornAction::certify : SinkhornAction::sweep) << error;
  }
  // In float64 kFirst sweeps from an error of 2 to `error` have the mean rate sqrt(error / 2).
  options.precision = Precision::float64;
  double const reached = std::cbrt(2 * kTolerance * kTolerance) * kMass;
  for (double const error : {1.01 * reached, 0.99 * reached}) {
    SinkhornPolicy policy = make_self_policy(options);
    policy.swept({error, 0});
    EXPECT_EQ(policy.next().action, error < reached ? SinkhornAction::certify : SinkhornAction::sweep) << error;
    if (error > reached) {
      EXPECT_EQ(policy.next().count, 1);
    }
  }
}

TEST(SinkhornPolicyTest, sweeps_of_a_measure_to_itself_end_at_the_precision_limit_at_once) {
  SolveOptions options = stalling_options(Precision::float32, Schedule::symmetric);
  options.certificate = true;
  SinkhornPolicy policy = make_self_policy(options);
  sweep_with(policy, {stalled_error() / 2, stalled_error() / 2}, 100);
  EXPECT_EQ(policy.iterations(), kFirst + kSelfPatience);
  policy.certified(evaluation(0.5, 0.5));
  expect_finish(policy, Status::precision_limit);
}

// Symmetric sweeps of two measures may be slow. They leave no side exact, so the doubt takes one alternating sweep.
TEST(SinkhornPolicyTest, slow_symmetric_sweeps_of_two_measures_are_told_from_rounding) {
  SolveOptions options = stalling_options(Precision::automatic, Schedule::symmetric);
  options.certificate = true;
  SinkhornPolicy policy = make_policy(options);
  while (policy.next().action == SinkhornAction::sweep && policy.next().sweep.symmetric)
    policy.swept({stalled_error() / 2, stalled_error() / 2});
  ASSERT_EQ(policy.next().action, SinkhornAction::sweep);
  EXPECT_EQ(policy.next().count, 1);
  EXPECT_GE(policy.iterations(), kFirst + kPatience);
  EXPECT_LE(policy.iterations(), kFirst + kPatience + options.check_every);
  policy.swept({stalled_error(), stalled_error()});
  ASSERT_EQ(policy.next().action, SinkhornAction::certify);
  policy.certified(evaluation(stalled_error(), 0.01 * stalled_error()));
  ASSERT_EQ(policy.next().action, SinkhornAction::sweep) << "the columns are exact: the sweeps are slow";
  EXPECT_TRUE(policy.next().sweep.symmetric);
  EXPECT_EQ(policy.precision(), Precision::float32);
}

// A level of 1e9 eps leaves 1e-7 of logits in float64, which the columns show as little as the rows.
TEST(SinkhornPolicyTest, rounding_of_a_level_is_the_precision_limit) {
  SolveOptions options = plain_options();
  options.tolerance = 1e-9;
  options.precision = Precision::float64;
  for (double const level : {0.0, 1e9}) {
    SinkhornPolicy policy = make_policy(options, 10, level);
    while (policy.next().action != SinkhornAction::finish) {
      if (policy.next().action == SinkhornAction::sweep) policy.swept({1e-7, 1e-7});
      if (policy.next().action == SinkhornAction::certify) policy.certified(evaluation(2e-7, 0));
    }
    expect_finish(policy, level == 0 ? Status::iteration_limit : Status::precision_limit);
    EXPECT_EQ(policy.iterations() <= 200, level > 0);
  }
}

TEST(SinkhornPolicyTest, nothing_comes_of_errors_that_are_not_numbers) {
  constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
  SolveOptions options = plain_options();
  options.precision = Precision::float64;
  SinkhornPolicy policy = make_policy(options);
  policy.swept({kNaN, kNaN});
  EXPECT_EQ(policy.next().action, SinkhornAction::certify);
  policy.certified(evaluation(kNaN, kNaN));
  expect_finish(policy, Status::precision_limit);
  // Sums that overflow may still come back, but not for ever.
  SinkhornPolicy infinite = make_policy(options);
  infinite.swept({std::numeric_limits<double>::infinity(), 1});
  EXPECT_EQ(infinite.next().action, SinkhornAction::sweep);
  sweep_with(infinite, {std::numeric_limits<double>::infinity(), 1}, 100);
  EXPECT_EQ(infinite.next().action, SinkhornAction::certify);
  EXPECT_LE(infinite.iterations(), 2 * kPatience);
}

TEST(SinkhornPolicyTest, stall_without_permission_is_the_precision_limit) {
  for (Precision const precision : {Precision::float32, Precision::tf32}) {
    SCOPED_TRACE(name(precision));
    double const unit = precision == Precision::tf32 ? 0x1p-11 : 0x1p-24;
    SolveOptions const options = stalling_options(precision);
    SinkhornPolicy policy = make_policy(options);
    double const error = stalled_error(unit);
    sweep_with(policy, {error / 2, error / 2}, 1000);
    EXPECT_EQ(policy.iterations(), kFirst + kBlindPatience);
    expect_finish(policy, Status::precision_limit);
    EXPECT_EQ(policy.precision(), precision);
  }
}

TEST(SinkhornPolicyTest, an_error_that_rounding_does_not_explain_is_no_stall) {
  SolveOptions const options = stalling_options(Precision::float32);
  SinkhornPolicy policy = make_policy(options);
  double const error = 1.02 * stalled_error();
  sweep_with(policy, {error / 2, error / 2}, 1000);
  expect_finish(policy, Status::iteration_limit);
}

TEST(SinkhornPolicyTest, an_error_that_falls_is_no_stall) {
  SolveOptions options = stalling_options(Precision::float32);
  options.check_every = kBlindPatience;
  SinkhornPolicy policy = make_policy(options);
  double error = stalled_error();
  while (policy.next().action == SinkhornAction::sweep) {
    policy.swept({error / 2, error / 2});
    error *= 0.998;
  }
  EXPECT_EQ(policy.iterations(), options.iterations);
}

/// Brings omega above 1, then feeds errors that fall fast enough for AdaptiveRelaxation but stay above the best that
/// was seen, until a check finds `done`.
template <class Done>
void stall_while_overrelaxed(SinkhornPolicy& policy, Done&& done) {
  double const best = relax(policy, stalled_error() / 2, 0.999);
  int const since = policy.iterations();
  for (double error = 1000 * best; !done(); error *= std::pow(0.936, policy.next().count)) {
    ASSERT_LE(policy.iterations() - since, kBlindPatience);
    policy.swept({error / 2, error / 2});
  }
  EXPECT_GE(policy.iterations() - since, kBlindPatience);
}

TEST(SinkhornPolicyTest, overrelaxation_is_given_up_before_the_precision) {
  SolveOptions const options = stalling_options(Precision::float32, Schedule::overrelaxed);
  SinkhornPolicy policy = make_policy(options);
  stall_while_overrelaxed(
      policy, [&] { return policy.next().action != SinkhornAction::sweep || policy.next().sweep.relaxation == 1; });
  int const disabled_at = policy.iterations();
  SweepErrors const stuck{stalled_error() / 4, stalled_error() / 4};
  while (policy.next().action == SinkhornAction::sweep) {
    EXPECT_EQ(policy.next().sweep.relaxation, 1);
    policy.swept(stuck);
  }
  EXPECT_EQ(policy.iterations(), disabled_at + kBlindPatience + options.check_every);
  expect_finish(policy, Status::precision_limit);
}

TEST(SinkhornPolicyTest, overrelaxation_is_kept_where_float64_can_take_over) {
  SolveOptions const options = stalling_options(Precision::automatic, Schedule::overrelaxed);
  SinkhornPolicy policy = make_policy(options);
  stall_while_overrelaxed(policy, [&] { return policy.next().action != SinkhornAction::sweep; });
  ASSERT_EQ(policy.next().action, SinkhornAction::refine);
  policy.refined();
  ASSERT_EQ(policy.next().action, SinkhornAction::sweep);
  double const omega = policy.next().sweep.relaxation;
  EXPECT_GT(omega, 1);
  sweep_with(policy, {stalled_error(), stalled_error()}, 1);
  EXPECT_EQ(policy.next().sweep.relaxation, omega) << "no rate is taken from float32 to float64";
}

TEST(SinkhornPolicyTest, last_sweeps_before_the_cap_are_plain) {
  for (auto const& [iterations, tail] : {std::pair{1000, 20}, {90, 18}}) {
    SCOPED_TRACE(testing::Message() << iterations << " iterations");
    SolveOptions options = plain_options();
    options.schedule = Schedule::overrelaxed;
    options.precision = Precision::float64;
    options.tolerance = 1e-100;
    options.iterations = iterations;
    options.check_every = 7;
    SinkhornPolicy policy = make_policy(options);
    double error = relax(policy, 1, 0.9);
    int plain_from = iterations;
    while (policy.next().action == SinkhornAction::sweep) {
      bool const plain = policy.next().sweep.relaxation == 1;
      if (plain) plain_from = std::min(plain_from, policy.iterations());
      EXPECT_EQ(plain, policy.iterations() >= plain_from) << "plain to the end, once it began";
      error *= std::pow(0.9, policy.next().count);
      policy.swept({error / 2, error / 2});
    }
    EXPECT_EQ(plain_from, iterations - tail);
    EXPECT_EQ(policy.iterations(), iterations);
  }
}

TEST(SinkhornPolicyTest, polishes_with_plain_sweeps_near_the_tolerance_and_at_each_quarter_of_the_error) {
  SolveOptions options = plain_options();
  options.schedule = Schedule::overrelaxed;
  SinkhornPolicy policy = make_policy(options);
  relax(policy, 1, 0.9);
  auto const next_is_plain_after = [&](double relative) {
    policy.swept({relative * kAllowed / 2, relative * kAllowed / 2});
    return policy.next().action == SinkhornAction::sweep && policy.next().sweep.relaxation == 1;
  };
  EXPECT_FALSE(next_is_plain_after(10.1));
  EXPECT_TRUE(next_is_plain_after(9.9));
  EXPECT_FALSE(next_is_plain_after(9.8));
  EXPECT_FALSE(next_is_plain_after(2.5));
  EXPECT_TRUE(next_is_plain_after(2.4));
  EXPECT_FALSE(next_is_plain_after(2.3));
}

TEST(SinkhornPolicyTest, no_rate_is_taken_across_plain_sweeps) {
  SolveOptions options = plain_options();
  options.schedule = Schedule::overrelaxed;
  SinkhornPolicy policy = make_policy(options);
  relax(policy, 1, 0.9);
  double const omega = policy.next().sweep.relaxation;
  policy.swept({4 * kAllowed, 5 * kAllowed});
  ASSERT_EQ(policy.next().sweep.relaxation, 1);
  policy.swept({2 * kAllowed, 2 * kAllowed});
  ASSERT_EQ(policy.next().sweep.relaxation, omega);
  // Against the error before the plain sweeps this would be a rate worse than that of omega = 1.
  policy.swept({4 * kAllowed, 4 * kAllowed});
  EXPECT_EQ(policy.next().sweep.relaxation, omega);
}

TEST(SinkhornPolicyTest, tolerance_0_runs_all_iterations_and_certifies_once) {
  for (Schedule const schedule : {Schedule::overrelaxed, Schedule::alternating, Schedule::symmetric}) {
    SCOPED_TRACE(name(schedule));
    SolveOptions options = plain_options();
    options.tolerance = 0;
    options.iterations = 503;
    options.schedule = schedule;
    SinkhornPolicy policy = make_policy(options);
    while (policy.next().action == SinkhornAction::sweep) policy.swept({0, 0});
    EXPECT_EQ(policy.iterations(), 503);
    ASSERT_EQ(policy.next().action, SinkhornAction::certify);
    policy.certified(evaluation(0.5, 0));
    expect_finish(policy, Status::completed);
    EXPECT_EQ(policy.marginal_error(), 0.5);

    options.certificate = false;
    SinkhornPolicy blind = make_policy(options);
    while (blind.next().action == SinkhornAction::sweep) blind.swept({0.25, 0.25});
    expect_finish(blind, Status::completed);
  }
}

TEST(SinkhornPolicyTest, stop_ends_with_a_certificate_whatever_was_due) {
  SolveOptions options = annealing_options();
  {
    SinkhornPolicy policy = make_policy(options);
    fail_trial(policy);
    policy.swept({1, 1});
    policy.stop();
    ASSERT_EQ(policy.next().action, SinkhornAction::sweep);
    EXPECT_EQ(policy.next().sweep.eps, options.eps);
    EXPECT_EQ(policy.next().sweep.relaxation, 1);
    EXPECT_EQ(policy.next().count, 1);
    policy.swept({1, 1});
    ASSERT_EQ(policy.next().action, SinkhornAction::certify);
    policy.certified(evaluation(0, 0));
    expect_finish(policy, Status::stopped);
    EXPECT_EQ(policy.iterations(), kTrial + kFirst + 1);
    EXPECT_EQ(policy.annealing_iterations(), kFirst);
  }
  options.certificate = false;
  SinkhornPolicy policy = make_policy(options, 1);
  policy.swept({0, 0});
  expect_finish(policy, Status::converged);
  policy.stop();
  expect_finish(policy, Status::stopped);
}

// Newton's method.

SolveOptions newton_options(Method method) {
  return {.eps = 1, .method = method, .tolerance = 1e-6, .iterations = 1000, .annealing = 0.25};
}

/// Sweeps whose error falls by `rate` each, as long as the policy asks for sweeps; returns their number.
int sweep_at_rate(SinkhornPolicy& policy, double error, double rate) {
  while (policy.next().action == SinkhornAction::sweep && policy.iterations() < 900) {
    error *= std::pow(rate, policy.next().count);
    policy.swept({error / 2, error / 2});
  }
  return policy.iterations();
}

TEST(NewtonPolicyTest, automatic_stays_with_sweeps_that_are_fast_and_leaves_slow_ones) {
  SolveOptions const options = newton_options(Method::automatic);
  SinkhornPolicy fast = make_policy(options);
  sweep_at_rate(fast, 0.1, 0.7);
  EXPECT_EQ(fast.next().action, SinkhornAction::certify);
  SinkhornPolicy slow = make_policy(options);
  int const sweeps = sweep_at_rate(slow, 0.1, 0.999);
  EXPECT_EQ(slow.next().action, SinkhornAction::refine) << "steps are float64's";
  EXPECT_LE(sweeps, 20) << "the rate shows early";
  slow.refined();
  ASSERT_EQ(slow.next().action, SinkhornAction::newton);
  EXPECT_EQ(slow.next().sweep.eps, options.eps);
  EXPECT_EQ(slow.next().count, options.iterations - sweeps);
}

TEST(NewtonPolicyTest, automatic_is_sinkhorn_where_newton_is_not_to_be_had) {
  for (auto const& change :
       std::vector<void (*)(SolveOptions&)>{[](SolveOptions& options) { options.precision = Precision::float32; },
                                            [](SolveOptions& options) { options.schedule = Schedule::alternating; },
                                            [](SolveOptions& options) { options.tolerance = 0; },
                                            [](SolveOptions& options) { options.method = Method::sinkhorn; }}) {
    SolveOptions options = newton_options(Method::automatic);
    change(options);
    SinkhornPolicy policy = make_policy(options);
    sweep_at_rate(policy, 0.1, 0.999);
    EXPECT_GE(policy.iterations(), 900);
  }
}

TEST(NewtonPolicyTest, rung_has_two_sweeps_and_then_steps_down_to_its_error) {
  SolveOptions options = newton_options(Method::newton);
  options.precision = Precision::float64;
  SinkhornPolicy policy = make_policy(options, 4);
  policy.swept({kMass, kMass});  // The trial.
  ASSERT_EQ(policy.iterations(), 2);
  for (double const eps : {4.0, 1.0}) {
    for (int k = 0; k < 2; ++k) {
      ASSERT_EQ(policy.next().action, SinkhornAction::sweep);
      EXPECT_EQ(policy.next().sweep.eps, eps);
      EXPECT_EQ(policy.next().sweep.relaxation, 1);
      policy.swept({0.1 * kMass, 0.1 * kMass});
    }
    ASSERT_EQ(policy.next().action, SinkhornAction::newton);
    EXPECT_EQ(policy.next().sweep.eps, eps);
    policy.stepped({.error = 0.031 * kMass, .gradient_norm = 1, .passes = 7, .is_step = true});
    ASSERT_EQ(policy.next().action, SinkhornAction::newton);
    policy.stepped({.error = 0.029 * kMass, .gradient_norm = 1, .passes = 7, .is_step = true});
    EXPECT_EQ(policy.next().action, eps > 1 ? SinkhornAction::sweep : SinkhornAction::newton);
  }
  EXPECT_EQ(policy.newton_steps(), 4);
  EXPECT_EQ(policy.newton_iterations(), 28);
  EXPECT_EQ(policy.annealing_iterations(), 16);
  EXPECT_EQ(policy.iterations(), 34);
  policy.stepped({.error = 1e-6 * kMass, .gradient_norm = 1, .passes = 3, .is_step = true});
  ASSERT_EQ(policy.next().action, SinkhornAction::certify);
  policy.certified(evaluation(0, 1e-6 * kMass));
  expect_finish(policy, Status::converged);
}

TEST(NewtonPolicyTest, rungs_belong_to_sweeps_in_float32_where_float64_is_dear) {
  SolveOptions const options = newton_options(Method::automatic);
  for (double const cost : {2.0, 4.0}) {
    SCOPED_TRACE(testing::Message() << "float64 costs " << cost);
    SinkhornPolicy policy = make_policy(options, 10, 0, {.float64 = cost, .newton = cost});
    while (policy.next().action == SinkhornAction::sweep && policy.next().sweep.eps == options.eps)
      policy.swept({kMass, kMass});
    int const trial = policy.iterations();
    EXPECT_EQ(trial, cost > 2 ? kTrial : 3);
    while (policy.next().action == SinkhornAction::sweep) policy.swept({0.1 * kMass, 0.1 * kMass});
    EXPECT_EQ(policy.next().action, SinkhornAction::refine);
    int const sweeps = policy.iterations() - trial;
    EXPECT_EQ(sweeps > 2, cost > 2);
    EXPECT_LE(sweeps, cost > 2 ? 160 + 10 : 2);
  }
}

TEST(NewtonPolicyTest, ends_at_the_cap_of_passes) {
  SolveOptions options = newton_options(Method::newton);
  options.precision = Precision::float64;
  options.annealing = 1;
  options.iterations = 20;
  SinkhornPolicy policy = make_policy(options);
  while (policy.next().action == SinkhornAction::sweep) policy.swept({kMass, kMass});
  for (int k = 0; k < 100 && policy.next().action == SinkhornAction::newton; ++k) {
    EXPECT_LE(policy.next().count, 20 - policy.iterations());
    policy.stepped(
        {.error = kMass, .gradient_norm = kMass, .passes = std::min(5, policy.next().count), .is_step = true});
  }
  EXPECT_EQ(policy.iterations(), 20);
  ASSERT_EQ(policy.next().action, SinkhornAction::certify);
  policy.certified(evaluation(0, kMass));
  expect_finish(policy, Status::iteration_limit);
}

TEST(NewtonPolicyTest, criterion_decides_and_a_certificate_that_disagrees_moves_the_aim) {
  for (Criterion const criterion : {Criterion::gradient, Criterion::gap}) {
    SCOPED_TRACE(name(criterion));
    SolveOptions options = newton_options(Method::sinkhorn);
    options.criterion = criterion;
    SinkhornPolicy policy = make_policy(options);
    Evaluation value = evaluation(1e-4 * kMass, 0);
    value.primal = 10;
    value.gradient_norm = 1.1e-6 * kMass;
    value.gap = 1.1e-5;
    policy.swept({0, 0.99e-4 * kMass});
    ASSERT_EQ(policy.next().action, SinkhornAction::certify) << "an error of a hundred tolerances may do";
    policy.certified(value);
    ASSERT_EQ(policy.next().action, SinkhornAction::sweep);
    policy.swept({0, 0.9e-4 * kMass});
    EXPECT_EQ(policy.next().action, SinkhornAction::sweep);
    policy.swept({0, 0.6e-4 * kMass});
    ASSERT_EQ(policy.next().action, SinkhornAction::certify);
    value.gradient_norm = 0.9e-6 * kMass;
    value.gap = -0.9e-5;
    policy.certified(value);
    expect_finish(policy, Status::converged);
  }
}

/// A solve of the default method in sweeps that are mixed, whose Newton steps are expensive.
SolveOptions mixed_options() {
  return {.eps = 1, .tolerance = 1e-6, .iterations = 1000, .annealing = 0.25};
}
SinkhornPolicy make_mixed_policy(SolveOptions const& options, double cost_bound = 10) {
  return make_policy(options, cost_bound, 0, {.float64 = 2, .newton = 20, .mixes = true});
}
/// Mixed sweeps with equal errors of rows and columns, as shares of the mass.
void sweep_mixed(SinkhornPolicy& policy, std::vector<double> const& errors) {
  for (double const error : errors) {
    ASSERT_EQ(policy.next().action, SinkhornAction::sweep);
    ASSERT_EQ(policy.next().count, 1);
    ASSERT_NE(policy.next().mixing, Mixing::off);
    policy.swept({error * kMass / 2, error * kMass / 2});
  }
}

TEST(MixedPolicyTest, sweeps_start_from_combinations_of_all_before) {
  SolveOptions const options = mixed_options();
  SinkhornPolicy policy = make_mixed_policy(options);
  EXPECT_EQ(policy.next().mixing, Mixing::start);
  sweep_mixed(policy, {0.04, 0.03});
  EXPECT_EQ(policy.next().mixing, Mixing::on);
  EXPECT_EQ(policy.next().sweep.relaxation, 1);
  EXPECT_EQ(policy.next().sweep.eps, 1);
}

TEST(MixedPolicyTest, first_sweeps_are_plain_where_combinations_are_dear) {
  SolveOptions const options = mixed_options();
  SinkhornPolicy policy = make_policy(options, 10, 0, {.float64 = 2, .newton = 20, .mixes = true, .mixing = 0.5});
  EXPECT_EQ(policy.next().mixing, Mixing::off);
  EXPECT_EQ(policy.next().count, 3);
  policy.swept({0.02 * kMass, 0.02 * kMass});
  EXPECT_EQ(policy.next().mixing, Mixing::start);
  EXPECT_EQ(policy.next().count, 1);
}

TEST(MixedPolicyTest, last_sweeps_are_plain_where_combinations_are_dear) {
  // A sweep multiplies the error by (column / row)^2: the first two are foreseen to need 1 and 2 sweeps to half of
  // 1e-6, the last one 6.
  for (auto const& [row, column, mixing] :
       {std::tuple{1e-4, 1e-5, Mixing::off}, {1e-2, 1e-3, Mixing::off}, {1e-2, 5e-3, Mixing::start}}) {
    SinkhornPolicy policy =
        make_policy(mixed_options(), 10, 0, {.float64 = 2, .newton = 20, .mixes = true, .mixing = 0.5});
    policy.swept({row * kMass, column * kMass});
    ASSERT_EQ(policy.next().action, SinkhornAction::sweep);
    EXPECT_EQ(policy.next().mixing, mixing) << row;
    EXPECT_EQ(policy.next().sweep.relaxation, 1) << row;
  }
}

TEST(MixedPolicyTest, only_default_sweeps_to_a_tolerance_are_mixed) {
  for (int const other : {0, 1, 2, 3}) {
    SolveOptions options = mixed_options();
    if (other == 1) options.tolerance = 0;
    if (other == 2) options.method = Method::newton;
    if (other == 3) options.schedule = Schedule::alternating;
    EXPECT_EQ(make_mixed_policy(options).next().mixing != Mixing::off, other == 0) << other;
    EXPECT_EQ(make_policy(options).next().mixing, Mixing::off) << "these passes do not mix";
  }
}

TEST(MixedPolicyTest, errors_are_those_of_the_best_potentials_at_the_cap_too) {
  SolveOptions options = mixed_options();
  options.iterations = 4;
  options.certificate = false;
  SinkhornPolicy policy = make_mixed_policy(options);
  sweep_mixed(policy, {0.04, 0.03, 2.0});
  EXPECT_FALSE(policy.is_best());
  EXPECT_EQ(policy.errors().column, 0.03 * kMass / 2);
  sweep_mixed(policy, {4.0});
  expect_finish(policy, Status::iteration_limit);
  EXPECT_EQ(policy.marginal_error(), 0.03 * kMass / 2);
}

TEST(MixedPolicyTest, trial_goes_on_while_the_error_falls) {
  SolveOptions const options = mixed_options();
  SinkhornPolicy policy = make_mixed_policy(options);
  double error = 1;
  for (; policy.iterations() < 2 * kTrial; error *= 0.9) sweep_mixed(policy, {error});
  EXPECT_EQ(policy.next().sweep.eps, 1) << "0.9^5 is below 0.7";
  while (policy.iterations() < 3 * kTrial && policy.next().sweep.eps == 1) sweep_mixed(policy, {error});
  EXPECT_EQ(policy.iterations(), 2 * kTrial + 3) << "0.9^3 is above";
  EXPECT_GT(policy.next().sweep.eps, 1);
}

TEST(MixedPolicyTest, ladder_begins_at_a_twentieth_of_the_mass_in_the_wrong_place) {
  for (double const share : {0.049, 0.051}) {
    SolveOptions const options = mixed_options();
    SinkhornPolicy policy = make_mixed_policy(options);
    sweep_mixed(policy, std::vector<double>(kTrial, share));
    EXPECT_EQ(policy.next().sweep.eps > 1, share > 0.05);
    SolveOptions other = mixed_options();
    other.method = Method::sinkhorn;
    SinkhornPolicy sweeps_alone = make_mixed_policy(other);
    sweep_mixed(sweeps_alone, std::vector<double>(kTrial, 2 * share));
    EXPECT_EQ(sweeps_alone.next().sweep.eps > 1, share > 0.05) << "a tenth, where the ladder is not mixed";
    EXPECT_EQ(sweeps_alone.next().mixing != Mixing::off, share < 0.05);
  }
}

TEST(MixedPolicyTest, rungs_end_later_after_a_rejection) {
  for (bool const rejects : {false, true}) {
    SolveOptions const options = mixed_options();
    SinkhornPolicy policy = make_mixed_policy(options);
    sweep_mixed(policy, std::vector<double>(kTrial, 0.06));
    ASSERT_EQ(policy.next().sweep.eps, 10);
    EXPECT_EQ(policy.next().mixing, Mixing::start);
    sweep_mixed(policy, {4e-3});
    if (rejects) sweep_mixed(policy, {1});
    EXPECT_EQ(policy.kind(), rejects ? StepKind::rejected : StepKind::sweeps);
    EXPECT_EQ(policy.next().mixing, rejects ? Mixing::start : Mixing::on);
    sweep_mixed(policy, {2.9e-3});
    EXPECT_EQ(policy.next().sweep.eps, rejects ? 10 : 4);
  }
}

TEST(MixedPolicyTest, mixing_ends_where_the_error_hardly_falls) {
  for (double const last : {0.66, 0.67}) {
    SolveOptions options = mixed_options();
    options.method = Method::sinkhorn;
    SinkhornPolicy policy = make_mixed_policy(options);
    std::vector<double> errors(30, 0.04);
    errors.push_back(last * 0.04);
    sweep_mixed(policy, errors);
    EXPECT_EQ(policy.next().mixing == Mixing::off, last > 2. / 3);
  }
}

// Costs of 10 eps have logits with a rounding error of 11 / 2^24.
TEST(MixedPolicyTest, rounding_is_not_mixed) {
  for (double const tolerance : {0.02, 0.05}) {
    SolveOptions options = mixed_options();
    double const rounding = 11 * 0x1p-24;
    options.tolerance = tolerance * rounding;
    SinkhornPolicy policy = make_mixed_policy(options);
    sweep_mixed(policy, {0.04, 0.2 * rounding});
    EXPECT_EQ(policy.next().mixing, Mixing::on);
    sweep_mixed(policy, {0.11 * rounding, 0.09 * rounding});
    if (tolerance < 0.03) {
      EXPECT_EQ(policy.next().action, SinkhornAction::refine) << "float64 follows at once";
    } else {
      EXPECT_EQ(policy.next().mixing, Mixing::off);
    }
  }
}

}  // namespace
}  // namespace monge
