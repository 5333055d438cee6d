// Steps with entropy of a GromovSolve.
#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "core/parallel.hpp"
#include "gromov/search/gromov_solve.hpp"
#include "gromov/search/partial_plan.hpp"
#include "gromov/starts.hpp"

namespace monge {
namespace {

constexpr double kLoosest = 0.05;       // Marginal error of a step from one of several starts.
constexpr double kLoosestTight = 1e-3;  // The same from a start alone, since larger errors may lead to the optimum of
                                        // another, and of unbalanced plans, where they are errors of the mass.
constexpr double kShortest = 1. / 64;   // The shortest unbalanced step, as a fraction of a full one.
constexpr double kSmallGap = 1e-3;      // A Frank-Wolfe gap over the value that is small at any tolerance.
constexpr int kPatience = 10;           // Steps that do not halve the change, before those in float64.
constexpr double kOfFloat32 = 1e-6;     // Steps to a smaller marginal error are in float64.

/// KL(P | Q) of two plans.
double divergence(DenseMatrix const& p, DenseMatrix const& q) {
  auto const term = [](double p, double q) {
    if (std::abs(p - q) < q / 8) return p * std::log1p((p - q) / q) - (p - q);  // The digits of a small difference.
    return (p > 0 ? p * std::log(p / std::max(q, std::numeric_limits<double>::min())) : 0.0) - p + q;
  };
  return std::max(p.binaryExpr(q, term).sum(), 0.0);
}

/// Gives rows of no weight the values of the row of the largest weight.
void hide_idle_rows(auto&& matrix, DenseVector const& weights) {
  Eigen::Index heaviest = 0;
  if (weights.minCoeff() > 0) return;
  weights.maxCoeff(&heaviest);
  for (std::int64_t i = 0; i < weights.size(); ++i)
    if (weights(i) == 0) matrix.row(i) = matrix.row(heaviest);
}

/// KL(P P | Q Q) / 2 of tensor products, from sum P log(P / Q) and both masses.
double half_divergence(double sum, double mass, double other) {
  return std::max(mass * sum + (other - mass) * (other + mass) / 2, 0.0);
}

/// |P 1 - a exp(-f / penalty)|_1
double error_of(DenseVector const& row, DenseVector const& weights, std::vector<double> const& f, double penalty) {
  double sum = 0;
  for (std::int64_t i = 0; i < row.size(); ++i)
    if (weights(i) > 0) sum += std::abs(row(i) - weights(i) * std::exp(-f[to_size(i)] / penalty));
  return sum;
}

}  // namespace

double GromovSolve::marginal_error_after(double change) const {
  double const loosest = is(GromovMarginals::unbalanced) || searches_.size() == 1 ? kLoosestTight : kLoosest;
  return std::max(options_.tolerance / 10, std::min(change / 10, loosest));
}

void GromovSolve::require_digits(double value) const {
  require(std::isfinite(value),
          "eps: is {}, too far below the objective, up to {:.3g}; must be larger, or 0: exact plans", options_.eps,
          problem_.size());
}

void GromovSolve::accumulate(Search& search) {
  if (!is(GromovMarginals::unbalanced)) {
    search.sum += search.image;
    search.used = search.sum / search.iterations;
    search.eps /= search.iterations;
    return;
  }
  // The last plan is s a_i b_j exp((f_i + g_j - C_ij) / eps), s its rescaling, so the entropy relative to it adds
  // C_ij - f_i - g_j - eps log s to the costs.
  UnbalancedTerms const terms = open().terms_of(search.image);
  search.sum += search.image / terms.mass;
  search.shares += 1 / terms.mass;
  search.used = search.sum / search.shares;
  auto const add = [](DenseVector& terms, DenseVector const& weights, std::vector<double> const& potential,
                      double sum) {
    if (terms.size() == 0) terms = DenseVector::Zero(weights.size());
    for (std::int64_t i = 0; i < weights.size(); ++i)
      if (weights(i) > 0) terms(i) += sum - (potential.empty() ? 0.0 : potential[to_size(i)]);
  };
  add(search.r, problem_.a(), search.f, terms.divergence / terms.mass - search.eps * std::log(search.rescaling));
  add(search.c, problem_.b(), search.g, 0);
}

void GromovSolve::linearise(Search const& search) {
  problem_.linearise(search.used, u_, v_);
  if (search.shares == 0) return;
  u_ *= search.iterations;
  open().add_terms(search.r, search.c, u_, v_);
}

void GromovSolve::step(Search& search, double tolerance, int sweeps, bool keep) {
  ++search.iterations;
  search.eps = options_.eps;
  search.used = search.image;
  if (is_proximal()) accumulate(search);
  linearise(search);
  if (!keep) hide_idle_points();
  search.plan.reset();
  Plan plan = is(GromovMarginals::semirelaxed) ? softmin_plan(search)
              : is(GromovMarginals::partial)   ? partial_plan(search, tolerance, sweeps)
                                               : solved(search, tolerance, sweeps, keep);
  ++report_.iterations;
  DenseMatrix image = problem_.image_of(plan);
  if (is(GromovMarginals::unbalanced)) {
    rescale(search, std::move(image));
    if (keep) search.plan.emplace(std::move(plan));
    return;
  }
  double const total = problem_.total(), curved = problem_.curvature(image - search.used);
  DenseVector row = problem_.a(), column = problem_.b();
  if (is(GromovMarginals::partial)) {
    DenseMatrix const entries = problem_.start_of(image);
    row = entries.rowwise().sum();
    column = entries.colwise().sum().transpose();
  }
  search.value = problem_.constant() + (problem_.curvature(search.used) - curved) + weighted_sum(row, search.f) +
                 weighted_sum(column, search.g) - search.eps * (total - problem_.a().sum() * problem_.b().sum());
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

bool GromovSolve::is_stationary(Search& search) {
  if (!is_proximal() || !is(GromovMarginals::semirelaxed)) return true;
  double const value = open().terms_of(search.image).value;
  search.stationarity = frank_wolfe_gap(search, search.image, value);
  double const most = std::max(std::sqrt(options_.tolerance), kSmallGap);
  return search.stationarity <= most * std::max(value, kLeastFraction * problem_.size());
}

void GromovSolve::hide_idle_points() {
  hide_idle_rows(u_, problem_.a());
  v_.size() > 0 ? hide_idle_rows(v_, problem_.b()) : hide_idle_rows(u_.transpose(), problem_.b());
}

Plan GromovSolve::solved(Search& search, double tolerance, int sweeps, bool keep) {
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

SolveOptions GromovSolve::penalties() const {
  // The plan of given potentials does not depend on penalties, but with them totals may differ.
  if (is(GromovMarginals::partial)) return {.penalty_a = options_.eps, .penalty_b = options_.eps};
  if (!is(GromovMarginals::unbalanced)) return {};
  return {.penalty_a = options_.penalty_a, .penalty_b = options_.penalty_b};
}

Plan GromovSolve::plan_of_potentials(Search const& search) const {
  SolveOptions options = penalties();
  options.eps = search.eps;
  options.precision = options_.precision;
  if (options.precision == Precision::automatic) options.precision = Precision::float64;
  options.f = search.f;
  options.g = search.g;
  for (auto const& [weights, values] : {std::pair{&problem_.a(), &search.f}, {&problem_.b(), &search.g}})
    for (std::int64_t i = 0; i < weights->size(); ++i)  // plan_of() would name f or g, which the caller has not given.
      if ((*weights)(i) > 0 && !(std::abs((*values)[to_size(i)]) <= 0x1p53 * search.eps)) require_digits(kInfinity);
  return plan_of(context_, geometry(), view_of(problem_.a()), view_of(problem_.b()), options);
}

Plan GromovSolve::softmin_plan(Search& search) {
  search.f.assign(to_size(problem_.a().size()), 0);
  search.g.assign(to_size(problem_.b().size()), 0);
  if (v_.size() > 0) {
    plan_of_potentials(search).potential(view_of(u_), {search.f.data(), std::ssize(search.f)});
  } else {
    DenseVector const sums = log_sums(host_threads(backend_of(context_)), u_, problem_.b(), search.g, search.eps);
    std::ranges::transform(sums, search.f.begin(), [&](double sum) { return -search.eps * sum; });
  }
  ++report_.sweeps;
  if (options_.progress) goes_on(search);
  return plan_of_potentials(search);
}

Plan GromovSolve::partial_plan(Search& search, double tolerance, int sweeps) {
  PartialPlan found =
      solve_partial(host_threads(backend_of(context_)), u_, problem_.a(), problem_.b(), problem_.total(), search.eps,
                    tolerance, sweeps, {std::move(search.f), std::move(search.g)});
  report_.sweeps += found.sweeps;
  search.f = std::move(found.f);
  search.g = std::move(found.g);
  search.is_short = !found.converged;
  if (options_.progress) goes_on(search);
  return plan_of_potentials(search);
}

void GromovSolve::rescale(Search& search, DenseMatrix image) {
  UnbalancedTerms const last = open().terms_of(search.image), next = open().terms_of(image);
  double const less = last.mass - next.mass;
  double const fall = last.value - next.value - problem_.curvature(search.image - image) + less * last.divergence +
                      last.mass * (last.divergence - next.divergence - divergence_weight() * less);
  search.stationarity = is_proximal() ? kNaN : std::max(fall, 0.0);
  search.rescaling = std::sqrt(last.mass / next.mass);
  image = open().scaled(image, search.rescaling);
  search.value = objective(open().terms_of(image));
  if (!std::isfinite(search.value)) {  // The plan has lost its mass. In float32 rounding may be the reason.
    search.value = kInfinity;
    search.f.clear();
    search.g.clear();
    search.finished = std::exchange(search.stuck, kPatience) >= kPatience || is_proximal();
    return;
  }
  search.change = change_between(image, search.image);
  if (is_proximal()) return note(search, std::move(image));
  // Full steps may go back and forth between two plans, each the best beside the other.
  DenseMatrix move = image - search.image;
  if (search.move.size() > 0) {
    double const along = problem_.norm(move + search.move), against = problem_.norm(move - search.move);
    if (along < against) search.length = std::max(search.length / 2, kShortest);
    if (against < along / 4) search.length = std::min(search.length * 1.5, 1.0);
  }
  search.move = std::move(move);
  note(search, search.length < 1 ? search.image + search.length * search.move : std::move(image));
}

double GromovSolve::objective(UnbalancedTerms const& terms) const {
  double const of_a = problem_.a().sum(), of_b = problem_.b().sum();
  return terms.value + terms.mass * (terms.divergence - divergence_weight() * terms.mass / 2) +
         (options_.penalty_a * of_a * of_a + options_.penalty_b * of_b * of_b +
          entropy_weight() * std::pow(of_a * of_b, 2)) /
             2;
}

void GromovSolve::evaluate(Search& best) {
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
  double const entropy = (weighted_sum(row, best.f) + weighted_sum(column, best.g) - plan.transport_cost()) / best.eps;
  if (is(GromovMarginals::unbalanced)) {
    double const of_a = problem_.a().sum(), of_b = problem_.b().sum();
    report_.mass = mass;
    report_.marginal_error = error_of(row, problem_.a(), best.f, options_.penalty_a) +
                             error_of(column, problem_.b(), best.g, options_.penalty_b);
    if (!is_proximal()) report_.entropy = half_divergence(entropy, mass, of_a * of_b);
    report_.divergence = options_.penalty_a * half_divergence(relative_entropy(row, problem_.a()), mass, of_a) +
                         options_.penalty_b * half_divergence(relative_entropy(column, problem_.b()), mass, of_b);
    return;
  }
  DenseVector const of_rows = row - problem_.a(), of_columns = column - problem_.b();
  report_.marginal_error = of_rows.lpNorm<1>();
  if (is(GromovMarginals::balanced)) report_.marginal_error += of_columns.lpNorm<1>();
  if (is(GromovMarginals::partial))
    report_.marginal_error = of_rows.cwiseMax(0).sum() + of_columns.cwiseMax(0).sum() + std::abs(mass - total);
  if (!is_proximal()) {
    report_.entropy = entropy - mass + problem_.a().sum() * problem_.b().sum();
  } else if (is(GromovMarginals::semirelaxed) || is_small(problem_)) {
    best.stationarity = frank_wolfe_gap(best, value.image, problem_.value(value));
    linearise(best);
  }
}

}  // namespace monge
