#include "entropic/multiscale.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <span>
#include <utility>
#include <vector>

#include "core/numbers.hpp"
#include "core/stopwatch.hpp"
#include "geometry/validation.hpp"

namespace monge {
namespace {

/// The factor of eps from a stage to the one before.
constexpr double kFactor = 4;
/// The largest root mean square radius of the points that a coarse one stands for, in units of sqrt(eps / scale).
constexpr double kRadius = 1. / 3;
/// Clouds with at most this product of sizes are solved by all pairs. The first stage is such a one.
constexpr double kFewPairs = 4e6;
/// A stage on coarse clouds at the last eps has at most this fraction of the pairs.
constexpr double kWorthwhile = 0.25;
/// A start with smaller errors saves passes over all points. So the radius of the last stage is a part of kRadius, the
/// least one from kLeastPart on that leaves at most the fraction kCheap of the pairs.
constexpr double kLeastPart = 0.5 / std::numbers::sqrt2, kCheap = 1. / 64;
/// The relative marginal error at which a stage ends: its potentials are continued in eps, which amplifies errors. At
/// the last eps it is a fraction of the tolerance, at least kLeastError. Smaller errors save no passes over all points.
constexpr double kStageError = 3e-4, kLastStage = 0.25, kLeastError = 3e-5;
/// The most passes of a stage, whose potentials need not be right.
constexpr int kStagePasses = 300;

/// A problem on the way to the caller's.
struct Stage {
  double eps;
  Cloud x, y;
  double tolerance;

  double pairs() const { return static_cast<double>(x.size()) * static_cast<double>(y.size()); }
};

double pairs_of(PointCloud const& clouds) {
  return static_cast<double>(clouds.x.rows()) * static_cast<double>(clouds.y.rows());
}

/// The stages from the last one to the first; none where they do not pay.
std::vector<Stage> stages_of(Backend const& backend, SinkhornProblem const& problem) {
  PointCloud const& clouds = clouds_of(problem.geometry);
  OperatorInput const input{problem.geometry, problem.marginals, {}};
  bool const is_self = problem.entropic->is_self();
  std::unique_ptr<CloudTree> const rows = backend.tree(*problem.entropic, input, Side::rows);
  std::unique_ptr<CloudTree> const columns = is_self ? nullptr : backend.tree(*problem.entropic, input, Side::columns);
  CloudTree &x = *rows, &y = is_self ? *rows : *columns;
  double const tolerance = problem.options.tolerance, top = problem.entropic->cost_size().centred_bound;
  std::vector<Stage> stages;
  for (double eps = problem.options.eps;; eps *= kFactor) {
    bool const is_last = eps == problem.options.eps;
    double pairs = 0;
    for (double part = is_last ? kLeastPart : 1;; part = std::min(1.0, part * std::numbers::sqrt2)) {
      double const radius = part * kRadius * std::sqrt(eps / clouds.scale);
      std::int64_t const of_x = x.cut(radius), of_y = is_self ? of_x : y.cut(radius);
      pairs = static_cast<double>(of_x) * static_cast<double>(of_y);
      if (part == 1 || pairs <= kCheap * pairs_of(clouds)) break;
    }
    // A self problem takes few sweeps from any start.
    if (is_last && is_self && pairs > kCheap * pairs_of(clouds)) return stages;
    bool const is_worthwhile = !is_last || pairs <= kWorthwhile * pairs_of(clouds);
    double const error = is_last && tolerance > 0 ? std::max(kLastStage * tolerance, kLeastError) : kStageError;
    if (is_worthwhile) stages.push_back({eps, x.cloud(), y.cloud(), error});
    if ((is_worthwhile && pairs <= kFewPairs) || eps >= top) return stages;
  }
}

/// The problem of a stage, without its operator.
SinkhornProblem problem_of(Stage const& stage, SinkhornProblem const& last) {
  SinkhornProblem result;
  PointCloud clouds = clouds_of(last.geometry);
  std::int64_t const d = clouds.x.columns();
  clouds.x = MatrixView(stage.x.points.data(), stage.x.size(), d);
  clouds.y = MatrixView(stage.y.points.data(), stage.y.size(), d);
  clouds.labels.x = {stage.x.labels.data(), std::ssize(stage.x.labels)};
  clouds.labels.y = {stage.y.labels.data(), std::ssize(stage.y.labels)};
  result.geometry = clouds;
  result.marginals = {stage.x.mass, stage.y.mass};
  result.options = last.options;
  result.options.eps = stage.eps;
  result.options.tolerance = stage.tolerance;
  result.options.criterion = Criterion::l1;
  result.options.certificate = false;
  result.options.iterations = std::min(last.options.iterations, kStagePasses);
  result.options.progress = {};
  if (stage.pairs() > kFewPairs) result.truncation = truncation_to(stage.tolerance);
  return result;
}

/// The plan of a stage.
struct Solved {
  std::unique_ptr<PlanOperator> plan;
  double eps = 0;

  /// The plan whose transform of one side is that at the points of a problem. `of`: any plan of this problem.
  std::unique_ptr<PlanOperator> at(Side side, SinkhornProblem const& problem, PlanOperator const& of) const {
    PointCloud const& clouds = clouds_of(problem.geometry);
    bool const of_rows = side == Side::rows;
    return plan->points().at(side, {of_rows ? clouds.x : clouds.y, of_rows ? clouds.labels.x : clouds.labels.y, &of});
  }
  /// The potentials of this plan at the points of a problem.
  Potentials potentials(SinkhornProblem const& problem) const {
    Penalties const penalties = penalties_of(problem.options);
    std::unique_ptr<PlanOperator> const of = problem.entropic->plan(eps);
    Potentials result;
    for (Side const side : kSides) {
      std::vector<double>& values = side == Side::rows ? result.f : result.g;
      values.resize(to_size(problem.entropic->size(side)));
      at(side, problem, *of)->transform(side, MutableVectorView(values));
      for (double& value : values) value /= 1 + eps / penalties.of(side);
    }
    return result;
  }
  /// Adds `factor` times the potentials of this plan, at the points of a problem, to the potentials of the problem's
  /// operator.
  void add(Backend const& backend, double factor, SinkhornProblem& problem) const {
    Penalties const penalties = penalties_of(problem.options);
    EntropicOperator& entropic = *problem.entropic;
    std::unique_ptr<PlanOperator> const of = entropic.plan(eps);
    for (Side const side : std::span(kSides, entropic.is_self() ? 1 : 2))
      backend.add_transform(side, factor / (1 + eps / penalties.of(side)), *at(side, problem, *of), entropic);
    if (entropic.is_self()) entropic.vectors().copy(entropic.potential(Side::rows), entropic.potential(Side::columns));
  }
};

/// Starts an operator from the stages before. Potentials are smooth functions of eps where eps is small: those of two
/// stages are continued as a line.
void start_from(Backend const& backend, Solved const& last, Solved const& before, SinkhornProblem& problem) {
  double const eps = problem.options.eps;
  bool const continues = before.plan && eps != last.eps;
  double const factor = continues ? (eps - last.eps) / (last.eps - before.eps) : 0;
  problem.entropic->set_potentials({}, {});
  last.add(backend, 1 + factor, problem);
  if (continues) before.add(backend, -factor, problem);
}

}  // namespace

void start_from_coarse(Backend const& backend, SinkhornProblem& problem, int index) {
  if (pairs_of(clouds_of(problem.geometry)) <= kFewPairs) return;
  std::vector<Stage> stages = stages_of(backend, problem);
  Stopwatch const watch;
  bool goes_on = true;
  Solved last, before;
  for (; !stages.empty() && goes_on; stages.pop_back()) {
    SinkhornProblem stage = problem_of(stages.back(), problem);
    stage.entropic = backend.entropic_operator(stage.geometry, stage.marginals, first_operator(stage));
    double const eps = stage.options.eps;
    if (last.plan) start_from(backend, last, before, stage);
    if (problem.options.progress) {
      stage.options.progress = [&](Progress const& of_stage) {
        Progress progress = of_stage;
        progress.iteration += problem.report.coarse_iterations;
        progress.seconds = watch.seconds();
        progress.problem = index;
        progress.potentials = [&] {
          return Solved{stage.entropic->plan(of_stage.eps), of_stage.eps}.potentials(problem);
        };
        return goes_on = problem.options.progress(progress);
      };
    }
    run_sinkhorn(backend, {&stage, 1});
    problem.report.coarse_iterations += stage.report.iterations;
    if (eps != last.eps) before = std::move(last);
    last = {stage.entropic->plan(eps), eps};
  }
  if (!last.plan) return;
  start_from(backend, last, before, problem);
  if (!goes_on) problem.options.progress = [](Progress const&) { return false; };
}

}  // namespace monge
