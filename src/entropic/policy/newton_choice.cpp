#include "entropic/policy/newton_choice.hpp"

namespace monge {
namespace {

/// Newton's method is expected to take this number of passes from where sweeps have come.
constexpr double kNewtonPasses = 15;
/// If a pass of Newton's method takes longer than this number of sweeps, sweeps come down the ladder without it.
constexpr double kDearNewton = 3;

bool allows_newton(SolveOptions const& options) {
  if (options.method == Method::newton) return true;
  bool const float64_is_allowed = options.precision == Precision::automatic || options.precision == Precision::float64;
  bool const may_choose = options.method == Method::automatic || options.method == Method::multiscale;
  return may_choose && options.tolerance > 0 && float64_is_allowed && options.schedule == Schedule::overrelaxed;
}

/// Sweeps in this precision that take as long as a pass of Newton's method.
double sweeps_of_pass(PassTimes const& times, Precision precision) {
  return times.newton / (precision == Precision::float64 ? times.float64 : 1);
}

}  // namespace

NewtonChoice::NewtonChoice(SolveOptions const& options, PassTimes const& times)
    : is_asked_for_(options.method == Method::newton), is_allowed_(allows_newton(options)), times_(times) {}

/// Sweeps in this precision that take as long as Newton's method is expected to.
double NewtonChoice::sweeps_of_solve(Precision precision) const {
  return kNewtonPasses * sweeps_of_pass(times_, precision);
}

bool NewtonChoice::follows_rungs(Precision precision) const {
  return is_allowed_ && (is_asked_for_ || has_stepped_ || sweeps_of_pass(times_, precision) <= kDearNewton);
}

bool NewtonChoice::pays(ErrorTrend const& trend, double wanted, Precision precision) const {
  if (!is_allowed_ || trend.checks() < kSweepsBeforeNewton) return false;
  if (is_asked_for_ || has_stepped_) return true;
  double const newton = sweeps_of_solve(precision);
  bool const had_chance = trend.sweeps() > newton, may_be_early = follows_rungs(precision);
  // Where steps are expensive, the first rates are no reason to take one.
  if (!may_be_early && !had_chance) return false;
  return trend.foreseen_sweeps(wanted) > (had_chance && may_be_early ? newton / 4 : newton);
}

bool NewtonChoice::pays_on_rung(ErrorTrend const& trend, double wanted, Precision precision) const {
  if (!is_allowed_) return false;
  if (follows_rungs(precision)) return trend.checks() >= kSweepsBeforeNewton;
  double const newton = sweeps_of_solve(precision);
  return trend.sweeps() > newton && trend.foreseen_sweeps(wanted) > newton;
}

}  // namespace monge
