#include "regularized/quadratic_newton.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "core/numbers.hpp"
#include "core/problem_error.hpp"
#include "core/stopwatch.hpp"
#include "regularized/regularized_costs.hpp"
#include "seam/values.hpp"

namespace monge {
namespace {

constexpr double kEpsilon = std::numeric_limits<double>::epsilon();

/// The first weight, over sqrt(n m): some percent of the pairs are active at its optimum.
constexpr double kFirstWeight = 0.1;
/// The L1 residual at which the weight falls: the next weight starts better from a converged point.
constexpr double kRungResidual = 0.1;
/// The largest L1 residual of a useful warm start.
constexpr double kNearResidual = 0.1;
/// The factor by which the weight falls: one step then usually follows the solution. After a larger fall the active
/// pairs separate into components, and many steps are needed.
constexpr double kFall = 0.7;
/// Ratios of the dual's rise to that of the quadratic model: a trial below kRefused is refused, one above kGood may
/// lessen the damping, and one below kPoor raises it.
constexpr double kRefused = 0.05, kGood = 0.6, kPoor = 0.25;
constexpr double kLessDamping = 1.0 / 5, kMoreDamping = 3;
/// With pairs in many components the system is singular but for the damping. The least damping must be large enough for
/// conjugate gradients to notice it.
constexpr double kLeastDamping = 1e-7, kMostDamping = 1e4;
/// Tolerances of linear systems: the usual one, and the least, for a last step that has to meet the tolerance.
constexpr double kLinearTolerance = 1e-3, kLeastLinearTolerance = 1e-10;
constexpr int kMostGradients = 300;
/// After this many directions in a row without a better point, rounding is the limit.
constexpr int kMostRefusals = 12;

/// The relative residual, times lambda, that rounding leaves: scores are rounded by epsilon, and entries of X by
/// epsilon / lambda. The measured residual is a third of this for n = 100 to 1000.
double rounded_residual(std::int64_t rows, std::int64_t columns) {
  return 0.1 * kEpsilon * static_cast<double>(std::max(rows, columns));
}

}  // namespace

void QuadraticNewtonMethod::Damping::accepted(double ratio) {
  if (ratio > kGood && !was_refused_) mu_ = std::max(kLessDamping * mu_, kLeastDamping);
  if (ratio < kPoor) mu_ = std::min(kMoreDamping * mu_, kMostDamping);
  was_refused_ = false;
}

void QuadraticNewtonMethod::Damping::shortened(double ratio) {
  mu_ = std::min(std::sqrt(2 - ratio) * mu_, kMostDamping);
  was_refused_ = true;
}

void QuadraticNewtonMethod::Damping::refused(double ratio) {
  mu_ = std::clamp(std::clamp(std::sqrt(2 - ratio), 2.0, 1e4) * mu_, kLeastDamping, kMostDamping);
  was_refused_ = true;
}

QuadraticNewtonMethod::QuadraticNewtonMethod(QuadraticOperator& quadratic, double weight,
                                             QuadraticSettings const& settings)
    : quadratic_(quadratic), target_(weight), settings_(settings) {
  for (std::span<double const> const side : {settings.p, settings.q}) {
    for (double const share : side) marginal_squares_ += share * share;
  }
  double const largest = *std::ranges::max_element(settings.p);
  for (double const share : settings.q) concentration_ += share * std::min(share, largest);
  double const first =
      kFirstWeight * std::sqrt(static_cast<double>(quadratic_.rows()) * static_cast<double>(quadratic_.columns()));
  if (!settings.u.empty() && target_ > 0) {
    now_.weight = std::max(settings.weight, target_);
    now_.passes = 1;
    set(quadratic_.start(now_.weight, settings.u, settings.v));
  }
  // From far potentials the way down the ladder is shorter.
  if (now_.passes == 0 || (settings.weight == 0 && !(now_.values.residual_l1 <= kNearResidual))) {
    now_.weight = target_ > 0 ? std::max(target_, first) : first;
    ++now_.passes;
    set(quadratic_.start(now_.weight, {}, {}));
  }
}

std::optional<Status> QuadraticNewtonMethod::advance() {
  double const goal = goal_weight();
  while (now_.weight > goal && now_.values.residual_l1 <= kRungResidual) {
    now_.weight = std::max(kFall * now_.weight, goal);
    set(quadratic_.set_weight(now_.weight));
    least_ = now_.residual;
  }
  bool const is_last = now_.weight <= goal;
  if (is_last && is_converged()) return Status::converged;
  if (now_.passes >= settings_.passes) return Status::iteration_limit;
  if (refusals_ >= kMostRefusals) return Status::precision_limit;
  // Where rounding may hide the rise, the residual decides.
  double const slope = step(is_last);
  if (slope > 100 * rounding() || (slope > 0 && now_.residual < 0.9 * least_)) {
    refusals_ = 0;
    least_ = now_.residual;
  } else {
    ++refusals_;
  }
  require_bounded();
  return std::nullopt;
}

void QuadraticNewtonMethod::set(QuadraticValues const& values) {
  now_.values = values;
  now_.residual = std::sqrt(values.residual_squares / marginal_squares_);
}

/// Gaps are relative to this value.
double QuadraticNewtonMethod::size() const {
  return std::max(std::abs(now_.values.dual), least_gap_unit(Precision::float64) * quadratic_.scale().gap_unit);
}

bool QuadraticNewtonMethod::is_converged() const {
  double const tolerance = settings_.tolerance;
  if (now_.residual > tolerance) return false;
  // Without a quadratic term goal_weight() keeps the gap small.
  double const allowed = target_ > 0 ? tolerance : tolerance / 2;
  return settings_.criterion == RegularizedCriterion::residual || std::abs(now_.values.gap) <= allowed * size();
}

/// Without a quadratic term, the value of an optimal plan for lambda is at most lambda sum_j q_j max_i X_ij above its
/// certificate: lambda makes this half of the tolerance, but stays so large that rounding leaves a smaller residual.
double QuadraticNewtonMethod::goal_weight() const {
  if (target_ > 0) return target_;
  double const rounding = 40 * rounded_residual(quadratic_.rows(), quadratic_.columns());
  double const least = std::sqrt(2 * concentration_ * rounding / size());
  return std::max(settings_.tolerance, least) * size() / (2 * concentration_);
}

double QuadraticNewtonMethod::step(bool is_last) {
  double tolerance = kLinearTolerance;
  if (is_last) tolerance = std::clamp(0.3 * settings_.tolerance / now_.residual, kLeastLinearTolerance, tolerance);
  QuadraticStep step = quadratic_.step({damping_.value(), tolerance, kMostGradients});
  now_.passes += 1;
  now_.steps += 1;
  now_.linear_iterations += step.linear_iterations;
  double const ratio = ratio_of(step, 1);
  if (ratio > kRefused) {
    damping_.accepted(ratio);
  } else if (!(step.slope > 0)) {
    damping_.refused(0);
    return 0;
  } else {
    // The maximum of the parabola through both values with this slope.
    double const fraction = 1 / (2 - ratio);
    step.trial = quadratic_.shorten(fraction);
    now_.passes += 1;
    if (ratio_of(step, fraction) <= kRefused) {
      damping_.refused(ratio);
      return 0;
    }
    damping_.shortened(ratio);
  }
  quadratic_.accept();
  set(step.trial);
  return step.slope;
}

/// The rounding error of the dual's rise: potentials are about 1, with independent errors.
double QuadraticNewtonMethod::rounding() const {
  return 4 * kEpsilon / std::sqrt(static_cast<double>(quadratic_.rows() + quadratic_.columns()));
}

/// The ratio of the dual's rise, plus its rounding error, to the rise of the model.
double QuadraticNewtonMethod::ratio_of(QuadraticStep const& step, double fraction) const {
  double const predicted = (1 - fraction / 2) * fraction * step.slope;
  double const rise = fraction * step.linear_rise - (step.trial.penalty - now_.values.penalty);
  return predicted > 0 ? (rise + rounding()) / predicted : -1;
}

/// |X|^2 is at most 1: no dual value exceeds this where there is a plan.
void QuadraticNewtonMethod::require_bounded() const {
  if (!(now_.values.dual <= quadratic_.scale().most + now_.weight / 2 + 1e-6)) throw_no_plan();
}

bool is_too_small(double weight, RegularizedCosts const& costs, double tolerance) {
  return weight > 0 && weight * tolerance < rounded_residual(costs.rows(), costs.columns());
}

namespace {

/// One problem's solve and its report. If the host has solved the problem, the first pass repeats the host's last one:
/// it is not counted, and neither the history nor the caller sees it. Only a residual that the device rounds to more
/// than the tolerance takes more steps.
class NewtonRun {
 public:
  NewtonRun(Backend const& backend, RegularizedRun& run, int index, RegularizedOptions const& options)
      : backend_(backend),
        run_(run),
        index_(index),
        options_(options),
        is_second_(run.report.newton_on_host),
        status_on_host_(run.report.status),
        before_(run.report.iterations - (is_second_ ? 1 : 0)) {}

  /// The error that ended the solve, if one did.
  std::optional<ProblemError> const& error() const { return error_; }

  /// Takes the first pass, or a step, and returns true; or evaluates the end. Uses the operator alone.
  bool advance() {
    try {
      if (!newton_) {
        start();
        return true;
      }
      std::optional<Status> const status = stopped_ ? Status::stopped : newton_->advance();
      if (status) finish(*status);
      return !status;
    } catch (Error const& error) {
      error_.emplace(to_size(index_), error);
      return false;
    }
  }

  /// Records the state, and shows it to the caller, who may stop the solve.
  void show() {
    QuadraticProgress const& now = newton_->now();
    if (is_second_ && now.steps == 0) {
      stopped_ = status_on_host_ != Status::converged;
      return;
    }
    CostScale const& scale = quadratic().scale();
    double const weight = user_weight() * now.weight, seconds = watch_->seconds();
    double const size =
        std::max(std::abs(now.values.dual + now.values.gap), least_gap_unit(Precision::float64) * scale.gap_unit);
    report().history.push_back({before_ + now.passes, weight, now.residual, std::abs(now.values.gap) / size,
                                std::numeric_limits<double>::quiet_NaN(), now.values.active, seconds});
    stopped_ = options_.progress && !options_.progress({before_ + now.passes, weight, now.residual, seconds, index_});
  }

 private:
  QuadraticOperator& quadratic() const { return static_cast<QuadraticOperator&>(*run_.found); }
  RegularizedReport& report() const { return run_.report; }
  double target() const { return quadratic().scale().quadratic(run_.problem.terms.quadratic); }
  /// The weight 1 of the operator in the user's units.
  double user_weight() const { return quadratic().scale().range / quadratic().scale().mass; }
  /// A warm start in the operator's units; each potential has half of the costs' offset.
  std::vector<double> scaled(std::vector<double> potential) const {
    CostScale const& scale = quadratic().scale();
    for (double& value : potential) value = (value - scale.offset / 2) / scale.range;
    return potential;
  }

  void start() {
    watch_.emplace();
    if (!run_.found) {
      RegularizedInput const input = run_.problem.input();
      run_.costs = backend_.regularized_costs({&input, 1})[0];
      run_.found = backend_.quadratic_operator(run_.costs);
    }
    u_ = scaled(run_.problem.u);
    v_ = scaled(run_.problem.v);
    newton_.emplace(quadratic(), target(),
                    QuadraticSettings{.tolerance = options_.tolerance,
                                      .criterion = options_.criterion,
                                      .passes = options_.iterations - before_,
                                      .p = run_.problem.p,
                                      .q = run_.problem.q,
                                      .u = u_,
                                      .v = v_,
                                      .weight = is_second_ ? report().weight / user_weight() : 0});
  }

  void finish(Status status) {
    report().seconds.iterations += watch_->seconds();
    RegularizedValues const values = quadratic().evaluate();
    report().seconds.total += watch_->seconds();
    report().seconds.evaluation = report().seconds.total - report().seconds.iterations;
    run_.report_values(values);
    QuadraticProgress const& last = newton_->now();
    report().iterations = before_ + last.passes;
    report().newton_steps += last.steps;
    report().linear_iterations += last.linear_iterations;
    report().step = std::numeric_limits<double>::quiet_NaN();
    report().weight = user_weight() * last.weight;
    RegularizedErrors const errors = run_.errors_of(values);
    // Without a quadratic term only the evaluation makes feasible potentials, and with them the certificate.
    if (target() == 0 && status == Status::converged && !RegularizedRun::is_within(errors, options_))
      status = Status::precision_limit;
    report().status = is_second_ && status_on_host_ != Status::converged ? status_on_host_ : status;
    report().message = message(errors);
  }

  std::string message(RegularizedErrors const& errors) const {
    std::string const reached =
        fmt::format("a relative residual of {:.3g} and a relative gap of {:.3g}", errors.residual, errors.gap);
    switch (report().status) {
      case Status::converged:
        return fmt::format("converged after {} passes; relative residual {:.3g}, relative gap {:.3g}",
                           report().iterations, errors.residual, errors.gap);
      case Status::iteration_limit:
        return fmt::format("{} passes left {}; more iterations, a larger tolerance or a larger weight would help{}",
                           report().iterations, reached, run_.advice());
      case Status::precision_limit:
        return fmt::format("float64 leaves {}; {} would help{}", reached,
                           target() > 0 ? "a larger tolerance or a larger weight"
                                        : "a larger tolerance, or method splitting, for a cost matrix,",
                           run_.advice());
      default:
        return "stopped by the caller";
    }
  }

  Backend const& backend_;
  RegularizedRun& run_;
  int index_;
  RegularizedOptions const& options_;
  bool is_second_;
  Status status_on_host_;
  int before_;                 // Passes of the host.
  std::vector<double> u_, v_;  // The warm start, in the operator's units.
  std::optional<Stopwatch> watch_;
  std::optional<QuadraticNewtonMethod> newton_;
  bool stopped_ = false;
  std::optional<ProblemError> error_;
};

/// Takes each problem to its end, or to its error.
std::vector<NewtonRun> run_to_ends(Backend const& backend, std::span<RegularizedRun* const> problems,
                                   std::span<int const> index, RegularizedOptions const& options) {
  std::vector<NewtonRun> runs;
  runs.reserve(problems.size());
  std::vector<ProblemSize> sizes;
  for (std::size_t k = 0; k < problems.size(); ++k) {
    runs.emplace_back(backend, *problems[k], index[k], options);
    sizes.push_back({std::ssize(problems[k]->problem.p), std::ssize(problems[k]->problem.q)});
  }
  backend.run_each(
      sizes, static_cast<bool>(options.progress), [&](std::size_t k) { return runs[k].advance(); },
      [&](std::size_t k) { runs[k].show(); });
  return runs;
}

/// Solves the small problems on the processor of the host. Their operators on the device then start from the results.
/// A problem that fails here is left to the device, where it fails again.
void run_on_host(Backend const& backend, std::span<RegularizedRun* const> runs, std::span<int const> index,
                 RegularizedOptions const& options) {
  std::vector<RegularizedRun*> small;
  std::vector<int> index_of;
  for (std::size_t k = 0; k < runs.size(); ++k) {
    CheckedRegularizedProblem const& problem = runs[k]->problem;
    // Without a term a start is of no use.
    if (problem.terms.quadratic == 0 || !backend.pass_times(problem.geometry, 0).newton_on_host) continue;
    small.push_back(runs[k]);
    index_of.push_back(index[k]);
  }
  if (small.empty()) return;
  Context const context = Context::cpu();
  std::vector<std::vector<double>> copies;
  std::vector<RegularizedRun> twins(small.size());
  std::vector<RegularizedRun*> of_host;
  for (std::size_t i = 0; i < small.size(); ++i) {
    CheckedRegularizedProblem& problem = twins[i].problem = small[i]->problem;
    problem.geometry = on_host(backend, problem.geometry, copies);
    problem.terms.mask = on_host(backend, problem.terms.mask, copies);
    twins[i].report = small[i]->report;
    of_host.push_back(&twins[i]);
  }
  std::vector<NewtonRun> const solved = run_to_ends(backend_of(context), of_host, index_of, options);
  for (std::size_t i = 0; i < small.size(); ++i) {
    if (solved[i].error()) continue;
    RegularizedRun& run = *small[i];
    run.report = std::move(twins[i].report);
    run.report.newton_on_host = true;
    run.problem.u.resize(run.problem.p.size());
    run.problem.v.resize(run.problem.q.size());
    twins[i].found->potentials(run.problem.u, run.problem.v);
  }
}

}  // namespace

void run_newton(Backend const& backend, std::span<RegularizedRun* const> runs, std::span<int const> index,
                RegularizedOptions const& options) {
  run_on_host(backend, runs, index, options);
  for (NewtonRun const& run : run_to_ends(backend, runs, index, options)) {
    if (run.error()) throw ProblemError(*run.error());
  }
}

}  // namespace monge
