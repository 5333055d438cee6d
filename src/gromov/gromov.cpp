#include <monge/gromov.hpp>

#include <algorithm>
#include <cmath>
#include <map>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <monge/c_transform.hpp>
#include <monge/solver.hpp>

#include "core/numbers.hpp"
#include "core/parallel.hpp"
#include "core/stopwatch.hpp"
#include "geometry/validation.hpp"
#include "gromov/branch_and_bound.hpp"
#include "gromov/gromov_state.hpp"
#include "gromov/matrix_problem.hpp"
#include "gromov/open_matrices.hpp"
#include "gromov/open_points.hpp"
#include "gromov/point_problem.hpp"
#include "gromov/starts.hpp"
#include "ranks/ranks.hpp"

namespace monge {
namespace {

constexpr int kFirstSteps = 3, kFinished = 2, kFirstSweeps = 1000;
constexpr double kWorthwhile = 2;            // Values after the first steps, over the least.
constexpr double kLoosest = 0.05;            // Marginal error of a step.
constexpr double kLoosestUnbalanced = 1e-3;  // The same: larger errors of the mass may lead to another optimum.
constexpr double kShortest = 1. / 64;        // Share of an unbalanced step.
constexpr int kPatience = 10;                // Steps that do not halve the change, before those in float64.
constexpr double kOfFloat32 = 1e-6;          // Steps to a smaller marginal error are in float64.
constexpr double kSame = 1e-6;               // Images as close as this fraction of the largest are one.
constexpr double kRounding = 0x1p-40;        // A difference of values, as a fraction of the problem's size.

/// One start and where it has got to.
struct Search {
  GromovStartKind kind{};
  DenseMatrix image;      // The image at which the next step linearises.
  DenseMatrix used;       // The image of the last step.
  DenseMatrix sum;        // All images at which the proximal method has linearised, added.
  DenseMatrix move;       // The last unbalanced step, from `used` to the image of its plan,
  double length = 1;      // and the share of it that is taken.
  double at = kInfinity;  // The objective there or an upper bound, where it is known; balanced without entropy.
  bool mixed = false;     // Whether the last plan without entropy lies within a step, not at its end.
  bool is_plan = false;   // Whether the image is that of a plan that is known, not of a start in part.
  std::vector<double> f, g;
  std::optional<Plan> plan;
  std::optional<ExactPlan> exact;
  std::optional<ExactPlan> blend;  // The plan of `image` where it is mixed and the image is no plan.
  double eps = 0, value = kInfinity, change = 1, stationarity = kNaN;
  double halved = 1;  // A change, at most half of the one before it,
  int stuck = 0;      // and the steps since, whose changes are above its half.
  int iterations = 0;
  bool finished = false, converged = false;
};

double weighted_sum(DenseVector const& weights, std::vector<double> const& values) {
  double sum = 0;
  for (std::int64_t i = 0; i < weights.size(); ++i)
    if (weights(i) > 0) sum += weights(i) * values[to_size(i)];  // Others may be infinite.
  return sum;
}

std::vector<double> copy_of(DenseMatrix const& matrix) {
  return {matrix.data(), matrix.data() + matrix.size()};
}

/// KL(P | Q) of two plans.
double divergence(DenseMatrix const& p, DenseMatrix const& q) {
  auto const term = [](double p, double q) {
    return (p > 0 ? p * std::log(p / std::max(q, std::numeric_limits<double>::min())) : 0.0) - p + q;
  };
  return std::max(p.binaryExpr(q, term).sum(), 0.0);
}

/// Replaces the entries of a plan by those that visit_row(i, add) passes to add(j, mass) for each row, j ascending.
template <class VisitRow>
void write_entries(ExactPlan& plan, VisitRow const& visit_row) {
  plan.column_indices.clear();
  plan.values.clear();
  for (std::int64_t i = 0; i < plan.rows(); ++i) {
    visit_row(i, [&](std::int64_t j, double mass) {
      if (mass <= 0) return;
      plan.column_indices.push_back(j);
      plan.values.push_back(mass);
    });
    plan.row_begin[to_size(i) + 1] = std::ssize(plan.values);
  }
  plan.report.nonzeros = std::ssize(plan.values);
}

/// The plan q with the entries of (1 - t) p + t q.
ExactPlan blended(ExactPlan const& p, ExactPlan q, double t) {
  std::vector<std::map<std::int64_t, double>> rows(q.f.size());
  for_each_entry(p, [&](std::int64_t i, std::int64_t j, double mass) { rows[to_size(i)][j] += (1 - t) * mass; });
  for_each_entry(q, [&](std::int64_t i, std::int64_t j, double mass) { rows[to_size(i)][j] += t * mass; });
  write_entries(q, [&](std::int64_t i, auto const& add) {
    for (auto const& [j, mass] : rows[to_size(i)]) add(j, mass);
  });
  return q;
}

class GromovSolve {
 public:
  GromovSolve(Context const& context, std::unique_ptr<GromovProblem const> problem, GromovOptions const& options)
      : context_(context), options_(options), problem_at_(std::move(problem)), problem_(*problem_at_) {
    report_.method = options.method;
    report_.eps = options.eps;
    report_.alpha = problem_.alpha();
    report_.marginals = options.marginals;
    report_.penalty_a = options.penalty_a;
    report_.penalty_b = options.penalty_b;
    report_.mass = problem_.total();
    if (!std::isfinite(options.gap)) return;
    require(is_exact(), "gap: is {} with entropy; must be infinity, since branch and bound takes exact plans",
            options.gap);
    require(options.marginals == GromovMarginals::balanced,
            "gap: is {} and marginals are {}; must be infinity, since branch and bound is for balanced plans",
            options.gap, name(options.marginals));
    polytope_ = problem_.polytope();
  }

  Gromov run() {
    begin();
    if (searches_.size() == 1) {
      finish(searches_[0]);
    } else {
      for (Search& search : searches_) first_steps(search);
      finish_best();
    }
    if (polytope_ && !stopped_) branch_and_bound();
    return result(best());
  }

 private:
  bool is_exact() const { return options_.eps == 0; }
  bool is_proximal() const { return options_.method == GromovMethod::proximal; }
  bool is(GromovMarginals marginals) const { return options_.marginals == marginals; }
  bool is_last(Search const& search) const { return search.iterations >= options_.iterations; }
  Search& best() {
    return *std::min_element(searches_.begin(), searches_.end(), [](Search const& one, Search const& other) {
      return std::pair(!one.finished, one.value) < std::pair(!other.finished, other.value);
    });
  }

  void begin() {
    Backend const& backend = backend_of(context_);
    std::optional<DenseMatrix> described;
    double bound = problem_.bound(context_).value;
    GromovOptions options = options_;
    if (problem_.alpha() == 0) options.starts = 1;  // The objective is linear.
    bool const has_given = options.cross_moment.data() != nullptr;
    if (options.starts != 1 && !(has_given && options.starts == 0) && is_small(problem_)) {
      GromovBound other = problem_.descriptor_bound(context_);
      bound = std::max(bound, other.value);
      described = std::move(other.start);
    }
    report_.lower_bound = std::max(bound - kRounding * problem_.size(), problem_.least());
    for (StartingPoint& start : problem_.starts(backend, options, described)) {
      Search& search = searches_.emplace_back();
      search.kind = start.kind;
      search.image = std::move(start.image);
      if (is_exact()) search.at = start.value;
      search.is_plan = start.is_plan;
      if (is_proximal()) search.sum = DenseMatrix::Zero(search.image.rows(), search.image.cols());
    }
    report_.seconds.bounds = watch_.seconds();
  }

  void first_steps(Search& search) {
    for (int k = 0; k < std::min(kFirstSteps, options_.iterations) && !search.finished && !stopped_; ++k)
      is_exact() ? exact_step(search) : step(search, marginal_error_after(search.change), kFirstSweeps, false);
  }

  /// Finishes searches of little value, of those whose first steps have led to different plans, and that from the
  /// product plan, which falls late.
  void finish_best() {
    std::vector<Search*> order, chosen;
    for (Search& search : searches_) order.push_back(&search);
    std::stable_sort(order.begin(), order.end(), [](auto* one, auto* other) { return one->value < other->value; });
    double const least = order[0]->value, most = kWorthwhile * std::max(least, 0.0) + kRounding * problem_.size();
    for (Search* const search : order) {
      bool const is_left = search->value > std::max(least, most) || (!is_exact() && chosen.size() >= kFinished);
      if (is_left && search->kind != GromovStartKind::product) continue;
      bool const is_new = std::ranges::all_of(chosen, [&](Search* other) {
        return problem_.norm(search->image - other->image) > kSame * problem_.largest();
      });
      if (is_new) chosen.push_back(search);
    }
    for (Search* const search : chosen) finish(*search);
  }

  void finish(Search& search) {
    bool tight = false;
    while (!search.finished && !stopped_) {
      if (is_exact()) {
        exact_step(search);
      } else {
        bool const last = tight || search.iterations + 1 >= options_.iterations;
        double const tightest = options_.tolerance / 10;
        step(search, last || is_proximal() ? tightest : marginal_error_after(search.change), options_.sweeps, last);
        tight = search.change <= options_.tolerance;
        search.converged = last && tight;
      }
      search.finished = search.finished || search.converged || is_last(search);
    }
  }

  /// The marginal error that a step is allowed after one with this change.
  double marginal_error_after(double change) const {
    double const loosest = is(GromovMarginals::unbalanced) ? kLoosestUnbalanced : kLoosest;
    return std::max(options_.tolerance / 10, std::min(change / 10, loosest));
  }

  double change_between(DenseMatrix const& one, DenseMatrix const& other) const {
    double const size = std::max(problem_.norm(one), 1e-3 * problem_.largest());
    return size > 0 ? problem_.norm(one - other) / size : 0;
  }

  static Geometry geometry_of(DenseMatrix const& u, DenseMatrix const& v) {
    if (v.size() == 0) return CostMatrix{view_of(u)};
    return PointCloud{.x = view_of(u), .y = view_of(v), .cost_function = CostFunction::dot};
  }
  Geometry geometry() const { return geometry_of(u_, v_); }

  /// Throws for a value that is lost.
  void require_digits(double value) const {
    require(std::isfinite(value),
            "eps: is {}, too far below the objective, up to {:.3g}; must be larger, or 0: exact plans", options_.eps,
            problem_.size());
  }

  /// One step with entropy, to this marginal error.
  void step(Search& search, double tolerance, int sweeps, bool keep) {
    ++search.iterations;
    ++report_.iterations;
    search.eps = options_.eps;
    search.used = search.image;
    if (is_proximal()) {
      search.sum += search.image;
      search.used = search.sum / search.iterations;
      search.eps /= search.iterations;
    }
    problem_.linearise(search.used, u_, v_);
    search.plan.reset();
    Plan plan = is(GromovMarginals::semirelaxed) ? softmin_plan(search) : solved(search, tolerance, sweeps, keep);
    DenseMatrix image = problem_.image_of(plan);
    if (is(GromovMarginals::unbalanced)) {
      rescale(search, std::move(image));
      if (keep) search.plan.emplace(std::move(plan));
      return;
    }
    double const total = problem_.total(), curved = problem_.curvature(image - search.used);
    search.value = problem_.constant() + (problem_.curvature(search.used) - curved) +
                   weighted_sum(problem_.a(), search.f) + weighted_sum(problem_.b(), search.g) -
                   search.eps * (total - total * total);
    require_digits(search.value);
    search.stationarity = is_proximal() ? kNaN : curved;
    search.change = change_between(image, search.image);
    if (!is_proximal() && !problem_.is_concave()) {
      // The linearised objective falls by eps KL(Q | P) from the last plan Q to P, that of Q + t (P - Q) by at least
      // t fall + t^2 curved. Where full steps might alternate between two plans, the step ends at the estimated
      // minimum. Between plans of points, which are not stored, the entropy is convex and so known from above.
      double const fall = v_.size() == 0
                              ? search.eps * divergence(problem_.start_of(search.used), problem_.start_of(image))
                              : std::max(search.at - search.value - curved, 0.0);
      double const length = -curved > fall / 2 ? fall / (fall - curved) : 1;
      if (length < 1) image = search.used + length * (image - search.used);
      search.stationarity = fall;
      search.at = length < 1 ? search.at - length * (fall + length * curved) : search.value;
    }
    note(search, std::move(image));
    if (keep) search.plan.emplace(std::move(plan));
  }

  /// Notes the change of a step and its image.
  void note(Search& search, DenseMatrix image) {
    if (search.change <= search.halved / 2) {
      search.halved = search.change;
      search.stuck = 0;
    } else {
      ++search.stuck;
    }
    search.image = std::move(image);
  }

  /// The plan of the linear problem with this entropy, to this marginal error.
  Plan solved(Search& search, double tolerance, int sweeps, bool keep) {
    VectorView const a = view_of(problem_.a()), b = view_of(problem_.b());
    SolveOptions options = penalties();
    if (!solver_) solver_.emplace(context_, geometry(), a, b, options);
    solver_->set_geometry(geometry());
    options.eps = search.eps;
    options.tolerance = tolerance;
    options.iterations = sweeps;
    options.certificate = keep;
    // Rounding may be what keeps the change from falling. On a GPU far points cost the float32 scores of others digits.
    bool const is_fine = tolerance < kOfFloat32 || search.stuck >= kPatience;
    options.precision = options_.precision == Precision::automatic && is_fine ? Precision::float64 : options_.precision;
    options.f = search.f;
    options.g = search.g;
    if (options_.progress) options.progress = [&](Progress const&) { return goes_on(search); };
    Plan plan = solver_->solve(options);
    report_.sweeps += plan.report().iterations;
    search.f = plan.f();
    search.g = plan.g();
    return plan;
  }

  SolveOptions penalties() const {
    if (!is(GromovMarginals::unbalanced)) return {};
    return {.penalty_a = options_.penalty_a, .penalty_b = options_.penalty_b};
  }

  /// The same with open columns: half of a sweep, from g = 0.
  Plan softmin_plan(Search& search) {
    VectorView const a = view_of(problem_.a()), b = view_of(problem_.b());
    SolveOptions options{.eps = search.eps, .precision = options_.precision};
    if (options.precision == Precision::automatic) options.precision = Precision::float64;
    search.f.assign(to_size(a.size()), 0);
    search.g.assign(to_size(b.size()), 0);
    options.f = search.f;
    options.g = search.g;
    if (v_.size() > 0) {
      plan_of(context_, geometry(), a, b, options).potential(view_of(u_), {search.f.data(), a.size()});
    } else {
      DenseVector const log_b = problem_.b().array().log();
      parallel_for(host_threads(backend_of(context_)), a.size(), [&](std::int64_t i) {
        DenseVector const terms = log_b - u_.row(i).transpose() / search.eps;
        double const top = terms.maxCoeff();
        search.f[to_size(i)] = -search.eps * (top + std::log((terms.array() - top).exp().sum()));
      });
    }
    ++report_.sweeps;
    if (options_.progress) goes_on(search);
    return plan_of(context_, geometry(), a, b, options);
  }

  /// Ends an unbalanced step, after which the objective is bilinear in the last plan and the next.
  void rescale(Search& search, DenseMatrix image) {
    UnbalancedTerms const last = problem_.terms_of(search.used), next = problem_.terms_of(image);
    double const less = last.mass - next.mass;
    double const fall = last.value - next.value - problem_.curvature(search.used - image) + less * last.divergence +
                        last.mass * (last.divergence - next.divergence - divergence_weight() * less);
    search.stationarity = std::max(fall, 0.0);
    image = problem_.scaled(image, std::sqrt(last.mass / next.mass));
    search.value = objective(problem_.terms_of(image));
    require(std::isfinite(search.value),
            "penalty_a: is {} and penalty_b {}, for an objective of up to {:.3g}; must be larger, or the best plan is "
            "empty",
            options_.penalty_a, options_.penalty_b, problem_.size());
    search.change = change_between(image, search.image);
    // Full steps may go back and forth between two plans, each the best beside the other.
    DenseMatrix move = image - search.used;
    if (search.move.size() > 0) {
      double const along = problem_.norm(move + search.move), against = problem_.norm(move - search.move);
      if (along < against) search.length = std::max(search.length / 2, kShortest);
      if (against < along / 4) search.length = std::min(search.length * 1.5, 1.0);
    }
    search.move = std::move(move);
    note(search, search.length < 1 ? search.used + search.length * search.move : std::move(image));
  }

  double divergence_weight() const { return options_.penalty_a + options_.penalty_b + options_.eps; }

  /// The objective of an unbalanced problem.
  double objective(UnbalancedTerms const& terms) const {
    double const of_a = problem_.a().sum(), of_b = problem_.b().sum();
    return terms.value + terms.mass * (terms.divergence - divergence_weight() * terms.mass / 2) +
           (options_.penalty_a * of_a * of_a + options_.penalty_b * of_b * of_b +
            options_.eps * std::pow(of_a * of_b, 2)) /
               2;
  }

  /// The plan that takes each row to its column of the least cost. Points of no weight, which may lie far away, take no
  /// part.
  ExactPlan nearest_plan() const {
    DenseVector const &a = problem_.a(), &b = problem_.b();
    auto const used = [](DenseVector const& weights) {
      std::vector<std::int64_t> indices;
      for (std::int64_t i = 0; i < weights.size(); ++i)
        if (weights(i) > 0) indices.push_back(i);
      return indices;
    };
    std::vector<std::int64_t> const rows = used(a), columns = used(b);
    bool const of_points = v_.size() > 0;
    DenseMatrix const u = of_points ? DenseMatrix(u_(rows, Eigen::all)) : DenseMatrix(u_(rows, columns));
    DenseMatrix const v = of_points ? DenseMatrix(v_(columns, Eigen::all)) : v_;
    std::vector<std::int64_t> nearest(rows.size());
    std::vector<double> least(rows.size()), zeros(columns.size(), 0.0);
    c_transform(context_, geometry_of(u, v), zeros, least, {nearest.data(), std::ssize(rows), 1, 1});
    ExactPlan plan;
    plan.f.assign(to_size(a.size()), kInfinity);
    plan.g.assign(to_size(b.size()), 0);
    plan.row_begin = {0};
    for (std::size_t k = 0; k < rows.size(); ++k) {
      plan.f[to_size(rows[k])] = least[k];
      plan.column_indices.push_back(columns[to_size(nearest[k])]);
      plan.values.push_back(a(rows[k]));
      plan.row_begin.resize(to_size(rows[k]) + 1, static_cast<std::int64_t>(k));
      plan.row_begin.push_back(std::ssize(plan.values));
    }
    plan.row_begin.resize(to_size(a.size()) + 1, std::ssize(plan.values));
    ExactReport& report = plan.report;
    report.message = "each row goes to the column of its least cost";
    report.rounds = 1;
    report.nonzeros = std::ssize(plan.values);
    report.mass = report.transported_mass = problem_.total();
    report.transport_cost = report.value = report.dual = weighted_sum(a, plan.f);
    return plan;
  }

  /// The plan of the linear problem without entropy.
  ExactPlan exact_plan(Search const& search) {
    if (is(GromovMarginals::semirelaxed)) {
      if (options_.progress) goes_on(search);
      return nearest_plan();
    }
    ExactOptions options{.start = search.exact ? &*search.exact : nullptr};
    if (is(GromovMarginals::partial)) options.mass = options_.mass;
    if (options_.progress) options.progress = [&](ExactProgress const&) { return goes_on(search); };
    return solve_exact(context_, geometry(), view_of(problem_.a()), view_of(problem_.b()), options);
  }

  /// One step without entropy, to the least value on the segment to the next plan. The search ends when this is no
  /// better than the last: then no step lowers the value.
  void exact_step(Search& search) {
    ++search.iterations;
    ++report_.iterations;
    problem_.linearise(search.image, u_, v_);
    ExactPlan plan = exact_plan(search);
    report_.sweeps += plan.report.rounds;
    if (stopped_ && search.exact) return;  // The new plan may lack mass.
    GromovValue found = problem_.value_of(plan);
    double value = problem_.value(found);
    bool const was_mixed = std::exchange(search.mixed, false);
    search.used = search.image;
    if (std::isfinite(search.at)) {
      double const cost = search.at - problem_.constant() - problem_.curvature(search.image);
      search.stationarity = std::max(cost - plan.report.dual, 0.0);
      bool const is_near = was_mixed && search.stationarity <= options_.tolerance * std::abs(search.at);
      double const curved = problem_.curvature(found.image - search.image), slope = value - search.at + curved;
      search.mixed = !problem_.is_concave() && (is_near || (curved < 0 && slope > 2 * curved));
      if (search.mixed) {  // value = at + t slope - t^2 curved
        double const length = is_near || slope >= 0 ? 0 : slope / (2 * curved);
        value = search.at + length * (slope - length * curved);
        found.image = search.image + length * (found.image - search.image);
        if (v_.size() > 0 && search.is_plan)
          search.blend = blended(search.blend ? *search.blend : *search.exact, plan, length);
      }
      search.finished = search.converged = is_near || value >= search.at - kRounding * problem_.size();
      if (search.mixed && !search.is_plan && (search.finished || is_last(search))) {
        search.mixed = search.finished = search.converged = false;
        found = problem_.value_of(plan);
        value = problem_.value(found);
      }
    }
    search.is_plan = search.is_plan || !search.mixed;
    if (!search.mixed) search.blend.reset();
    search.at = value;
    search.change = change_between(found.image, search.image);
    search.image = std::move(found.image);
    search.value = plan.report.status == ExactStatus::stopped ? kInfinity : value;
    search.exact = std::move(plan);
  }

  /// Raises the lower bound to the value of the best plan, less the gap, and looks for better plans on the way.
  void branch_and_bound() {
    double const began = watch_.seconds(), rounding = kRounding * problem_.size();
    double const margin = rounding + polytope_->left_out;
    std::function<bool()> const is_late =
        agreed(context_, std::function<bool()>([&] { return watch_.seconds() >= options_.seconds; }));
    auto const target = [&] {
      double const value = best().value;
      return value - std::max(options_.gap * std::abs(value) - margin, margin);
    };
    BranchAndBound branches(*polytope_, rounding);
    auto const evaluate = [&](DenseMatrix const& image) -> std::optional<CornerValue> {
      report_.lower_bound = std::max(report_.lower_bound, branches.bound() - margin);
      problem_.linearise(image, u_, v_);
      ExactOptions options;  // No start is given: the plan of another image costs more pivots than it saves.
      options.progress = [&](ExactProgress const&) {
        late_ = std::isfinite(options_.seconds) && is_late();
        return !late_ && (!options_.progress || goes_on(best()));
      };
      ExactPlan const plan = solve_exact(context_, geometry(), view_of(problem_.a()), view_of(problem_.b()), options);
      if (late_ || stopped_) return {};
      ++report_.problems;
      GromovValue found = problem_.value_of(plan);
      CornerValue corner{image, found.image, problem_.constant() + plan.report.dual};
      if (double const value = problem_.value(found); value < best().value - rounding) {
        Search& search = searches_.emplace_back();
        search.kind = GromovStartKind::partition;
        search.image = std::move(found.image);
        search.at = value;
        finish(search);
      }
      return corner;
    };
    if (report_.lower_bound + margin < target()) {
      branches.run(evaluate, target);
      report_.lower_bound = std::max(report_.lower_bound, branches.bound() - margin);
    }
    met_ = report_.lower_bound + margin >= target();
    report_.seconds.partition = watch_.seconds() - began;
  }

  bool goes_on(Search const& search) {
    GromovProgress progress{.start = static_cast<int>(&search - searches_.data()),
                            .iteration = report_.iterations - 1 + static_cast<int>(report_.problems),
                            .change = search.change,
                            .lower_bound = report_.lower_bound,
                            .seconds = watch_.seconds()};
    for (Search const& each : searches_) progress.value = std::min(progress.value, each.value);
    stopped_ = stopped_ || !options_.progress(progress);
    return !stopped_;
  }

  Gromov result(Search& best) {
    problem_.linearise(best.used, u_, v_);
    if (best.blend) {
      best.exact = std::move(best.blend);
    } else if (best.exact && best.mixed && v_.size() == 0) {
      DenseMatrix const entries = problem_.start_of(best.image);
      write_entries(*best.exact, [&](std::int64_t i, auto const& add) {
        for (std::int64_t j = 0; j < entries.cols(); ++j) add(j, entries(i, j));
      });
    }
    Stopwatch const watch;
    is_exact() ? evaluate_exact(best) : evaluate(best);
    report_.seconds.bounds += watch.seconds();
    report_.value = report_.alpha * report_.quadratic + (1 - report_.alpha) * report_.linear + report_.divergence;
    if (!is_exact() && !is_proximal()) report_.value += report_.eps * report_.entropy;
    if (!is_exact()) require_digits(report_.value);
    report_.change = best.change;
    report_.stationarity = best.stationarity;
    report_.best = static_cast<int>(&best - searches_.data());
    for (Search const& search : searches_)
      report_.starts.push_back({search.kind, search.iterations, search.value, search.finished});
    report_.starts[to_size(report_.best)].value = report_.value;
    double const room = report_.value - report_.lower_bound;
    report_.gap = room == 0 ? 0 : room / std::abs(report_.value);
    conclude(best);
    report_.seconds.total = watch_.seconds();
    report_.seconds.steps = report_.seconds.total - report_.seconds.bounds - report_.seconds.partition;
    std::vector<double> u = copy_of(u_), v = copy_of(v_), start = copy_of(problem_.start_of(best.image));
    auto state = std::make_shared<Gromov::State const>(
        Gromov::State{context_, std::move(problem_at_), best.used, std::move(u_)});
    return {std::move(report_), std::move(best.plan), std::move(best.exact), std::move(u),
            std::move(v),       std::move(start),     std::move(state)};
  }

  void evaluate_exact(Search const& best) {
    GromovValue const value = problem_.value_of(*best.exact);
    bool const whole = best.exact->report.status != ExactStatus::stopped;
    report_.quadratic = whole ? value.quadratic : kNaN;
    report_.linear = whole ? value.linear : kNaN;
    report_.marginal_error = 2 * best.exact->report.missing_mass;
  }

  void evaluate(Search& best) {
    VectorView const a = view_of(problem_.a()), b = view_of(problem_.b());
    auto const again = [&](Precision precision) {
      SolveOptions options = penalties();
      options.eps = best.eps;
      options.precision = precision;
      options.f = best.f;
      options.g = best.g;
      return plan_of(context_, geometry(), a, b, options);
    };
    if (!best.plan) best.plan.emplace(again(options_.precision));
    std::optional<Plan> twin;
    if (best.plan->report().precision != Precision::float64) twin.emplace(again(Precision::float64));
    Plan const& plan = twin ? *twin : *best.plan;
    DenseVector row, column;
    GromovValue const value = problem_.value_of(plan, row, column);
    report_.quadratic = value.quadratic;
    report_.linear = value.linear;
    double const mass = row.sum(), total = problem_.total();
    double const entropy =
        (weighted_sum(row, best.f) + weighted_sum(column, best.g) - plan.transport_cost()) / best.eps;
    if (is(GromovMarginals::unbalanced)) {
      double const of_a = problem_.a().sum(), of_b = problem_.b().sum();
      report_.mass = mass;
      report_.marginal_error = error_of(row, problem_.a(), best.f, options_.penalty_a) +
                               error_of(column, problem_.b(), best.g, options_.penalty_b);
      report_.entropy = half_divergence(entropy, mass, of_a * of_b);
      report_.divergence = options_.penalty_a * half_divergence(relative_entropy(row, problem_.a()), mass, of_a) +
                           options_.penalty_b * half_divergence(relative_entropy(column, problem_.b()), mass, of_b);
      return;
    }
    report_.marginal_error = (row - problem_.a()).lpNorm<1>();
    if (is(GromovMarginals::balanced)) report_.marginal_error += (column - problem_.b()).lpNorm<1>();
    if (!is_proximal()) report_.entropy = entropy - mass + total * total;
  }

  /// KL(P P | Q Q) / 2 of tensor products, from sum P log(P / Q) and both masses.
  static double half_divergence(double sum, double mass, double other) {
    return std::max(mass * sum + (other - mass) * (other + mass) / 2, 0.0);
  }

  /// |P 1 - a exp(-f / penalty)|_1
  static double error_of(DenseVector const& row, DenseVector const& weights, std::vector<double> const& f,
                         double penalty) {
    double sum = 0;
    for (std::int64_t i = 0; i < row.size(); ++i)
      if (weights(i) > 0) sum += std::abs(row(i) - weights(i) * std::exp(-f[to_size(i)] / penalty));
    return sum;
  }

  /// Status and message.
  void conclude(Search const& best) {
    bool const has_sweeps = best.plan && !is(GromovMarginals::semirelaxed);
    Status const of_step = has_sweeps ? best.plan->status() : Status::converged;
    if (stopped_) {
      report_.status = Status::stopped;
      report_.message = fmt::format("the progress function stopped it after {} steps", report_.iterations);
    } else if (!best.converged) {
      report_.status = Status::iteration_limit;
      report_.message =
          fmt::format("the last of {} steps changed the {} by {:.2g}; more iterations{} would help", best.iterations,
                      problem_.image_name(), best.change, is_exact() ? "" : ", or a larger eps,");
    } else if (of_step != Status::converged) {
      report_.status = of_step;
      report_.message = fmt::format("the last step ended short of its tolerance: {}", best.plan->report().message);
    } else if (polytope_) {
      report_.status = met_ ? Status::converged : late_ ? Status::iteration_limit : Status::precision_limit;
      report_.message = fmt::format("no plan has a value below {:.9g}: a gap of {:.2g} after {} exact problems{}",
                                    report_.lower_bound, report_.gap, report_.problems,
                                    met_    ? ""
                                    : late_ ? "; more seconds or a larger gap would help"
                                            : "; rounding hides what is left");
    } else {
      report_.status = Status::converged;
      report_.message =
          !is_exact()  ? fmt::format("the last step changed the {} by {:.2g}", problem_.image_name(), best.change)
          : best.mixed ? fmt::format("no plan lowers the linearised objective by more than {:.2g}", best.stationarity)
                       : "no step lowers the value: a local optimum";
    }
  }

  Context const& context_;
  GromovOptions const& options_;
  Stopwatch const watch_;
  std::unique_ptr<GromovProblem const> problem_at_;
  GromovProblem const& problem_;
  GromovReport report_;
  std::vector<Search> searches_;
  DenseMatrix u_, v_;  // The features of the last step, which the solver reads.
  std::optional<Solver> solver_;
  std::optional<ImagePolytope> polytope_;  // Of branch and bound, if it is asked for.
  bool stopped_ = false, late_ = false, met_ = false;
};

template <class Balanced, class Open>
std::unique_ptr<GromovProblem const> make_problem(Context const& context, auto const& input, VectorView a, VectorView b,
                                                  GromovOptions const& options) {
  Backend const& backend = backend_of(context);
  if (options.marginals == GromovMarginals::balanced)
    return std::make_unique<Balanced const>(backend, input, a, b, options);
  return std::make_unique<Open const>(backend, input, a, b, options);
}

/// The call on either kind of problem. `add_inputs` adds the problem's own inputs to the digests; `make` reads and
/// checks them and returns the problem.
template <class AddInputs, class Make>
Gromov solve(Context const& context, AddInputs const& add_inputs, VectorView a, VectorView b,
             GromovOptions const& options, Make const& make) {
  auto const inputs = [&](Digests& inputs) {
    visit_gromov_options(options, inputs);
    inputs.add("progress", static_cast<bool>(options.progress));
    add_inputs(inputs);
    inputs.add("a", a);
    inputs.add("b", b);
    inputs.add("cross_moment", options.cross_moment);
  };
  return in_step(context, "solve_gromov", inputs, [&] {
    visit_gromov_options(options, kCheckField);
    require(options.method == GromovMethod::alternating || options.eps > 0,
            "method: is proximal without entropy; must be alternating");
    using enum GromovMarginals;
    std::string_view const kind = name(options.marginals);
    for (auto const& [field, penalty] : {std::pair("penalty_a", options.penalty_a), {"penalty_b", options.penalty_b}}) {
      require((options.marginals == unbalanced) == (penalty > 0),
              "{}: is {} and marginals are {}; must be > 0 for unbalanced ones, otherwise 0", field, penalty, kind);
    }
    require(options.marginals == partial || options.mass == 0,
            "mass: is {} and marginals are {}; must be 0, or marginals partial", options.mass, kind);
    auto const support = [](bool supported, char const* message) {
      if (!supported) throw Error(ErrorCode::unsupported, message);
    };
    bool const is_unbalanced = options.marginals == unbalanced;
    support(!is_unbalanced || options.eps > 0, "eps: is 0 and marginals are unbalanced; must be > 0");
    support(!is_unbalanced || options.method == GromovMethod::alternating,
            "method: is proximal and marginals are unbalanced; must be alternating");
    support(options.marginals != partial || options.eps == 0, "eps: is > 0 and marginals are partial; must be 0");
    GromovOptions now = options;
    now.progress = agreed(context, options.progress);
    return GromovSolve(context, make(), now).run();
  });
}

}  // namespace

Gromov solve_gromov(Context const& context, GromovMatrices const& matrices, VectorView a, VectorView b,
                    GromovOptions const& options) {
  auto const inputs = [&](Digests& inputs) {
    inputs.add("source", matrices.source);
    inputs.add("target", matrices.target);
    inputs.add("cost", matrices.cost);
    inputs.add("s", matrices.s);
    inputs.add("t", matrices.t);
    inputs.add("loss", matrices.loss);
  };
  return solve(context, inputs, a, b, options,
               [&] { return make_problem<MatrixProblem, OpenMatrixProblem>(context, matrices, a, b, options); });
}

Gromov solve_gromov(Context const& context, GromovClouds const& clouds, VectorView a, VectorView b,
                    GromovOptions const& options) {
  auto const inputs = [&](Digests& inputs) {
    inputs.add("x", clouds.x);
    inputs.add("y", clouds.y);
    inputs.add("s", clouds.s);
    inputs.add("t", clouds.t);
  };
  return solve(context, inputs, a, b, options,
               [&] { return make_problem<PointProblem, OpenPointProblem>(context, clouds, a, b, options); });
}

void Gromov::gradients(GromovGradients const& out) const {
  in_step(
      state->context, "Gromov::gradients", [](Digests&) {},
      [&] {
        if (report.method == GromovMethod::proximal)
          throw Error(ErrorCode::unsupported,
                      "gradients: the method is proximal, whose plan is no minimiser; must be alternating");
        state->problem->gradients(*this, out);
      });
}

void Gromov::source_features(MatrixView points, MatrixView features, MutableMatrixView out) const {
  Backend const& backend = backend_of(state->context);
  in_step(
      state->context, "Gromov::source_features", [](Digests&) {},
      [&] { state->problem->source_features(backend, *this, points, features, out); });
}

}  // namespace monge
