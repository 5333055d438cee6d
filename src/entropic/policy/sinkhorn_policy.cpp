#include "entropic/policy/sinkhorn_policy.hpp"

#include <algorithm>
#include <cmath>

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
/// The same of mixed sweeps before a ladder of mixed sweeps.
constexpr double kMixedTrialError = 0.05;
/// The trial of mixed sweeps goes on for as long as kHalfTrial sweeps bring the error below this fraction.
constexpr int kHalfTrial = 5;
constexpr double kTrialFall = 0.7;
/// Where a combination takes longer than this fraction of a sweep, the first sweeps, which may be enough, are not
/// mixed.
constexpr double kDearMixing = 0.2;
/// Nor are the last sweeps, if at most this many plain ones are foreseen to reach the tolerance.
constexpr double kFewSweeps = 2;
/// Mixing is slow where kMixingPatience sweeps at the eps of the problem leave more than this fraction of the error.
constexpr int kMixingPatience = 30;
constexpr double kMixingFall = 2. / 3;
/// Relative error at which a rung ends. A misplaced fraction s of the mass moves across a gap of many eps by about s
/// eps per sweep, so little of it may come down the ladder.
constexpr double kRungError = 3e-4;
/// The same for mixed sweeps, unless a combination has been rejected.
constexpr double kMixedRungError = 3e-3;
/// The same where Newton's method may follow: it crosses gaps in a few steps.
constexpr double kNewtonRungError = 3e-2;
/// A trial that Newton's method may follow ends at the first check with a larger relative error than this.
constexpr double kHopelessError = 0.5;
/// Sweeps of a measure to itself up to a check: each at least halves the error.
constexpr int kSelfSweeps = 3;
/// Float64 sweeps before the first check: they show the rate that rounding has hidden.
constexpr int kSweepsAfterRefining = 2;

/// The number of plain sweeps just before the cap.
int plain_tail(SolveOptions const& options) {
  return std::min(20, options.iterations / 5);
}

/// Whether sweeps are mixed. Fixed numbers of sweeps are not.
bool mixes(SolveOptions const& options, PassTimes const& times, bool is_self) {
  return times.mixes && !is_self && options.schedule == Schedule::overrelaxed && options.method != Method::newton &&
         options.tolerance > 0;
}

}  // namespace

SinkhornPolicy::SinkhornPolicy(SolveOptions const& options, double mass, double cost_bound, double level,
                               PassTimes times, Precision precision, bool is_warm, bool is_self)
    : options_(options),
      total_(mass),
      mass_(mass),
      times_(times),
      is_warm_(is_warm),
      is_self_(is_self),
      on_trial_(options.annealing < 1),
      ladder_(options, cost_bound),
      mixing_(mixes(options, times, is_self)),
      newton_(options, times, is_warm),
      rounding_(options, {cost_bound, level, std::min(options.penalty_a, options.penalty_b)}, mass, precision, is_self),
      polish_below_(10 * options.tolerance),
      // The gradient norm is below the error, and the gap far below eps times the error.
      target_(options.criterion == Criterion::l1 ? options.tolerance : std::min(0.1, 100 * options.tolerance)),
      gradient_target_(options.tolerance) {
  if (options.method == Method::splr) {
    step_ = {.action = SinkhornAction::splr, .sweep = {.eps = options.eps}, .count = options.iterations};
  } else if (rounding_.begins_in_float64(times.float64_up_to)) {
    step_ = {.action = SinkhornAction::refine};
  } else {
    begin();
  }
}

void SinkhornPolicy::begin() {
  if (!is_warm_ || !options_.certificate || options_.tolerance == 0) return go_on();
  step_ = {.action = SinkhornAction::certify};
}

void SinkhornPolicy::saw(SweepOutcome const& outcome, int passes) {
  last_ = outcome;
  certified_error_.reset();
  certified_value_.reset();
  iterations_ += passes;
}

void SinkhornPolicy::swept(SweepErrors const& errors) {
  bool const is_mixed = step_.mixing != Mixing::off;
  SweepErrors const kept = is_mixed ? mixing_.swept(errors) : errors;
  kind_ = is_mixed ? mixing_.kind() : StepKind::sweeps;
  saw({step_.sweep, kept, is_mixed}, step_.count);
  gradient_norm_ = std::numeric_limits<double>::quiet_NaN();
  trend_.add(iterations_, last_);
  if (options_.schedule == Schedule::overrelaxed && iterations_ >= kTrialSweeps) {  // Earlier rates are too good.
    // Plain sweeps among overrelaxed ones say nothing about the rate at omega.
    if (!is_mixed && last_.sweep.relaxation == relaxation_.omega()) {
      relaxation_.observe(last_.error(), step_.count);
    } else {
      relaxation_.interrupt();
    }
  }
  if (shortfall_) return end(*shortfall_);
  // Sweeps cannot recover from NaN.
  if (options_.tolerance > 0 && std::isnan(last_.error())) return go_no_further();
  if (ladder_.is_on()) return swept_on_ladder();
  if (rounding_.doubts() || has_reached_target()) return ask_certificate();
  if (rounding_.foresees_floor(last_, target_)) return go_no_further();
  bool const is_slow = trend_.sweeps() >= kMixingPatience && trend_.fraction_since(kMixingPatience) > kMixingFall;
  if (!is_mixed) {
    mixing_.compare(iterations_, last_.error());
  } else if (rounding_.blurs(last_) || (is_slow && newton_.is_allowed())) {
    mixing_.end();
  } else if (is_slow) {
    mixing_.yield(iterations_, last_.error());
  }
  if (ends_trial() && has_failed_trial()) return start_ladder();
  bool const is_near = is_warm_ && !has_failed_trial();
  if ((!on_trial_ || is_near) && newton_.pays(trend_, target_ * mass_, precision(), rounding_.floor(last_, target_)))
    return take_newton();
  if (options_.tolerance > 0 && rounding_.has_stalled(last_, iterations_)) {
    if (!rounding_.shows()) return stalled();
    rounding_.doubt_stall();
  } else if (rounding_.doubt_rounding(last_, target_) && last_.is_plain()) {
    return ask_certificate();
  }
  go_on();
}

/// Whether this check is the end of the trial.
bool SinkhornPolicy::ends_trial() {
  if (!on_trial_) return false;
  bool const goes_on = last_.is_mixed && has_failed_trial() && trend_.fraction_since(kHalfTrial) <= kTrialFall;
  bool const is_over =
      !goes_on && iterations_ >= (options_.method == Method::newton ? kSweepsBeforeNewton : kTrialSweeps);
  bool const is_hopeless =
      newton_follows_rungs() && iterations_ >= kFirstSweeps && last_.error() > kHopelessError * mass_;
  on_trial_ = !is_over && !is_hopeless;
  return !on_trial_;
}

bool SinkhornPolicy::has_failed_trial() const {
  return last_.error() > (last_.is_mixed && mixes_on_ladder() ? kMixedTrialError : kTrialError) * mass_;
}

void SinkhornPolicy::stepped(NewtonProgress const& progress) {
  kind_ = StepKind::newton;
  saw({{.eps = step_.sweep.eps}, {0, progress.error}}, progress.passes);
  gradient_norm_ = progress.gradient_norm;
  newton_iterations_ += progress.passes;
  if (progress.is_step) {
    newton_steps_ += 1;
    newton_.stepped();
  }
  if (shortfall_) return end(*shortfall_);
  if (options_.tolerance > 0 && std::isnan(last_.error())) return go_no_further();
  if (ladder_.is_on()) {
    annealing_iterations_ += progress.passes;
    if (last_.error() > std::max(kNewtonRungError, options_.tolerance) * mass_ && iterations_ < ladder_.rung_end())
      return go_on();
    ladder_.descend(iterations_);
    return start_rung();
  }
  if (has_reached_target()) return ask_certificate();
  if (options_.tolerance > 0 && rounding_.has_stalled_blindly(last_, iterations_)) return end(Status::precision_limit);
  // The first advance evaluates the start.
  if (runs_steps() && ++advances_ > options_.iterations) return end(Status::iteration_limit);
  go_on();
}

void SinkhornPolicy::ended(Status status, int steps, int passes, double error) {
  saw({step_.sweep, {0, error}}, passes);
  newton_steps_ = steps;
  newton_iterations_ = passes;
  end(status);
}

/// Whether sweeps and steps see the target reached; a certificate may disagree.
bool SinkhornPolicy::has_reached_target() const {
  if (options_.tolerance == 0) return false;
  if (options_.criterion == Criterion::gradient && !std::isnan(gradient_norm_))
    return gradient_norm_ <= gradient_target_ * mass_;
  return (is_self_ ? expected_error() : last_.bound()) <= target_ * mass_;
}

/// The error that the last sweep of a measure to itself is expected to leave. A sweep at least halves the error; in
/// float64, where a sweep takes as long as the certificate that judges it, the mean rate so far is expected to go on.
double SinkhornPolicy::expected_error() const {
  double const error = last_.error();
  if (precision() != Precision::float64 || !options_.certificate) return error / 2;
  double const rate = std::pow(error / (2 * mass_), 1.0 / std::max(1, iterations_ - 1));
  return error * std::min(0.5, rate);
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

void SinkhornPolicy::take_newton() {
  mode_ = Mode::newton;
  rounding_.forget();
  if (precision() != Precision::float64) {
    step_ = {.action = SinkhornAction::refine};
    return;
  }
  go_on();
}

/// With penalties the plan may have far less mass than a and b; its relative error is that of the marginals beside this
/// mass. A plan of less mass than its error has no such mass yet, and one below the normal numbers has no digits.
void SinkhornPolicy::weigh(double mass, double error) {
  if (Penalties{options_.penalty_a, options_.penalty_b}.balanced()) return;
  mass_ = std::min(total_, std::max({mass, error, std::numeric_limits<double>::min()}));
  rounding_.weigh(mass_);
}

void SinkhornPolicy::certified(Evaluation const& evaluation) {
  double const error = evaluation.row_error + evaluation.column_error;
  certified_error_ = error;
  weigh(evaluation.mass, error);
  certified_value_ = criterion_value(options_.criterion, evaluation, options_.eps, mass_);
  if (shortfall_) return end(*shortfall_);
  if (*certified_value_ <= options_.tolerance) return end(Status::converged);
  if (iterations_ == 0) return go_on();  // The start is not the solution.
  if (std::isnan(error) && options_.tolerance > 0) return go_no_further();
  switch (rounding_.certified(evaluation, *certified_value_, last_, target_)) {
    case RoundingLimit::Verdict::limit:
      return go_no_further();
    case RoundingLimit::Verdict::stalled:
      return stalled();
    case RoundingLimit::Verdict::aim_lower:
      // Where the plan has less mass than the sweeps knew, their errors stand, and foresee how many more are enough.
      if (has_reached_target()) {
        aim_lower(*certified_value_, error);
      } else {
        certified_value_.reset();
      }
      return go_on();
    case RoundingLimit::Verdict::go_on:
      return go_on();
  }
}

void SinkhornPolicy::refined() {
  rounding_.refined();
  mixing_.refined();
  refined_at_ = iterations_;
  relaxation_.interrupt();
  trend_.clear();  // Rounding has slowed these rates.
  if (options_.criterion == Criterion::l1) target_ = options_.tolerance;
  iterations_ == 0 ? begin() : go_on();
}

/// The potentials of a rung may give a plan at eps that overflows. One plain sweep at eps makes its columns exact.
void SinkhornPolicy::stop() {
  if (last_.sweep.eps == options_.eps) return end(Status::stopped);
  shortfall_ = Status::stopped;
  step_ = {.action = SinkhornAction::sweep, .sweep = {.eps = options_.eps}, .count = 1};
}

/// Continues with the next sweeps or step, or ends at the cap.
void SinkhornPolicy::go_on() {
  if (remaining() <= 0) return end(Status::iteration_limit);
  if (mode_ == Mode::newton) {
    step_ = {.action = SinkhornAction::newton, .sweep = {.eps = ladder_.eps()}, .count = remaining()};
    return;
  }
  step_ = sweeps();
}

/// The ladder takes at most half of the sweeps that are left.
void SinkhornPolicy::start_ladder() {
  if (!ladder_.start(iterations_, remaining() / 2, is_warm_)) return go_on();
  if (!mixes_on_ladder()) mixing_.end();
  start_rung();
  step_.recentres = is_warm_;  // The first sweep has put the largest of a poor g' into f'.
}

/// Starts the sweeps at the ladder's eps.
void SinkhornPolicy::start_rung() {
  relaxation_.interrupt();
  mixing_.forget();
  rounding_.forget();
  trend_.clear();
  mode_ = Mode::sinkhorn;
  go_on();
}

void SinkhornPolicy::swept_on_ladder() {
  annealing_iterations_ += step_.count;
  bool const is_loose = last_.is_mixed && !mixing_.has_rejected();
  double const rung_error = newton_follows_rungs() ? kNewtonRungError : is_loose ? kMixedRungError : kRungError;
  double const enough = std::max(rung_error, options_.tolerance) * mass_;
  bool const is_enough = !(last_.error() > enough);
  if (ladder_.climb(iterations_, is_enough)) return start_rung();
  if (!is_enough && iterations_ < ladder_.rung_end()) {
    if (newton_.pays_on_rung(trend_, enough, precision())) return take_newton();
    if (!rounding_.has_stalled_blindly(last_, iterations_)) return go_on();
    // Rounding gets worse down the ladder.
    if (rounding_.may_refine()) return go_no_further();
  }
  // Where rounding leaves no digit of a plan, lower rungs gain nothing.
  rounding_.scale().loses_plan(ladder_.eps()) ? ladder_.leave() : ladder_.descend(iterations_);
  start_rung();
}

/// Goes on in float64 at the limit of the precision, if the precision is automatic.
void SinkhornPolicy::go_no_further() {
  if (!rounding_.may_refine()) return end(Status::precision_limit);
  step_ = {.action = SinkhornAction::refine};
}

/// Rounding keeps the error from falling. Mixing and overrelaxation amplify rounding: without a higher precision to go
/// to, they are turned off before the solve gives up.
void SinkhornPolicy::stalled() {
  if (rounding_.may_refine() || !(last_.is_mixed || relaxation_.omega() > 1)) return go_no_further();
  last_.is_mixed ? mixing_.end() : relaxation_.disable();
  rounding_.forget();
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
    } else if (certified_value_ ? *certified_value_ <= options_.tolerance
                                : last_.bound() <= options_.tolerance * mass_) {
      status = Status::converged;
    }
  }
  step_ = {.action = SinkhornAction::finish, .status = status};
}

/// Whether to check after every sweep: the first rates at an eps decide about Newton's method.
bool SinkhornPolicy::judges_rate() const {
  return newton_follows_rungs() && !on_trial_ && trend_.checks() < kSweepsBeforeNewton;
}

/// Sweeps up to the next check.
SinkhornStep SinkhornPolicy::sweeps() {
  bool const mixes = mixes_next();
  if (!mixes) mixing_.forget();
  bool const relax = !mixes && relaxes_next();
  // A symmetric sweep leaves no side exact, so doubt about rounding takes an alternating one.
  bool const symmetric = this->symmetric() && (is_self_ || !rounding_.doubts());
  Sweep const sweep{.eps = ladder_.eps(), .symmetric = symmetric, .relaxation = relax ? relaxation_.omega() : 1.0};
  int const usual = std::min(options_.check_every, most_sweeps(relax));
  bool const stays_plain = !ladder_.is_on() && sweep.relaxation == 1;
  int const count = mixes ? 1 : stays_plain ? until_check(usual) : usual;
  return {
      .action = SinkhornAction::sweep, .sweep = sweep, .count = count, .mixing = mixes ? mixing_.next() : Mixing::off};
}

/// On the ladder sweeps are mixed only where Newton's method may later cross the gaps that they leave.
bool SinkhornPolicy::mixes_on_ladder() const {
  return newton_.is_allowed() && !newton_follows_rungs();
}

bool SinkhornPolicy::mixes_next() const {
  if (!mixing_.is_on() || rounding_.doubts()) return false;
  bool const is_dear = times_.mixing > kDearMixing && mixing_.next() == Mixing::start;
  if (is_dear && (iterations_ < kFirstSweeps || (!certified_value_ && foreseen_sweeps() <= kFewSweeps))) return false;
  return !ladder_.is_on() || (!ladder_.climbs() && mixes_on_ladder());
}

/// Sweeps up to a check that the phase of the solve needs, or up to where `relax` has to end.
int SinkhornPolicy::most_sweeps(bool relax) const {
  if (judges_rate() || ladder_.climbs()) return 1;
  if (ladder_.is_on())
    return std::min(trend_.checks() == 0 ? kFirstSweeps : kRungSweeps, ladder_.rung_end() - iterations_);
  if (rounding_.doubts()) return 1;
  int const left = relax ? remaining() - plain_tail(options_) : remaining();
  int const first = options_.method == Method::newton ? kSweepsBeforeNewton : kFirstSweeps;
  if (options_.tolerance > 0 && iterations_ < first) return std::min(left, first - iterations_);
  if (refined_at_ && refinement_iterations() < kSweepsAfterRefining)
    return std::min(left, times_.check < times_.float64 ? 1 : kSweepsAfterRefining - refinement_iterations());
  return on_trial_ && iterations_ < kTrialSweeps ? std::min(left, kTrialSweeps - iterations_) : left;
}

/// The factor by which the next sweep is foreseen to multiply the error. It is the mean factor since the last check or,
/// if smaller, the factor of the last plain sweep, (column / row)^2: one half-step multiplies the error by column /
/// row. Rounding makes both errors equal, which hides the second factor.
double SinkhornPolicy::seen_rate() const {
  double const last_half = last_.is_plain() ? last_.errors.column / last_.errors.row : 1;
  if (!(last_.is_plain() || symmetric()) || trend_.checks() < 2) return last_half * last_half;
  return std::min(last_half * last_half, trend_.last_rate());
}

/// The number of plain sweeps that reach the tolerance at the rate so far; infinity where the error does not fall.
double SinkhornPolicy::foreseen_sweeps() const {
  double const rate = seen_rate();
  if (!(rate < 1)) return kInfinity;
  double const wanted = kForeseenShare * target_ * mass_;
  return std::max(1.0, std::ceil(std::log(last_.bound() / wanted) / -std::log(rate)));
}

/// The number of plain sweeps up to the next check, at most `usual`. A check before `usual` is worth its wait if the
/// sweeps that it is foreseen to save take longer. Slow modes emerge later, so more sweeps may be needed than are
/// foreseen.
int SinkhornPolicy::until_check(int usual) const {
  if (options_.tolerance == 0 || last_.sweep.eps != options_.eps) return usual;
  if (is_self_) return std::min(usual, precision() == Precision::float64 ? 1 : kSelfSweeps);
  if (symmetric() && trend_.checks() < 2) return std::min(usual, kSelfSweeps);
  if (certified_value_) return usual;
  double const foreseen = foreseen_sweeps();
  return foreseen + times_.check <= usual ? static_cast<int>(foreseen) : usual;
}

/// Overrelaxed sweeps carry their error back and forth between rows and columns, and a few plain ones shrink it several
/// times over. So sweeps are plain close to the cap, and from time to time where that might reach the tolerance.
bool SinkhornPolicy::relaxes_next() {
  if (options_.schedule != Schedule::overrelaxed) return false;
  // The rate of plain sweeps decides about Newton's method.
  if (judges_rate() || (ladder_.is_on() && newton_follows_rungs())) return false;
  if (ladder_.is_on()) return true;
  if (rounding_.doubts() || remaining() <= plain_tail(options_)) return false;
  double const error = last_.error() / mass_;
  if (relaxation_.omega() == 1.0 || error > polish_below_) return true;
  polish_below_ = error / 4;
  return false;
}

}  // namespace monge
