#include "regularized/quadratic_newton.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
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

/// The damping of Levenberg and Marquardt.
class Damping {
 public:
  double value() const { return mu_; }
  /// Adapts mu to a whole step whose rise was `ratio` of the model's. The first step after a refusal does not lessen
  /// mu.
  void accepted(double ratio) {
    if (ratio > kGood && !was_refused_) mu_ = std::max(kLessDamping * mu_, kLeastDamping);
    if (ratio < kPoor) mu_ = std::min(kMoreDamping * mu_, kMostDamping);
    was_refused_ = false;
  }
  /// Adapts mu to a step that was refused as a whole and accepted in part: newly active pairs make the curvature of
  /// the dual 2 - ratio times the curvature of the model.
  void shortened(double ratio) {
    mu_ = std::min(std::sqrt(2 - ratio) * mu_, kMostDamping);
    was_refused_ = true;
  }
  void refused(double ratio) {
    mu_ = std::clamp(std::clamp(std::sqrt(2 - ratio), 2.0, 1e4) * mu_, kLeastDamping, kMostDamping);
    was_refused_ = true;
  }

 private:
  double mu_ = 1e-2;
  bool was_refused_ = false;
};

class Newton {
 public:
  Newton(QuadraticOperator& quadratic, double weight, QuadraticSettings const& settings)
      : quadratic_(quadratic), target_(weight), settings_(settings) {
    for (std::span<double const> const side : {settings.p, settings.q}) {
      for (double const share : side) marginal_squares_ += share * share;
    }
    double const largest = *std::ranges::max_element(settings.p);
    for (double const share : settings.q) concentration_ += share * std::min(share, largest);
  }

  QuadraticNewtonResult solve() {
    double const first =
        kFirstWeight * std::sqrt(static_cast<double>(quadratic_.rows()) * static_cast<double>(quadratic_.columns()));
    if (!settings_.u.empty() && target_ > 0) {
      now_.weight = std::max(settings_.weight, target_);
      now_.passes = 1;
      set(quadratic_.start(now_.weight, settings_.u, settings_.v));
    }
    // From far potentials the way down the ladder is shorter.
    if (now_.passes == 0 || (settings_.weight == 0 && !(now_.values.residual_l1 <= kNearResidual))) {
      now_.weight = target_ > 0 ? std::max(target_, first) : first;
      ++now_.passes;
      set(quadratic_.start(now_.weight, {}, {}));
    }
    double least = std::numeric_limits<double>::infinity();  // Residual.
    for (int refusals = 0;;) {
      if (settings_.observe && !settings_.observe(now_)) return {now_, Status::stopped};
      double const goal = goal_weight();
      while (now_.weight > goal && now_.values.residual_l1 <= kRungResidual) {
        now_.weight = std::max(kFall * now_.weight, goal);
        set(quadratic_.set_weight(now_.weight));
        least = now_.residual;
      }
      bool const is_last = now_.weight <= goal;
      if (is_last && is_converged()) return {now_, Status::converged};
      if (now_.passes >= settings_.passes) return {now_, Status::iteration_limit};
      if (refusals >= kMostRefusals) return {now_, Status::precision_limit};
      // Where rounding may hide the rise, the residual decides.
      double const slope = step(is_last);
      if (slope > 100 * rounding() || (slope > 0 && now_.residual < 0.9 * least)) {
        refusals = 0;
        least = now_.residual;
      } else {
        ++refusals;
      }
      require_bounded();
    }
  }

 private:
  void set(QuadraticValues const& values) {
    now_.values = values;
    now_.residual = std::sqrt(values.residual_squares / marginal_squares_);
  }

  /// Gaps are relative to this value.
  double size() const {
    return std::max(std::abs(now_.values.dual), least_gap_unit(Precision::float64) * quadratic_.scale().gap_unit);
  }

  bool is_converged() const {
    double const tolerance = settings_.tolerance;
    if (now_.residual > tolerance) return false;
    // Without a quadratic term goal_weight() keeps the gap small.
    double const allowed = target_ > 0 ? tolerance : tolerance / 2;
    return settings_.criterion == RegularizedCriterion::residual || std::abs(now_.values.gap) <= allowed * size();
  }

  /// The last weight lambda. Without a quadratic term, the value of an optimal plan for lambda is at most lambda sum_j
  /// q_j max_i X_ij above its certificate: lambda makes this half of the tolerance, but stays so large that rounding
  /// leaves a smaller residual.
  double goal_weight() const {
    if (target_ > 0) return target_;
    double const rounding = 40 * rounded_residual(quadratic_.rows(), quadratic_.columns());
    double const least = std::sqrt(2 * concentration_ * rounding / size());
    return std::max(settings_.tolerance, least) * size() / (2 * concentration_);
  }

  /// Takes a step and returns the slope of its direction; 0 if no step was taken.
  double step(bool is_last) {
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
  double rounding() const {
    return 4 * kEpsilon / std::sqrt(static_cast<double>(quadratic_.rows() + quadratic_.columns()));
  }

  /// The ratio of the dual's rise, plus its rounding error, to the rise of the model.
  double ratio_of(QuadraticStep const& step, double fraction) const {
    double const predicted = (1 - fraction / 2) * fraction * step.slope;
    double const rise = fraction * step.linear_rise - (step.trial.penalty - now_.values.penalty);
    return predicted > 0 ? (rise + rounding()) / predicted : -1;
  }

  /// |X|^2 is at most 1: no dual value exceeds this where there is a plan.
  void require_bounded() const {
    if (!(now_.values.dual <= quadratic_.scale().most + now_.weight / 2 + 1e-6)) throw_no_plan();
  }

  QuadraticOperator& quadratic_;
  double target_;
  QuadraticSettings const& settings_;
  double marginal_squares_ = 0, concentration_ = 0;
  Damping damping_;
  QuadraticProgress now_;
};

}  // namespace

QuadraticNewtonResult solve_quadratic(QuadraticOperator& quadratic, double weight, QuadraticSettings const& settings) {
  return Newton(quadratic, weight, settings).solve();
}

bool is_too_small(double weight, RegularizedCosts const& costs, double tolerance) {
  return weight > 0 && weight * tolerance < rounded_residual(costs.rows(), costs.columns());
}

namespace {

/// If the host has solved the problem, the first pass repeats the host's last one: it is not counted, and neither the
/// history nor the caller sees it. Only a residual that the device rounds to more than the tolerance takes more steps.
void run_one(RegularizedRun& run, int index, RegularizedOptions const& options) {
  Stopwatch const watch;
  auto& quadratic = static_cast<QuadraticOperator&>(*run.found);
  CostScale const& scale = quadratic.scale();
  // A warm start in the operator's units; each potential has half of the costs' offset.
  auto const scaled = [&](std::vector<double> potential) {
    for (double& value : potential) value = (value - scale.offset / 2) / scale.range;
    return potential;
  };
  std::vector<double> const u = scaled(run.problem.u), v = scaled(run.problem.v);
  RegularizedReport& report = run.report;
  double const user_weight = scale.range / scale.mass;
  bool const is_second = report.newton_on_host;
  Status const status_on_host = report.status;
  int const before = report.iterations - (is_second ? 1 : 0);
  QuadraticSettings settings{
      options.tolerance, options.criterion, options.iterations - before, run.problem.p, run.problem.q, u, v};
  if (is_second) settings.weight = report.weight / user_weight;
  settings.observe = [&](QuadraticProgress const& now) {
    if (is_second && now.steps == 0) return status_on_host == Status::converged;
    double const weight = user_weight * now.weight, seconds = watch.seconds();
    double const size =
        std::max(std::abs(now.values.dual + now.values.gap), least_gap_unit(Precision::float64) * scale.gap_unit);
    report.history.push_back({before + now.passes, weight, now.residual, std::abs(now.values.gap) / size,
                              std::numeric_limits<double>::quiet_NaN(), now.values.active, seconds});
    return !options.progress || options.progress({before + now.passes, weight, now.residual, seconds, index});
  };
  double const target = scale.quadratic(run.problem.terms.quadratic);
  QuadraticNewtonResult const result = solve_quadratic(quadratic, target, settings);
  report.seconds.iterations += watch.seconds();
  RegularizedValues const values = quadratic.evaluate();
  report.seconds.total += watch.seconds();
  report.seconds.evaluation = report.seconds.total - report.seconds.iterations;
  run.report_values(values);
  report.iterations = before + result.last.passes;
  report.newton_steps += result.last.steps;
  report.linear_iterations += result.last.linear_iterations;
  report.step = std::numeric_limits<double>::quiet_NaN();
  report.weight = user_weight * result.last.weight;
  RegularizedErrors const errors = run.errors_of(values);
  report.status = is_second && status_on_host != Status::converged ? status_on_host : result.status;
  // Without a quadratic term only the evaluation makes feasible potentials, and with them the certificate.
  if (target == 0 && result.status == Status::converged && !RegularizedRun::is_within(errors, options))
    report.status = Status::precision_limit;
  std::string const reached =
      fmt::format("a relative residual of {:.3g} and a relative gap of {:.3g}", errors.residual, errors.gap);
  if (report.status == Status::converged)
    report.message = fmt::format("converged after {} passes; relative residual {:.3g}, relative gap {:.3g}",
                                 report.iterations, errors.residual, errors.gap);
  if (report.status == Status::iteration_limit)
    report.message =
        fmt::format("{} passes left {}; more iterations, a larger tolerance or a larger weight would help{}",
                    report.iterations, reached, run.advice());
  if (report.status == Status::precision_limit)
    report.message = fmt::format("float64 leaves {}; {} would help{}", reached,
                                 target > 0 ? "a larger tolerance or a larger weight"
                                            : "a larger tolerance, or method splitting, for a cost matrix,",
                                 run.advice());
  if (report.status == Status::stopped) report.message = "stopped by the caller";
}

/// Calls work(k) for each of the problems; in turn if the caller watches.
void for_each(Backend const& backend, std::span<RegularizedRun* const> runs, RegularizedOptions const& options,
              std::function<void(std::size_t)> const& work) {
  std::vector<ProblemSize> sizes;
  for (RegularizedRun* const one : runs) sizes.push_back({std::ssize(one->problem.p), std::ssize(one->problem.q)});
  options.progress ? backend.Backend::for_each_step(sizes, work) : backend.for_each_step(sizes, work);
}

/// Solves the small problems on the processor of the host. Their operators on the device then start from the results.
/// A problem that fails here is left to the device, where it fails in its turn.
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
  Backend const& host = backend_of(context);
  std::vector<std::vector<double>> copies;
  std::vector<RegularizedRun> twins(small.size());
  for (std::size_t i = 0; i < small.size(); ++i) {
    CheckedRegularizedProblem& problem = twins[i].problem = small[i]->problem;
    problem.geometry = on_host(backend, problem.geometry, copies);
    problem.terms.mask = on_host(backend, problem.terms.mask, copies);
    twins[i].report = small[i]->report;
  }
  for_each(host, small, options, [&](std::size_t i) {
    try {
      RegularizedInput const input = twins[i].problem.input();
      twins[i].costs = host.regularized_costs({&input, 1})[0];
      twins[i].found = host.quadratic_operator(twins[i].costs);
      run_one(twins[i], index_of[i], options);
    } catch (Error const&) {
      return;
    }
    RegularizedRun& run = *small[i];
    run.report = std::move(twins[i].report);
    run.report.newton_on_host = true;
    run.problem.u.resize(run.problem.p.size());
    run.problem.v.resize(run.problem.q.size());
    twins[i].found->potentials(run.problem.u, run.problem.v);
  });
}

}  // namespace

void run_newton(Backend const& backend, std::span<RegularizedRun* const> runs, std::span<int const> index,
                RegularizedOptions const& options) {
  // A caller that watches sees the problems in their order.
  std::size_t const group = options.progress ? 1 : std::max<std::size_t>(runs.size(), 1);
  for (std::size_t first = 0; first < runs.size(); first += group) {
    std::span<RegularizedRun* const> const some = runs.subspan(first, group);
    std::span<int const> const index_of = index.subspan(first, group);
    run_on_host(backend, some, index_of, options);
    for_each(backend, some, options, [&](std::size_t k) {
      for_problem(to_size(index_of[k]), [&] { run_one(*some[k], index_of[k], options); });
    });
  }
}

}  // namespace monge
