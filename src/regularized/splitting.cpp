#include "regularized/splitting.hpp"

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

namespace monge {
namespace {

/// Restarts the accelerated run from the mean of its last iterates, with a new step. Near a solution iterates circle
/// around it, and their mean is closer. Plan and potentials converge at one rate if the step is the ratio of the
/// distances that they move.
class Restarts {
 public:
  /// Called after iterations of the run; `residual` is |(X 1 - p, X^T 1 - q)|_2. Returns the iterations of its own.
  int check(SplittingOperator& splitting, double& step, int iterations, double residual, int allowed) {
    using enum SplittingOperator::Spare;
    ++kept_;
    if (kept_ == 1) {
      splitting.keep(mean);
    } else {
      splitting.approach(mean, 1.0 / kept_);
    }
    if (iterations < next_ || kept_ < 2 || allowed < kTrial) return 0;
    next_ = iterations + iterations / 5;
    kept_ = 0;
    SplittingDistance const moved = splitting.distance(mean);
    splitting.exchange(mean);
    splitting.set_step(step);
    splitting.iterate(kTrial);
    SplittingResidual const found = splitting.residual();
    if (!(std::sqrt(found.row_squares + found.column_squares) < residual)) splitting.exchange(mean);
    if (moved.plan > 0 && moved.potentials > 0) {
      step *= std::clamp(std::sqrt(moved.plan / moved.potentials / step), 1 / kMostGrowth, kMostGrowth);
      splitting.set_step(step);
    }
    return kTrial;
  }

 private:
  static constexpr int kTrial = 2;  // Iterations; even, as CUDA takes them in pairs.
  static constexpr double kMostGrowth = 4;
  int kept_ = 0;   // Iterates in the mean.
  int next_ = 60;  // Iterations of the run at the next restart.
};

/// rho at the start: the options' own, with a limit from the regulariser. A prox pulls an entry by s times the slope
/// of h. If this pull is far larger than the entry, X hardly moves until the potentials, which then move as little,
/// have grown to the size of the slope. So s times the slope is at most 1 for the quadratic term, which gives its
/// largest rate. For the other terms it is at most 10 / max(n, m), ten times the entry of a one-to-one plan.
double first_step(RegularizedOptions const& options, RegularizerTerms const& terms, CostScale const& scale,
                  std::int64_t n, std::int64_t m) {
  double most = std::numeric_limits<double>::infinity();
  if (terms.quadratic > 0) most = 1 / scale.quadratic(terms.quadratic);
  double const entry = 1 / static_cast<double>(std::max(n, m));
  if (terms.group_lasso > 0) {
    double const weight = *std::max_element(terms.group_weights.begin(), terms.group_weights.end());
    if (weight > 0) most = std::min(most, 10 * entry / (scale.linear(terms.group_lasso) * weight));
  }
  if (terms.hypentropy > 0) {
    double const slope = scale.linear(terms.hypentropy) * std::asinh(entry / scale.width(terms.hypentropy_width));
    most = std::min(most, 10 * entry / slope);
  }
  if (terms.separable) {
    double const slope = terms.separable->slope(entry);
    if (slope > 0 && std::isfinite(slope)) most = std::min(most, 10 * entry / slope);
  }
  return std::min(options.step, most * static_cast<double>(n + m));
}

/// One problem's decisions and its report.
class SplittingRun {
 public:
  SplittingRun(RegularizedRun& run, int index, RegularizedOptions const& options)
      : run_(run),
        index_(index),
        options_(options),
        splitting_(static_cast<SplittingOperator&>(*run.found)),
        norm_(run.marginal_norm()) {
    plain_.step =
        first_step(options, run.problem.terms, splitting_.scale(), splitting_.rows(), splitting_.columns()) / points();
    splitting_.start(plain_.step);
    begin();
  }

  int index() const { return index_; }
  bool is_finished() const { return finished_; }
  /// Iterations until the next check.
  SplittingStep next() const {
    return {&splitting_, std::min(options_.check_every, options_.iterations - now().iterations)};
  }

  void check(SplittingStep const& done, double seconds) {
    rethrow();
    took(done.count);
    nonzeros_ = done.residual.nonzeros;
    residual_ = std::sqrt(done.residual.row_squares + done.residual.column_squares) / norm_;
    gap_ = kNaN;
    double const step = points() * now().step;
    decide();
    double const time = watch_.seconds();
    report().seconds.iterations += seconds;
    report().history.push_back(
        {report().iterations, run_.problem.terms.quadratic, residual_, gap_, step, nonzeros_, time});
    if (!finished_ && options_.progress &&
        !options_.progress({report().iterations, run_.problem.terms.quadratic, residual_, time, index_})) {
      choose();
      finish(Status::stopped, "stopped by the caller");
    }
    if (finished_) evaluate();
    report().seconds.total = watch_.seconds();
  }

 private:
  RegularizedReport& report() const { return run_.report; }
  double points() const { return static_cast<double>(splitting_.rows() + splitting_.columns()); }

  /// Takes the warm start, if there is one. u and v are shifted to equal means: the iterations know their sums alone,
  /// and the shift costs float32 no digits.
  void begin() {
    CheckedRegularizedProblem const& problem = run_.problem;
    if (problem.u.empty() && problem.plan.rows() == 0) return;
    CostScale const& scale = splitting_.scale();
    std::vector<double> u = problem.u, v = problem.v;
    double excess = 0;
    for (std::size_t i = 0; i < u.size(); ++i) excess += problem.p[i] * u[i] / 2;
    for (std::size_t j = 0; j < v.size(); ++j) excess -= problem.q[j] * v[j] / 2;
    // Potentials of points without mass are lowered in plans.
    for (std::size_t i = 0; i < u.size(); ++i)
      u[i] = (u[i] - excess - scale.offset / 2 + (problem.p[i] == 0 ? scale.depth : 0)) / scale.range;
    for (std::size_t j = 0; j < v.size(); ++j)
      v[j] = (v[j] + excess - scale.offset / 2 + (problem.q[j] == 0 ? scale.depth : 0)) / scale.range;
    splitting_.begin_from({u, v, problem.plan});
  }

  /// One of the two runs: plain, with a fixed step, or accelerated.
  struct Run {
    double step = 0;
    int iterations = 0, next_evaluation = 0;
    double least_residual = std::numeric_limits<double>::infinity();
    int least_at = 0;
  };
  Run& now() { return is_accelerated_ ? accelerated_ : plain_; }
  Run const& now() const { return is_accelerated_ ? accelerated_ : plain_; }
  void took(int iterations) {
    now().iterations += iterations;
    report().iterations += iterations;
  }

  void finish(Status status, std::string message) {
    finished_ = true;
    report().status = status;
    report().message = std::move(message);
    report().step = points() * now().step;
  }

  void decide() {
    bool const at_end = plain_.iterations >= options_.iterations;
    if (options_.tolerance > 0) {
      if (residual_ <= options_.tolerance && (at_end || now().iterations >= now().next_evaluation)) {
        if (is_optimal()) return finish(Status::converged, converged_message());
        // The gap falls about as the residual does; looking again after a tenth more iterations costs a few percent.
        now().next_evaluation = now().iterations + now().iterations / 10;
      }
      // If no plan exists, the dual rises without limit; nothing else shows it. It is evaluated at each doubling.
      if (report().iterations >= next_look_) {
        next_look_ = 2 * report().iterations;
        evaluate();
        gap_ = run_.errors_of(*values_).gap;
      }
    }
    if (at_end) return finish_at_end();
    if (options_.tolerance > 0 && is_stalled()) {
      choose();
      return finish(Status::precision_limit,
                    fmt::format("float32 leaves a relative residual of {:.3g}; precision float64 can go further{}",
                                residual_, run_.advice()));
    }
    if (options_.accelerate) take_turns();
  }

  void finish_at_end() {
    choose();
    double const usual_step = RegularizedOptions().step;
    if (options_.tolerance == 0)
      return finish(Status::completed, fmt::format("ran {} iterations", report().iterations));
    finish(Status::iteration_limit,
           fmt::format("{} iterations left a relative residual of {:.3g}{}; more iterations, {}a larger "
                       "tolerance or a larger weight would help{}",
                       report().iterations, residual_,
                       std::isnan(gap_) ? "" : fmt::format(" and a relative gap of {:.3g}", gap_),
                       options_.step == usual_step ? "" : fmt::format("the default step of {}, ", usual_step),
                       run_.advice()));
  }

  /// The accelerated run may end earlier or later than the plain one. The first kAlone iterations, enough for many
  /// solves, are plain. Then the two runs alternate, and the accelerated one never has more iterations than the plain
  /// one. The plain run keeps its whole budget, so no solve ends worse than it.
  void take_turns() {
    using enum SplittingOperator::Spare;
    constexpr int kAlone = 300;
    if (is_accelerated_) {
      took(restarts_.check(splitting_, accelerated_.step, accelerated_.iterations, norm_ * residual_,
                           options_.iterations - accelerated_.iterations));
      if (accelerated_.iterations < plain_.iterations) return;
      splitting_.exchange(run);
      is_accelerated_ = false;
    } else if (plain_.iterations >= kAlone + accelerated_.iterations + accelerated_.iterations / 4) {
      if (accelerated_.iterations == 0) {
        splitting_.keep(run);
        accelerated_.step = plain_.step;
      } else {
        splitting_.exchange(run);
      }
      is_accelerated_ = true;
    }
  }

  /// Makes the run with the smaller error the current one.
  void choose() {
    if (accelerated_.iterations == 0) return;
    evaluated_at_ = -1;
    double const here = largest_error();
    splitting_.exchange(SplittingOperator::Spare::run);
    is_accelerated_ = !is_accelerated_;
    evaluated_at_ = -1;
    if (largest_error() < here) return;
    splitting_.exchange(SplittingOperator::Spare::run);
    is_accelerated_ = !is_accelerated_;
    evaluated_at_ = -1;
    largest_error();
  }

  /// Makes residual_ and gap_ those of the current run.
  double largest_error() {
    evaluate();
    RegularizedErrors const errors = run_.errors_of(*values_);
    residual_ = errors.residual;
    gap_ = errors.gap;
    return options_.criterion == RegularizedCriterion::residual ? residual_ : std::max(residual_, gap_);
  }

  bool is_optimal() {
    if (options_.criterion == RegularizedCriterion::residual) return true;
    evaluate();
    RegularizedErrors const errors = run_.errors_of(*values_);
    gap_ = errors.gap;
    return RegularizedRun::is_within(errors, options_);
  }

  std::string converged_message() const {
    return fmt::format("converged after {} iterations; relative residual {:.3g}{}", report().iterations, residual_,
                       std::isnan(gap_) ? "" : fmt::format(", relative gap {:.3g}", gap_));
  }

  /// Whether float32 is at its limit: its residual goes up and down without a new minimum, which slow progress would
  /// find.
  bool is_stalled() {
    if (residual_ < 0.999 * now().least_residual) {
      now().least_residual = residual_;
      now().least_at = now().iterations;
    }
    return !is_accelerated_ && run_.problem.precision == Precision::float32 && residual_ < 2e-5 &&
           residual_ > options_.tolerance &&
           plain_.iterations - plain_.least_at >= std::max(1000, plain_.iterations / 2);
  }

  /// Each term of h is largest with all mass in one pair, and so is S, with l1: no plan with these marginals has a
  /// larger value than `most`. A larger dual value shows that there is no plan.
  void require_plan(RegularizedValues const& values) const {
    CostScale const scale = splitting_.scale();
    RegularizerTerms const& terms = run_.problem.terms;
    double most = scale.most + scale.quadratic(terms.quadratic) / 2;
    if (terms.group_lasso > 0) most += scale.linear(terms.group_lasso) * *std::ranges::max_element(terms.group_weights);
    if (terms.hypentropy > 0)
      most += scale.linear(terms.hypentropy) * std::asinh(1 / scale.width(terms.hypentropy_width));
    if (terms.separable) most += terms.separable->value(1);
    if (values.dual > most * (1 + 1e-6)) throw_no_plan(terms.separable ? terms.own_name() : nullptr);
  }

  void evaluate() {
    if (evaluated_at_ == report().iterations) return;
    Stopwatch const watch;
    values_ = splitting_.evaluate();
    rethrow();
    require_plan(*values_);
    evaluated_at_ = report().iterations;
    report().seconds.evaluation += watch.seconds();
    run_.report_values(*values_);
  }

  /// Ends the solve if a function of the user's has failed.
  void rethrow() const {
    if (run_.problem.terms.separable) run_.problem.terms.separable->rethrow();
  }

  RegularizedRun& run_;
  int index_;
  RegularizedOptions const& options_;
  SplittingOperator& splitting_;
  double norm_;
  Run plain_, accelerated_;
  bool is_accelerated_ = false;  // Whether the accelerated run is the current one.
  Restarts restarts_;
  Stopwatch watch_;
  bool finished_ = false;
  double residual_ = kNaN, gap_ = kNaN;
  std::int64_t nonzeros_ = 0;
  int next_look_ = 640, evaluated_at_ = -1;
  std::optional<RegularizedValues> values_;
};

}  // namespace

void run_splitting(Backend const& backend, std::span<RegularizedRun* const> runs, std::span<int const> index,
                   RegularizedOptions const& options) {
  std::vector<SplittingRun> all;
  all.reserve(runs.size());
  std::vector<SplittingRun*> active;
  for (std::size_t k = 0; k < runs.size(); ++k) {
    for_problem(to_size(index[k]), [&] { active.push_back(&all.emplace_back(*runs[k], index[k], options)); });
  }
  while (!active.empty()) {
    std::vector<SplittingStep> steps;
    steps.reserve(active.size());
    for (SplittingRun const* run : active) steps.push_back(run->next());
    Stopwatch const watch;
    backend.iterate(steps);
    double const seconds = watch.seconds();
    for (std::size_t k = 0; k < active.size(); ++k)
      for_problem(to_size(active[k]->index()), [&] { active[k]->check(steps[k], seconds); });
    std::erase_if(active, [](SplittingRun const* run) { return run->is_finished(); });
  }
}

}  // namespace monge
