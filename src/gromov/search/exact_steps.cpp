// Steps without entropy of a GromovSolve, and branch and bound.
#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include <monge/c_transform.hpp>

#include "gromov/branch_and_bound.hpp"
#include "gromov/search/gromov_solve.hpp"
#include "ranks/ranks.hpp"

namespace monge {
namespace {

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

using SparseRows = std::vector<std::map<std::int64_t, double>>;

void write_entries(ExactPlan& plan, SparseRows const& rows) {
  write_entries(plan, [&](std::int64_t i, auto const& add) {
    for (auto const& [j, mass] : rows[to_size(i)]) add(j, mass);
  });
}

/// The plan q with the entries of s p + t q; p may be missing.
ExactPlan blended(double s, ExactPlan const* p, double t, ExactPlan q) {
  SparseRows rows(q.f.size());
  if (p) for_each_entry(*p, [&](std::int64_t i, std::int64_t j, double mass) { rows[to_size(i)][j] += s * mass; });
  for_each_entry(q, [&](std::int64_t i, std::int64_t j, double mass) { rows[to_size(i)][j] += t * mass; });
  write_entries(q, rows);
  return q;
}

/// The plan of a stopped solve with the mass that it lacks, on rows and columns with room, in their order.
ExactPlan completed(ExactPlan plan, DenseVector room_a, DenseVector room_b, double mass) {
  SparseRows rows(plan.f.size());
  auto const put = [&](std::int64_t i, std::int64_t j, double part) {
    rows[to_size(i)][j] += part;
    room_a(i) -= part;
    room_b(j) -= part;
    mass -= part;
  };
  for_each_entry(plan, put);
  for (std::int64_t i = 0, j = 0; i < room_a.size() && j < room_b.size() && mass > 0; room_a(i) > 0 ? ++j : ++i)
    if (double const part = std::min({room_a(i), room_b(j), mass}); part > 0) put(i, j, part);
  write_entries(plan, rows);
  plan.report.missing_mass = 0;
  return plan;
}

}  // namespace

ExactPlan GromovSolve::nearest_plan(DenseMatrix const& of_rows, DenseMatrix const& of_columns) const {
  DenseVector const &a = problem_.a(), &b = problem_.b();
  auto const used = [](DenseVector const& weights) {
    std::vector<std::int64_t> indices;
    for (std::int64_t i = 0; i < weights.size(); ++i)
      if (weights(i) > 0) indices.push_back(i);
    return indices;
  };
  std::vector<std::int64_t> const rows = used(a), columns = used(b);
  bool const of_points = of_columns.size() > 0;
  DenseMatrix const u = of_points ? DenseMatrix(of_rows(rows, Eigen::all)) : DenseMatrix(of_rows(rows, columns));
  DenseMatrix const v = of_points ? DenseMatrix(of_columns(columns, Eigen::all)) : of_columns;
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

ExactPlan GromovSolve::exact_plan(Search const& search, DenseMatrix const& u, DenseMatrix const& v) {
  if (is(GromovMarginals::semirelaxed)) {
    if (options_.progress) goes_on(search);
    return nearest_plan(u, v);
  }
  ExactOptions options{.start = search.exact ? &*search.exact : nullptr};
  if (is(GromovMarginals::partial)) options.mass = options_.mass;
  if (options_.progress) options.progress = [&](ExactProgress const&) { return goes_on(search); };
  return solve_exact(context_, geometry_of(u, v), view_of(problem_.a()), view_of(problem_.b()), options);
}

void GromovSolve::exact_steps(std::vector<Search*> const& searches, int most) {
  std::vector<int> left(searches.size(), most);
  auto const work = [&](std::size_t k) {
    Search& search = *searches[k];
    if (search.finished || stopped_) return false;
    exact_step(search);
    search.finished = search.finished || is_last(search);
    return --left[k] > 0 && !search.finished && !stopped_;
  };
  auto const show = [&](std::size_t k) {
    if (options_.progress) goes_on(*searches[k]);
  };
  Backend const& backend = backend_of(context_);
  if (searches.size() == 1 || backend.ranks()) {  // Ranks make their calls in one order.
    for (std::size_t k = 0; k < searches.size(); ++k)
      while (work(k)) continue;
  } else {
    // About half of the time of a search is spent on one thread, whatever its size, so each search has one thread.
    std::vector<ProblemSize> const one_thread_each(searches.size(), {1, 1});
    backend.run_each(one_thread_each, static_cast<bool>(options_.progress), work, show);
  }
}

void GromovSolve::exact_step(Search& search) {
  ++search.iterations;
  DenseMatrix u, v;
  problem_.linearise(search.image, u, v);
  ExactPlan plan = exact_plan(search, u, v);
  count([&] { report_.sweeps += plan.report.rounds; });
  if (stopped_ && search.exact) return;  // The new plan may lack mass.
  if (plan.report.status == ExactStatus::stopped)
    plan = completed(std::move(plan), problem_.a(), problem_.b(), problem_.total());
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
      if (v.size() > 0) {
        ExactPlan const* const last = search.blend ? &*search.blend : search.is_plan ? &*search.exact : nullptr;
        search.blend = blended(1 - length, last, length, plan);
      }
    }
    search.finished = search.converged = is_near || value >= search.at - kRounding * problem_.size();
    if (search.mixed && !search.is_plan && search.finished) {
      search.finished = search.converged = false;
      found = leave_start(search, plan);
      value = problem_.value(found);
    }
  }
  search.is_plan = search.is_plan || !search.mixed;
  if (!search.mixed) search.blend.reset();
  search.at = value;
  search.change = change_between(found.image, search.image);
  search.image = std::move(found.image);
  count([&] {
    search.value = value;
    ++report_.iterations;
  });
  search.exact = std::move(plan);
}

GromovValue GromovSolve::leave_start(Search& search, ExactPlan const& last) {
  double mass = 0;
  for (double const value : search.blend->values) mass += value;
  search.is_plan = true;
  search.mixed = mass > 0;
  if (!search.mixed) search.blend.reset();
  if (search.mixed)
    for (double& value : search.blend->values) value *= problem_.total() / mass;
  return problem_.value_of(search.mixed ? *search.blend : last);
}

void GromovSolve::settle(Search& best) {
  if (best.mixed && !best.is_plan) {
    GromovValue found = leave_start(best, *best.exact);
    best.at = problem_.value(found);
    best.image = std::move(found.image);
  }
  best.stationarity = frank_wolfe_gap(best, best.image, best.at);
}

double GromovSolve::frank_wolfe_gap(Search const& search, DenseMatrix const& image, double value) {
  if (stopped_) return kNaN;
  DenseMatrix u, v;
  problem_.linearise(image, u, v);
  ExactReport const of_next = exact_plan(search, u, v).report;
  report_.sweeps += of_next.rounds;
  double const cost = value - problem_.constant() - problem_.curvature(image);
  return stopped_ ? kNaN : std::max(cost - of_next.dual, 0.0);
}

void GromovSolve::branch_and_bound() {
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
    DenseMatrix u, v;
    problem_.linearise(image, u, v);
    ExactOptions options;  // No start is given: the plan of another image costs more pivots than it saves.
    options.progress = [&](ExactProgress const&) {
      late_ = std::isfinite(options_.seconds) && is_late();
      return !late_ && (!options_.progress || goes_on(best()));
    };
    ExactPlan const plan =
        solve_exact(context_, geometry_of(u, v), view_of(problem_.a()), view_of(problem_.b()), options);
    if (late_ || stopped_) return {};
    ++report_.problems;
    GromovValue found = problem_.value_of(plan);
    CornerValue corner{image, found.image, problem_.constant() + plan.report.dual};
    if (double const value = problem_.value(found); value < best().value - rounding) {
      Search& search = searches_.emplace_back();
      search.kind = GromovStartKind::partition;
      search.image = std::move(found.image);
      search.at = value;
      finish({&search});
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

void GromovSolve::evaluate_exact(Search& best) {
  if (best.blend) {
    best.exact = std::move(best.blend);
  } else if (best.exact && best.mixed && v_.size() == 0) {
    DenseMatrix const entries = problem_.start_of(best.image);
    write_entries(*best.exact, [&](std::int64_t i, auto const& add) {
      for (std::int64_t j = 0; j < entries.cols(); ++j) add(j, entries(i, j));
    });
  }
  GromovValue const value = problem_.value_of(*best.exact);
  report_.quadratic = value.quadratic;
  report_.linear = value.linear;
}

}  // namespace monge
