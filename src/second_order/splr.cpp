#include "second_order/splr.hpp"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <memory>
#include <numeric>
#include <optional>
#include <utility>

#include "core/criterion.hpp"
#include "core/numbers.hpp"
#include "second_order/line_search.hpp"
#include "second_order/secant.hpp"
#include "second_order/vector_pairs.hpp"

namespace monge {
namespace {

/// Density at the start of a solve, and the least, as fractions of the largest.
constexpr double kFirstDensity = 0.3, kLeastDensity = 0.01;
/// Factors of the density: where the gradient has grown, and elsewhere.
constexpr double kGrowth = 1.1, kDecay = 0.99;
/// The least <y, s> / <y, y> (in units of cost / mass) with which a step corrects the matrix.
constexpr double kLeastCurvature = 1e-6;
/// A search begins at this multiple of the last step, at most at 1.
constexpr double kStepGrowth = 1.5;
/// The least shift of the diagonal of eps B, in units of the mass: float64 then finds B positive definite.
constexpr double kLeastShift = 10 * kUnitRoundoff;
/// A candidate's gradient may be larger by this factor than that of the step that it replaces.
constexpr double kCandidateGradient = 10;

/// The plan at some potentials.
struct Point {
  VectorPair gradient;  // Gradient of the negative dual: marginals less weights.
  double mass = 0, dual = 0;
  double value = 0;       // The criterion's value.
  double l1 = 0, l2 = 0;  // Norms of the gradient.
};

/// A possible next iterate: the plan there, the step to it and the rise of minus the dual.
struct Move {
  Point point;
  VectorPair step;
  double rise;
};

class Splr {
 public:
  Splr(EntropicOperator& entropic, Marginals const& marginals, double eps, SplrOptions const& options,
       SplrLimits const& limits)
      : entropic_(entropic),
        vectors_(entropic.vectors()),
        pairs_(vectors_),
        eps_(eps),
        options_(options),
        limits_(limits),
        weights_(pairs_.make()),
        diagonal_(pairs_.make()),
        mass_(std::accumulate(marginals.a.begin(), marginals.a.end(), 0.0)),
        cost_(std::max(entropic.cost_size().centred_bound, eps)),
        rounding_(kUnitRoundoff * cost_),
        iterate_(pairs_.make()),
        candidate_(pairs_.make()),
        best_(pairs_.make()) {
    vectors_.read(VectorView(marginals.a), *weights_.of_rows);
    vectors_.read(VectorView(marginals.b), *weights_.of_columns);
    auto const n = static_cast<double>(marginals.a.size()), m = static_cast<double>(marginals.b.size());
    most_per_row_ = (options.density > 0 ? options.density : std::min(1.0, 10 / std::min(n, m))) * m;
    check_.per_row = kFirstDensity * most_per_row_;
  }

  SplrResult run() {
    keep_potentials(iterate_);
    point_ = evaluate();
    std::optional<Status> end = observed();
    if (!end) {
      update_rows();  // Where P is far from both marginals the Hessian is of little use.
      keep_potentials(iterate_);
      rounding_ = std::max(rounding_, kUnitRoundoff * largest_potential());
      point_ = evaluate();
      first_l2_ = point_.l2;
      end = observed();
    }
    while (!end) {
      end = iterate();
      if (!end) end = observed();
    }
    // The dual has risen throughout, but the errors may have risen, too: without limit if no plan has these marginals.
    set_potentials({{1, &best_}});
    best_check_.iteration = check_.iteration;
    best_check_.passes = check_.passes;
    return {*end, best_check_};
  }

 private:
  std::optional<Status> observed() {
    check_.l1_error = point_.l1 / mass_;
    check_.l2_error = point_.l2 / mass_;
    check_.value = point_.value;
    check_.dual = point_.dual;
    if (limits_.tolerance == 0 || !(best_check_.value <= check_.value)) {
      best_check_ = check_;
      pairs_.combine({{1, &iterate_}}, best_);
    }
    set_potentials({{1, &iterate_}});
    bool const go_on = !limits_.observe || limits_.observe(check_);
    if (check_.value <= limits_.tolerance) return Status::converged;
    if (!go_on) return Status::stopped;
    // The relative error of P is the error of the potentials divided by eps. Sums of P add a few roundoffs.
    if (check_.l1_error <= rounding_ / eps_ + 10 * kUnitRoundoff) return Status::precision_limit;
    if (check_.passes >= limits_.passes || check_.iteration >= limits_.iterations) return Status::iteration_limit;
    return std::nullopt;
  }

  std::optional<Status> iterate() {
    ++check_.iteration;
    bool const fresh = age_ == 0;
    // Choosing pairs takes a pass.
    bool const offers = fresh && options_.candidate_sweeps > 0 && check_.passes + 1 < limits_.passes;
    age_ = (age_ + 1) % options_.pattern_reuse;
    set_matrix(fresh);
    VectorPair const direction = descent();
    std::optional<Move> candidate = offers ? std::optional(move_to_candidate()) : std::nullopt;
    std::optional<Move> move = search(direction);
    SplrEnd const step = move ? SplrEnd{move->rise, move->point.l2} : SplrEnd{0, point_.l2};
    if (candidate && takes_candidate({candidate->rise, candidate->point.l2}, step)) {
      move = std::move(candidate);
      std::swap(iterate_, candidate_);
    } else if (move) {
      keep_potentials(iterate_);
    }
    if (move) {
      accept(std::move(*move));
    } else if (fresh && !secant_) {
      return Status::precision_limit;
    } else {
      age_ = 0;
      secant_.reset();
    }
    return std::nullopt;
  }

  // The operator and its potentials.

  /// The first half of a sweep: f becomes the best for g.
  void update_rows() {
    entropic_.sweep({.eps = eps_}, 1);
    vectors_.copy(*iterate_.of_columns, entropic_.potential(Side::columns));
    ++check_.passes;
  }

  void keep_potentials(VectorPair const& to) const {
    for (Side const side : kSides) vectors_.copy(std::as_const(entropic_).potential(side), *to[side]);
  }

  void set_potentials(std::initializer_list<PairTerm> pairs) {
    for (Side const side : kSides) vectors_.combine(PairOperations::terms(pairs, side), entropic_.potential(side));
  }

  /// The largest absolute potential of the iterate at a point of positive weight.
  double largest_potential() const {
    double largest = 0;
    for (Side const side : kSides) {
      std::unique_ptr<Vector> const support = vectors_.make(side);
      vectors_.support(*weights_[side], *support);
      vectors_.combine({{1, support.get(), iterate_[side]}}, *support);
      largest = std::max(largest, vectors_.norms(*support).linf());
    }
    return largest;
  }

  Point evaluate() {
    Point point{.gradient = pairs_.make()};
    Evaluation const value = entropic_.evaluate(eps_, point.gradient.of_rows.get(), point.gradient.of_columns.get());
    ++check_.passes;
    pairs_.combine({{1, &point.gradient}, {-1, &weights_}}, point.gradient);
    point.mass = value.mass;
    point.dual = value.dual;
    point.value = criterion_value(limits_.criterion, value, eps_, mass_);
    point.l1 = value.row_error + value.column_error;
    point.l2 = value.gradient_norm;
    return point;
  }

  // The matrix and the direction.

  /// Makes the matrix eps B of the iterate, with new pairs if `choose`.
  void set_matrix(bool choose) {
    std::unique_ptr<PlanOperator> const plan = entropic_.plan(eps_);
    if (choose) {
      adapt_density();
      entries_ = plan->entries().entry_solver(check_.per_row);
      ++check_.passes;
    }
    double const shift = std::min(point_.l2 / mass_, options_.shift) * eps_ / cost_;
    for (Side const side : kSides)
      vectors_.combine({{1, point_.gradient[side].get()},
                        {1, weights_[side].get()},
                        {mass_ * std::max(shift, kLeastShift), nullptr}},
                       *diagonal_[side]);
    entries_->set(plan->entries(), *diagonal_.of_rows, *diagonal_.of_columns);
  }

  void adapt_density() {
    if (check_.iteration == 1) return;
    bool const worse = last_l2_ < first_l2_ && point_.l2 > last_l2_;
    double const wanted = check_.per_row * (worse ? kGrowth : kDecay);
    check_.per_row = std::clamp(wanted, kLeastDensity * most_per_row_, most_per_row_);
  }

  /// Minus the inverse of the corrected matrix times the gradient.
  VectorPair descent() {
    VectorPair z = pairs_.copy(point_.gradient);
    auto const solve = [&](VectorPair const& values) {
      entries_->solve(values.of_rows.get(), *values.of_columns, *values.of_columns);
      pairs_.combine({{eps_, &values}}, values);
    };
    secant_ ? secant_->apply(solve, z) : solve(z);
    pairs_.combine({{-1, &z}}, z);
    return z;
  }

  // The next iterate.

  /// The move by sweeps from the iterate, whose potentials the operator has.
  Move move_to_candidate() {
    int const sweeps = std::min(options_.candidate_sweeps, limits_.passes - check_.passes);
    check_.passes += sweeps;
    entropic_.sweep({.eps = eps_}, sweeps);
    keep_potentials(candidate_);
    Move move{evaluate(), pairs_.make(), 0};
    pairs_.combine({{1, &candidate_}, {-1, &iterate_}}, move.step);
    move.rise = rise(move.point, pairs_.dot(weights_, move.step));
    return move;
  }

  /// The rise of minus the dual from small terms: its rounding is that of P, not that of the dual.
  double rise(Point const& point, double weighted_step) const {
    return eps_ * (point.mass - point_.mass) - weighted_step;
  }

  /// Leaves the operator's potentials at the end of the step; none if the direction does not descend in float64.
  std::optional<Move> search(VectorPair const& direction) {
    auto const along = pairs_.dots({{&point_.gradient, &direction}, {&weights_, &direction}});
    LinePoint const start{0, 0, along[0]};
    if (!(start.slope < 0)) return std::nullopt;
    double at = 0;
    Point trial;
    auto const phi = [&](double step) {
      set_potentials({{1, &iterate_}, {step, &direction}});
      trial = evaluate();
      at = step;
      return LinePoint{step, rise(trial, step * along[1]), pairs_.dot(trial.gradient, direction)};
    };
    LinePoint const end =
        wolfe_search(start, std::min(1.0, kStepGrowth * last_step_), phi, {.resolution = rounding_ * mass_}).point;
    if (end.step == 0) return std::nullopt;
    if (end.step != at) phi(end.step);
    last_step_ = end.step;
    VectorPair step = pairs_.make();
    pairs_.combine({{end.step, &direction}}, step);
    return Move{std::move(trial), std::move(step), end.value};
  }

  void accept(Move&& move) {
    VectorPair change = pairs_.make();
    pairs_.combine({{1, &move.point.gradient}, {-1, &point_.gradient}}, change);
    secant_ = Secant::of(pairs_, std::move(move.step), std::move(change), kLeastCurvature * cost_ / mass_);
    last_l2_ = point_.l2;
    point_ = std::move(move.point);
  }

  EntropicOperator& entropic_;
  VectorOperations const& vectors_;
  PairOperations pairs_;
  double eps_;
  SplrOptions const& options_;
  SplrLimits const& limits_;
  VectorPair weights_;
  std::unique_ptr<EntrySolver> entries_;  // The inverse of eps B,
  VectorPair diagonal_;                   // which has this diagonal.
  double mass_;
  double cost_;      // The scale of the costs.
  double rounding_;  // Rounding of the potentials: 2^-53 times cost_ or, if larger, times the potentials of the start.
  double most_per_row_;

  VectorPair iterate_, candidate_;
  VectorPair best_;  // The iterate with the least criterion value.
  Point point_;      // The plan at the iterate.
  std::optional<Secant> secant_;
  SplrCheck check_;
  SplrCheck best_check_{.value = std::numeric_limits<double>::quiet_NaN()};
  int age_ = 0;           // Iterations since the pairs were chosen; 0: new ones are due.
  double last_step_ = 1;  // Step length that the last line search found.
  double first_l2_ = 0, last_l2_ = 0;
};

}  // namespace

bool takes_candidate(SplrEnd const& candidate, SplrEnd const& step) {
  return candidate.rise < step.rise && candidate.l2 < kCandidateGradient * step.l2;
}

SplrResult run_splr(EntropicOperator& entropic, Marginals const& marginals, double eps, SplrOptions const& options,
                    SplrLimits const& limits) {
  return Splr(entropic, marginals, eps, options, limits).run();
}

}  // namespace monge
