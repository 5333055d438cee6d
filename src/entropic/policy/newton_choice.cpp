#include "entropic/policy/newton_choice.hpp"

#include <algorithm>

namespace monge {
namespace {

/// Newton's method is expected to take this number of passes from where sweeps have come.
constexpr double kNewtonPasses = 18;
/// If a pass of Newton's method takes longer than this number of sweeps, sweeps come down the ladder without it. Mixed
/// sweeps always do.
constexpr double kDearNewton = 3;
/// Sweeps that show their rate near a solution.
constexpr int kWarmSweepsOfRate = 5;
/// Mixed sweeps that show their rate, for which Newton's method waits.
constexpr int kMixedSweepsOfRate = 25;

bool allows_newton(SolveOptions const& options) {
  if (options.method == Method::newton) return true;
  bool const float64_is_allowed = options.precision == Precision::automatic || options.precision == Precision::float64;
  bool const may_choose = options.method == Method::automatic || options.method == Method::multiscale;
  return may_choose && options.tolerance > 0 && float64_is_allowed && options.schedule == Schedule::overrelaxed;
}

/// Sweeps in this precision that take as long as a pass of Newton's method. Its products are in float32 only if the
/// sweeps before it are.
double sweeps_of_pass(PassTimes const& times, Precision precision) {
  double const mixing = times.mixes ? times.mixing : 0;
  return precision == Precision::float64 ? std::max(1.0, times.newton / (times.float64 + mixing))
                                         : times.newton / (1 + mixing);
}

}  // namespace

NewtonChoice::NewtonChoice(SolveOptions const& options, PassTimes const& times, bool is_warm)
    : is_asked_for_(options.method == Method::newton),
      is_allowed_(allows_newton(options)),
      is_warm_(is_warm),
      times_(times) {}

/// Sweeps in this precision that take as long as Newton's method is expected to.
double NewtonChoice::sweeps_of_solve(Precision precision) const {
  return kNewtonPasses * sweeps_of_pass(times_, precision);
}

bool NewtonChoice::follows_rungs(Precision precision) const {
  return is_allowed_ &&
         (is_asked_for_ || has_stepped_ || (!times_.mixes && sweeps_of_pass(times_, precision) <= kDearNewton));
}

bool NewtonChoice::pays(ErrorTrend const& trend, double wanted, Precision precision, double floor) const {
  if (!is_allowed_ || trend.checks() < kSweepsBeforeNewton) return false;
  if (is_asked_for_ || has_stepped_) return true;
  double const newton = sweeps_of_solve(precision);
  double const chance = times_.mixes ? std::min<double>(newton, kMixedSweepsOfRate) : newton;
  bool const had_chance = is_warm_ || trend.sweeps() > chance, may_be_early = follows_rungs(precision);
  // Where steps are expensive, the first rates are no reason to take one.
  if (!may_be_early && !had_chance) return false;
  int const window = is_warm_ ? kWarmSweepsOfRate : times_.mixes ? kMixedSweepsOfRate : kSweepsOfRate;
  double sweeps = trend.foreseen_sweeps(wanted, window);
  if (floor > wanted) sweeps += (times_.float64 - 1) * (sweeps - trend.foreseen_sweeps(floor, window));
  // Mixed sweeps that have taken as long as Newton's method slow down, so that they take longer than foreseen.
  bool const slow_down = times_.mixes && trend.sweeps() > newton;
  double const enough = had_chance && may_be_early ? 0.25 : slow_down ? 0.5 : 1;
  return sweeps > enough * newton;
}

bool NewtonChoice::pays_on_rung(ErrorTrend const& trend, double wanted, Precision precision) const {
  if (!is_allowed_) return false;
  if (follows_rungs(precision)) return trend.checks() >= kSweepsBeforeNewton;
  double const newton = sweeps_of_solve(precision);
  return trend.sweeps() > newton && trend.foreseen_sweeps(wanted) > newton;
}

}  // namespace monge
