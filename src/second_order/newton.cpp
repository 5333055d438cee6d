#include "second_order/newton.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <numeric>
#include <utility>

#include "core/compensated_sum.hpp"
#include "plan/conjugate_gradient.hpp"
#include "second_order/largest_entries.hpp"

namespace monge {
namespace {

/// mu at first, and its range. Far below 1 a step is Newton's; far above it is a short one along the gradient.
constexpr double kFirstDamping = 1e-2, kLeastDamping = 1e-11, kMostDamping = 1e3;
/// Ratios of the actual to the predicted gain: below the first a step is refused, below the second and above the third
/// the damping changes.
constexpr double kRefused = 0.05, kPoor = 0.25, kGood = 0.6;

/// Of conjugate gradients, relative. What damping leaves of the error, some fifth, makes more digits of a step useless.
constexpr double kResidual = 0.1;
constexpr int kMostProducts = 30;
/// Entries, a product, the trial and a sweep.
constexpr int kFewestPasses = 4;
/// As many steps of conjugate gradients call for other entries.
constexpr int kManyProducts = 6;

/// Entries of the preconditioner: at most so many a row on average, chosen among the largest kCandidates of each.
constexpr double kEntriesPerRow = 8, kFewestEntriesPerRow = 1;
constexpr std::int64_t kCandidates = 32;
/// Making ready to solve with them may take as long as so many passes.
constexpr double kMostPasses = 10;

}  // namespace

NewtonMethod::NewtonMethod(EntropicOperator& entropic, Marginals const& marginals, Criterion criterion)
    : entropic_(entropic),
      vectors_(entropic.vectors()),
      marginals_(marginals),
      criterion_(criterion),
      mass_(std::accumulate(marginals.a.begin(), marginals.a.end(), 0.0)),
      damping_(kFirstDamping),
      entries_per_row_(kEntriesPerRow),
      inverse_a_(vectors_.make(Side::rows)) {
  vectors_.read(VectorView(marginals.a), *inverse_a_);
  vectors_.reciprocal(*inverse_a_, *inverse_a_);
}

NewtonMethod::~NewtonMethod() = default;

void NewtonMethod::set(Side side, std::vector<double> const& values) {
  vectors_.read(VectorView(values), entropic_.potential(side));
}

std::vector<double> NewtonMethod::get(Side side) const {
  std::vector<double> values(static_cast<std::size_t>(entropic_.size(side)));
  vectors_.write(std::as_const(entropic_).potential(side), MutableVectorView(values));
  return values;
}

NewtonProgress NewtonMethod::advance(double eps, int most_passes) {
  passes_ = 0;
  bool is_step = false;
  if (eps_ != eps) {
    eps_ = eps;
    entries_are_old_ = true;
    evaluate(get(Side::columns), point_);
    best_ = point_;
  } else if (most_passes < kFewestPasses || is_far()) {
    sweep();
  } else {
    is_step = true;
    double const before = point_.error;
    std::vector<double> const step = direction(most_passes - kFewestPasses + 1);
    std::vector<double> moved = point_.g;
    for (std::size_t j = 0; j < moved.size(); ++j) moved[j] += step[j];
    evaluate(std::move(moved), trial_);
    double predicted = 0;
    for (std::size_t j = 0; j < step.size(); ++j) predicted += 0.5 * (marginals_.b[j] - point_.marginal[j]) * step[j];
    double const ratio = predicted > 0 ? gain(trial_, step) / predicted : -1;
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
  if (value(point_) < value(best_)) best_ = point_;
  return {point_.error, point_.norm, passes_, is_step};
}

double NewtonMethod::return_to_best() {
  set(Side::rows, best_.f);
  set(Side::columns, best_.next);
  return best_.error;
}

/// The pass of a plain sweep from g.
void NewtonMethod::evaluate(std::vector<double> g, Point& out) {
  out.g = std::move(g);
  set(Side::columns, out.g);
  entropic_.sweep({.eps = eps_}, 1);
  ++passes_;
  out.error = entropic_.errors().column;
  out.f = get(Side::rows);
  out.next = get(Side::columns);
  out.marginal.resize(out.g.size());
  CompensatedSum square;
  for (std::size_t j = 0; j < out.g.size(); ++j) {
    double const b = marginals_.b[j];
    out.marginal[j] = b > 0 ? b * std::exp((out.g[j] - out.next[j]) / eps_) : 0.0;
    double const excess = out.marginal[j] - b;
    square.add(excess * excess);
  }
  out.norm = std::sqrt(square.value());
}

void NewtonMethod::sweep() {
  evaluate(std::move(point_.next), point_);
}

/// Whether a column has so little that its equation says nothing.
bool NewtonMethod::is_far() const {
  for (std::size_t j = 0; j < point_.marginal.size(); ++j) {
    if (!(point_.marginal[j] >= 1e-8 * marginals_.b[j]) || !std::isfinite(point_.marginal[j])) return true;
  }
  return false;
}

/// The rise of the dual from point_ to the trial. Where rounding of the potentials would drown the difference it is the
/// integral of the slope by the trapezoidal rule, which is as good as the step is short.
double NewtonMethod::gain(Point const& trial, std::vector<double> const& step) const {
  CompensatedSum difference, integral;
  double largest = 0;
  for (std::size_t i = 0; i < trial.f.size(); ++i) {
    if (marginals_.a[i] == 0) continue;
    difference.add(marginals_.a[i] * (trial.f[i] - point_.f[i]));
    largest = std::max(largest, std::abs(trial.f[i]));
  }
  for (std::size_t j = 0; j < step.size(); ++j) {
    if (marginals_.b[j] == 0) continue;
    difference.add(marginals_.b[j] * (trial.g[j] - point_.g[j]));
    integral.add(0.5 * (2 * marginals_.b[j] - point_.marginal[j] - trial.marginal[j]) * step[j]);
    largest = std::max(largest, std::abs(trial.g[j]));
  }
  double const rounding = 0x1p-48 * mass_ * largest;
  return std::abs(difference.value()) > 16 * rounding ? difference.value() : integral.value();
}

/// d of the head of this class.
std::vector<double> NewtonMethod::direction(int most_products) {
  set(Side::rows, point_.f);
  set(Side::columns, point_.g);
  std::unique_ptr<PlanOperator> const plan = entropic_.plan(eps_);
  std::unique_ptr<Vector> const next = vectors_.make(Side::columns);
  vectors_.read(VectorView(point_.next), *next);
  plan->set_transforms(std::as_const(entropic_).potential(Side::rows), *next);
  set_entries(*plan);

  std::size_t const m = point_.g.size();
  std::vector<double> right(m), damped(m);
  for (std::size_t j = 0; j < m; ++j) {
    right[j] = eps_ * (marginals_.b[j] - point_.marginal[j]);
    damped[j] = (1 + damping_) * point_.marginal[j];
  }
  std::unique_ptr<Vector> const b = vectors_.make(Side::columns), x = vectors_.make(Side::columns),
                                diagonal = vectors_.make(Side::columns);
  vectors_.read(VectorView(right), *b);
  vectors_.read(VectorView(damped), *diagonal);

  LinearSystem const system{
      .matrix =
          [&](Vector const& in, Vector& out) {
            plan->multiply_gram(Side::columns, *inverse_a_, in, out);
            vectors_.combine(std::array{Term{1, &in, diagonal.get()}, Term{-1, &out}}, out);
          },
      .preconditioner = [&](Vector const& in, Vector& out) { entries_->solve(in, out); },
  };
  ConjugateGradientResult const result = conjugate_gradient(
      vectors_, system, *b, *x,
      {.tolerance = kResidual, .iterations = std::min(kMostProducts, most_products), .evaluates_residual = false});
  passes_ += result.iterations;
  entries_are_old_ = result.iterations >= kManyProducts;
  std::vector<double> step(m);
  vectors_.write(*x, MutableVectorView(step));
  return step;
}

/// The largest entries of all, from the largest of each row: as many as their factor is worth.
void NewtonMethod::choose_entries(PlanOperator& plan) {
  double const n = static_cast<double>(entropic_.size(Side::rows));
  std::vector<LargeEntry> found = largest_of_rows(plan, std::min(entropic_.size(Side::columns), kCandidates));
  ++passes_;
  for (entries_per_row_ = std::min(kEntriesPerRow, 2 * entries_per_row_);; entries_per_row_ /= std::numbers::sqrt2) {
    keep_largest(found, static_cast<std::size_t>(entries_per_row_ * n));
    entry_rows_.clear();
    entry_columns_.clear();
    for (LargeEntry const& entry : found) {
      entry_rows_.push_back(entry.i);
      entry_columns_.push_back(entry.j);
    }
    entries_ = entropic_.entry_solver(entry_rows_, entry_columns_);
    if (entries_->passes() <= kMostPasses || entries_per_row_ <= kFewestEntriesPerRow) return;
  }
}

/// Of point_.
void NewtonMethod::set_entries(PlanOperator& plan) {
  if (entries_are_old_) choose_entries(plan);
  std::int64_t const count = std::ssize(entry_rows_);
  std::vector<double> values(entry_rows_.size()), damped(point_.marginal);
  plan.entries_at({entry_rows_.data(), count}, {entry_columns_.data(), count}, MutableVectorView(values));
  // Rounding of the entries may take as much from a matrix that is singular but for the damping.
  for (double& c : damped) c *= 1 + damping_ + 1e-12;
  entries_->set(marginals_.a, damped, values);
}

}  // namespace monge
