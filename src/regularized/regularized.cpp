#include <algorithm>
#include <cmath>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <monge/regularized.hpp>

#include "core/numbers.hpp"
#include "core/problem_error.hpp"
#include "core/require.hpp"
#include "core/stopwatch.hpp"
#include "geometry/validation.hpp"
#include "regularized/quadratic_newton.hpp"
#include "regularized/regularized_run.hpp"
#include "regularized/regularized_state.hpp"
#include "regularized/splitting.hpp"

namespace monge {

RegularizedErrors RegularizedRun::errors_of(RegularizedValues const& values) const {
  double const primal = values.transport_cost + values.regularization;
  return {std::sqrt(values.residual_squares) / marginal_norm(),
          std::abs(primal - values.dual) /
              std::max(std::abs(primal), least_gap_unit(problem.precision) * costs->scale().gap_unit)};
}

std::string RegularizedRun::advice() const {
  CostScale const& scale = costs->scale();
  if (scale.gap_unit == 1) return {};
  return fmt::format("; costs are up to {:.1e} times those of other pairs: forbid by inf what no plan should use",
                     scale.most / scale.gap_unit);
}

void RegularizedRun::report_values(RegularizedValues const& values) {
  CostScale const& scale = costs->scale();
  double const unit = scale.mass * scale.range, offset = scale.mass * scale.offset;
  report.mass = scale.mass;
  report.transported_mass = scale.mass * values.transported_mass;
  report.primal_residual = scale.mass * std::sqrt(values.residual_squares);
  report.marginal_error = scale.mass * values.residual_l1;
  report.transport_cost = unit * values.transport_cost + offset * values.transported_mass;
  report.regularization = unit * values.regularization;
  report.primal = unit * (values.transport_cost + values.regularization) + offset;
  report.dual = unit * values.dual + offset;
  report.gap = unit * (values.transport_cost + values.regularization - values.dual);
  report.nonzeros = values.nonzeros;
}

namespace {

/// Rejects weights so large that squared slacks, or their divisors, would overflow.
void require_moderate_weights(RegularizerTerms const& terms, CostScale const& scale, Precision precision) {
  constexpr double kMost = 1e100;
  auto const require_at_most = [](char const* field, double weight, double most, char const* unit) {
    require(weight <= most, "{}: is {}; must be at most {}, 1e100 times {}", field, weight, most, unit);
  };
  require_at_most("quadratic", terms.quadratic, kMost * scale.range / scale.mass,
                  "the range of the costs over the mass");
  require_at_most("hypentropy", terms.hypentropy, kMost * scale.range, "the range of the costs");
  if (terms.hypentropy > 0) {
    Bounds const widths = widths_of(precision);
    require(widths.contains(scale.width(terms.hypentropy_width)),
            "hypentropy_width: is {}; must be from {} to {}, {:.0e} to {:.0e} times the mass, in {}",
            terms.hypentropy_width, scale.mass * widths.least, scale.mass * widths.most, widths.least, widths.most,
            name(precision));
  }
  if (terms.group_lasso > 0) {
    double const weight = *std::ranges::max_element(terms.group_weights);
    require_at_most("group_lasso", terms.group_lasso, weight > 0 ? kMost * scale.range / weight : kInfinity,
                    "the range of the costs over the largest of group_weights");
  }
}

/// If auto chose Newton's method and the weight is too small for it, the method becomes splitting.
void reconsider_method(RegularizedRun& run, RegularizedOptions const& options) {
  bool const may_split = options.method == RegularizedMethod::automatic && !shape_of(run.problem.geometry).has_points();
  double const weight = run.costs->scale().quadratic(run.problem.terms.quadratic);
  if (may_split && run.problem.method == RegularizedMethod::newton &&
      is_too_small(weight, *run.costs, options.tolerance))
    run.problem.method = RegularizedMethod::splitting;
}

/// Checks all problems, surveys their costs, solves those of each method together, and makes the plans.
std::vector<RegularizedPlan> solve_all(Context const& context, std::span<RegularizedProblem const> problems,
                                       RegularizedOptions const& options) {
  Stopwatch const watch;
  Backend const& backend = backend_of(context);
  MemoryPeak const memory(backend.memory());
  std::vector<RegularizedRun> runs(problems.size());
  auto const turn = std::make_shared<std::mutex>();
  for_each_problem(problems.size(),
                   [&](std::size_t i) { runs[i].problem = checked_problem(context, problems[i], options, turn); });

  std::vector<RegularizedInput> inputs;
  inputs.reserve(runs.size());
  for (RegularizedRun const& run : runs) inputs.push_back(run.problem.input());
  std::vector<std::shared_ptr<RegularizedCosts const>> costs = backend.regularized_costs(inputs);
  struct {
    std::vector<RegularizedRun*> runs;
    std::vector<int> index;
  } splitting, newton;
  std::vector<SplittingInput> of_splitting;
  for_each_problem(runs.size(), [&](std::size_t i) {
    RegularizedRun& run = runs[i];
    run.costs = std::move(costs[i]);
    if (run.problem.terms.separable) run.problem.terms.separable->set_range(run.costs->scale().range);
    reconsider_method(run, options);
    require_moderate_weights(run.problem.terms, run.costs->scale(), run.problem.precision);
    run.report.method = run.problem.method;
    run.report.precision = run.problem.precision;
    run.report.weight = run.problem.terms.quadratic;
    bool const splits = run.problem.method == RegularizedMethod::splitting;
    (splits ? splitting : newton).runs.push_back(&run);
    (splits ? splitting : newton).index.push_back(static_cast<int>(i));
    if (splits) {
      of_splitting.push_back({run.costs, run.problem.precision});
    } else {
      run.found = backend.quadratic_operator(run.costs);
    }
  });
  try {
    std::vector<std::unique_ptr<SplittingOperator>> operators = backend.splitting_operators(of_splitting);
    for (std::size_t k = 0; k < operators.size(); ++k) splitting.runs[k]->found = std::move(operators[k]);
  } catch (ProblemError const& error) {
    throw ProblemError(to_size(splitting.index[error.index()]), error);
  }
  double const setup = watch.seconds();
  run_splitting(backend, splitting.runs, splitting.index, options);
  run_newton(backend, newton.runs, newton.index, options);

  std::vector<RegularizedPlan> plans;
  plans.reserve(runs.size());
  for (RegularizedRun& run : runs) {
    require(std::isfinite(run.report.primal) || run.report.status != Status::converged,
            "p: totals {}, where the value is beyond float64; must be less, so divide all weights by a common factor",
            run.report.mass);
    run.report.seconds.setup = setup;
    run.report.seconds.total += setup;
    run.report.peak_bytes = memory.bytes();
    plans.emplace_back(std::make_unique<RegularizedPlan::State>(
        RegularizedPlan::State{context, std::move(run.found), std::move(run.report)}));
  }
  return plans;
}

/// The inputs of a call in step. No pass of it is shared, so its regularisers need not be compared.
auto inputs_of(std::span<RegularizedProblem const> problems, RegularizedOptions const& options) {
  return [problems, &options](Digests& inputs) {
    visit_regularized_options(options, inputs);
    inputs.add("progress", static_cast<bool>(options.progress));
    for (RegularizedProblem const& problem : problems) {
      inputs.add(problem.geometry);
      inputs.add("p", problem.p);
      inputs.add("q", problem.q);
    }
  };
}

RegularizedOptions agreed(Context const& context, RegularizedOptions options) {
  options.progress = monge::agreed(context, std::move(options.progress));
  return options;
}

}  // namespace

RegularizedPlan solve_regularized(Context const& context, Geometry const& geometry, VectorView p, VectorView q,
                                  Regularizer const& regularizer, RegularizedOptions const& options) {
  RegularizedProblem const problem{geometry, p, q, regularizer};
  return in_step(context, "solve_regularized", inputs_of({&problem, 1}, options), [&] {
    validate(options);
    return std::move(solve_all(context, {&problem, 1}, agreed(context, options))[0]);
  });
}

std::vector<RegularizedPlan> solve_regularized_batch(Context const& context,
                                                     std::span<RegularizedProblem const> problems,
                                                     RegularizedOptions const& options) {
  return in_step(context, "solve_regularized_batch", inputs_of(problems, options), [&] {
    validate(options);
    require(options.u.empty(), "u: is given in the options; a batch has no warm start");
    require(options.plan.rows() == 0, "plan: is given in the options; a batch has no warm start");
    try {
      return solve_all(context, problems, agreed(context, options));
    } catch (ProblemError const& error) {
      throw Error(error.code(), fmt::format("problem {}: {}", error.index(), error.what()));
    }
  });
}

}  // namespace monge
