// The parts of the policy, each alone.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "cuda/launch/pass_times.hpp"
#include "entropic/policy/eps_ladder.hpp"
#include "entropic/policy/error_trend.hpp"
#include "entropic/policy/mixing_choice.hpp"
#include "entropic/policy/newton_choice.hpp"
#include "entropic/policy/rounding_limit.hpp"

namespace monge {
namespace {

std::vector<double> rungs(EpsLadder& ladder) {
  std::vector<double> all;
  for (; ladder.is_on(); ladder.descend(0)) all.push_back(ladder.eps());
  return all;
}

TEST(EpsLadderTest, falls_by_the_factor_from_the_cost_bound) {
  SolveOptions const options{.eps = 1, .annealing = 0.5};
  EpsLadder ladder(options, 10);
  EXPECT_FALSE(ladder.is_on());
  EXPECT_EQ(ladder.eps(), 1);
  ASSERT_TRUE(ladder.start(0, 1000, false));
  EXPECT_EQ(rungs(ladder), (std::vector<double>{10, 8, 4, 2}));
  EXPECT_EQ(ladder.eps(), 1);
  EpsLadder below(options, 0.5);
  ASSERT_TRUE(below.start(0, 1000, false));
  EXPECT_FALSE(below.is_on()) << "the costs are below eps";
}

TEST(EpsLadderTest, rungs_share_the_sweeps_and_the_upper_ones_are_lost_where_these_are_few) {
  SolveOptions const options{.eps = 1, .annealing = 0.5};
  EpsLadder ladder(options, 16);
  ASSERT_TRUE(ladder.start(10, 100, false));
  EXPECT_EQ(ladder.rung_end(), 10 + 100 / 4);
  ladder.descend(20);
  EXPECT_EQ(ladder.rung_end(), 20 + 90 / 3) << "the rungs below share the sweeps that a rung has left";
  ASSERT_TRUE(ladder.start(10, 2, false));
  EXPECT_EQ(rungs(ladder), (std::vector<double>{4, 2}));
}

TEST(EpsLadderTest, given_potentials_climb_up_to_the_rung_that_they_fit) {
  SolveOptions const options{.eps = 1, .annealing = 0.5};
  EpsLadder ladder(options, 16);
  EXPECT_FALSE(ladder.start(0, 4 * kRungSweeps - 1, true));
  EXPECT_FALSE(ladder.is_on());
  ASSERT_TRUE(ladder.start(0, 100, true));
  EXPECT_EQ(ladder.eps(), 2);
  EXPECT_TRUE(ladder.climb(1, false));
  EXPECT_EQ(ladder.eps(), 4);
  EXPECT_FALSE(ladder.climb(2, true));
  EXPECT_FALSE(ladder.climb(3, false)) << "a rung that is done ends the climb";
  EXPECT_EQ(rungs(ladder), (std::vector<double>{4, 2}));
}

SweepOutcome outcome(double row, double column, double relaxation = 1) {
  return {{.eps = 1, .relaxation = relaxation}, {row, column}};
}

TEST(ErrorTrendTest, foresees_sweeps_from_the_rate_of_the_same_kind_of_sweep) {
  ErrorTrend trend;
  trend.add(1, outcome(0.5, 0.5));
  EXPECT_EQ(trend.foreseen_sweeps(1e-3), 0) << "one check has no rate";
  trend.add(3, outcome(0.125, 0.125));
  EXPECT_DOUBLE_EQ(trend.last_rate(), 0.5);
  EXPECT_EQ(trend.sweeps(), 2);
  double const best = 2 / (1 + std::sqrt(0.5)) - 1;  // The rate of the best omega (Young).
  EXPECT_NEAR(trend.foreseen_sweeps(0.25e-3), std::log(1e3) / -std::log(best), 1e-9);
  trend.add(13, outcome(0.1, 0.1, 1.5));
  EXPECT_EQ(trend.foreseen_sweeps(1e-3), 0) << "plain sweeps say nothing about the rate at omega";
  trend.add(33, outcome(0.05, 0.05, 1.5));
  EXPECT_NEAR(trend.foreseen_sweeps(1e-3), std::log(100) / (std::log(2) / 20), 1e-9);
  trend.add(53, outcome(0.05, 0.05, 1.5));
  EXPECT_EQ(trend.foreseen_sweeps(1e-3), std::numeric_limits<double>::infinity());
}

TEST(SweepOutcomeTest, only_a_plain_sweep_bounds_the_rows_by_the_columns) {
  EXPECT_EQ(outcome(3, 1).bound(), 1);
  EXPECT_EQ(outcome(3, 1, 1.5).bound(), 4);
  EXPECT_EQ((SweepOutcome{{.eps = 1, .symmetric = true}, {3, 1}}.bound()), 4);
}

TEST(NewtonChoiceTest, follows_rungs_where_passes_are_cheap_or_the_method_has_been_needed) {
  PassTimes const cheap{.float64 = 2, .newton = 2}, dear{.float64 = 2, .newton = 20};
  SolveOptions options{.eps = 1};
  EXPECT_TRUE(NewtonChoice(options, cheap).follows_rungs(Precision::float32));
  NewtonChoice choice(options, dear);
  EXPECT_FALSE(choice.follows_rungs(Precision::float32));
  choice.stepped();
  EXPECT_TRUE(choice.follows_rungs(Precision::float32));
  options.precision = Precision::float32;
  EXPECT_FALSE(NewtonChoice(options, cheap).follows_rungs(Precision::float32)) << "the method needs float64";
  PassTimes const mixing{.float64 = 2, .newton = 2, .mixes = true};
  EXPECT_FALSE(NewtonChoice(SolveOptions{.eps = 1}, mixing).follows_rungs(Precision::float32));
}

TEST(NewtonChoiceTest, a_warm_start_needs_few_sweeps_to_show_that_it_pays) {
  PassTimes const times{.float64 = 2, .newton = 2, .mixes = true};  // 18 passes take as long as 36 float32 sweeps.
  SolveOptions const options{.eps = 1};
  for (double const rate : {0.5, 0.9}) {
    ErrorTrend trend;
    for (int k = 1; k <= 6; ++k) trend.add(k, outcome(std::pow(rate, k), std::pow(rate, k), 1.5));
    EXPECT_FALSE(NewtonChoice(options, times).pays(trend, 1e-6, Precision::float32, 0));
    EXPECT_EQ(NewtonChoice(options, times, true).pays(trend, 1e-6, Precision::float32, 0), rate > 0.8);
  }
}

TEST(NewtonChoiceTest, mixed_sweeps_show_their_rate_in_25) {
  // 18 passes take as long as 150 float32 sweeps, or 100 mixed ones.
  PassTimes const times{.float64 = 2, .newton = 150.0 / 18, .mixes = true, .mixing = 0.5};
  NewtonChoice const choice(SolveOptions{.eps = 1}, times);
  for (double const foreseen : {90.0, 110.0}) {
    ErrorTrend trend;
    for (int k = 1; k <= 27; ++k) {
      double const error = 1e-6 * std::pow(10, 3 * (1 + (27 - k) / foreseen));
      trend.add(k, {{.eps = 1}, {error, error}, true});
      if (k <= 25) {
        EXPECT_FALSE(choice.pays(trend, 2e-6, Precision::float32, 0)) << k;
      }
    }
    EXPECT_EQ(choice.pays(trend, 2e-6, Precision::float32, 0), foreseen > 100);
  }
}

// Of the 60 sweeps that are left, the last 20 are below the floor: 40 and 20 times 4 take longer than 100.
TEST(NewtonChoiceTest, sweeps_below_the_floor_take_the_time_of_float64) {
  PassTimes const times{.float64 = 4, .newton = 100.0 / 18, .mixes = true};
  NewtonChoice const choice(SolveOptions{.eps = 1}, times);
  ErrorTrend trend;
  for (int k = 1; k <= 40; ++k) trend.add(k, {{.eps = 1}, {std::pow(0.8, k) / 2, std::pow(0.8, k) / 2}, true});
  double const wanted = std::pow(0.8, 100);
  EXPECT_FALSE(choice.pays(trend, wanted, Precision::float32, 0));
  EXPECT_FALSE(choice.pays(trend, wanted, Precision::float32, std::pow(0.8, 90)));
  EXPECT_TRUE(choice.pays(trend, wanted, Precision::float32, std::pow(0.8, 80)));
  EXPECT_FALSE(choice.pays(trend, wanted, Precision::float32, wanted / 2));
}

TEST(NewtonChoiceTest, pays_where_sweeps_are_foreseen_to_take_longer) {
  PassTimes const times{.float64 = 2, .newton = 2};  // 18 passes take as long as 36 float32 sweeps.
  NewtonChoice const choice(SolveOptions{.eps = 1}, times);
  for (double const rate : {0.1, 0.99}) {
    ErrorTrend trend;
    trend.add(1, outcome(1, 1));
    EXPECT_FALSE(choice.pays(trend, 1e-6, Precision::float32, 0)) << "one check has no rate";
    trend.add(2, outcome(rate, rate));
    EXPECT_EQ(choice.pays(trend, 1e-6, Precision::float32, 0), rate > 0.9);
  }
}

// 10,000 points of 3 coordinates: a pass of Newton's method takes 5 float32 sweeps on an H200, and 120 on a graphics
// card with 1/64 of its float32 rate in float64.
TEST(NewtonChoiceTest, follows_from_the_rates_of_the_device) {
  MatrixView const points(static_cast<double const*>(nullptr), 10000, 3);
  PointCloud const clouds{points, points};
  PassTimes const data_center = cuda::pass_times(clouds, {.multiprocessors = 132, .float64_ratio = 2}),
                  graphics = cuda::pass_times(clouds, {.multiprocessors = 128, .float64_ratio = 64});
  EXPECT_NEAR(data_center.float64, (20 + 470) / (18 + 110.), 1e-12);
  EXPECT_GT(graphics.float64, 25 * data_center.float64);
  SolveOptions const options{.eps = 1};
  ErrorTrend trend;  // 500 more sweeps: Newton's method takes as long as 97 on the one, 2150 on the other.
  for (int k = 1; k <= 200; ++k) trend.add(k, outcome(std::pow(0.98, k), std::pow(0.98, k), 1.5));
  double const wanted = std::pow(0.98, 700);
  EXPECT_TRUE(NewtonChoice(options, data_center).pays(trend, wanted, Precision::float32, 0));
  EXPECT_FALSE(NewtonChoice(options, graphics).pays(trend, wanted, Precision::float32, 0));
}

TEST(ErrorTrendTest, fraction_is_of_the_error_so_many_sweeps_before) {
  ErrorTrend trend;
  trend.add(1, outcome(4, 4));
  EXPECT_EQ(trend.fraction_since(1), 1) << "nothing is known yet";
  trend.add(2, outcome(2, 2));
  trend.add(5, outcome(1, 1));
  EXPECT_EQ(trend.fraction_since(1), 0.5);
  EXPECT_EQ(trend.fraction_since(4), 0.25);
  EXPECT_EQ(trend.fraction_since(5), 1);
}

TEST(MixingChoiceTest, errors_are_those_of_the_best_potentials) {
  MixingChoice mixing(true);
  EXPECT_EQ(mixing.next(), Mixing::start);
  EXPECT_EQ(mixing.swept({3, 2, 1}).column, 2);
  EXPECT_TRUE(mixing.is_best());
  EXPECT_EQ(mixing.kind(), StepKind::sweeps);
  EXPECT_EQ(mixing.next(), Mixing::on);
  EXPECT_EQ(mixing.swept({9, 3, 1}).row, 3);
  EXPECT_EQ(mixing.kind(), StepKind::sweeps) << "there was one image";
  EXPECT_FALSE(mixing.is_best());
  EXPECT_EQ(mixing.next(), Mixing::on);
  EXPECT_EQ(mixing.swept({9, 1, 1}).column, 1);
  EXPECT_TRUE(mixing.is_best());
  EXPECT_EQ(mixing.kind(), StepKind::mixed);
  mixing.forget();
  EXPECT_EQ(mixing.next(), Mixing::start);
  EXPECT_EQ(mixing.swept({9, 5, 1}).column, 5) << "errors at another eps are not compared";
}

TEST(MixingChoiceTest, error_far_above_the_least_starts_anew_and_the_third_ends_the_method) {
  double const nan = std::numeric_limits<double>::quiet_NaN();
  MixingChoice mixing(true);
  mixing.swept({1, 1, 1});
  for (double const error : {101.0, nan, std::numeric_limits<double>::infinity()}) {
    ASSERT_TRUE(mixing.is_on());
    EXPECT_EQ(mixing.swept({1, error, 1}).column, 1);
    EXPECT_FALSE(mixing.is_best());
    EXPECT_TRUE(mixing.has_rejected());
    EXPECT_EQ(mixing.kind(), StepKind::rejected);
    EXPECT_EQ(mixing.next(), Mixing::start);
    mixing.swept({1, 99, 1});
    EXPECT_EQ(mixing.kind(), StepKind::sweeps);
    EXPECT_EQ(mixing.next(), Mixing::on);
  }
  EXPECT_FALSE(mixing.is_on());
  mixing.refined();
  EXPECT_FALSE(mixing.is_on()) << "float64 does not help here";
}

TEST(MixingChoiceTest, float64_is_another_chance_after_rounding) {
  EXPECT_FALSE(MixingChoice(false).is_on());
  MixingChoice mixing(true);
  mixing.end();
  EXPECT_FALSE(mixing.is_on());
  mixing.refined();
  EXPECT_TRUE(mixing.is_on());
}

TEST(MixingChoiceTest, slow_mixing_comes_back_for_good_where_overrelaxation_is_slower) {
  MixingChoice faster(true), slower(true);
  for (MixingChoice* const mixing : {&faster, &slower}) {
    mixing->yield(500, 1e-3);
    mixing->compare(599, 1);
    EXPECT_FALSE(mixing->is_on()) << "the sweeps are on trial";
  }
  faster.compare(600, 1e-3);
  faster.compare(700, 1);
  EXPECT_FALSE(faster.is_on());
  slower.compare(600, 2e-3);
  EXPECT_TRUE(slower.is_on());
  slower.yield(700, 1e-3);
  EXPECT_TRUE(slower.is_on());
  slower.end();
  slower.compare(900, 1);
  EXPECT_FALSE(slower.is_on()) << "rounding and rejections end it";
}

Evaluation certificate_of(double row_error, double column_error) {
  Evaluation value{};
  value.row_error = row_error;
  value.column_error = column_error;
  return value;
}

TEST(RoundingLimitTest, certificate_tells_rounding_from_slow_convergence) {
  using Verdict = RoundingLimit::Verdict;
  SolveOptions const options{.eps = 1, .tolerance = 1e-4, .precision = Precision::float32};
  LogitScale const scale{10, 0, std::numeric_limits<double>::infinity()};
  RoundingLimit limit(options, scale, 1, Precision::float32, false);
  EXPECT_EQ(limit.certified(certificate_of(1e-3, 0), 1e-3, outcome(2e-4, 1e-5), 1e-4), Verdict::limit)
      << "sweeps see a hundredth of the error";
  EXPECT_EQ(limit.certified(certificate_of(2e-4, 0), 2e-4, outcome(2e-4, 1e-4), 1e-4), Verdict::aim_lower);
  limit.doubt_stall();
  EXPECT_TRUE(limit.doubts());
  EXPECT_EQ(limit.certified(certificate_of(2e-4, 0), 2e-4, outcome(2e-4, 2e-4), 1e-4), Verdict::go_on);
  EXPECT_FALSE(limit.doubts());
  limit.doubt_stall();
  EXPECT_EQ(limit.certified(certificate_of(2e-4, 0), 2e-4, outcome(2e-4, 2e-4), 1e-4), Verdict::stalled)
      << "nothing was gained since the last doubt";
  limit.doubt_stall();
  EXPECT_EQ(limit.certified(certificate_of(1e-4, 2e-5), 1e-4, outcome(2e-4, 2e-4), 1e-4), Verdict::stalled)
      << "a plain sweep has left an error in the columns";
}

TEST(RoundingLimitTest, error_that_stays_is_rounding_only_at_a_level_that_rounding_explains) {
  SolveOptions const options{.eps = 1, .tolerance = 1e-9, .precision = Precision::float32};
  RoundingLimit limit(options, {10, 0, std::numeric_limits<double>::infinity()}, 1, Precision::float32, false);
  // The level is 8 * 2^-24 * (1 + 10 / eps) = 5e-6.
  for (double const error : {1e-3, 1e-6}) {
    limit.forget();
    bool stalls = false;
    for (int sweep = 1; sweep <= 12; ++sweep) stalls = limit.has_stalled(outcome(0, error), sweep);
    EXPECT_EQ(stalls, error < 5e-6);
  }
}

}  // namespace
}  // namespace monge
