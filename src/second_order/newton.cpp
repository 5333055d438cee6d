#include "second_order/newton.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "plan/conjugate_gradient.hpp"

namespace monge {
namespace {

/// The first mu as a fraction of the relative error, its bound, and the range of mu. With mu far below 1 a step is
/// Newton's; with mu far above 1 it is a short step uphill.
constexpr double kFirstShare = 0.1, kFirstDamping = 1e-2, kLeastDamping = 1e-11, kMostDamping = 1e3;
/// Ratios of the actual to the predicted gain: below the first a step is refused, below the second and above the third
/// the damping changes.
constexpr double kRefused = 0.05, kPoor = 0.25, kGood = 0.6;
/// The largest change of a potential, in units of eps, that the model of a refused step may have foreseen well.
constexpr double kLongest = 3;

/// Relative residual of conjugate gradients. Damping leaves about a fifth of the error, so more digits of a step are
/// useless.
constexpr double kResidual = 0.1;
/// Products of a step. Where conjugate gradients need more, later steps may take twice as many, up to
/// kMostProductsEver: steps that leave slow modes alone converge as slowly as sweeps.
constexpr int kMostProducts = 30, kMostProductsEver = 4 * kMostProducts;
/// The passes of the shortest step: entries, marginals of a rounded plan, one product, the trial and a sweep.
constexpr int kFewestPasses = 5;
/// If conjugate gradients take this many steps, entries are chosen anew.
constexpr int kManyProducts = 6;

/// Entries of the preconditioner a row, on average.
constexpr double kEntriesPerRow = 8;

}  // namespace

NewtonMethod::Point::Point(VectorOperations const& vectors)
    : f(vectors.make(Side::rows)),
      g(vectors.make(Side::columns)),
      next(vectors.make(Side::columns)),
      marginal(vectors.make(Side::columns)),
      wanted(vectors.make(Side::columns)) {}

NewtonMethod::NewtonMethod(EntropicOperator& entropic, EntropicOperator* rough, Marginals const& marginals,
                           Penalties const& penalties, Criterion criterion)
    : entropic_(entropic),
      rough_(rough),
      vectors_(entropic.vectors()),
      penalties_(penalties),
      criterion_(criterion),
      mass_(std::max(std::accumulate(marginals.a.begin(), marginals.a.end(), 0.0),
                     std::accumulate(marginals.b.begin(), marginals.b.end(), 0.0))),
      point_(vectors_),
      trial_(vectors_),
      best_(vectors_),
      step_(vectors_.make(Side::columns)),
      damping_(kFirstDamping),
      most_products_(kMostProducts),
      rows_(vectors_.make(Side::rows)),
      inverse_rows_(vectors_.make(Side::rows)),
      diagonal_(vectors_.make(Side::columns)) {
  for (Side const side : kSides) {
    for (VectorPair* pair : {&weight_, &support_, &scratch_, &masses_}) (*pair)[side] = vectors_.make(side);
    vectors_.read(VectorView(side == Side::rows ? marginals.a : marginals.b), *weight_[side]);
    vectors_.support(*weight_[side], *support_[side]);
  }
  if (penalties_.balanced()) return;
  for (Side const side : kSides) vectors_.copy(std::as_const(entropic_).potential(side), *scratch_[side]);
  entropic_.set_potentials({}, {});
  for (Side const side : kSides) {
    zero_[side] = vectors_.make(side);
    vectors_.copy(std::as_const(entropic_).potential(side), *zero_[side]);
    vectors_.copy(*scratch_[side], entropic_.potential(side));
  }
}

NewtonMethod::~NewtonMethod() = default;

void NewtonMethod::copy(Point const& from, Point& to) const {
  vectors_.copy(*from.f, *to.f);
  vectors_.copy(*from.g, *to.g);
  vectors_.copy(*from.next, *to.next);
  vectors_.copy(*from.marginal, *to.marginal);
  vectors_.copy(*from.wanted, *to.wanted);
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
    // NaN leaves the bound.
    damping_ = std::max(std::fmin(kFirstShare * point_.error / mass_, kFirstDamping), kLeastDamping);
  } else if (most_passes < kFewestPasses || is_far()) {
    sweep();
  } else {
    is_step = true;
    double const before = point_.error;
    bool const is_sound = find_direction(most_passes - kFewestPasses + 1);
    // <b' - c, d> / 2
    Vector& scratch = *scratch_[Side::columns];
    vectors_.combine({{0.5, point_.wanted.get()}, {-0.5, point_.marginal.get()}}, scratch);
    double const predicted = vectors_.dot(scratch, *step_);
    vectors_.combine({{1, point_.g.get()}, {1, step_.get()}}, scratch);
    evaluate(scratch, trial_);
    double const ratio = predicted > 0 ? gain() / predicted : -1;
    // NaN is refused.
    bool const accepted = ratio > kRefused && std::isfinite(trial_.error);
    if (!is_sound || (!accepted && was_refused_)) rough_ = nullptr;
    was_refused_ = !accepted;
    if (accepted) {
      std::swap(point_, trial_);
      if (ratio > kGood) damping_ = std::max(damping_ / 5, kLeastDamping);
      if (ratio < kPoor) damping_ = std::min(damping_ * 3, kMostDamping);
    } else {
      double const length = vectors_.norms(*step_).linf() / eps_;
      damping_ = std::min(damping_ * std::fmax(8, std::fmin(length / kLongest, 1e4)), kMostDamping);
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

/// out = a exp(-f / rho_a), or the same of the columns.
void NewtonMethod::find_wanted(Side side, Vector const& potential, Vector& out) const {
  double const penalty = penalties_.of(side);
  if (std::isinf(penalty)) return vectors_.copy(*weight_[side], out);
  vectors_.exp_difference(*weight_[side], *zero_[side], potential, penalty, out);
}

/// out = the soft c-transform f+ (f'+ in the operator's gauge) for which `best` is f* = f+ rho / (rho + eps).
void NewtonMethod::find_transform(Side side, Vector const& best, Vector& out) const {
  double const excess = eps_ / penalties_.of(side);
  if (excess == 0) return vectors_.copy(best, out);
  vectors_.combine({{1 + excess, &best}, {-excess, zero_[side]}}, out);
}

/// Evaluates g by the pass of a plain sweep.
void NewtonMethod::evaluate(Vector const& g, Point& out) {
  vectors_.copy(g, *out.g);
  vectors_.copy(*out.g, entropic_.potential(Side::columns));
  entropic_.sweep({.eps = eps_, .translates = false}, 1);
  ++passes_;
  out.error = entropic_.errors().column;
  vectors_.copy(std::as_const(entropic_).potential(Side::rows), *out.f);
  vectors_.copy(std::as_const(entropic_).potential(Side::columns), *out.next);
  Vector& scratch = *scratch_[Side::columns];
  find_transform(Side::columns, *out.next, scratch);
  vectors_.exp_difference(*weight_[Side::columns], *out.g, scratch, eps_, *out.marginal);
  find_wanted(Side::columns, *out.g, *out.wanted);
  vectors_.combine({{1, out.marginal.get()}, {-1, out.wanted.get()}}, scratch);
  out.norm = vectors_.norms(scratch).l2;
}

void NewtonMethod::sweep() {
  evaluate(*point_.next, point_);
}

/// Whether a column has so little mass that its equation is useless.
bool NewtonMethod::is_far() const {
  Vector& scratch = *scratch_[Side::columns];
  vectors_.combine({{1, point_.marginal.get()}, {-1e-8, point_.wanted.get()}}, scratch);
  VectorNorms const norms = vectors_.norms(scratch);
  return !(norms.least >= 0) || !std::isfinite(norms.l1);
}

double NewtonMethod::largest(Side side, Vector const& potential) const {
  vectors_.combine({{1, &potential, support_[side]}}, *scratch_[side]);
  return vectors_.norms(*scratch_[side]).linf();
}

/// The rise of the dual from point_ to trial_. If the difference is lost in the rounding of the potentials, it is the
/// integral of the slope by the trapezoidal rule, which is accurate for short steps.
double NewtonMethod::gain() const {
  double const size = std::max(largest(Side::rows, *trial_.f), largest(Side::columns, *trial_.g));
  double const rounding = 0x1p-48 * mass_ * size;
  double const of_rows = gain_of(Side::rows, *point_.f, *trial_.f);
  double const difference = of_rows + gain_of(Side::columns, *point_.g, *trial_.g);
  if (std::abs(difference) > 16 * rounding) return difference;
  Vector& scratch = *scratch_[Side::columns];
  vectors_.combine({{0.5, point_.wanted.get()},
                    {0.5, trial_.wanted.get()},
                    {-0.5, point_.marginal.get()},
                    {-0.5, trial_.marginal.get()}},
                   scratch);
  return vectors_.dot(scratch, *step_);
}

/// One side's part of the rise. Rows are exact at both ends, so sum P = sum_i a_i exp(-f_i / rho_a) there, and the rows
/// have the part of the dual that depends on sum P.
double NewtonMethod::gain_of(Side side, Vector const& from, Vector const& to) const {
  Vector &change = *scratch_[side], &masses = *masses_[side];
  vectors_.combine({{1, &to, support_[side]}, {-1, &from, support_[side]}}, change);
  double const penalty = penalties_.of(side);
  if (std::isinf(penalty)) return vectors_.dot(*weight_[side], change);
  // sum_i a'_i rho (1 - exp(-x_i / rho)) for the change x, times (rho + eps) / rho for the rows.
  double const factor = side == Side::rows ? 1 + eps_ / penalty : 1;
  find_wanted(side, from, masses);
  if (vectors_.norms(change).linf() > 1e-2 * penalty) {
    double const before = vectors_.norms(masses).l1;
    find_wanted(side, to, masses);
    return factor * penalty * (before - vectors_.norms(masses).l1);
  }
  // Its series up to x^3 is right to 1e-7 and does not cancel.
  double value = 0, coefficient = factor;
  for (int power = 1; power <= 3; ++power) {
    value += coefficient * vectors_.dot(masses, change);
    coefficient /= -penalty * (power + 1);
    vectors_.combine({{1, &masses, &change}}, masses);
  }
  return value;
}

/// The plan of the potentials of point_.
std::unique_ptr<PlanOperator> NewtonMethod::plan_of(EntropicOperator& entropic) const {
  vectors_.copy(*point_.f, entropic.potential(Side::rows));
  vectors_.copy(*point_.g, entropic.potential(Side::columns));
  std::unique_ptr<PlanOperator> plan = entropic.plan(eps_);
  for (Side const side : kSides) find_transform(side, side == Side::rows ? *point_.f : *point_.next, *scratch_[side]);
  plan->set_transforms(*scratch_[Side::rows], *scratch_[Side::columns]);
  return plan;
}

/// Makes step_ the step d of newton.hpp. Returns false where conjugate gradients have broken down.
bool NewtonMethod::find_direction(int most_products) {
  std::unique_ptr<PlanOperator> const plan = plan_of(entropic_), rough = rough_ ? plan_of(*rough_) : nullptr;
  PlanOperator& factors = rough ? *rough : *plan;  // The operator of the products.
  find_wanted(Side::rows, *point_.f, *rows_);
  vectors_.combine({{1 + eps_ / penalties_.a, rows_.get()}}, *rows_);
  vectors_.reciprocal(*rows_, *inverse_rows_);
  if (entries_are_old_) {
    entries_ =
        factors.entries().entry_solver(entries_ ? std::min(kEntriesPerRow, 2 * entries_->per_row()) : kEntriesPerRow);
    ++passes_;
  }
  auto const set_diagonal = [&](double factor, Vector const& marginal) {
    vectors_.combine({{factor, &marginal}, {eps_ / penalties_.b, point_.wanted.get()}}, *diagonal_);
  };
  // 1e-12 makes up for the rounding of the entries: without damping the exact matrix is singular.
  set_diagonal(1 + damping_ + 1e-12, *point_.marginal);
  entries_->set(plan->entries(), *rows_, *diagonal_);

  Vector& right = *scratch_[Side::columns];
  if (rough) {
    // The rounded plan has other marginals. With its own the matrix is a sum of squares of differences, weighted by
    // products of entries, so its eigenvalues have the relative errors of entries, however small they are.
    rough->multiply_gram(Side::columns, *inverse_rows_, *support_[Side::columns], right);
    vectors_.combine({{1 + eps_ / penalties_.a, &right}}, right);
    set_diagonal(1 + damping_, right);
    ++passes_;
  } else {
    set_diagonal(1 + damping_, *point_.marginal);
  }
  vectors_.combine({{1, point_.wanted.get()}, {-1, point_.marginal.get()}}, right);
  vectors_.combine({{0, step_.get()}}, *step_);
  LinearSystem const system{
      .matrix =
          [&](Vector const& in, Vector& out) {
            factors.multiply_gram(Side::columns, *inverse_rows_, in, out);
            vectors_.combine({{1, &in, diagonal_.get()}, {-1, &out}}, out);
          },
      .preconditioner = [&](Vector const& in, Vector& out) { entries_->solve(nullptr, in, out); },
  };
  ConjugateGradientResult const result = conjugate_gradient(
      vectors_, system, right, *step_,
      {.tolerance = kResidual, .iterations = std::min(most_products_, most_products), .evaluates_residual = false});
  // Conjugate gradients find the step in units of eps: its squares neither overflow nor underflow, whatever the costs.
  vectors_.combine({{eps_, step_.get()}}, *step_);
  passes_ += result.iterations;
  entries_are_old_ = result.iterations >= kManyProducts;
  if (result.status == LinearStatus::iteration_limit && result.iterations == most_products_)
    most_products_ = std::min(2 * most_products_, kMostProductsEver);
  return result.status == LinearStatus::converged || result.status == LinearStatus::iteration_limit;
}

}  // namespace monge
