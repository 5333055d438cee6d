#include "entropic/policy/rounding_limit.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace monge {
namespace {

/// Sweeps without progress before a float64 evaluation decides whether rounding is the limit, and before rounding is
/// assumed where no evaluation can decide.
constexpr int kPatience = 10;
constexpr int kBlindPatience = 100;
/// The same for a measure to itself, whose sweeps at least halve the error (docs/math.md, section 14): a fall by less
/// than kSelfFall between checks is rounding.
constexpr int kSelfPatience = 3;
constexpr double kSelfFall = 0.5;
/// Sweeps have stalled at relative errors from kLeastFloor to kUsualFloor times the rounding error of a logit. A
/// tolerance below kLeastFloor makes float64 take over once errors are below kUsualFloor. For one below kSeenFloor,
/// whose errors sweeps may not see, a certificate measures there the error that rounding leaves.
constexpr double kLeastFloor = 0.002;
constexpr double kSeenFloor = 0.03;
constexpr double kUsualFloor = 0.1;
/// A fall of the error by less than this factor is no progress.
constexpr double kFall = 0.999;

}  // namespace

RoundingLimit::RoundingLimit(SolveOptions const& options, LogitScale const& scale, double mass, Precision precision,
                             bool is_self)
    : options_(options),
      scale_(scale),
      mass_(mass),
      precision_(precision),
      is_self_(is_self),
      patience_(first_patience()) {}

int RoundingLimit::first_patience() const {
  if (shows()) return kPatience;
  return is_self_ ? kSelfPatience : kBlindPatience;
}

void RoundingLimit::refined() {
  precision_ = Precision::float64;
  doubted_error_ = std::numeric_limits<double>::infinity();
  patience_ = first_patience();
  forget();
}

/// Potentials in float32 would have few digits, or float64 costs little. Where float64 costs little, a tolerance above
/// the rounding of float32 still begins in float32: it needs one certificate, and the plan has the faster products of
/// float32.
bool RoundingLimit::begins_in_float64(double float64_up_to) const {
  if (!may_refine()) return false;
  return scale_.cost_bound < kFewDigits * options_.eps ||
         (options_.certificate && options_.tolerance > 0 &&
          options_.tolerance < scale_.rounding(precision_, options_.eps) &&
          scale_.cost_bound < float64_up_to * options_.eps);
}

/// A measure to itself, whose plan may be close to a permutation, has the whole rounding of a logit in its error.
/// Schedules other than overrelaxed fall too slowly from the usual floor to the least to leave it to float64.
double RoundingLimit::floor(SweepOutcome const& outcome, double target) const {
  if (!may_refine() || options_.tolerance == 0) return 0;
  double const rounding = scale_.rounding(precision_, outcome.sweep.eps);
  double const floor = is_self_ ? 1 : options_.schedule == Schedule::overrelaxed ? kUsualFloor : 0;
  return target < (is_self_ || outcome.is_mixed ? kSeenFloor : kLeastFloor) * rounding ? floor * rounding * mass_ : 0;
}

/// The errors are those that a certificate has measured, or else foreseen ones. In overrelaxed sweeps the rounding
/// errors of all sweeps add up to 1 / (2 - omega) times the rounding error of one sweep.
bool RoundingLimit::foresees_floor(SweepOutcome const& outcome, double target) const {
  if (!may_refine() || options_.tolerance == 0) return false;
  if (measured_) return outcome.bound() <= *measured_ / (2 - outcome.sweep.relaxation);
  return outcome.error() <= floor(outcome, target);
}

bool RoundingLimit::blurs(SweepOutcome const& outcome) const {
  return outcome.error() <= kUsualFloor * scale_.rounding(precision_, outcome.sweep.eps) * mass_;
}

bool RoundingLimit::doubt_rounding(SweepOutcome const& outcome, double target) {
  double const rounding = scale_.rounding(precision_, outcome.sweep.eps);
  bool const is_unknown = may_refine() && shows() && options_.tolerance > 0 && !measured_;
  bool const is_near = target < kSeenFloor * rounding && outcome.error() <= kUsualFloor * rounding * mass_;
  if (is_unknown && is_near) doubt_ = Doubt::rounding;
  return is_unknown && is_near;
}

bool RoundingLimit::has_stalled_blindly(SweepOutcome const& outcome, int iteration) {
  return stays(outcome, iteration, kBlindPatience);
}

bool RoundingLimit::stays(SweepOutcome const& outcome, int iteration, int patience) {
  double const error = outcome.error();
  // All but the first of the sweeps since the last check should have halved the error of a measure to itself.
  double const fall = !is_self_      ? kFall
                      : may_refine() ? std::pow(kSelfFall, std::max(1, iteration - best_.iteration() - 1))
                                     : kSelfFall;
  if (best_.improves(error, fall, iteration)) return false;
  // Overrelaxed sweeps shrink errors by omega - 1, so rounding errors of all sweeps sum to 1 / (2 - omega) times one.
  double const logit_error = 8 * scale_.rounding(precision_, outcome.sweep.eps) / (2 - outcome.sweep.relaxation);
  // An error e of a logit multiplies its entry by exp(e).
  bool const is_rounding = std::isinf(error) || std::log1p(error / mass_) <= logit_error;
  return is_rounding && iteration - best_.iteration() >= patience;
}

RoundingLimit::Verdict RoundingLimit::certified(Evaluation const& evaluation, double value, SweepOutcome const& outcome,
                                                double target) {
  Doubt const doubt = std::exchange(doubt_, Doubt::none);
  double const error = evaluation.row_error + evaluation.column_error, column_error = evaluation.column_error;
  if (may_refine() && !is_self_) {
    // A plain sweep leaves the columns exact up to rounding, which leaves at least as much in the rows. Rows that are
    // off by more than the sweep's bound owe the rest to rounding, too.
    double const rounding =
        outcome.is_plain() ? std::max(column_error, error - outcome.bound()) : (error - outcome.bound()) / 2;
    measured_ = 2 * rounding * value > options_.tolerance * error ? rounding : 0;
    if (foresees_floor(outcome, target)) return Verdict::limit;
  }
  if (doubt == Doubt::stall) {
    // A small column error means slow convergence, unless the sweeps since the last doubt have gained nothing.
    if (column_error >= 0.1 * error || error >= 0.999 * doubted_error_) return Verdict::stalled;
    doubted_error_ = error;
    patience_ *= 2;
    forget();
    return Verdict::go_on;
  }
  // The sweeps solve a problem with rounded costs. If they see far less error than there is, rounding is the limit. A
  // sweep of a measure to itself sees the error before it, which exceeds the one that it leaves.
  if (outcome.bound() < (is_self_ ? 1 : 0.1) * error) return Verdict::limit;
  return doubt == Doubt::none ? Verdict::aim_lower : Verdict::go_on;
}

}  // namespace monge
