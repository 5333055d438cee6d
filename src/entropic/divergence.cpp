#include <monge/divergence.hpp>

#include <array>
#include <cmath>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <monge/error.hpp>

#include "core/problem_error.hpp"
#include "core/stopwatch.hpp"
#include "entropic/sinkhorn.hpp"
#include "geometry/validation.hpp"
#include "plan/plan_state.hpp"

namespace monge {
namespace {

/// Of OT(a, b), OT(a, a) and OT(b, b), in this order everywhere.
using Geometries = std::array<Geometry, 3>;

bool has_points(Geometry const& geometry) {
  return std::holds_alternative<PointCloud>(geometry);
}

/// Each cloud is compared to itself, so the cost of its labels must be symmetric.
void require_symmetric(Backend const& backend, MatrixView w) {
  require(w.rows() == w.columns(), "label_cost: is {} x {}; must be square, as each cloud meets itself", w.rows(),
          w.columns());
  std::vector<std::vector<double>> rows;
  std::int64_t const row_bytes = w.row_stride() * size_of(w.type());
  for (std::int64_t i = 0; i < w.rows(); ++i) {
    void const* const row = static_cast<unsigned char const*>(w.data()) + i * row_bytes;
    rows.push_back(backend.read(VectorView(row, w.type(), w.columns(), 1, w.device())));
    for (std::size_t j = 0; j < rows.size(); ++j) {
      std::size_t const k = rows.size() - 1;
      require(!(rows[k][j] != rows[j][k]),
              "label_cost: row {}, column {} is {} and row {}, column {} is {}; must be symmetric, as each cloud "
              "meets itself",
              k, j, rows[k][j], j, k, rows[j][k]);
    }
  }
}

/// The problem of one side of `ab` and itself, at the same eps.
SinkhornProblem self_problem(SinkhornProblem const& ab, Side side, Geometry const& geometry, Device device) {
  validate(geometry, device);
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
  if (has_points(geometry)) {
    problem.options.schedule = Schedule::symmetric;
    problem.options.method = Method::sinkhorn;
  }
  return problem;
}

/// Throws ProblemError.
std::vector<SinkhornProblem> prepared_problems(Context const& context, Geometries const& geometries, VectorView a,
                                               VectorView b, SolveOptions const& options) {
  std::vector<SinkhornProblem> problems;
  problems.reserve(geometries.size());
  for_each_problem(geometries.size(), [&](std::size_t k) {
    Side const side = k == 1 ? Side::rows : Side::columns;
    SinkhornProblem& problem =
        problems.emplace_back(k == 0 ? checked_problem(context, {geometries[0], a, b, options.f, options.g}, options)
                                     : self_problem(problems[0], side, geometries[k], context.device()));
    OperatorInput input{problem.geometry, problem.marginals, first_operator(problem.options)};
    if (k > 0 && has_points(problem.geometry)) input.self = {problems[0].entropic.get(), side};
    problem.entropic = std::move(backend_of(context).entropic_operators({&input, 1})[0]);
    begin(backend_of(context), problem);
  });
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

/// Throws ProblemError.
Divergence solve(Context const& context, Geometries const& geometries, VectorView a, VectorView b,
                 SolveOptions const& options) {
  Stopwatch const watch;
  validate(options);
  require(options.penalty_a == options.penalty_b,
          "penalty_b: is {}; must be {} as penalty_a is, as each measure meets itself", options.penalty_b,
          options.penalty_a);
  require(options.method != Method::splr, "method: is splr; must be auto, sinkhorn or newton for a divergence");
  std::vector<SinkhornProblem> problems = prepared_problems(context, geometries, a, b, options);
  bool stopped = false;  // A caller who stops one problem stops the following ones.
  for (std::size_t k = 0; options.progress && k < problems.size(); ++k) {
    problems[k].options.progress = [&options, &stopped, k](Progress progress) {
      progress.problem = static_cast<int>(k);
      stopped = stopped || !options.progress(progress);
      return !stopped;
    };
  }
  double const setup = watch.seconds();
  Backend const& backend = backend_of(context);
  SinkhornProblem& ab = problems[0];
  run_sinkhorn(backend, std::span(problems).subspan(1));
  if (ab.start.f.empty()) start_from(problems[1], problems[2], *ab.entropic);
  run_sinkhorn(backend, {&ab, 1});

  double const excess = ab.marginals.total_a - ab.marginals.total_b;
  double const mass_term = ab.options.eps / 2 * excess * excess;
  std::vector<Plan> plans = finished_plans(context, problems, setup);
  Report const &cross = plans[0].report(), &first = plans[1].report(), &second = plans[2].report();
  return {.value = cross.dual - first.dual / 2 - second.dual / 2 + mass_term,
          .gap = std::abs(cross.gap) + (std::abs(first.gap) + std::abs(second.gap)) / 2,
          .ab = std::move(plans[0]),
          .aa = std::move(plans[1]),
          .bb = std::move(plans[2])};
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

DivergenceGradient Divergence::gradients(GradientViews const& out) const {
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
      std::vector<double> const level(static_cast<std::size_t>(weights.size()), rows ? excess : -excess);
      std::unique_ptr<Vector> const masses = vectors.make(side);
      vectors.read(VectorView(level), *masses);
      vectors.combine(std::array<Term, 4>{Term{1, of}, Term{-0.5, first}, Term{-0.5, second}, Term{1, masses.get()}},
                      *of);
    }
  }
  write_gradients(vectors, sum, out);
  GradientReport const of_ab = ab.gradients({}, {.error_iterations = 0});
  GradientReport const of_aa = aa.gradients({}, {.error_iterations = 0});
  GradientReport const of_bb = bb.gradients({}, {.error_iterations = 0});
  return {.scale = of_ab.scale - (of_aa.scale + of_bb.scale) / 2,
          .label_weight = of_ab.label_weight - (of_aa.label_weight + of_bb.label_weight) / 2,
          .marginal_error = of_ab.marginal_error + (of_aa.marginal_error + of_bb.marginal_error) / 2};
}

Divergence sinkhorn_divergence(Context const& context, PointCloud const& clouds, VectorView a, VectorView b,
                               SolveOptions const& options) {
  validate(clouds, context.device());
  if (!clouds.labels.empty()) require_symmetric(backend_of(context), clouds.labels.cost);
  PointCloud xx = clouds, yy = clouds;
  xx.y = clouds.x;
  xx.labels.y = clouds.labels.x;
  yy.x = clouds.y;
  yy.labels.x = clouds.labels.y;
  return solve(context, {clouds, xx, yy}, a, b, options);
}

Divergence sinkhorn_divergence(Context const& context, DivergenceCosts const& costs, VectorView a, VectorView b,
                               SolveOptions const& options) {
  try {
    return solve(context, {costs.xy, costs.xx, costs.yy}, a, b, options);
  } catch (ProblemError const& error) {
    constexpr char const* kNames[] = {"xy", "xx", "yy"};
    throw Error(error.code(), fmt::format("{}: {}", kNames[error.index()], error.what()));
  }
}

}  // namespace monge
