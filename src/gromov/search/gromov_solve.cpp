#include "gromov/search/gromov_solve.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "gromov/gromov_state.hpp"
#include "gromov/starts.hpp"

namespace monge {
namespace {

constexpr int kFirstSteps = 3, kFinished = 2, kFirstSweeps = 1000;
constexpr int kRest = 3;           // The steps of a search, over those to its first small change.
constexpr double kWorthwhile = 2;  // Values after the first steps, over the least.
constexpr double kSame = 1e-6;     // Images as close as this fraction of the largest are one.

std::vector<double> copy_of(DenseMatrix const& matrix) {
  return {matrix.data(), matrix.data() + matrix.size()};
}

}  // namespace

GromovSolve::GromovSolve(Context const& context, std::unique_ptr<GromovProblem const> problem,
                         GromovOptions const& options)
    : context_(context), options_(options), problem_at_(std::move(problem)), problem_(*problem_at_) {
  report_.method = options.method;
  report_.eps = options.eps;
  report_.alpha = problem_.alpha();
  report_.marginals = options.marginals;
  report_.penalty_a = options.penalty_a;
  report_.penalty_b = options.penalty_b;
  report_.mass = problem_.total();
  if (!std::isfinite(options.gap)) {
    require(!std::isfinite(options.seconds),
            "seconds: is {} and gap infinity; must be infinity, since it ends branch and bound alone", options.seconds);
    return;
  }
  require(is_exact(), "gap: is {} with entropy; must be infinity, since branch and bound takes exact plans",
          options.gap);
  require(options.marginals == GromovMarginals::balanced,
          "gap: is {} and marginals are {}; must be infinity, since branch and bound is for balanced plans",
          options.gap, name(options.marginals));
  polytope_ = problem_.polytope();
  if (!polytope_)
    throw Error(ErrorCode::unsupported,
                "gap: is given for matrices; must be infinity, since branch and bound is for points");
}

Gromov GromovSolve::run() {
  begin();
  if (stopped_) {  // A step gives the result a plan.
    Search& first = searches_.front();
    is_exact() ? exact_step(first) : step(first, options_.tolerance, 1, false);
    return result(first);
  }
  std::vector<Search*> all;
  for (Search& search : searches_) all.push_back(&search);
  if (all.size() == 1 || options_.iterations <= kFirstSteps) {
    finish(all);
  } else {
    first_steps(all);
    finish(worthwhile(all));
    // Another search is the best if the plans of all chosen ones have lost their mass.
    while (!best().finished && !stopped_) finish({&best()});
  }
  if (polytope_ && !stopped_) branch_and_bound();
  return result(best());
}

GromovSolve::Search& GromovSolve::best() {
  return *std::min_element(searches_.begin(), searches_.end(), [](Search const& one, Search const& other) {
    auto const rank = [](Search const& search) {
      return std::pair(!search.finished || std::isinf(search.value), search.value);
    };
    return rank(one) < rank(other);
  });
}

void GromovSolve::begin() {
  std::optional<DenseMatrix> described;
  ExactOptions watched;
  if (options_.progress) watched.progress = [&](ExactProgress const&) { return goes_on(0, 1); };
  double bound = problem_.bound(context_, watched).value;
  GromovOptions options = options_;
  if (problem_.alpha() == 0) options.starts = 1;  // The objective is linear.
  bool const has_given = options.cross_moment.data() != nullptr;
  if (options.starts != 1 && !(has_given && options.starts == 0) && is_small(problem_)) {
    GromovBound other = problem_.descriptor_bound(context_, watched);
    bound = std::max(bound, other.value);
    if (!stopped_) described = std::move(other.start);
  }
  if (stopped_) bound = -kInfinity;
  report_.lower_bound = std::max(bound - kRounding * problem_.size(), problem_.least());
  for (StartingPoint& start : problem_.starts(context_, options, described)) {
    Search& search = searches_.emplace_back();
    search.kind = start.kind;
    search.image = std::move(start.image);
    if (is_exact()) search.at = start.value;
    search.is_plan = start.is_plan;
    if (is_proximal()) search.sum = DenseMatrix::Zero(search.image.rows(), search.image.cols());
  }
  report_.seconds.bounds = watch_.seconds();
}

void GromovSolve::first_steps(std::vector<Search*> const& searches) {
  if (is_exact()) return exact_steps(searches, kFirstSteps);
  for (Search* const search : searches)
    for (int k = 0; k < kFirstSteps && !search->finished && !stopped_; ++k)
      step(*search, marginal_error_after(search->change), kFirstSweeps, false);
}

std::vector<GromovSolve::Search*> GromovSolve::worthwhile(std::vector<Search*> order) const {
  std::vector<Search*> chosen;
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
  return chosen;
}

void GromovSolve::finish(std::vector<Search*> const& searches) {
  if (is_exact()) return exact_steps(searches, options_.iterations);
  for (Search* const search : searches) finish(*search);
}

void GromovSolve::finish(Search& search) {
  bool tight = false;
  while (!search.finished && !stopped_) {
    bool const last = tight || search.iterations + 1 >= options_.iterations;
    double const tightest = options_.tolerance / 10;
    step(search, last || is_proximal() ? tightest : marginal_error_after(search.change), options_.sweeps, last);
    bool const rests = search.change <= options_.tolerance;
    tight = rests && is_stationary(search);
    search.converged = last && tight;
    if (rests && search.rested == 0) search.rested = search.iterations;
    search.finished = search.converged || (!tight && search.rested > 0 && search.iterations >= kRest * search.rested) ||
                      is_last(search);
  }
}

double GromovSolve::change_between(DenseMatrix const& one, DenseMatrix const& other) const {
  double const size = std::max(problem_.norm(one), kLeastFraction * problem_.largest());
  return size > 0 ? problem_.norm(one - other) / size : 0;
}

void GromovSolve::note(Search& search, DenseMatrix image) {
  if (search.change <= search.halved / 2) {
    search.halved = search.change;
    search.stuck = 0;
  } else {
    ++search.stuck;
  }
  search.image = std::move(image);
}

bool GromovSolve::goes_on(int start, double change) {
  if (std::this_thread::get_id() != caller_) return !stopped_;
  GromovProgress progress{
      .start = start, .change = change, .lower_bound = report_.lower_bound, .seconds = watch_.seconds()};
  count([&] {
    progress.iteration = report_.iterations + static_cast<int>(report_.problems);
    for (Search const& each : searches_) progress.value = std::min(progress.value, each.value);
  });
  if (!stopped_ && !options_.progress(progress)) stopped_ = true;
  return !stopped_;
}

Gromov GromovSolve::result(Search& best) {
  require(!is(GromovMarginals::unbalanced) || !best.finished || std::isfinite(best.value),
          "penalty_a: is {}; must be larger, or starts more, since plans from {} of them have lost their mass to an "
          "objective of up to {:.3g}",
          std::min(options_.penalty_a, options_.penalty_b), searches_.size(), problem_.size());
  if (is_exact() && (stopped_ || !best.converged)) settle(best);
  linearise(best);
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
  auto state =
      std::make_shared<Gromov::State const>(Gromov::State{context_, std::move(problem_at_), best.used, std::move(u_)});
  return {std::move(report_), std::move(best.plan), std::move(best.exact), std::move(u),
          std::move(v),       std::move(start),     std::move(state)};
}

void GromovSolve::conclude(Search const& best) {
  bool const has_sweeps = best.plan && !is(GromovMarginals::semirelaxed) && !is(GromovMarginals::partial);
  Status const of_step = has_sweeps ? best.plan->status() : Status::converged;
  if (stopped_) {
    report_.status = Status::stopped;
    report_.message = fmt::format("the progress function stopped it after {} steps", report_.iterations);
  } else if (!best.converged) {
    report_.status = Status::iteration_limit;
    report_.message =
        best.change <= options_.tolerance && best.stationarity > 0
            ? fmt::format(
                  "the last step changed the {} by {:.2g}, but another plan lowers the linearised objective by "
                  "{:.2g}; exact steps from this plan would help",
                  problem_.image_name(), best.change, best.stationarity)
            : fmt::format("the last of {} steps changed the {} by {:.2g}; more steps{} would help", best.iterations,
                          problem_.image_name(), best.change,
                          is_exact()      ? ""
                          : is_proximal() ? ", or less entropy,"
                                          : ", or more entropy,");
  } else if (best.is_short || of_step == Status::iteration_limit) {
    report_.status = Status::iteration_limit;
    report_.message = "the last step ended short of its tolerance; more sweeps would help";
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
    std::string const least =
        fmt::format("no plan lowers the linearised objective by more than {:.2g}", best.stationarity);
    report_.message = best.mixed ? least : "no step lowers the value: a stationary plan";
    if (!is_exact())
      report_.message = fmt::format("the last step changed the {} by {:.2g}{}", problem_.image_name(), best.change,
                                    is_proximal() && !std::isnan(best.stationarity) ? "; " + least : "");
  }
}

}  // namespace monge
