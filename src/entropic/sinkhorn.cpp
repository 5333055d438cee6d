#include "entropic/sinkhorn.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <monge/batch.hpp>
#include <monge/error.hpp>

#include "core/numbers.hpp"
#include "core/problem_error.hpp"
#include "core/stopwatch.hpp"
#include "entropic/sinkhorn_policy.hpp"
#include "geometry/point_cost.hpp"
#include "geometry/points.hpp"
#include "geometry/validation.hpp"
#include "plan/plan_state.hpp"
#include "second_order/newton.hpp"
#include "second_order/splr.hpp"

namespace monge {

namespace {

/// Whether the second half of the checks at the final eps has not even halved the error.
bool hardly_falls(Report const& report) {
  std::vector<Check> const& all = report.history;
  auto const first =
      std::find_if(all.rbegin(), all.rend(), [&](Check const& check) { return check.eps != report.eps; });
  auto const count = first - all.rbegin();
  return count > 1 && all.back().marginal_error > 0.5 * all.rbegin()[count / 2].marginal_error;
}

/// "1 sweep", "12 passes".
std::string passes_text(Report const& report) {
  bool const one = report.iterations == 1;
  return fmt::format("{} {}", report.iterations,
                     report.newton_steps > 0 ? (one ? "pass" : "passes") : (one ? "sweep" : "sweeps"));
}

/// Words that say which sweeps of a solve in precision auto were in float64, if any.
std::string float64_text(Report const& report) {
  if (report.refinement_iterations == 0) return {};
  return report.refinement_iterations == report.iterations
             ? ", in float64"
             : fmt::format(", the last {} in float64", report.refinement_iterations);
}

/// The criterion and its value.
std::string value_text(Criterion criterion, double value) {
  switch (criterion) {
    case Criterion::l1:
      break;
    case Criterion::gradient:
      return fmt::format("gradient norm {:.2e} of the mass", value);
    case Criterion::gap:
      return fmt::format("gap {:.2e} of the value", value);
  }
  return fmt::format("marginal error {:.2e} of the mass", value);
}

/// The marginal error counts no point without mass: one of weight 0, or one that an unbalanced problem leaves out. Such
/// points have averages and maps, too.
std::string rounding_text(SinkhornProblem const& problem, double rounding) {
  constexpr double kSmall = 1e-2;
  auto const has_idle = [](std::vector<double> const& weight) {
    return std::find(weight.begin(), weight.end(), 0.0) != weight.end();
  };
  bool const counts_all =
      penalties_of(problem.options).balanced() && !has_idle(problem.marginals.a) && !has_idle(problem.marginals.b);
  if (problem.report.precision == Precision::float64 || counts_all || rounding <= kSmall) return {};
  return fmt::format("; averages and maps at points without mass may be off by {:.0e}, unless precision is float64",
                     std::min(rounding, 1.0));
}

/// One sentence about a report that is otherwise complete. `value`: the criterion's; `annealing`: whether the caller
/// stopped the solve above its final eps; `rounding`: rounding_text().
std::string message(Report const& report, SolveOptions const& options, Geometry const& geometry, double value,
                    bool annealing, std::string const& rounding) {
  std::string const passes = passes_text(report), reached = value_text(options.criterion, value);
  switch (report.status) {
    case Status::stopped:
      return fmt::format("stopped by the caller after {}{}", passes, annealing ? ", while annealing" : "");
    case Status::completed:
      if (options.method == Method::newton || options.method == Method::splr)
        return fmt::format("ran {} {}, in {}; {}", report.newton_steps, report.newton_steps == 1 ? "step" : "steps",
                           passes, reached);
      return fmt::format("ran {} as asked; {}", passes, reached);
    case Status::converged:
      return fmt::format("converged after {}{}; {}{}", passes, float64_text(report), reached, rounding);
    case Status::precision_limit:
      if (!std::isfinite(report.marginal_error))
        return fmt::format("the plan is beyond what {} holds; eps must be larger{}", name(report.precision),
                           penalties_of(options).balanced() ? "" : ", or the penalties smaller");
      return fmt::format("{} is as far as {} goes at this eps; {}", reached, name(report.precision),
                         report.precision == Precision::tf32      ? "precision float32 or float64 gets further"
                         : report.precision == Precision::float32 ? "precision float64 gets further"
                                                                  : "a larger eps or tolerance is needed");
    case Status::iteration_limit:
      return fmt::format(
          "{} after {} is above the tolerance{} more iterations or a larger eps would help", reached, passes,
          std::holds_alternative<CostMatrix>(geometry) && hardly_falls(report)
              ? " and hardly falls; where costs of inf forbid pairs there may be no plan with these a and b, else"
              : ";");
  }
  return {};
}

/// The size of potentials that turn one total into the other: rho_a rho_b / (rho_a + rho_b) times the logarithm of the
/// totals' ratio (docs/math.md, section 10).
double level(ValidMarginals const& marginals, Penalties const& penalties) {
  if (penalties.balanced()) return 0;
  return std::abs(std::log(marginals.total_a / marginals.total_b)) / (1 / penalties.a + 1 / penalties.b);
}

/// Whether float32 has all digits of these costs and, for points, of the squares of their distances.
bool fits_float32(Geometry const& geometry, double bound) {
  constexpr double kLeast = 0x1p-100;  // The least normal number over the unit roundoff, with some bits to spare.
  auto const* const clouds = std::get_if<PointCloud>(&geometry);
  if (clouds == nullptr) return bound == 0 || bound >= kLeast;
  double const size = bound / clouds->scale;
  return (has_products(clouds->cost_function) ? size : size * size) >= kLeast;
}

/// Moves (f', g') by constants to equal means: large constants would leave few digits to the rest. The sum of both
/// means stays if it may be the dual value of a plan, and becomes 0 otherwise.
void centre(EntropicOperator& entropic, Marginals const& marginals) {
  VectorOperations const& vectors = entropic.vectors();
  std::span const sides(kSides, entropic.is_self() ? 1 : 2);  // A self problem has f = g.
  double mean[2];
  for (Side const side : sides) {
    std::vector<double> const& weight = side == Side::rows ? marginals.a : marginals.b;
    std::unique_ptr<Vector> const weights = vectors.make(side);
    vectors.read(weight, *weights);
    mean[static_cast<int>(side)] = vectors.dot(*weights, std::as_const(entropic).potential(side)) /
                                   std::accumulate(weight.begin(), weight.end(), 0.0);
  }
  if (entropic.is_self()) mean[1] = mean[0];
  double const sum = mean[0] + mean[1];
  double const middle = std::abs(sum) <= 2 * entropic.cost_size().centred_bound ? sum / 2 : 0;
  for (Side const side : sides) {
    Vector& potential = entropic.potential(side);
    vectors.combine({{1, &potential}, {middle - mean[static_cast<int>(side)], nullptr}}, potential);
  }
  if (entropic.is_self()) vectors.copy(entropic.potential(Side::rows), entropic.potential(Side::columns));
}

/// One problem during a solve: asks its policy for actions, tells it the outcomes, and keeps report and clock.
class SinkhornRun {
 public:
  SinkhornRun(Backend const& backend, SinkhornProblem& problem, int index)
      : problem_(problem),
        index_(index),
        policy_(problem.options, problem.marginals.mass(), problem.entropic->cost_size().centred_bound,
                level(problem.marginals, penalties_of(problem.options)),
                backend.pass_times(problem.geometry, problem.options.cache_bytes), first_precision(problem.options),
                !problem.start.f.empty(), problem.entropic->is_self()) {}

  SinkhornStep const& next() const { return policy_.next(); }
  EntropicOperator& entropic() const { return *problem_.entropic; }
  SolveOptions const& options() const { return problem_.options; }
  /// The input of a float64 twin.
  OperatorInput twin(double cache_bytes) const {
    return {
        problem_.geometry, problem_.marginals, {Precision::float64, cache_bytes, penalties_of(options())}, &entropic()};
  }

  void swept(SweepErrors const& errors) {
    Sweep const kind = next().sweep;
    policy_.swept(errors);
    record(kind, errors.row + errors.column, errors.gradient_norm);
  }

  /// Runs SPLR to its end.
  void splr() {
    SinkhornStep const taken = next();
    double const mass = problem_.marginals.mass();
    bool const runs_all = options().tolerance == 0;
    constexpr int kAny = std::numeric_limits<int>::max();
    SplrLimits const limits{.tolerance = options().tolerance,
                            .passes = runs_all ? kAny : taken.count,
                            .observe =
                                [&](SplrCheck const& check) {
                                  return record({check.passes, taken.sweep.eps, check.l1_error, 1, Precision::float64,
                                                 check.l2_error, watch_.seconds()});
                                },
                            .criterion = options().criterion,
                            .iterations = runs_all ? taken.count : kAny};
    SplrResult const result = run_splr(entropic(), problem_.marginals, taken.sweep.eps, options().splr, limits);
    policy_.ended(result.status, result.last.iteration, result.last.passes, result.last.l1_error * mass);
  }

  /// Uses the operator alone; stepped() follows.
  NewtonProgress newton_step() {
    if (!newton_)
      newton_ =
          std::make_unique<NewtonMethod>(entropic(), problem_.marginals, penalties_of(options()), options().criterion);
    return newton_->advance(next().sweep.eps, next().count);
  }
  void recentre() const {
    if (penalties_of(options()).balanced()) centre(entropic(), problem_.marginals);
  }
  void stepped(NewtonProgress const& progress) {
    Sweep const kind = next().sweep;
    policy_.stepped(progress);
    record(kind, progress.error, progress.gradient_norm);
    if (policy_.is_short() && options().tolerance > 0) policy_.returned(newton_->return_to_best());
  }

  /// Whether certificates need a float64 twin that does not exist yet.
  bool lacks_judge() const { return policy_.precision() != Precision::float64 && !judge_; }
  void set_judge(std::unique_ptr<EntropicOperator> judge) { judge_ = std::move(judge); }
  EvaluationStep evaluation() const { return {judge_ ? judge_.get() : &entropic(), &entropic(), options().eps}; }
  void certified(Evaluation value, double seconds) {
    value_loss_ = restore_digits(value, options().eps, report().mean_cost, report().mass * report().mass_b,
                                 entropic().cost_size().forbidden);
    problem_.dual_terms = value.dual_of_rows + value.dual_of_columns - options().eps * value.mass;
    policy_.certified(value);
    report().certified = true;
    report().gradient_norm = value.gradient_norm;
    report().transported_mass = value.mass;
    report().transport_cost = value.transport_cost;
    report().primal = value.primal;
    report().dual = value.dual;
    report().gap = value.gap;
    report().seconds.certificate += seconds;
    // A self problem has f = g.
    if (options().tolerance > 0 && penalties_of(options()).balanced() && !entropic().is_self())
      problem_.translation = (value.dual_of_columns - value.dual_of_rows) / (2 * problem_.marginals.total_a);
  }

  /// The sweeps go on with `twin`, in float64.
  void refined(std::unique_ptr<EntropicOperator> twin) {
    copy_potentials(entropic(), *twin);
    if (problem_.keeps_first) problem_.first = std::move(problem_.entropic);
    problem_.entropic = std::move(twin);
    newton_.reset();
    judge_.reset();
    policy_.refined();
  }

  void finish() {
    report().status = next().status;
    report().iterations = policy_.iterations();
    report().annealing_iterations = policy_.annealing_iterations();
    report().refinement_iterations = policy_.refinement_iterations();
    report().newton_steps = policy_.newton_steps();
    report().newton_iterations = policy_.newton_iterations();
    report().precision = policy_.precision();
    report().marginal_error = policy_.marginal_error();
    report().message = message(report(), options(), problem_.geometry, policy_.value(), stopped_at_ > options().eps,
                               rounding_text(problem_, policy_.entry_rounding(entropic().cost_size().bound_of_all)));
    // Plans have their digits: they need the potentials beside eps. So have values without forbidden pairs.
    if (double const rounding = policy_.potential_rounding(); rounding > 1e-3)
      report().message += fmt::format("; beside this eps the potentials are rounded to {:.0e} of the costs", rounding);
    if (value_loss_ > 1e-3 * std::abs(report().primal))
      report().message +=
          fmt::format("; beside this eps, forbidden pairs leave the values an error of about {:.0e}", value_loss_);
    report().seconds.total = watch_.seconds();
    report().seconds.sweeps = report().seconds.total - report().seconds.certificate;
    judge_.reset();
    newton_.reset();
  }

 private:
  Report& report() const { return problem_.report; }

  Potentials potentials() const {
    auto const sized = [&](Side side) { return std::vector<double>(to_size(entropic().size(side))); };
    Potentials present{sized(Side::rows), sized(Side::columns)};
    entropic().get_potentials(present.f, present.g);
    return present;
  }

  /// Returns false if the caller wants to stop.
  bool record(Check const& check) {
    report().history.push_back(check);
    if (!options().progress || stopped_at_) return true;
    bool const go_on = options().progress({check.iteration, check.eps, check.marginal_error, check.relaxation,
                                           check.seconds, index_, [this] { return potentials(); }});
    if (!go_on) stopped_at_ = check.eps;
    return go_on;
  }
  void record(Sweep const& kind, double error, double gradient_norm) {
    double const mass = problem_.marginals.mass();
    if (!record({policy_.iterations(), kind.eps, error / mass, kind.relaxation, policy_.precision(),
                 gradient_norm / mass, watch_.seconds()}))
      policy_.stop();
  }

  SinkhornProblem& problem_;
  int index_;
  std::unique_ptr<EntropicOperator> judge_;  // Float64 twin that evaluates certificates of less precise sweeps.
  std::unique_ptr<NewtonMethod> newton_;
  SinkhornPolicy policy_;
  double value_loss_ = 0;             // Of restore_digits().
  std::optional<double> stopped_at_;  // eps of the check at which the caller stopped the solve.
  Stopwatch watch_;
};

using Runs = std::vector<SinkhornRun*>;

Runs waiting_for(SinkhornAction action, Runs const& runs) {
  Runs found;
  std::copy_if(runs.begin(), runs.end(), std::back_inserter(found),
               [&](SinkhornRun const* run) { return run->next().action == action; });
  return found;
}

void sweep(Sweeper& sweeper, Runs const& runs) {
  if (runs.empty()) return;
  std::vector<SweepStep> steps;
  for (SinkhornRun const* run : runs) {
    if (run->next().recentres) run->recentre();
    steps.push_back({&run->entropic(), run->next().sweep, run->next().count});
  }
  sweeper.sweep(steps);
  for (std::size_t k = 0; k < runs.size(); ++k) runs[k]->swept(steps[k].errors);
}

void step(Backend const& backend, Runs const& runs) {
  if (runs.empty()) return;
  std::vector<ProblemSize> sizes;
  for (SinkhornRun const* run : runs)
    sizes.push_back({run->entropic().size(Side::rows), run->entropic().size(Side::columns)});
  std::vector<NewtonProgress> progress(runs.size());
  backend.for_each_step(sizes, [&](std::size_t k) { progress[k] = runs[k]->newton_step(); });
  for (std::size_t k = 0; k < runs.size(); ++k) runs[k]->stepped(progress[k]);
}

void certify(Backend const& backend, Runs const& runs) {
  if (runs.empty()) return;
  Stopwatch const watch;
  Runs lacking;
  std::vector<OperatorInput> inputs;
  for (SinkhornRun* run : runs) {
    if (!run->lacks_judge()) continue;
    lacking.push_back(run);
    inputs.push_back(run->twin(0));  // One pass: keeping scores would not pay.
  }
  std::vector<std::unique_ptr<EntropicOperator>> judges = backend.entropic_operators(inputs);
  for (std::size_t k = 0; k < lacking.size(); ++k) lacking[k]->set_judge(std::move(judges[k]));
  std::vector<EvaluationStep> steps;
  for (SinkhornRun const* run : runs) steps.push_back(run->evaluation());
  backend.evaluate(steps);
  double const seconds = watch.seconds();
  for (std::size_t k = 0; k < runs.size(); ++k) runs[k]->certified(steps[k].value, seconds);
}

void refine(Backend const& backend, Runs const& runs) {
  if (runs.empty()) return;
  std::vector<OperatorInput> inputs;
  for (SinkhornRun const* run : runs) inputs.push_back(run->twin(run->options().cache_bytes));
  std::vector<std::unique_ptr<EntropicOperator>> twins = backend.entropic_operators(inputs);
  for (std::size_t k = 0; k < runs.size(); ++k) runs[k]->refined(std::move(twins[k]));
}

/// The plans of `given`: by a solve each if `solves`, otherwise of the potentials in `given`. Throws ProblemError.
std::vector<Plan> plans_of_all(Context const& context, std::span<BatchProblem const> given, SolveOptions const& options,
                               bool solves) {
  Stopwatch const watch;
  Backend const& backend = backend_of(context);
  MemoryPeak const memory(backend.memory());
  std::vector<SinkhornProblem> problems;
  std::vector<OperatorInput> inputs;
  problems.reserve(given.size());
  for_each_problem(given.size(), [&](std::size_t i) {
    require(solves || !(given[i].f.empty() || given[i].g.empty()),
            "{}: is missing; a plan of potentials needs both f and g", given[i].f.empty() ? "f" : "g");
    problems.push_back(checked_problem(context, given[i], options));
    inputs.push_back({problems[i].geometry, problems[i].marginals, first_operator(options)});
  });
  std::vector<std::unique_ptr<EntropicOperator>> operators = backend.entropic_operators(inputs);
  for_each_problem(given.size(), [&](std::size_t i) {
    problems[i].entropic = std::move(operators[i]);
    if (solves) keep_potentials_equal(backend, problems[i]);
    begin(backend, problems[i], solves);
  });
  double const setup = watch.seconds();
  solves ? run_sinkhorn(backend, problems) : keep_potentials(problems);
  return finished_plans(context, problems, setup, memory);
}

/// The inputs of a call in step.
auto inputs_of(std::span<BatchProblem const> problems, SolveOptions const& options) {
  return [problems, &options](Digests& inputs) {
    add(inputs, options);
    for (BatchProblem const& problem : problems) {
      inputs.add(problem.geometry);
      inputs.add("a", problem.a);
      inputs.add("b", problem.b);
      inputs.add("f", problem.f);
      inputs.add("g", problem.g);
    }
  };
}

std::vector<Plan> batch_of_plans(Context const& context, std::span<BatchProblem const> problems,
                                 SolveOptions const& options, bool solves) {
  return in_step(context, solves ? "solve_batch" : "plans_of", inputs_of(problems, options), [&] {
    validate(options);
    require(options.f.empty() && options.g.empty(),
            "{}: is given in the options; must be given with the problems of a batch", options.f.empty() ? "g" : "f");
    try {
      return plans_of_all(context, problems, agreed(context, options), solves);
    } catch (ProblemError const& error) {
      throw Error(error.code(), fmt::format("problem {}: {}", error.index(), error.what()));
    }
  });
}

Plan single_plan(Context const& context, Geometry const& geometry, VectorView a, VectorView b,
                 SolveOptions const& options, bool solves) {
  BatchProblem const problem{geometry, a, b, options.f, options.g};
  return in_step(context, solves ? "solve" : "plan_of", inputs_of({&problem, 1}, options), [&] {
    validate(options);
    return std::move(plans_of_all(context, {&problem, 1}, agreed(context, options), solves)[0]);
  });
}

}  // namespace

void add(Digests& inputs, SolveOptions const& options) {
  visit_solve_options(options, inputs);
  inputs.add("progress", static_cast<bool>(options.progress));
}

SolveOptions agreed(Context const& context, SolveOptions options) {
  options.progress = agreed(context, std::move(options.progress));
  return options;
}

Precision first_precision(SolveOptions const& options) {
  if (options.precision != Precision::automatic) return options.precision;
  return options.method == Method::newton || options.method == Method::splr ? Precision::float64 : Precision::float32;
}

OperatorOptions first_operator(SolveOptions const& options) {
  return {first_precision(options), options.cache_bytes, penalties_of(options)};
}

bool meets_itself(SinkhornProblem const& problem) {
  auto const* const clouds = std::get_if<PointCloud>(&problem.geometry);
  return clouds != nullptr && problem.options.penalty_a == problem.options.penalty_b &&
         problem.marginals.a == problem.marginals.b && is_cloud_with_itself(*clouds);
}

void keep_potentials_equal(Backend const& backend, SinkhornProblem& problem) {
  if (problem.options.schedule != Schedule::symmetric || !meets_itself(problem)) return;
  if (!std::get<PointCloud>(problem.geometry).labels.empty()) return;  // Their costs may have no symmetry.
  OperatorInput input{problem.geometry, problem.marginals, first_operator(problem.options)};
  input.self = {problem.entropic.get(), Side::rows};
  problem.entropic = std::move(backend.entropic_operators({&input, 1})[0]);
}

SinkhornProblem checked_problem(Context const& context, BatchProblem const& problem, SolveOptions const& options) {
  validate(problem.geometry, context.device());
  Shape const shape = shape_of(problem.geometry);
  ValidMarginals const given = read_marginals(backend_of(context), {}, problem.a, problem.b, shape.rows, shape.columns);
  return checked_problem(context, problem, given, options);
}

SinkhornProblem checked_problem(Context const& context, BatchProblem const& problem, ValidMarginals const& given,
                                SolveOptions const& options) {
  SinkhornProblem result;
  result.geometry = problem.geometry;
  result.marginals = with_equal_totals(given, options);
  result.options = options;
  result.start = validated_warm_start(backend_of(context), problem.f, problem.g, result.marginals);
  return result;
}

void forget_potentials(EntropicOperator& entropic) {
  for (Side const side : kSides) entropic.vectors().combine({}, entropic.potential(side));
}

void begin(Backend const& backend, SinkhornProblem& problem, bool solves) {
  auto const* const clouds = std::get_if<PointCloud>(&problem.geometry);
  double mean_cost = problem.entropic->cost_size().mean;
  if (clouds != nullptr) require_no_overflow(clouds->cost_function, 0, mean_cost);
  double const bound = problem.entropic->cost_size().centred_bound;
  bool const fits = first_precision(problem.options) == Precision::float64 || problem.entropic->is_self() ||
                    fits_float32(problem.geometry, bound);
  auto const overflows = [&] { return !std::isfinite(problem.entropic->cost_size().centred_bound); };
  if ((overflows() || !fits) && problem.options.precision == Precision::automatic) {
    problem.options.precision = Precision::float64;
    problem.entropic = backend.entropic_operator(problem.geometry, problem.marginals, first_operator(problem.options));
  }
  if (clouds != nullptr && problem.options.precision == Precision::float64)
    require_no_overflow(problem.entropic->cost_size().centred_bound);
  require(!overflows(), "{}",
          clouds == nullptr
              ? "cost: the finite costs range over more than float32 arithmetic holds here; precision must be float64, "
                "or the costs and eps smaller by a common factor"
              : "x, y: the squared distances overflow float32; precision must be float64, or the points lie closer "
                "together");
  bool const lacks_digits =
      problem.options.certificate && problem.entropic->cost_size().centred_bound < kFewDigits * problem.options.eps;
  if (std::isnan(mean_cost) && clouds != nullptr && (problem.options.eps == 0 || lacks_digits))
    mean_cost = backend.mean_cost(*clouds, problem.marginals);
  problem.options = with_eps(problem.options, mean_cost);
  double const total_a = problem.marginals.total_a, total_b = problem.marginals.total_b;
  require(std::isfinite(total_a * total_b * std::max(1.0, problem.options.eps)),
          "a, b: the totals are {} and {}; their product, a term of the value, must be below {:.3g}, so divide all "
          "weights by a common factor",
          total_a, total_b, std::numeric_limits<double>::max() / std::max(1.0, problem.options.eps));
  if (!problem.start.f.empty()) {
    if (!solves) require_digits(problem.start, problem.marginals, problem.options.eps);
    problem.entropic->set_potentials(problem.start.f, problem.start.g);
    if (solves && problem.options.tolerance > 0 && penalties_of(problem.options).balanced())
      centre(*problem.entropic, problem.marginals);
  }

  Report& report = problem.report;
  report.eps = problem.options.eps;
  report.mean_cost = mean_cost;
  report.eps_relative = mean_cost > 0 ? report.eps / mean_cost : kNaN;
  report.precision = first_precision(problem.options);
  report.ranks = backend.ranks() ? backend.ranks()->size() : 1;
  report.penalty_a = problem.options.penalty_a;
  report.penalty_b = problem.options.penalty_b;
  report.mass = problem.marginals.total_a;
  report.mass_b = problem.marginals.total_b;
  report.transported_mass = report.transport_cost = report.marginal_error = kNaN;
  report.gradient_norm = report.primal = report.dual = report.gap = kNaN;
}

void run_sinkhorn(Backend const& backend, std::span<SinkhornProblem> problems) {
  std::vector<SinkhornRun> runs;
  runs.reserve(problems.size());
  Runs active;
  for (std::size_t i = 0; i < problems.size(); ++i) {
    if (problems[i].solved_by == nullptr)
      active.push_back(&runs.emplace_back(backend, problems[i], static_cast<int>(i)));
  }
  std::unique_ptr<Sweeper> const sweeper = backend.sweeper();
  while (!active.empty()) {
    sweep(*sweeper, waiting_for(SinkhornAction::sweep, active));
    step(backend, waiting_for(SinkhornAction::newton, active));
    for (SinkhornRun* run : waiting_for(SinkhornAction::splr, active)) run->splr();
    certify(backend, waiting_for(SinkhornAction::certify, active));
    refine(backend, waiting_for(SinkhornAction::refine, active));
    for (SinkhornRun* run : waiting_for(SinkhornAction::finish, active)) run->finish();
    std::erase_if(active, [](SinkhornRun const* run) { return run->next().action == SinkhornAction::finish; });
  }
}

void keep_potentials(std::span<SinkhornProblem> problems) {
  for (SinkhornProblem& problem : problems) {
    problem.report.status = Status::completed;
    problem.report.message = "the plan of given potentials";
  }
}

std::vector<Plan> finished_plans(Context const& context, std::span<SinkhornProblem> problems, double setup,
                                 MemoryPeak const& memory) {
  std::vector<PlanInput> ends;
  for (SinkhornProblem& problem : problems) {
    if (problem.solved_by != nullptr) problem.report = problem.solved_by->report;
    SinkhornProblem const& solved = problem.solved_by != nullptr ? *problem.solved_by : problem;
    ends.push_back(
        {solved.entropic.get(), solved.options.eps, std::isfinite(solved.translation) ? solved.translation : 0});
  }
  std::vector<std::unique_ptr<PlanOperator>> operators_of_plans = backend_of(context).plans(ends);
  std::vector<Plan> plans;
  plans.reserve(problems.size());
  for (std::size_t i = 0; i < problems.size(); ++i) {
    Report& report = problems[i].report;
    report.seconds.setup = setup;
    report.seconds.total += setup;
    report.peak_bytes = memory.bytes();
    auto const* const points = std::get_if<PointCloud>(&problems[i].geometry);
    plans.emplace_back(std::make_unique<Plan::State>(Plan::State{
        context, std::move(operators_of_plans[i]), shape_of(problems[i].geometry).dimension,
        points != nullptr && has_point_derivatives(points->cost_function), points != nullptr ? points->scale : kNaN,
        points != nullptr && !points->labels.empty() ? points->labels.weight : kNaN, penalties_of(problems[i].options),
        std::move(report)}));
  }
  return plans;
}

Plan solve(Context const& context, Geometry const& geometry, VectorView a, VectorView b, SolveOptions const& options) {
  return single_plan(context, geometry, a, b, options, true);
}

std::vector<Plan> solve_batch(Context const& context, std::span<BatchProblem const> problems,
                              SolveOptions const& options) {
  return batch_of_plans(context, problems, options, true);
}

Plan plan_of(Context const& context, Geometry const& geometry, VectorView a, VectorView b,
             SolveOptions const& options) {
  return single_plan(context, geometry, a, b, options, false);
}

std::vector<Plan> plans_of(Context const& context, std::span<BatchProblem const> problems,
                           SolveOptions const& options) {
  return batch_of_plans(context, problems, options, false);
}

}  // namespace monge
