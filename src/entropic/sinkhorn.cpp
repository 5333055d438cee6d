#include "entropic/sinkhorn.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <monge/batch.hpp>
#include <monge/error.hpp>

#include "core/numbers.hpp"
#include "core/problem_error.hpp"
#include "core/stopwatch.hpp"
#include "entropic/multiscale.hpp"
#include "entropic/policy/rounding.hpp"
#include "geometry/point_cost.hpp"
#include "geometry/points.hpp"
#include "geometry/validation.hpp"
#include "plan/plan_state.hpp"
#include "seam/values.hpp"

namespace monge {

namespace {

void use_float64(Backend const& backend, SinkhornProblem& problem) {
  problem.options.precision = Precision::float64;
  problem.entropic = backend.entropic_operator(problem.geometry, problem.marginals, first_operator(problem));
}

/// Gives costs that overflow float32, or lose digits there, an operator in float64 if the precision is automatic.
/// Throws if they overflow.
void choose_precision(Backend const& backend, SinkhornProblem& problem) {
  CostTerms const terms = terms_of(problem.geometry);
  auto const bound = [&] { return problem.entropic->cost_size().centred_bound; };
  bool const fits = first_precision(problem.options) == Precision::float64 || problem.entropic->is_self() ||
                    terms.fits_float32(bound());
  if ((!std::isfinite(bound()) || !fits) && problem.options.precision == Precision::automatic)
    use_float64(backend, problem);
  require_no_overflow(terms, bound(), problem.options.precision == Precision::float64);
}

/// Gives a problem that leaves out pairs an operator in float64, if the precision is automatic and float32 rounds
/// logits so coarsely that lists of tiles would miss mass.
void choose_precision_of_lists(Backend const& backend, SinkhornProblem& problem) {
  constexpr double kMostRounding = 0.5;  // The rounding error of a logit, in nats.
  double const logit = problem.entropic->cost_size().centred_bound / problem.options.eps;
  bool const rounds = unit_roundoff(Precision::float32) * logit > kMostRounding;
  if (problem.truncation > 0 && problem.options.precision == Precision::automatic && rounds)
    use_float64(backend, problem);
}

void require_finite_value(ValidMarginals const& marginals, double eps) {
  double const total_a = marginals.total_a, total_b = marginals.total_b;
  require(std::isfinite(total_a * total_b * std::max(1.0, eps)),
          "a, b: the totals are {} and {}; their product, a term of the value, must be below {:.3g}, so divide all "
          "weights by a common factor",
          total_a, total_b, std::numeric_limits<double>::max() / std::max(1.0, eps));
}

/// Sets the potentials that were given.
void set_start(SinkhornProblem& problem, bool solves) {
  if (!solves) require_digits(problem.start, problem.marginals, problem.options.eps);
  problem.entropic->set_potentials(problem.start.f, problem.start.g);
  if (solves && problem.options.tolerance > 0 && penalties_of(problem.options).balanced())
    centre(*problem.entropic, problem.marginals);
}

/// The report without the values of a solve.
Report first_report(Backend const& backend, SinkhornProblem const& problem, double mean_cost) {
  Report report;
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
  return report;
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
    problems.push_back(checked_problem(context, given[i], options, solves));
    inputs.push_back({problems[i].geometry, problems[i].marginals, first_operator(problems[i])});
  });
  std::vector<std::unique_ptr<EntropicOperator>> operators = backend.entropic_operators(inputs);
  for_each_problem(given.size(), [&](std::size_t i) {
    problems[i].entropic = std::move(operators[i]);
    if (solves) keep_potentials_equal(backend, problems[i]);
    begin(backend, problems[i], solves, static_cast<int>(i));
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

namespace {

/// The property of a problem that lets passes leave out no pairs; null: it has none.
char const* needs_all_pairs(Backend const& backend, Geometry const& geometry) {
  constexpr std::int64_t kMostOnDevice = 8;
  CostTerms const terms = terms_of(geometry);
  if (!terms.function) return "a cost matrix";
  if (terms.function != CostFunction::sqeuclidean) return "a cost function other than sqeuclidean";
  MatrixView const& label_cost = clouds_of(geometry).labels.cost;
  std::int64_t const features = shape_of(geometry).dimension + std::min(label_cost.rows(), label_cost.columns());
  if (backend.device().type != DeviceType::cpu && features > kMostOnDevice)
    return "more than 8 dimensions and classes of labels on a CUDA device";
  return backend.ranks() != nullptr ? "several ranks" : nullptr;
}

/// Whether `auto` leaves out pairs. Of many points in few dimensions it has been faster on all compact clouds tried
/// (bench/notes/multiscale.md).
bool leaves_out_pairs(Backend const& backend, Geometry const& geometry, SolveOptions const& options) {
  constexpr std::int64_t kMostDimensions = 3, kMostLabelledOnDevice = 2, kLeastPoints = 1000, kPointsOfLabel = 128;
  constexpr double kManyPairs = 1.6e7, kManyPairsOnDevice = 1.6e9, kManyLabelledPairsOnDevice = 2.5e9;
  Shape const shape = shape_of(geometry);
  bool const is_default = options.method == Method::automatic && options.schedule == Schedule::overrelaxed &&
                          options.annealing < 1 && options.certificate && options.tolerance > 0;
  auto const is_compact_cloud = [&](MatrixView points) {
    std::vector<std::vector<double>> copies;
    return is_compact(on_host(backend, points, copies), host_threads(backend));
  };
  bool const on_cpu = backend.device().type == DeviceType::cpu;
  bool const has_labels_on_device = !on_cpu && terms_of(geometry).has_labels();
  double const many = on_cpu ? kManyPairs : has_labels_on_device ? kManyLabelledPairsOnDevice : kManyPairsOnDevice;
  std::int64_t const least = std::min(shape.rows, shape.columns);
  auto const has_few_labels = [&] {
    MatrixView const& cost = clouds_of(geometry).labels.cost;
    return std::max(cost.rows(), cost.columns()) * kPointsOfLabel <= least;
  };
  return is_default && shape.dimension <= (has_labels_on_device ? kMostLabelledOnDevice : kMostDimensions) &&
         least >= kLeastPoints && static_cast<double>(shape.rows) * static_cast<double>(shape.columns) >= many &&
         needs_all_pairs(backend, geometry) == nullptr && has_few_labels() && is_compact_cloud(clouds_of(geometry).x) &&
         is_compact_cloud(clouds_of(geometry).y);
}

}  // namespace

double truncation_to(double tolerance) {
  // Each side may lack a twentieth of the tolerance, which the certificate adds to the error.
  constexpr double kPart = 20, kMost = 1e-2, kOfFixedSweeps = 1e-8;
  return tolerance > 0 ? std::min(tolerance, kMost) / kPart : kOfFixedSweeps;
}

double truncation_of(Backend const& backend, Geometry const& geometry, SolveOptions const& options) {
  bool const leaves_out = options.method == Method::multiscale || leaves_out_pairs(backend, geometry, options);
  return leaves_out ? truncation_to(options.tolerance) : 0;
}

OperatorOptions first_operator(SinkhornProblem const& problem) {
  SolveOptions const& options = problem.options;
  return {first_precision(options), options.cache_bytes, penalties_of(options), problem.truncation};
}

void require_method(Backend const& backend, Geometry const& geometry, SolveOptions const& options) {
  if (options.method != Method::multiscale) return;
  if (char const* const found = needs_all_pairs(backend, geometry))
    throw Error(ErrorCode::unsupported,
                fmt::format("method: is multiscale, given {}; must be auto, which takes all pairs: multiscale is for "
                            "squared distances of points, in one process{}",
                            found,
                            backend.device().type == DeviceType::cpu
                                ? ""
                                : ", on a GPU with at most 8 dimensions and label classes together"));
}

bool meets_itself(SinkhornProblem const& problem) {
  return problem.options.penalty_a == problem.options.penalty_b && problem.marginals.a == problem.marginals.b &&
         is_cloud_with_itself(problem.geometry);
}

void keep_potentials_equal(Backend const& backend, SinkhornProblem& problem) {
  if (problem.options.schedule != Schedule::symmetric || !meets_itself(problem)) return;
  if (terms_of(problem.geometry).has_labels()) return;  // Their costs may have no symmetry.
  OperatorInput input{problem.geometry, problem.marginals, first_operator(problem)};
  input.self = {problem.entropic.get(), Side::rows};
  problem.entropic = std::move(backend.entropic_operators({&input, 1})[0]);
}

SinkhornProblem checked_problem(Context const& context, BatchProblem const& problem, SolveOptions const& options,
                                bool solves) {
  validate(problem.geometry, context.device());
  Shape const shape = shape_of(problem.geometry);
  ValidMarginals const given = read_marginals(backend_of(context), problem.a, problem.b, shape);
  return checked_problem(context, problem, given, options, solves);
}

SinkhornProblem checked_problem(Context const& context, BatchProblem const& problem, ValidMarginals const& given,
                                SolveOptions const& options, bool solves) {
  require_method(backend_of(context), problem.geometry, options);
  SinkhornProblem result;
  result.geometry = problem.geometry;
  result.marginals = with_equal_totals(given, options);
  result.options = options;
  // The plan of given potentials has all pairs, unless the caller asks for less.
  if (solves || options.method != Method::automatic)
    result.truncation = truncation_of(backend_of(context), problem.geometry, options);
  result.start = validated_warm_start(backend_of(context), problem.f, problem.g, result.marginals);
  return result;
}

void centre(EntropicOperator& entropic, Marginals const& marginals) {
  VectorOperations const& vectors = entropic.vectors();
  std::span const sides(kSides, entropic.is_self() ? 1 : 2);  // A self problem has f = g.
  double mean[2] = {};
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

void forget_potentials(EntropicOperator& entropic) {
  for (Side const side : kSides) entropic.vectors().combine({}, entropic.potential(side));
}

void begin(Backend const& backend, SinkhornProblem& problem, bool solves, int index) {
  CostTerms const terms = terms_of(problem.geometry);
  double mean_cost = problem.entropic->cost_size().mean;
  if (terms.function) require_no_overflow(*terms.function, 0, mean_cost);
  choose_precision(backend, problem);
  bool const lacks_digits =
      problem.options.certificate && problem.entropic->cost_size().centred_bound < kFewDigits * problem.options.eps;
  if (std::isnan(mean_cost) && terms.function && (problem.options.eps == 0 || lacks_digits))
    mean_cost = backend.mean_cost(clouds_of(problem.geometry), problem.marginals);
  problem.options = with_eps(problem.options, mean_cost);
  require_finite_value(problem.marginals, problem.options.eps);
  choose_precision_of_lists(backend, problem);
  problem.report = first_report(backend, problem, mean_cost);
  if (!problem.start.f.empty()) {
    set_start(problem, solves);
  } else if (solves && problem.truncation > 0) {
    start_from_coarse(backend, problem, index);
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
  std::vector<PlanInput> ends, rough_ends;
  std::vector<std::size_t> refined;
  for (std::size_t i = 0; i < problems.size(); ++i) {
    SinkhornProblem& problem = problems[i];
    if (problem.solved_by != nullptr) problem.report = problem.solved_by->report;
    SinkhornProblem const& solved = problem.solved_by != nullptr ? *problem.solved_by : problem;
    ends.push_back(
        {solved.entropic.get(), solved.options.eps, std::isfinite(solved.translation) ? solved.translation : 0});
    if (!solved.first) continue;
    copy_potentials(*solved.entropic, *solved.first);
    rough_ends.push_back({solved.first.get(), ends.back().eps, ends.back().t});
    refined.push_back(i);
  }
  std::vector<std::unique_ptr<PlanOperator>> operators_of_plans = backend_of(context).plans(ends),
                                             rough_operators = backend_of(context).plans(rough_ends);
  std::vector<std::unique_ptr<PlanOperator>> rough(problems.size());
  for (std::size_t k = 0; k < refined.size(); ++k) rough[refined[k]] = std::move(rough_operators[k]);
  std::vector<Plan> plans;
  plans.reserve(problems.size());
  for (std::size_t i = 0; i < problems.size(); ++i) {
    Report& report = problems[i].report;
    report.seconds.setup = setup;
    report.seconds.total += setup;
    report.peak_bytes = memory.bytes();
    plans.emplace_back(std::make_unique<Plan::State>(Plan::State{
        context, std::move(operators_of_plans[i]), std::move(rough[i]), shape_of(problems[i].geometry).dimension,
        terms_of(problems[i].geometry), penalties_of(problems[i].options), std::move(report)}));
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
