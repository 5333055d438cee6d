// Sinkhorn's algorithm on an entropic operator: carries out what its policy decides.
#include <chrono>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <fmt/format.h>
#include <monge/entropic.hpp>
#include <monge/error.hpp>

#include "core/validation.hpp"
#include "solvers/input.hpp"
#include "solvers/plan_state.hpp"
#include "solvers/sinkhorn_policy.hpp"

namespace monge {

namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

class Stopwatch {
 public:
  double seconds() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

void copy_potentials(EntropicOperator const& from, EntropicOperator& to) {
  for (Side side : {Side::rows, Side::columns}) {
    Term const all{1, &from.potential(side)};
    to.vectors().combine({&all, 1}, to.potential(side));
  }
}

/// One sentence about a report that is otherwise complete.
std::string message(Report const& report) {
  switch (report.status) {
    case Status::stopped:
      return fmt::format("stopped by the caller after {} sweeps{}", report.iterations,
                         report.annealing_iterations == report.iterations ? ", while still annealing" : "");
    case Status::completed:
      return fmt::format("ran {} sweeps as asked; marginal error {:.2e}", report.iterations, report.marginal_error);
    case Status::converged:
      return fmt::format(
          "converged after {} sweeps{}; marginal error {:.2e}", report.iterations,
          report.refinement_iterations > 0 ? fmt::format(", the last {} in float64", report.refinement_iterations) : "",
          report.marginal_error);
    case Status::precision_limit:
      return fmt::format("marginal error {:.2e} is as far as {} goes at this eps; {}", report.marginal_error,
                         name(report.precision),
                         report.precision == Precision::tf32      ? "precision float32 or float64 gets further"
                         : report.precision == Precision::float32 ? "precision float64 gets further"
                                                                  : "a larger eps or tolerance is needed");
    case Status::iteration_limit:
      return fmt::format(
          "marginal error {:.2e} after {} sweeps is above the tolerance; more iterations or a larger eps would help",
          report.marginal_error, report.iterations);
  }
  return {};
}

/// Does what the policy decides; keeps the report and the clock.
/// Makes the operator of one problem in a precision, which may keep scores in so much memory; keeps nothing of the
/// caller's.
using OperatorFactory = std::function<std::unique_ptr<EntropicOperator>(Precision, double cache_bytes)>;

/// The precision that a solve starts in.
Precision first_precision(SolveOptions const& options) {
  return options.precision == Precision::automatic ? Precision::float32 : options.precision;
}

class SinkhornRun {
 public:
  SinkhornRun(std::unique_ptr<EntropicOperator>& problem, OperatorFactory const& make, double mass,
              SolveOptions const& options)
      : problem_(problem),
        make_(make),
        options_(options),
        policy_(options, mass, problem->centred_cost_bound(), first_precision(options)) {
    report_.mass = mass;
    report_.eps = options.eps;
    report_.mean_cost = problem->mean_cost();
    report_.eps_relative = report_.mean_cost > 0 ? options.eps / report_.mean_cost : kNaN;
    if (!options.certificate) report_.transport_cost = report_.primal = report_.dual = report_.gap = kNaN;
  }

  Report run() {
    for (;;) {
      SinkhornStep const step = policy_.next();
      switch (step.action) {
        case SinkhornAction::sweep:
          sweep(step.sweep, step.count);
          break;
        case SinkhornAction::certify:
          certify();
          break;
        case SinkhornAction::refine:
          refine();
          break;
        case SinkhornAction::finish:
          finish(step.status);
          return std::move(report_);
      }
    }
  }

 private:
  void sweep(Sweep const& kind, int count) {
    problem_->sweep(kind, count);
    SweepErrors const errors = problem_->errors();
    policy_.swept(errors);
    Check const check{policy_.iterations(), kind.eps, (errors.row + errors.column) / report_.mass, kind.relaxation,
                      policy_.precision()};
    report_.history.push_back(check);
    if (!options_.progress) return;
    bool const go_on =
        options_.progress({check.iteration, check.eps, check.marginal_error, check.relaxation, watch_.seconds()});
    if (!go_on) policy_.stop();
  }

  void certify() {
    Stopwatch const watch;
    EntropicOperator* judge = problem_.get();
    if (policy_.precision() != Precision::float64) {
      // One pass: keeping scores would not pay.
      if (!judge_) judge_ = make_(Precision::float64, 0);
      copy_potentials(*problem_, *judge_);
      judge = judge_.get();
    }
    Evaluation const value = judge->evaluate(options_.eps);
    policy_.certified(value.row_error + value.column_error);
    report_.certified = true;
    report_.transport_cost = value.transport_cost;
    report_.primal = value.primal;
    report_.dual = value.dual;
    report_.gap = value.gap;
    report_.seconds.certificate += watch.seconds();
  }

  void refine() {
    judge_.reset();
    std::unique_ptr<EntropicOperator> twin = make_(Precision::float64, options_.cache_bytes);
    copy_potentials(*problem_, *twin);
    problem_ = std::move(twin);
    policy_.refined();
  }

  void finish(Status status) {
    report_.status = status;
    report_.iterations = policy_.iterations();
    report_.annealing_iterations = policy_.annealing_iterations();
    report_.refinement_iterations = policy_.refinement_iterations();
    report_.precision = policy_.precision();
    report_.marginal_error = policy_.marginal_error();
    report_.message = message(report_);
    report_.seconds.total = watch_.seconds();
    report_.seconds.sweeps = report_.seconds.total - report_.seconds.certificate;
  }

  std::unique_ptr<EntropicOperator>& problem_;
  OperatorFactory const& make_;
  std::unique_ptr<EntropicOperator> judge_;  // The float64 twin of a problem of less precision.
  SolveOptions const& options_;
  SinkhornPolicy policy_;
  Stopwatch watch_;
  Report report_;
};

}  // namespace

Plan solve(Context const& context, Geometry const& geometry, VectorView a, VectorView b, SolveOptions const& options) {
  Stopwatch const watch;
  validate(options);
  validate(geometry, context.device());
  Backend const& backend = backend_of(context);
  Shape const shape = shape_of(geometry);
  ValidMarginals const marginals = validated_marginals(backend, a, b, shape.rows, shape.columns, options.tolerance);
  auto const make = [&](Precision precision, double cache_bytes) {
    return backend.entropic_operator(geometry, marginals, {precision, cache_bytes});
  };
  std::unique_ptr<EntropicOperator> problem = make(first_precision(options), options.cache_bytes);
  if (!options.f.empty()) {
    validate_potential("f", backend, options.f, shape.rows);
    validate_potential("g", backend, options.g, shape.columns);
    problem->set_potentials(options.f, options.g);
  } else if (options.annealing == 1) {
    problem->set_potentials({}, {});
  }
  if (!std::isfinite(problem->centred_cost_bound()))
    throw Error(ErrorCode::invalid_argument,
                "x, y: the squared distances overflow; the points must lie closer together");
  double const setup = watch.seconds();
  Report report = SinkhornRun(problem, make, marginals.mass, with_eps(options, problem->mean_cost())).run();
  report.seconds.setup = setup;
  report.seconds.total += setup;
  return Plan(std::make_unique<Plan::State>(
      Plan::State{context, problem->plan(report.eps), shape.dimension, std::move(report)}));
}

}  // namespace monge
