#include "second_order/newton.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "plan/conjugate_gradient.hpp"

namespace monge {
namespace {

/// The first mu, and its range. With mu far below 1 a step is Newton's; with mu far above 1 it is a short step uphill.
constexpr double kFirstDamping = 1e-2, kLeastDamping = 1e-11, kMostDamping = 1e3;
/// Ratios of the actual to the predicted gain: below the first a step is refused, below the second and above the third
/// the damping changes.
constexpr double kRefused = 0.05, kPoor = 0.25, kGood = 0.6;

/// Relative residual of conjugate gradients. Damping leaves about a fifth of the error, so more digits of a step are
/// useless.
constexpr double kResidual = 0.1;
constexpr int kMostProducts = 30;
/// The passes of the shortest step: entries, one product, the trial and a sweep.
constexpr int kFewestPasses = 4;
/// If conjugate gradients take this many steps, entries are chosen anew.
constexpr int kManyProducts = 6;

/// Entries of the preconditioner a row, on average.
constexpr double kEntriesPerRow = 8;

}  // namespace

NewtonMethod::Point::Point(VectorOperations const& vectors)
    : f(vectors.make(Side::rows)),
      g(vectors.make(Side::columns)),
      next(vectors.make(Side::columns)),
      marginal(vectors.make(Side::columns)) {}

NewtonMethod::NewtonMethod(EntropicOperator& entropic, Marginals const& marginals, Criterion criterion)
    : entropic_(entropic),
      vectors_(entropic.vectors()),
      criterion_(criterion),
      mass_(std::accumulate(marginals.a.begin(), marginals.a.end(), 0.0)),
      a_(vectors_.make(Side::rows)),
      b_(vectors_.make(Side::columns)),
      inverse_a_(vectors_.make(Side::rows)),
      support_a_(vectors_.make(Side::rows)),
      support_b_(vectors_.make(Side::columns)),
      point_(vectors_),
      trial_(vectors_),
      best_(vectors_),
      step_(vectors_.make(Side::columns)),
      damping_(kFirstDamping),
      on_rows_(vectors_.make(Side::rows)),
      on_columns_(vectors_.make(Side::columns)),
      diagonal_(vectors_.make(Side::columns)) {
  vectors_.read(VectorView(marginals.a), *a_);
  vectors_.read(VectorView(marginals.b), *b_);
  vectors_.reciprocal(*a_, *inverse_a_);
  vectors_.support(*a_, *support_a_);
  vectors_.support(*b_, *support_b_);
}

NewtonMethod::~NewtonMethod() = default;

void NewtonMethod::copy(Point const& from, Point& to) const {
  vectors_.copy(*from.f, *to.f);
  vectors_.copy(*from.g, *to.g);
  vectors_.copy(*from.next, *to.next);
  vectors_.copy(*from.marginal, *to.marginal);
  to.error = from.error;
  to.norm = from.norm;
}

NewtonProgress NewtonMethod::advance(double eps, int most_passes) {
  passes_ = 0;
  bool is_step = false;
  bool const is_first = eps_ != eps;
  if (is_first) {
    eps_ = eps;
    entries_are_old_ = true;
    evaluate(std::as_const(entropic_).potential(Side::columns), point_);
  } else if (most_passes < kFewestPasses || is_far()) {
    sweep();
  } else {
    is_step = true;
    double const before = point_.error;
    find_direction(most_passes - kFewestPasses + 1);
    // <b - c, d> / 2
    vectors_.combine({{0.5, b_.get()}, {-0.5, point_.marginal.get()}}, *on_columns_);
    double const predicted = vectors_.dot(*on_columns_, *step_);
    vectors_.combine({{1, point_.g.get()}, {1, step_.get()}}, *on_columns_);
    evaluate(*on_columns_, trial_);
    double const ratio = predicted > 0 ? gain() / predicted : -1;
    // NaN is refused.
    bool const accepted = ratio > kRefused && std::isfinite(trial_.error);
    if (accepted) {
      std::swap(point_, trial_);
      if (ratio > kGood) damping_ = std::max(damping_ / 5, kLeastDamping);
      if (ratio < kPoor) damping_ = std::min(damping_ * 3, kMostDamping);
    } else {
      damping_ = std::min(damping_ * 8, kMostDamping);
    }
    if (!accepted || point_.error > 0.5 * before) sweep();
  }
  if (is_first || value(point_) < value(best_)) copy(point_, best_);
  return {point_.error, point_.norm, passes_, is_step};
}

double NewtonMethod::return_to_best() {
  vectors_.copy(*best_.f, entropic_.potential(Side::rows));
  vectors_.copy(*best_.next, entropic_.potential(Side::columns));
  return best_.error;
}

/// Evaluates g by the pass of a plain sweep.
void NewtonMethod::evaluate(Vector const& g, Point& out) {
  vectors_.copy(g, *out.g);
  vectors_.copy(*out.g, entropic_.potential(Side::columns));
  entropic_.sweep({.eps = eps_}, 1);
  ++passes_;
  out.error = entropic_.errors().column;
  vectors_.copy(std::as_const(entropic_).potential(Side::rows), *out.f);
  vectors_.copy(std::as_const(entropic_).potential(Side::columns), *out.next);
  vectors_.exp_difference(*b_, *out.g, *out.next, eps_, *out.marginal);
  vectors_.combine({{1, out.marginal.get()}, {-1, b_.get()}}, *on_columns_);
  out.norm = vectors_.norms(*on_columns_).l2;
}

void NewtonMethod::sweep() {
  evaluate(*point_.next, point_);
}

/// Whether a column has so little mass that its equation is useless.
bool NewtonMethod::is_far() const {
  vectors_.combine({{1, point_.marginal.get()}, {-1e-8, b_.get()}}, *on_columns_);
  VectorNorms const norms = vectors_.norms(*on_columns_);
  return !(norms.least >= 0) || !std::isfinite(norms.l1);
}

double NewtonMethod::largest(Vector const& potential, Vector const& support) const {
  Vector& masked = &support == support_a_.get() ? *on_rows_ : *on_columns_;
  vectors_.combine({{1, &potential, &support}}, masked);
  return vectors_.norms(masked).linf();
}

/// The rise of the dual from point_ to trial_. If the difference is lost in the rounding of the potentials, it is the
/// integral of the slope by the trapezoidal rule, which is accurate for short steps.
double NewtonMethod::gain() const {
  double const size = std::max(largest(*trial_.f, *support_a_), largest(*trial_.g, *support_b_));
  double const rounding = 0x1p-48 * mass_ * size;
  vectors_.combine({{1, trial_.f.get(), support_a_.get()}, {-1, point_.f.get(), support_a_.get()}}, *on_rows_);
  double const of_rows = vectors_.dot(*a_, *on_rows_);
  vectors_.combine({{1, trial_.g.get(), support_b_.get()}, {-1, point_.g.get(), support_b_.get()}}, *on_columns_);
  double const difference = of_rows + vectors_.dot(*b_, *on_columns_);
  if (std::abs(difference) > 16 * rounding) return difference;
  vectors_.combine({{1, b_.get()}, {-0.5, point_.marginal.get()}, {-0.5, trial_.marginal.get()}}, *on_columns_);
  return vectors_.dot(*on_columns_, *step_);
}

/// Makes step_ the step d of newton.hpp.
void NewtonMethod::find_direction(int most_products) {
  vectors_.copy(*point_.f, entropic_.potential(Side::rows));
  vectors_.copy(*point_.g, entropic_.potential(Side::columns));
  std::unique_ptr<PlanOperator> const plan = entropic_.plan(eps_);
  plan->set_transforms(*point_.f, *point_.next);
  if (entries_are_old_) {
    entries_ = plan->entry_solver(entries_ ? std::min(kEntriesPerRow, 2 * entries_->per_row()) : kEntriesPerRow);
    ++passes_;
  }
  // 1e-12 makes up for the rounding of the entries: without damping the exact matrix is singular.
  vectors_.combine({{1 + damping_ + 1e-12, point_.marginal.get()}}, *diagonal_);
  entries_->set(*plan, *a_, *diagonal_);

  vectors_.combine({{1 + damping_, point_.marginal.get()}}, *diagonal_);
  vectors_.combine({{eps_, b_.get()}, {-eps_, point_.marginal.get()}}, *on_columns_);
  vectors_.combine({{0, step_.get()}}, *step_);
  LinearSystem const system{
      .matrix =
          [&](Vector const& in, Vector& out) {
            plan->multiply_gram(Side::columns, *inverse_a_, in, out);
            vectors_.combine({{1, &in, diagonal_.get()}, {-1, &out}}, out);
          },
      .preconditioner = [&](Vector const& in, Vector& out) { entries_->solve(in, out); },
  };
  ConjugateGradientResult const result = conjugate_gradient(
      vectors_, system, *on_columns_, *step_,
      {.tolerance = kResidual, .iterations = std::min(kMostProducts, most_products), .evaluates_residual = false});
  passes_ += result.iterations;
  entries_are_old_ = result.iterations >= kManyProducts;
}

}  // namespace monge
