#include "entropic/sinkhorn_policy.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/criterion.hpp"

namespace monge {
namespace {

/// Sweeps before the first check, which foresees how many more are enough to reach this fraction of the tolerance. The
/// rest of the tolerance is left to rounding, which the certificate sees.
constexpr int kFirstSweeps = 3;
constexpr double kForeseenShare = 0.5;
/// Sweeps without the ladder are tried for kTrialSweeps; a relative error above kTrialError then calls for the ladder.
constexpr int kTrialSweeps = 10;
constexpr double kTrialError = 0.1;
/// Relative error at which a rung ends. A misplaced fraction s of the mass moves across a gap of many eps by about s
/// eps per sweep, so little of it may come down the ladder.
constexpr double kRungError = 3e-4;
/// The same where Newton's method may follow: it crosses gaps in a few steps.
constexpr double kNewtonRungError = 3e-2;
/// Sweeps between the checks of a rung. Many rungs end at the first, after kFirstSweeps.
constexpr int kRungSweeps = 5;
/// Plain sweeps at a new eps before Newton's method, which show whether it is needed.
constexpr int kSweepsBeforeNewton = 2;
/// Newton's method is expected to take this number of passes from where sweeps have come.
constexpr double kNewtonPasses = 15;
/// If a pass of Newton's method takes longer than this number of sweeps, sweeps come down the ladder without it.
constexpr double kDearNewton = 3;
/// A trial that Newton's method may follow ends at the first check with a larger relative error than this.
constexpr double kHopelessError = 0.5;
/// Sweeps without progress before a float64 evaluation decides whether rounding is the limit, and before rounding is
/// assumed where no evaluation can decide.
constexpr int kPatience = 10;
constexpr int kBlindPatience = 100;
/// The same for a measure to itself, whose sweeps at least halve the error (docs/math.md, section 14): a fall by less
/// than kSelfFall between checks is rounding.
constexpr int kSelfPatience = 3;
constexpr double kSelfFall = 0.5;
/// Sweeps have stalled at relative errors from kLeastFloor to kUsualFloor times the rounding error of a logit. Where
/// the tolerance is below the first, float64 takes over at the second; where it is below kSeenFloor, which sweeps may
/// not see, a certificate at the second measures what rounding leaves.
constexpr double kLeastFloor = 0.002;
constexpr double kSeenFloor = 0.03;
constexpr double kUsualFloor = 0.1;
/// With a rounding error of a logit above this number (in nats) of float64, the entries of a plan are noise, even where
/// the costs of the pairs that have mass are far below the largest.
constexpr double kLostDigits = 0x1p20;
/// A fall of the error by less than this factor is no progress.
constexpr double kFall = 0.999;
/// Float64 sweeps before the first check: they show the rate that rounding has hidden.
constexpr int kSweepsAfterRefining = 2;

/// Half a unit in the last place of the products.
double unit_roundoff(Precision precision) {
  switch (precision) {
    case Precision::tf32:
      return 0x1p-11;
    case Precision::automatic:
    case Precision::float32:
      return 0x1p-24;
    case Precision::float64:
      return 0x1p-53;
  }
  return 0;
}

/// The number of rungs from `start` down to the last one above eps.
double ladder_length(SolveOptions const& options, double start) {
  if (start <= options.eps) return 0;
  return std::ceil(std::log(start / options.eps) / -std::log(options.annealing));
}

bool allows_newton(SolveOptions const& options) {
  if (options.method == Method::newton) return true;
  bool const float64_is_allowed = options.precision == Precision::automatic || options.precision == Precision::float64;
  return options.method == Method::automatic && options.tolerance > 0 && float64_is_allowed &&
         options.schedule == Schedule::overrelaxed;
}

/// The number of plain sweeps just before the cap.
int plain_tail(SolveOptions const& options) {
  return std::min(20, options.iterations / 5);
}

}  // namespace

SinkhornPolicy::SinkhornPolicy(SolveOptions const& options, double mass, double cost_bound, double level,
                               PassTimes times, Precision precision, bool is_warm, bool is_self)
    : options_(options),
      mass_(mass),
      cost_bound_(cost_bound),
      level_(level),
      times_(times),
      precision_(precision),
      is_warm_(is_warm),
      is_self_(is_self),
      may_step_(allows_newton(options)),
      on_trial_(options.annealing < 1),
      patience_(first_patience()),
      polish_below_(10 * options.tolerance),
      // The gradient norm is below the error, and the gap far below eps times the error.
      target_(options.criterion == Criterion::l1 ? options.tolerance : std::min(0.1, 100 * options.tolerance)),
      gradient_target_(options.tolerance) {
  if (options.method == Method::splr) {
    step_ = {.action = SinkhornAction::splr, .sweep = {.eps = options.eps}, .count = options.iterations};
    return;
  }
  if (begins_in_float64()) {
    step_ = {.action = SinkhornAction::refine};
  } else {
    begin();
  }
}

/// Whether float64 comes first: where potentials in float32 would have few digits, or where float64 costs little. In
/// the second case a looser tolerance than rounding needs one certificate, and then leaves a plan in float32, whose
/// products are faster.
bool SinkhornPolicy::begins_in_float64() const {
  if (!may_refine()) return false;
  return cost_bound_ < kFewDigits * options_.eps ||
         (options_.certificate && options_.tolerance > 0 && options_.tolerance < logit_rounding(options_.eps) &&
          cost_bound_ < times_.float64_up_to * options_.eps);
}

void SinkhornPolicy::begin() {
  if (!is_warm_ || !options_.certificate || options_.tolerance == 0) return go_on();
  step_ = {.action = SinkhornAction::certify};
}

int SinkhornPolicy::first_patience() const {
  if (rounding_shows()) return kPatience;
  return is_self_ ? kSelfPatience : kBlindPatience;
}

void SinkhornPolicy::swept(SweepErrors const& errors) {
  last_sweep_ = step_.sweep;
  errors_ = errors;
  certified_error_.reset();
  certified_value_.reset();
  gradient_norm_ = std::numeric_limits<double>::quiet_NaN();
  iterations_ += step_.count;
  seen_.push_back({iterations_, seen_error(), last_sweep_.relaxation == 1});
  if (options_.schedule == Schedule::overrelaxed && iterations_ >= kTrialSweeps) {  // Earlier rates are too good.
    // Plain sweeps among overrelaxed ones say nothing about the rate at omega.
    if (last_sweep_.relaxation == relaxation_.omega()) {
      relaxation_.observe(seen_error(), step_.count);
    } else {
      relaxation_.interrupt();
    }
  }
  if (shortfall_) return end(*shortfall_);
  // Sweeps cannot recover from NaN.
  if (options_.tolerance > 0 && std::isnan(seen_error())) return go_no_further();
  if (rungs_ > 0) return swept_on_ladder();
  if (doubt_ != Doubt::none || has_reached_target()) return ask_certificate();
  if (foresees_floor()) return go_no_further();
  if (on_trial_) {
    int const sweeps = options_.method == Method::newton ? kSweepsBeforeNewton : kTrialSweeps;
    bool const is_over = iterations_ >= sweeps;
    bool const is_hopeless = steps_on_ladder() && iterations_ >= kFirstSweeps && seen_error() > kHopelessError * mass_;
    on_trial_ = !is_over && !is_hopeless;
    if (!on_trial_ && seen_error() > kTrialError * mass_) return start_ladder();
  }
  if (newton_pays()) return take_newton();
  if (options_.tolerance > 0 && has_stopped_falling(patience_)) {
    if (!rounding_shows()) return stalled();
    doubt_ = Doubt::stall;
  } else if (lacks_rounding()) {
    doubt_ = Doubt::rounding;
    if (was_plain()) return ask_certificate();
  }
  go_on();
}

void SinkhornPolicy::stepped(NewtonProgress const& progress) {
  last_sweep_ = {.eps = step_.sweep.eps};
  errors_ = {0, progress.error};
  certified_error_.reset();
  certified_value_.reset();
  gradient_norm_ = progress.gradient_norm;
  iterations_ += progress.passes;
  newton_iterations_ += progress.passes;
  newton_steps_ += progress.is_step ? 1 : 0;
  if (shortfall_) return end(*shortfall_);
  if (options_.tolerance > 0 && std::isnan(seen_error())) return go_no_further();
  if (rungs_ > 0) {
    annealing_iterations_ += progress.passes;
    if (seen_error() > std::max(kNewtonRungError, options_.tolerance) * mass_ && iterations_ < rung_end_)
      return go_on();
    rungs_ -= 1;
    return start_rung();
  }
  if (has_reached_target()) return ask_certificate();
  if (options_.tolerance > 0 && has_stopped_falling(kBlindPatience)) return end(Status::precision_limit);
  // The first advance evaluates the start.
  if (runs_steps() && ++advances_ > options_.iterations) return end(Status::iteration_limit);
  go_on();
}

void SinkhornPolicy::ended(Status status, int steps, int passes, double error) {
  last_sweep_ = step_.sweep;
  errors_ = {0, error};
  newton_steps_ = steps;
  iterations_ = newton_iterations_ = passes;
  end(status);
}

/// Whether sweeps and steps see the target reached; a certificate may disagree.
bool SinkhornPolicy::has_reached_target() const {
  if (options_.tolerance == 0) return false;
  if (options_.criterion == Criterion::gradient && !std::isnan(gradient_norm_))
    return gradient_norm_ <= gradient_target_ * mass_;
  return (is_self_ ? expected_error() : bound()) <= target_ * mass_;
}

/// The error that the last sweep of a measure to itself is expected to leave. A sweep at least halves the error; in
/// float64, where a sweep takes as long as the certificate that judges it, the mean rate so far is expected to go on.
double SinkhornPolicy::expected_error() const {
  if (precision_ != Precision::float64 || !options_.certificate) return seen_error() / 2;
  double const rate = std::pow(seen_error() / (2 * mass_), 1.0 / std::max(1, iterations_ - 1));
  return seen_error() * std::min(0.5, rate);
}

/// The potentials seem to reach the target; without certificates the solve ends here.
void SinkhornPolicy::ask_certificate() {
  if (!options_.certificate) return end(Status::converged);
  step_ = {.action = SinkhornAction::certify};
}

/// A certificate found `value` above the tolerance, with the L1 error `error`: lowers the targets of the sweeps.
void SinkhornPolicy::aim_lower(double value, double error) {
  gradient_target_ /= 2;
  if (options_.criterion == Criterion::l1) {
    target_ /= 2;
  } else {
    target_ = error / mass_ * std::clamp(0.7 * options_.tolerance / value, 0.01, 0.7);
  }
}

/// Whether Newton's method may follow the first two sweeps of a rung. Otherwise it follows only sweeps that are stuck.
bool SinkhornPolicy::steps_on_ladder() const {
  return may_step_ &&
         (options_.method == Method::newton || newton_steps_ > 0 || sweeps_of_newton_pass() <= kDearNewton);
}

/// Sweeps in the present precision that take as long as a pass of Newton's method.
double SinkhornPolicy::sweeps_of_newton_pass() const {
  return times_.newton / (precision_ == Precision::float64 ? times_.float64 : 1);
}

/// Whether Newton's method is expected to end before sweeps do. Once a rung has needed it, it is used at every eps.
/// Otherwise the rate of the sweeps decides; sweeps that have cost as much as Newton's method get few more.
bool SinkhornPolicy::newton_pays() const {
  if (!may_step_ || on_trial_ || static_cast<int>(seen_.size()) < kSweepsBeforeNewton) return false;
  if (options_.method == Method::newton || newton_steps_ > 0) return true;
  Seen const& last = seen_.back();
  double const newton = kNewtonPasses * sweeps_of_newton_pass();
  bool const had_chance = last.iteration - seen_.front().iteration > newton;
  // Where steps are expensive, the first rates are no reason to take one.
  if (!steps_on_ladder() && !had_chance) return false;
  return foreseen_sweeps(target_ * mass_) > (had_chance && steps_on_ladder() ? newton / 4 : newton);
}

/// The number of sweeps to `error`, by the rate of the last ones or, of plain sweeps, by that of the best omega; 0
/// where it is not known yet.
double SinkhornPolicy::foreseen_sweeps(double error) const {
  Seen const& last = seen_.back();
  // Overrelaxed sweeps show their rate once the transient of a new omega is over.
  int const window = last.is_plain ? 1 : 20;
  auto const first = std::find_if(seen_.rbegin(), seen_.rend(), [&](Seen const& seen) {
    return seen.iteration <= last.iteration - window && seen.is_plain == last.is_plain;
  });
  if (first == seen_.rend()) return 0;
  double rate = std::pow(last.error / first->error, 1.0 / (last.iteration - first->iteration));
  if (!(rate < 1)) return std::numeric_limits<double>::infinity();
  if (last.is_plain) rate = best_relaxation(rate) - 1;
  return std::log(std::max(last.error / error, 1.0)) / -std::log(rate);
}

void SinkhornPolicy::take_newton() {
  mode_ = Mode::newton;
  best_error_ = std::numeric_limits<double>::infinity();
  if (precision_ != Precision::float64) {
    step_ = {.action = SinkhornAction::refine};
    return;
  }
  go_on();
}

void SinkhornPolicy::certified(Evaluation const& evaluation) {
  double const error = evaluation.row_error + evaluation.column_error, column_error = evaluation.column_error;
  certified_error_ = error;
  certified_value_ = criterion_value(options_.criterion, evaluation, options_.eps, mass_);
  if (shortfall_) return end(*shortfall_);
  if (*certified_value_ <= options_.tolerance) return end(Status::converged);
  if (iterations_ == 0) return go_on();  // The start is not the solution.
  if (std::isnan(error) && options_.tolerance > 0) return go_no_further();
  Doubt const doubt = std::exchange(doubt_, Doubt::none);
  if (may_refine() && !is_self_) {
    // A plain sweep leaves the columns exact up to rounding, which leaves at least as much in the rows. Rows that are
    // off by more than the sweep's bound owe the rest to rounding, too.
    double const rounding = was_plain() ? std::max(column_error, error - bound()) : (error - bound()) / 2;
    rounding_ = 2 * rounding * *certified_value_ > options_.tolerance * error ? rounding : 0;
    if (foresees_floor()) return go_no_further();
  }
  if (doubt == Doubt::stall) {
    // A small column error means slow convergence, unless the sweeps since the last doubt have gained nothing.
    if (column_error >= 0.1 * error || error >= 0.999 * doubted_error_) return stalled();
    doubted_error_ = error;
    patience_ *= 2;
    best_error_ = std::numeric_limits<double>::infinity();
    return go_on();
  }
  // The sweeps solve a problem with rounded costs. If they see far less error than there is, rounding is the limit. A
  // sweep of a measure to itself sees the error before it, which exceeds the one that it leaves.
  if (bound() < (is_self_ ? 1 : 0.1) * error) return go_no_further();
  if (doubt == Doubt::none) aim_lower(*certified_value_, error);
  go_on();
}

void SinkhornPolicy::refined() {
  precision_ = Precision::float64;
  refined_at_ = iterations_;
  doubted_error_ = std::numeric_limits<double>::infinity();
  relaxation_.interrupt();
  seen_.clear();  // Rounding has slowed these rates.
  if (options_.criterion == Criterion::l1) target_ = options_.tolerance;
  patience_ = first_patience();
  best_error_ = std::numeric_limits<double>::infinity();
  iterations_ == 0 ? begin() : go_on();
}

/// The potentials of a rung may give a plan at eps that overflows. One plain sweep at eps makes its columns exact.
void SinkhornPolicy::stop() {
  if (last_sweep_.eps == options_.eps) return end(Status::stopped);
  shortfall_ = Status::stopped;
  step_ = {.action = SinkhornAction::sweep, .sweep = {.eps = options_.eps}, .count = 1};
}

/// Continues with the next sweeps or step, or ends at the cap.
void SinkhornPolicy::go_on() {
  if (remaining() <= 0) return end(Status::iteration_limit);
  if (mode_ == Mode::newton) {
    step_ = {.action = SinkhornAction::newton, .sweep = {.eps = rung_eps()}, .count = remaining()};
    return;
  }
  step_ = sweeps();
}

/// Starts at the top of the ladder. The ladder takes at most half of the sweeps that are left: it loses its upper rungs
/// where the cap is too low. Given potentials climb it from below, up to the rung that they fit, and have none where
/// the cap is too low.
void SinkhornPolicy::start_ladder() {
  int const most = remaining() / 2;
  top_rung_ = static_cast<int>(std::min<double>(ladder_length(options_, cost_bound_), most));
  if (is_warm_ && most < kRungSweeps * top_rung_) return go_on();
  climbs_ = is_warm_;
  rungs_ = climbs_ ? std::min(1, top_rung_) : top_rung_;
  ladder_end_ = iterations_ + most;
  start_rung();
  step_.recentres = is_warm_;  // The first sweep has put the largest of a poor g' into f'.
}

/// Starts the sweeps at rung_eps(). The rungs that are left share the sweeps of the ladder that are left equally.
void SinkhornPolicy::start_rung() {
  if (rungs_ > 0) rung_end_ = iterations_ + (ladder_end_ - iterations_) / rungs_;
  relaxation_.interrupt();
  best_error_ = std::numeric_limits<double>::infinity();
  seen_.clear();
  mode_ = Mode::sinkhorn;
  go_on();
}

void SinkhornPolicy::swept_on_ladder() {
  annealing_iterations_ += step_.count;
  double const enough = std::max(steps_on_ladder() ? kNewtonRungError : kRungError, options_.tolerance) * mass_;
  climbs_ = climbs_ && seen_error() > enough && rungs_ < top_rung_;
  if (climbs_) {
    rungs_ += 1;
    return start_rung();
  }
  if (seen_error() > enough && iterations_ < rung_end_) {
    double const newton = kNewtonPasses * sweeps_of_newton_pass();
    bool const is_due = steps_on_ladder()
                            ? static_cast<int>(seen_.size()) >= kSweepsBeforeNewton
                            : iterations_ - seen_.front().iteration > newton && foreseen_sweeps(enough) > newton;
    if (may_step_ && is_due) return take_newton();
    if (!has_stopped_falling(kBlindPatience)) return go_on();
    // Rounding gets worse down the ladder.
    if (may_refine()) return go_no_further();
  }
  // Below this eps rounding leaves no digit of a plan, so lower rungs gain nothing.
  bool const is_lost = unit_roundoff(Precision::float64) * cost_bound_ > kLostDigits * rung_eps();
  rungs_ = is_lost ? 0 : rungs_ - 1;
  start_rung();
}

/// Goes on in float64 at the limit of the precision, if the precision is automatic.
void SinkhornPolicy::go_no_further() {
  if (!may_refine()) return end(Status::precision_limit);
  step_ = {.action = SinkhornAction::refine};
}

/// Rounding keeps the error from falling. Overrelaxation amplifies rounding: without a higher precision to go to, it is
/// turned off before the solve gives up.
void SinkhornPolicy::stalled() {
  if (may_refine() || relaxation_.omega() == 1) return go_no_further();
  relaxation_.disable();
  best_error_ = std::numeric_limits<double>::infinity();
  go_on();
}

/// Ends the sweeps. An error within the tolerance overrides `shortfall`, unless the caller stopped the solve.
void SinkhornPolicy::end(Status shortfall) {
  shortfall_ = shortfall;
  if (options_.certificate && !certified_error_) {
    step_ = {.action = SinkhornAction::certify};
    return;
  }
  Status status = shortfall;
  if (shortfall != Status::stopped) {
    if (certified_error_ && std::isnan(*certified_error_)) {
      status = Status::precision_limit;
    } else if (options_.tolerance == 0) {
      if (shortfall != Status::precision_limit) status = Status::completed;
    } else if (certified_value_ ? *certified_value_ <= options_.tolerance : bound() <= options_.tolerance * mass_) {
      status = Status::converged;
    }
  }
  step_ = {.action = SinkhornAction::finish, .status = status};
}

/// The eps of the next sweeps. The first rung starts no higher than the cost bound.
double SinkhornPolicy::rung_eps() const {
  if (rungs_ == 0) return options_.eps;
  return std::min(cost_bound_, options_.eps * std::pow(options_.annealing, -rungs_));
}

/// Whether to check after every sweep: the first rates at an eps decide about Newton's method.
bool SinkhornPolicy::judges_rate() const {
  return steps_on_ladder() && !on_trial_ && static_cast<int>(seen_.size()) < kSweepsBeforeNewton;
}

/// Sweeps up to the next check.
SinkhornStep SinkhornPolicy::sweeps() {
  bool const relax = relaxes_next();
  int most = relax ? remaining() - plain_tail(options_) : remaining();
  if (judges_rate() || climbs_) {
    most = 1;
  } else if (rungs_ > 0) {
    most = std::min(seen_.empty() ? kFirstSweeps : kRungSweeps, rung_end_ - iterations_);
  } else if (doubt_ != Doubt::none) {
    most = 1;
  } else {
    int const first = options_.method == Method::newton ? kSweepsBeforeNewton : kFirstSweeps;
    if (options_.tolerance > 0 && iterations_ < first) {
      most = std::min(most, first - iterations_);
    } else if (refinement_iterations() < kSweepsAfterRefining && refined_at_) {
      most = std::min(most, times_.check < times_.float64 ? 1 : kSweepsAfterRefining - refinement_iterations());
    } else if (on_trial_ && iterations_ < kTrialSweeps) {
      most = std::min(most, kTrialSweeps - iterations_);
    }
  }
  // A symmetric sweep leaves no side exact, so doubt about rounding takes an alternating one.
  bool const symmetric = this->symmetric() && (is_self_ || doubt_ == Doubt::none);
  Sweep const sweep{.eps = rung_eps(), .symmetric = symmetric, .relaxation = relax ? relaxation_.omega() : 1.0};
  int const usual = std::min(options_.check_every, most);
  bool const stays_plain = rungs_ == 0 && sweep.relaxation == 1;
  return {.action = SinkhornAction::sweep, .sweep = sweep, .count = stays_plain ? until_check(usual) : usual};
}

/// The factor by which the next sweep is foreseen to multiply the error. It is the mean factor since the last check or,
/// if smaller, the factor of the last plain sweep, (column / row)^2: one half-step multiplies the error by column /
/// row. Rounding makes both errors equal, which hides the second factor.
double SinkhornPolicy::seen_rate() const {
  double const last_half = was_plain() ? errors_.column / errors_.row : 1;
  if (!(was_plain() || symmetric()) || seen_.size() < 2) return last_half * last_half;
  Seen const &last = seen_.back(), &before = seen_[seen_.size() - 2];
  return std::min(last_half * last_half,
                  std::pow(last.error / before.error, 1.0 / (last.iteration - before.iteration)));
}

/// The number of plain sweeps up to the next check, at most `usual`. A check before `usual` is worth its wait if the
/// sweeps that it is foreseen to save take longer. Slow modes emerge later, so more sweeps may be needed than are
/// foreseen.
int SinkhornPolicy::until_check(int usual) const {
  if (options_.tolerance == 0 || last_sweep_.eps != options_.eps) return usual;
  if (is_self_) return std::min(usual, precision_ == Precision::float64 ? 1 : kSelfPatience);
  if (symmetric() && seen_.size() < 2) return std::min(usual, kSelfPatience);
  if (certified_value_) return usual;
  double const rate = seen_rate();
  if (!(rate < 1)) return usual;
  double const wanted = kForeseenShare * target_ * mass_;
  double const foreseen = std::max(1.0, std::ceil(std::log(bound() / wanted) / -std::log(rate)));
  return foreseen + times_.check <= usual ? static_cast<int>(foreseen) : usual;
}

/// Overrelaxed sweeps carry their error back and forth between rows and columns, and a few plain ones shrink it several
/// times over. So sweeps are plain close to the cap, and from time to time where that might reach the tolerance.
bool SinkhornPolicy::relaxes_next() {
  if (options_.schedule != Schedule::overrelaxed) return false;
  // The rate of plain sweeps decides about Newton's method.
  if (judges_rate() || (rungs_ > 0 && steps_on_ladder())) return false;
  if (rungs_ > 0) return true;
  if (doubt_ != Doubt::none || remaining() <= plain_tail(options_)) return false;
  double const error = seen_error() / mass_;
  if (relaxation_.omega() == 1.0 || error > polish_below_) return true;
  polish_below_ = error / 4;
  return false;
}

/// The L1 error of the current potentials, as far as the last sweep can tell. A plain alternating sweep leaves the
/// columns exact and |P 1 - a|_1 at most the column error that it found. For other sweeps it is the error before them.
double SinkhornPolicy::bound() const {
  return was_plain() ? errors_.column : seen_error();
}

/// Plans of tf32 sweeps multiply in float32.
double SinkhornPolicy::entry_rounding(double bound) const {
  Precision const products = precision_ == Precision::tf32 ? Precision::float32 : precision_;
  return unit_roundoff(products) * logit_size(options_.eps, bound);
}

/// The size of a logit at `eps`, for costs of size `bound`: its rounding error is that times the unit roundoff.
double SinkhornPolicy::logit_size(double eps, double bound) const {
  // With a penalty the target marginals have the factor exp(-f / rho).
  double const least_penalty = std::min(options_.penalty_a, options_.penalty_b);
  return 1 + (bound + level_) / eps + bound / least_penalty;
}

/// The rounding error of a logit in sweeps at `eps`.
double SinkhornPolicy::logit_rounding(double eps) const {
  return unit_roundoff(precision_) * logit_size(eps, cost_bound_);
}

double SinkhornPolicy::potential_rounding() const {
  return cost_bound_ > 0 ? unit_roundoff(precision_) * options_.eps / cost_bound_ : 0;
}

/// Whether sweeps have come to errors that rounding stops, on the way to a tolerance out of its reach: errors that a
/// certificate has measured, or else foreseen ones. A measure to itself, whose plan may be close to a permutation, has
/// the whole rounding of a logit in its error. Schedules other than overrelaxed fall too slowly from the usual floor to
/// the least to leave it to float64. In overrelaxed sweeps the rounding errors of all sweeps add up to 1 / (2 - omega)
/// times the rounding error of one sweep.
bool SinkhornPolicy::foresees_floor() const {
  if (!may_refine() || options_.tolerance == 0) return false;
  if (rounding_) return bound() <= *rounding_ / (2 - last_sweep_.relaxation);
  double const rounding = logit_rounding(last_sweep_.eps);
  double const floor = is_self_ ? 1 : options_.schedule == Schedule::overrelaxed ? kUsualFloor : 0;
  return target_ < (is_self_ ? kSeenFloor : kLeastFloor) * rounding && seen_error() <= floor * rounding * mass_;
}

/// Whether a certificate has to measure what rounding leaves: sweeps may stall soon, at errors above the tolerance.
bool SinkhornPolicy::lacks_rounding() const {
  double const rounding = logit_rounding(last_sweep_.eps);
  return may_refine() && rounding_shows() && options_.tolerance > 0 && !rounding_ && target_ < kSeenFloor * rounding &&
         seen_error() <= kUsualFloor * rounding * mass_;
}

/// True when the error has stopped falling at a level that rounding explains.
bool SinkhornPolicy::has_stopped_falling(int patience) {
  double const error = seen_error();
  // All but the first of the sweeps since the last check should have halved the error of a measure to itself.
  double const fall = !is_self_      ? kFall
                      : may_refine() ? std::pow(kSelfFall, std::max(1, iterations_ - best_iteration_ - 1))
                                     : kSelfFall;
  if (error < fall * best_error_) {
    best_error_ = error;
    best_iteration_ = iterations_;
    return false;
  }
  // Overrelaxed sweeps shrink errors by omega - 1, so rounding errors of all sweeps sum to 1 / (2 - omega) times one.
  double const logit_error = 8 * logit_rounding(last_sweep_.eps) / (2 - last_sweep_.relaxation);
  // An error e of a logit multiplies its entry by exp(e).
  bool const rounding = std::isinf(error) || std::log1p(error / mass_) <= logit_error;
  return rounding && iterations_ - best_iteration_ >= patience;
}

}  // namespace monge
