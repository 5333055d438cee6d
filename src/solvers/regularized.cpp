#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include <monge/regularized.hpp>

#include "core/problem_error.hpp"
#include "core/require.hpp"
#include "core/stopwatch.hpp"
#include "solvers/quadratic_newton.hpp"
#include "solvers/regularized_run.hpp"
#include "solvers/regularized_state.hpp"
#include "solvers/splitting.hpp"

namespace monge {

RegularizedErrors RegularizedRun::errors_of(RegularizedValues const& values) const {
  double const primal = values.transport_cost + values.regularization;
  return {std::sqrt(values.residual_squares) / marginal_norm(),
          std::abs(primal - values.dual) / std::max(std::abs(primal), least_gap_unit(problem.precision))};
}

void RegularizedRun::report_values(RegularizedValues const& values) {
  CostScale const scale = found->scale();
  double const unit = scale.mass * scale.range, offset = scale.mass * scale.offset;
  report.mass = scale.mass;
  report.transported_mass = scale.mass * values.transported_mass;
  report.primal_residual = scale.mass * std::sqrt(values.residual_squares);
  report.marginal_error = scale.mass * values.residual_l1;
  report.transport_cost = unit * values.transport_cost + offset * values.transported_mass;
  report.regularization = unit * values.regularization;
  report.primal = report.transport_cost + report.regularization;
  report.dual = unit * values.dual + offset;
  report.gap =
      unit * (values.transport_cost + values.regularization - values.dual) + offset * (values.transported_mass - 1);
  report.nonzeros = values.nonzeros;
}

namespace {

std::vector<RegularizedPlan> solve_all(Context const& context, std::span<RegularizedProblem const> problems,
                                       RegularizedOptions const& options) {
  Stopwatch const watch;
  Backend const& backend = backend_of(context);
  std::vector<RegularizedRun> runs(problems.size());
  for_each_problem(problems.size(),
                   [&](std::size_t i) { runs[i].problem = checked_problem(context, problems[i], options); });

  std::vector<RegularizedRun*> splitting;
  std::vector<int> index;
  std::vector<RegularizedInput> inputs;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    RegularizedRun& run = runs[i];
    run.report.method = run.problem.method;
    run.report.precision = run.problem.precision;
    run.report.weight = run.problem.terms.quadratic;
    if (run.problem.method != RegularizedMethod::splitting) continue;
    splitting.push_back(&run);
    index.push_back(static_cast<int>(i));
    inputs.push_back(run.problem.input());
  }
  try {
    std::vector<std::unique_ptr<SplittingOperator>> operators = backend.splitting_operators(inputs);
    for (std::size_t k = 0; k < operators.size(); ++k) splitting[k]->found = std::move(operators[k]);
  } catch (ProblemError const& error) {
    throw ProblemError(static_cast<std::size_t>(index[error.index()]), error);
  }
  for_each_problem(runs.size(), [&](std::size_t i) {
    if (runs[i].problem.method == RegularizedMethod::newton)
      runs[i].found = backend.quadratic_operator(runs[i].problem.input());
  });
  double const setup = watch.seconds();
  run_splitting(backend, splitting, index, options);
  for_each_problem(runs.size(), [&](std::size_t i) {
    if (runs[i].problem.method == RegularizedMethod::newton) run_newton(runs[i], static_cast<int>(i), options);
  });

  std::vector<RegularizedPlan> plans;
  plans.reserve(runs.size());
  for (RegularizedRun& run : runs) {
    run.report.seconds.setup = setup;
    run.report.seconds.total += setup;
    plans.emplace_back(std::make_unique<RegularizedPlan::State>(
        RegularizedPlan::State{context, std::move(run.found), std::move(run.report)}));
  }
  return plans;
}

}  // namespace

RegularizedPlan solve_regularized(Context const& context, Geometry const& geometry, VectorView p, VectorView q,
                                  Regularizer const& regularizer, RegularizedOptions const& options) {
  validate(options);
  RegularizedProblem const problem{geometry, p, q, regularizer};
  return std::move(solve_all(context, {&problem, 1}, options)[0]);
}

std::vector<RegularizedPlan> solve_regularized_batch(Context const& context,
                                                     std::span<RegularizedProblem const> problems,
                                                     RegularizedOptions const& options) {
  validate(options);
  require(options.u.empty(), "u: is given in the options; a batch has no warm start");
  try {
    return solve_all(context, problems, options);
  } catch (ProblemError const& error) {
    throw Error(error.code(), fmt::format("problem {}: {}", error.index(), error.what()));
  }
}

}  // namespace monge
