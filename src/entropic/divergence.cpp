#include <monge/divergence.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <monge/error.hpp>

#include "core/numbers.hpp"
#include "core/overloaded.hpp"
#include "core/problem_error.hpp"
#include "core/stopwatch.hpp"
#include "entropic/sinkhorn.hpp"
#include "geometry/validation.hpp"
#include "plan/plan_state.hpp"

namespace monge {
namespace {

/// The geometries of OT(a, b), OT(a, a) and OT(b, b), in this order.
using Geometries = std::array<Geometry, 3>;

/// The tables of label costs that have been found to be symmetric, as a batch may share one.
using SymmetricTables = std::set<std::tuple<void const*, DataType, std::int64_t, std::int64_t>>;

/// Each cloud is compared to itself, so the cost of its labels must be symmetric.
void require_symmetric(Backend const& backend, MatrixView w, SymmetricTables& known) {
  require(w.rows() == w.columns(), "label_cost: is {} x {}; must be square, as each cloud meets itself", w.rows(),
          w.columns());
  if (!known.emplace(w.data(), w.type(), w.rows(), w.row_stride()).second) return;
  std::vector<double> const entries = backend.read(w);
  auto const at = [&](std::int64_t i, std::int64_t j) { return entries[to_size(i * w.columns() + j)]; };
  for (std::int64_t i = 0; i < w.rows(); ++i) {
    for (std::int64_t j = 0; j < i; ++j) {
      require(!(at(i, j) < at(j, i)) && !(at(i, j) > at(j, i)),  // NaN is refused with the other costs.
              "label_cost: row {}, column {} is {} and row {}, column {} is {}; must be symmetric, as each cloud "
              "meets itself",
              i, j, at(i, j), j, i, at(j, i));
    }
  }
}

constexpr char const* kParts[] = {"xy", "xx", "yy"};  // Names in messages about cost matrices.
constexpr PotentialNames kPotentials[] = {{"f", "g"}, {"f_aa", "g_aa"}, {"f_bb", "g_bb"}};

PotentialViews const& potentials_of(DivergenceProblem const& problem, std::size_t part) {
  return part == 0 ? problem.ab : part == 1 ? problem.aa : problem.bb;
}

Geometries geometries_of(Context const& context, DivergenceProblem const& problem, SymmetricTables& known) {
  if (auto const* const costs = std::get_if<DivergenceCosts>(&problem.costs)) return {costs->xy, costs->xx, costs->yy};
  PointCloud const& clouds = std::get<PointCloud>(problem.costs);
  validate(clouds, context.device());
  if (!clouds.labels.empty()) require_symmetric(backend_of(context), clouds.labels.cost, known);
  PointCloud xx = clouds, yy = clouds;
  xx.y = clouds.x;
  xx.labels.y = clouds.labels.x;
  yy.x = clouds.y;
  yy.labels.x = clouds.labels.y;
  return {clouds, xx, yy};
}

/// Whether each point can stay in place at a cost of about 0, at most eps: averaged sweeps then are fast (docs/math.md,
/// section 14).
bool stays_in_place(Backend const& backend, Geometry const& geometry, double eps) {
  if (shape_of(geometry).has_points()) return true;
  MatrixView const cost = matrix_of(geometry).cost;
  VectorView const diagonal(cost.data(), cost.type(), cost.rows(), cost.row_stride() + 1, cost.device());
  std::vector<double> const stay = backend.read(diagonal);
  return std::all_of(stay.begin(), stay.end(), [&](double c) { return std::abs(c) <= eps; });
}

/// The problem of one side of `ab` and itself, at the same eps.
SinkhornProblem self_problem(Context const& context, SinkhornProblem const& ab, Side side, Geometry const& geometry,
                             PotentialViews const& start) {
  validate(geometry, context.device());
  ValidMarginals const& marginals = ab.marginals;
  bool const rows = side == Side::rows;
  std::vector<double> const& weight = rows ? marginals.a : marginals.b;
  double const total = rows ? marginals.total_a : marginals.total_b;
  std::int64_t const size = static_cast<std::int64_t>(weight.size());
  Shape const shape = shape_of(geometry);
  require(shape.rows == size && shape.columns == size, "cost: is {} x {}; must be {} x {}", shape.rows, shape.columns,
          size, size);
  SinkhornProblem problem;
  problem.geometry = geometry;
  problem.marginals = {{weight, weight}, total, total};
  problem.options = ab.options;
  problem.truncation = ab.truncation;
  problem.start =
      validated_warm_start(backend_of(context), start.f, start.g, problem.marginals, kPotentials[rows ? 1 : 2]);
  if (stays_in_place(backend_of(context), geometry, problem.options.eps)) {
    problem.options.schedule = Schedule::symmetric;
    problem.options.method = Method::sinkhorn;
  }
  return problem;
}

/// A divergence has three parts, OT(a, b), OT(a, a) and OT(b, b). The parts of divergence k of `count` are the problems
/// k, count + 2 k and count + 2 k + 1. The self terms, which are solved first, are contiguous.
struct Part {
  std::size_t divergence, part;
};
Part part_of(std::size_t problem, std::size_t count) {
  return problem < count ? Part{problem, 0} : Part{(problem - count) / 2, 1 + (problem - count) % 2};
}

/// Throws ProblemError. `stopped`: of each divergence, whether the caller has stopped one of its parts, which stops the
/// others. It outlives the problems.
std::vector<SinkhornProblem> prepared_problems(Context const& context, std::span<DivergenceProblem const> given,
                                               SolveOptions const& options, bool solves, std::vector<char>& stopped) {
  Backend const& backend = backend_of(context);
  std::size_t const count = given.size();
  std::vector<Geometries> geometries;
  SymmetricTables known;
  std::vector<SinkhornProblem> problems;
  problems.reserve(3 * count);
  auto const add = [&](std::size_t k) {
    auto const [divergence, part] = part_of(k, count);
    DivergenceProblem const& problem = given[divergence];
    PotentialViews const& start = potentials_of(problem, part);
    require(solves || !(start.f.empty() || start.g.empty()),
            "{}: is missing; a plan of potentials needs both {} and {}",
            start.f.empty() ? kPotentials[part].f : kPotentials[part].g, kPotentials[part].f, kPotentials[part].g);
    if (part == 0) geometries.push_back(geometries_of(context, problem, known));
    Geometry const& geometry = geometries[divergence][part];
    problems.push_back(
        part == 0
            ? checked_problem(context, {geometry, problem.a, problem.b, start.f, start.g}, options, solves)
            : self_problem(context, problems[divergence], part == 1 ? Side::rows : Side::columns, geometry, start));
    if (options.progress) {
      problems.back().options.progress = [&options, &stop = stopped[divergence],
                                          index = static_cast<int>(3 * divergence + part)](Progress progress) {
        progress.problem = index;
        if (!stop && !options.progress(progress)) stop = 1;
        return !stop;
      };
    }
    if (!solves)
      problems.back().options.precision = start.precision == Precision::automatic ? options.precision : start.precision;
  };
  // The operators of the self terms share the packed points of OT(a, b).
  for (auto const& [first, end] : {std::pair{std::size_t{0}, count}, std::pair{count, 3 * count}}) {
    std::vector<OperatorInput> inputs;
    auto const for_each = [&, first = first, end = end](auto const& work) {
      try {
        for_each_problem(end - first, [&, first](std::size_t i) { work(first + i); });
      } catch (ProblemError const& error) {
        throw ProblemError(first + error.index(), error);
      }
    };
    for_each(add);
    for (std::size_t k = first; k < end; ++k) {
      SinkhornProblem const& problem = problems[k];
      inputs.push_back({problem.geometry, problem.marginals, first_operator(problem)});
      auto const [divergence, part] = part_of(k, count);
      SinkhornProblem const& ab = problems[divergence];
      // By method newton OT(a, b) begins in float64, the self terms in float32. Plans alone may differ in any way.
      if (part > 0 && shape_of(problem.geometry).has_points() &&
          first_precision(problem.options) == first_precision(ab.options))
        inputs.back().self = {ab.entropic.get(), part == 1 ? Side::rows : Side::columns};
    }
    std::vector<std::unique_ptr<EntropicOperator>> operators;
    try {
      operators = backend.entropic_operators(inputs);
    } catch (ProblemError const& error) {
      throw ProblemError(first + error.index(), error);
    }
    for_each([&, first = first](std::size_t k) {
      problems[k].entropic = std::move(operators[k - first]);
      begin(backend, problems[k], solves);
    });
  }
  for (std::size_t k = 0; k < count && solves; ++k) {
    if (meets_itself(problems[k]))
      problems[k].solved_by = problems[count + 2 * k + 1].solved_by = &problems[count + 2 * k];
  }
  return problems;
}

/// Starts `ab` from the potentials of the two self problems. Operators centre each cloud: if one cloud is a translation
/// of the other, the start is the solution.
void start_from(SinkhornProblem const& aa, SinkhornProblem const& bb, EntropicOperator& ab) {
  for (Side const side : kSides) {
    EntropicOperator const& self = side == Side::rows ? *aa.entropic : *bb.entropic;
    Term const all{1, &self.potential(side)};
    ab.vectors().combine({&all, 1}, ab.potential(side));
  }
}

/// The divergences, solved if `solves`, else of the given potentials. Throws ProblemError, whose index is that of
/// part_of().
std::vector<Divergence> divergences(Context const& context, std::span<DivergenceProblem const> given,
                                    SolveOptions const& options, bool solves) {
  Stopwatch const watch;
  Backend const& backend = backend_of(context);
  MemoryPeak const memory(backend.memory());
  validate(options);
  require(options.penalty_a == options.penalty_b,
          "penalty_b: is {}; must be {} as penalty_a is, as each measure meets itself", options.penalty_b,
          options.penalty_a);
  require(options.method != Method::splr,
          "method: is {}; must be auto, sinkhorn, newton or multiscale for a divergence", name(options.method));
  require(options.f.empty() && options.g.empty(), "{}: is given in the options; must be given with the problem",
          options.f.empty() ? "g" : "f");
  std::size_t const count = given.size();
  std::vector<char> stopped(count);
  std::vector<SinkhornProblem> problems = prepared_problems(context, given, options, solves, stopped);
  double const setup = watch.seconds();
  std::span const all(problems);
  if (solves) {
    run_sinkhorn(backend, all.subspan(count));
    for (std::size_t k = 0; k < count; ++k) {
      if (all[k].solved_by == nullptr && all[k].start.f.empty() && all[k].truncation == 0)
        start_from(all[count + 2 * k], all[count + 2 * k + 1], *all[k].entropic);
    }
    run_sinkhorn(backend, all.first(count));
  } else {
    keep_potentials(all);
  }

  std::vector<Plan> plans = finished_plans(context, problems, setup, memory);
  auto const dual_terms = [&](std::size_t i) {
    return (problems[i].solved_by != nullptr ? problems[i].solved_by : &problems[i])->dual_terms;
  };
  std::vector<Divergence> results;
  results.reserve(count);
  for (std::size_t k = 0; k < count; ++k) {
    Plan &ab = plans[k], &aa = plans[count + 2 * k], &bb = plans[count + 2 * k + 1];
    Report const &cross = ab.report(), &first = aa.report(), &second = bb.report();
    double const excess = cross.mass - cross.mass_b;
    // The terms eps sum a sum b add up to 0 with the last one. Left out, they cost no digits where totals are large.
    // Totals near 1 need them: restore_digits() may have given digits to whole dual values.
    double const terms = dual_terms(k) - dual_terms(count + 2 * k) / 2 - dual_terms(count + 2 * k + 1) / 2;
    double const whole = cross.dual - first.dual / 2 - second.dual / 2 + cross.eps / 2 * excess * excess;
    results.push_back({.value = std::max(cross.mass, cross.mass_b) > 2 ? terms : whole,
                       .gap = std::abs(cross.gap) + (std::abs(first.gap) + std::abs(second.gap)) / 2,
                       .ab = std::move(ab),
                       .aa = std::move(aa),
                       .bb = std::move(bb)});
  }
  return results;
}

/// An error's message with the number of the problem, if `numbered`, and with the name of a cost matrix.
[[noreturn]] void throw_named(ProblemError const& error, std::span<DivergenceProblem const> given, bool numbered) {
  auto const [divergence, part] = part_of(error.index(), given.size());
  bool const of_points = std::holds_alternative<PointCloud>(given[divergence].costs);
  throw Error(error.code(), fmt::format("{}{}{}", numbered ? fmt::format("problem {}: ", divergence) : "",
                                        of_points ? "" : fmt::format("{}: ", kParts[part]), error.what()));
}

/// The inputs of a call in step.
auto inputs_of(std::span<DivergenceProblem const> problems, SolveOptions const& options) {
  return [problems, &options](Digests& inputs) {
    add(inputs, options);
    for (DivergenceProblem const& problem : problems) {
      std::visit(Overloaded{[&](PointCloud const& clouds) { inputs.add(clouds); },
                            [&](DivergenceCosts const& costs) {
                              for (CostMatrix const& matrix : {costs.xy, costs.xx, costs.yy}) inputs.add(matrix);
                            }},
                 problem.costs);
      inputs.add("a", problem.a);
      inputs.add("b", problem.b);
      for (std::size_t part = 0; part < 3; ++part) {
        inputs.add(kPotentials[part].f, potentials_of(problem, part).f);
        inputs.add(kPotentials[part].g, potentials_of(problem, part).g);
      }
    }
  };
}

Divergence single(Context const& context, DivergenceProblem const& problem, SolveOptions const& options, bool solves) {
  std::span const given(&problem, 1);
  return in_step(context, solves ? "sinkhorn_divergence" : "divergence_of", inputs_of(given, options), [&] {
    try {
      return std::move(divergences(context, given, agreed(context, options), solves)[0]);
    } catch (ProblemError const& error) {
      throw_named(error, given, false);
    }
  });
}

std::vector<Divergence> batch(Context const& context, std::span<DivergenceProblem const> given,
                              SolveOptions const& options, bool solves) {
  return in_step(context, solves ? "sinkhorn_divergence_batch" : "divergences_of", inputs_of(given, options), [&] {
    try {
      return divergences(context, given, agreed(context, options), solves);
    } catch (ProblemError const& error) {
      throw_named(error, given, true);
    }
  });
}

/// The problem of a call whose options have the warm start of OT(a, b), and its options without it.
Divergence single(Context const& context, std::variant<PointCloud, DivergenceCosts> costs, VectorView a, VectorView b,
                  SolveOptions options) {
  DivergenceProblem const problem{costs, a, b, {options.f, options.g}};
  options.f = options.g = {};
  return single(context, problem, options, true);
}

}  // namespace

Status Divergence::status() const {
  for (Status const status : {Status::stopped, Status::iteration_limit, Status::precision_limit, Status::completed}) {
    for (Plan const* plan : {&ab, &aa, &bb}) {
      if (plan->status() == status) return status;
    }
  }
  return Status::converged;
}

DivergenceGradient Divergence::gradients(GradientViews const& out, bool scale) const {
  return in_step(*ab.state_, "Divergence::gradients", {}, [&]() -> DivergenceGradient {
    Plan::State& state = *ab.state_;
    VectorOperations const& vectors = state.plan->vectors();
    GradientVectors sum = gradient_vectors(state, out);
    double const excess = state.report.eps * (state.report.mass - state.report.mass_b);
    for (Side const side : kSides) {
      bool const rows = side == Side::rows;
      Plan::State& self = rows ? *aa.state_ : *bb.state_;
      // OT(a, a) is symmetric: its derivatives by both arguments are equal, and half of their sum is either of them. A
      // given cost matrix may be symmetric to rounding only.
      bool const is_symmetric = self.dimension > 0;
      MutableVectorView const weights = rows ? out.a : out.b;
      GradientVectors const own = gradient_vectors(
          self, {.x = rows ? out.x : out.y, .a = weights, .b = is_symmetric ? MutableVectorView() : weights});
      if (Vector* const points = sum.points[side].get())
        vectors.combine(std::array<Term, 2>{Term{1, points}, Term{-1, own.points[Side::rows]}}, *points);
      if (Vector* const of = sum.weights[side].get()) {
        Vector const* const first = own.weights[Side::rows];
        Vector const* const second = is_symmetric ? first : own.weights[Side::columns];
        std::vector<double> const level(to_size(weights.size()), rows ? excess : -excess);
        std::unique_ptr<Vector> const masses = vectors.make(side);
        vectors.read(VectorView(level), *masses);
        vectors.combine(std::array<Term, 4>{Term{1, of}, Term{-0.5, first}, Term{-0.5, second}, Term{1, masses.get()}},
                        *of);
      }
    }
    write_gradients(vectors, sum, out);
    GradientReport const of_ab = ab.gradients({}, {.error_iterations = 0, .scale = scale});
    GradientReport const of_aa = aa.gradients({}, {.error_iterations = 0, .scale = scale});
    GradientReport const of_bb = bb.gradients({}, {.error_iterations = 0, .scale = scale});
    return {.scale = of_ab.scale - (of_aa.scale + of_bb.scale) / 2,
            .label_weight = of_ab.label_weight - (of_aa.label_weight + of_bb.label_weight) / 2,
            .marginal_error = of_ab.marginal_error + (of_aa.marginal_error + of_bb.marginal_error) / 2};
  });
}

Divergence sinkhorn_divergence(Context const& context, PointCloud const& clouds, VectorView a, VectorView b,
                               SolveOptions const& options) {
  return single(context, clouds, a, b, options);
}

Divergence sinkhorn_divergence(Context const& context, DivergenceCosts const& costs, VectorView a, VectorView b,
                               SolveOptions const& options) {
  return single(context, costs, a, b, options);
}

Divergence sinkhorn_divergence(Context const& context, DivergenceProblem const& problem, SolveOptions const& options) {
  return single(context, problem, options, true);
}

std::vector<Divergence> sinkhorn_divergence_batch(Context const& context, std::span<DivergenceProblem const> problems,
                                                  SolveOptions const& options) {
  return batch(context, problems, options, true);
}

Divergence divergence_of(Context const& context, DivergenceProblem const& problem, SolveOptions const& options) {
  return single(context, problem, options, false);
}

std::vector<Divergence> divergences_of(Context const& context, std::span<DivergenceProblem const> problems,
                                       SolveOptions const& options) {
  return batch(context, problems, options, false);
}

}  // namespace monge
