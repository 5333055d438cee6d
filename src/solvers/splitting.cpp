#include "solvers/splitting.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "core/stopwatch.hpp"
#include "operators/regularized_costs.hpp"

namespace monge {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

/// When a larger step is tried, and whether it is kept. A small step brings the marginals first, a large one the
/// potentials: once the support of X has settled a solve that would take long is shortened by a larger step. A step
/// that has not brought the residual down in its trial is taken back, and no other is tried.
class StepPolicy {
 public:
  StepPolicy(RegularizedOptions const& options, double step)
      : tolerance_(options.tolerance), most_(kMostGrowth * step) {}

  double next(double step, int iterations, double residual, std::int64_t nonzeros) {
    if (ended_) return step;
    seen_.push_back({iterations, residual, nonzeros});
    if (before_) {
      if (iterations - seen_.front().iterations < kTrial) return step;
      Trial const trial = *before_;
      before_.reset();
      seen_.erase(seen_.begin(), seen_.end() - 1);
      ended_ = residual > trial.residual;
      return ended_ ? trial.step : step;
    }
    while (seen_.size() > 2 && iterations - seen_[1].iterations >= kWindow) seen_.erase(seen_.begin());
    Seen const& past = seen_.front();
    bool const known = iterations - past.iterations >= kWindow;
    if (!known || !settled(past, nonzeros) || kGrowth * step > most_) return step;
    double const decay = std::log(past.residual / residual) / (iterations - past.iterations);
    if (!(decay < std::log(residual / tolerance_) / kLong)) return step;
    before_ = Trial{step, residual};
    seen_.erase(seen_.begin(), seen_.end() - 1);
    return kGrowth * step;
  }

 private:
  static constexpr double kGrowth = 2, kMostGrowth = 16;
  static constexpr int kWindow = 40, kTrial = 100, kLong = 400;  // Iterations.
  struct Seen {
    int iterations;
    double residual;
    std::int64_t nonzeros;
  };
  struct Trial {
    double step, residual;
  };
  static bool settled(Seen const& past, std::int64_t nonzeros) {
    return std::abs(static_cast<double>(nonzeros - past.nonzeros)) <= 0.02 * static_cast<double>(nonzeros);
  }

  double tolerance_, most_;
  std::vector<Seen> seen_;
  std::optional<Trial> before_;  // While a step is on trial, the one before it.
  bool ended_ = false;
};

/// rho at the start: that of the options, but no larger than the regulariser lets X follow. A prox that pulls with s
/// times the slope of h moves an entry by a share of itself where that is of the entry's size, and by next to nothing
/// where it is far more: until the potentials, which move by as little, have come to the size of the slope. So s times
/// the slope at a plan of even entries is at most 1 for the quadratic term, of which that is the largest rate, and 10
/// entries, each all that its line has, for the others.
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
        norm_(run.marginal_norm()),
        step_(first_step(options, run.problem.terms, splitting_.scale(), splitting_.rows(), splitting_.columns())),
        step_policy_(options, step_) {
    splitting_.start(step(), {}, {});
  }

  bool is_finished() const { return finished_; }
  /// Iterations until the next check.
  SplittingStep next() const {
    return {&splitting_, std::min(options_.check_every, options_.iterations - report().iterations)};
  }

  void check(SplittingStep const& done, double seconds) {
    report().iterations += done.count;
    SplittingResidual const& residual = done.residual;
    residual_ = std::sqrt(residual.row_squares + residual.column_squares) / norm_;
    gap_ = kNaN;
    decide(residual);
    double const now = watch_.seconds();
    report().seconds.iterations += seconds;
    report().history.push_back(
        {report().iterations, run_.problem.terms.quadratic, residual_, gap_, checked_step_, now});
    if (!finished_ && options_.progress &&
        !options_.progress({report().iterations, run_.problem.terms.quadratic, residual_, now, index_}))
      finish(Status::stopped, "progress asked to stop");
    if (finished_) evaluate();
    report().seconds.total = watch_.seconds();
  }

 private:
  RegularizedReport& report() const { return run_.report; }
  double step() const { return step_ / static_cast<double>(splitting_.rows() + splitting_.columns()); }

  void finish(Status status, std::string message) {
    finished_ = true;
    report().status = status;
    report().message = std::move(message);
    report().step = checked_step_;
  }

  void decide(SplittingResidual const& residual) {
    checked_step_ = step_;
    bool const at_end = report().iterations >= options_.iterations;
    if (options_.tolerance == 0) {
      if (at_end) finish(Status::completed, fmt::format("ran {} iterations", report().iterations));
      return;
    }
    if (residual_ <= options_.tolerance && (at_end || report().iterations >= next_evaluation_)) {
      if (is_optimal()) return finish(Status::converged, "");
      // The gap falls about as the residual does; looking again after a tenth more iterations costs a few percent.
      next_evaluation_ = report().iterations + report().iterations / 10;
    }
    // Where there is no plan the dual rises without end, and nothing else tells. Another look at each doubling.
    if (report().iterations >= next_look_) {
      next_look_ = 2 * report().iterations;
      evaluate();
      gap_ = run_.errors_of(*values_).gap;
    }
    if (at_end)
      return finish(Status::iteration_limit,
                    fmt::format("{} iterations left a relative residual of {:.3g}{}; more iterations, a larger "
                                "tolerance or a larger weight would help",
                                report().iterations, residual_,
                                std::isnan(gap_) ? "" : fmt::format(" and a relative gap of {:.3g}", gap_)));
    if (is_stalled())
      return finish(
          Status::precision_limit,
          fmt::format("float32 leaves a relative residual of {:.3g}; precision float64 can go further", residual_));
    if (!options_.adapt_step) return;
    set_step(step_policy_.next(step_, report().iterations, residual_, residual.nonzeros));
  }

  void set_step(double next) {
    if (next == step_) return;
    step_ = next;
    splitting_.set_step(step());
  }

  bool is_optimal() {
    if (options_.criterion == RegularizedCriterion::residual) return true;
    evaluate();
    RegularizedErrors const errors = run_.errors_of(*values_);
    gap_ = errors.gap;
    return RegularizedRun::is_within(errors, options_);
  }

  /// Float32 near its end goes up and down: no better residual in a long while, which slow progress would bring.
  bool is_stalled() {
    if (residual_ < 0.999 * least_residual_) {
      least_residual_ = residual_;
      least_at_ = report().iterations;
    }
    return run_.problem.precision == Precision::float32 && residual_ < 2e-5 && residual_ > options_.tolerance &&
           report().iterations - least_at_ >= std::max(1000, report().iterations / 2);
  }

  /// With all mass in one pair each term is at most what it is there, and S, of l1 too, is at most 1: no plan with
  /// these marginals has a larger value. A dual value beyond that says that there is none.
  void require_plan(RegularizedValues const& values) const {
    CostScale const scale = splitting_.scale();
    RegularizerTerms const& terms = run_.problem.terms;
    double most = 1 + scale.quadratic(terms.quadratic) / 2;
    if (terms.group_lasso > 0) most += scale.linear(terms.group_lasso) * *std::ranges::max_element(terms.group_weights);
    if (terms.hypentropy > 0)
      most += scale.linear(terms.hypentropy) * std::asinh(1 / scale.width(terms.hypentropy_width));
    if (values.dual > most * (1 + 1e-6)) throw_no_plan();
  }

  void evaluate() {
    if (evaluated_at_ == report().iterations) return;
    Stopwatch const watch;
    values_ = splitting_.evaluate();
    require_plan(*values_);
    evaluated_at_ = report().iterations;
    report().seconds.evaluation += watch.seconds();
    run_.report_values(*values_);
  }

  RegularizedRun& run_;
  int index_;
  RegularizedOptions const& options_;
  SplittingOperator& splitting_;
  double norm_;
  double step_, checked_step_ = kNaN;  // rho now, and at the last check.
  StepPolicy step_policy_;
  Stopwatch watch_;
  bool finished_ = false;
  double residual_ = kNaN, gap_ = kNaN;
  double least_residual_ = std::numeric_limits<double>::infinity();
  int least_at_ = 0, next_evaluation_ = 0, next_look_ = 640, evaluated_at_ = -1;
  std::optional<RegularizedValues> values_;
};

}  // namespace

void run_splitting(Backend const& backend, std::span<RegularizedRun* const> runs, std::span<int const> index,
                   RegularizedOptions const& options) {
  std::vector<SplittingRun> all;
  all.reserve(runs.size());
  std::vector<SplittingRun*> active;
  for (std::size_t k = 0; k < runs.size(); ++k) active.push_back(&all.emplace_back(*runs[k], index[k], options));
  while (!active.empty()) {
    std::vector<SplittingStep> steps;
    for (SplittingRun const* run : active) steps.push_back(run->next());
    Stopwatch const watch;
    backend.iterate(steps);
    double const seconds = watch.seconds();
    for (std::size_t k = 0; k < active.size(); ++k) active[k]->check(steps[k], seconds);
    std::erase_if(active, [](SplittingRun const* run) { return run->is_finished(); });
  }
}

}  // namespace monge
