#include "second_order/splr.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <future>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "entropic/criterion.hpp"
#include "second_order/largest_entries.hpp"
#include "second_order/line_search.hpp"
#include "second_order/secant.hpp"
#include "second_order/sparse_factor.hpp"

namespace monge {
namespace {

/// Of the largest density: where a solve begins, and the least.
constexpr double kFirstDensity = 0.1, kLeastDensity = 0.01;
/// The density grows where the gradient did, and falls elsewhere.
constexpr double kGrowth = 1.1, kDecay = 0.99;
/// How many times K / n entries of each row are looked at to find the K largest of all.
constexpr double kRowShare = 4;
/// <y, s> over <y, y> (in units of cost over mass) that a step must have to correct the matrix.
constexpr double kLeastCurvature = 1e-6;
/// A search begins at so many times the last step, or at 1.
constexpr double kStepGrowth = 1.5;
/// A candidate may have so many times the gradient of the step that it replaces.
constexpr double kCandidateGradient = 10;

constexpr double kUnitRoundoff = 0x1p-53;

using Values = std::vector<double>;

/// What lies on both sides of a problem.
struct Both {
  Values rows, columns;
};

/// The unknowns of a step: the potentials of the points that have weight. A vector of them has the rows first.
class Unknowns {
 public:
  explicit Unknowns(Marginals const& marginals)
      : rows_(with_weight(marginals.a)),
        columns_(with_weight(marginals.b)),
        row_places_(marginals.a.size(), -1),
        column_places_(marginals.b.size(), -1) {
    for (std::size_t k = 0; k < rows_.size(); ++k) row_places_[at(rows_, k)] = static_cast<std::int64_t>(k);
    for (std::size_t k = 0; k < columns_.size(); ++k) column_places_[at(columns_, k)] = static_cast<std::int64_t>(k);
  }

  std::vector<std::int64_t> const& rows() const { return rows_; }
  std::vector<std::int64_t> const& columns() const { return columns_; }
  /// Among the rows or the columns of the unknowns; -1 for a point that is not among them.
  std::int64_t row_place(std::int64_t i) const { return row_places_[static_cast<std::size_t>(i)]; }
  std::int64_t column_place(std::int64_t j) const { return column_places_[static_cast<std::size_t>(j)]; }

  Values gather(Both const& both) const {
    Values all;
    all.reserve(rows_.size() + columns_.size());
    for (std::int64_t const i : rows_) all.push_back(both.rows[static_cast<std::size_t>(i)]);
    for (std::int64_t const j : columns_) all.push_back(both.columns[static_cast<std::size_t>(j)]);
    return all;
  }
  /// 0 for the points that are not among them.
  Both scatter(Values const& values) const {
    Both both{Values(row_places_.size()), Values(column_places_.size())};
    for (std::size_t k = 0; k < rows_.size(); ++k) both.rows[at(rows_, k)] = values[k];
    for (std::size_t k = 0; k < columns_.size(); ++k) both.columns[at(columns_, k)] = values[rows_.size() + k];
    return both;
  }

 private:
  static std::size_t at(std::vector<std::int64_t> const& points, std::size_t k) {
    return static_cast<std::size_t>(points[k]);
  }
  static std::vector<std::int64_t> with_weight(Values const& weights) {
    std::vector<std::int64_t> points;
    for (std::size_t i = 0; i < weights.size(); ++i) {
      if (weights[i] > 0) points.push_back(static_cast<std::int64_t>(i));
    }
    return points;
  }

  std::vector<std::int64_t> rows_, columns_;
  std::vector<std::int64_t> row_places_, column_places_;
};

/// The plan at some potentials.
struct Point {
  Both marginals;
  Values gradient;  // Of minus the dual, by the unknowns: marginals less weights.
  double mass = 0, dual = 0;
  double value = 0;         // What the criterion says.
  double l1 = 0, norm = 0;  // Of both marginals less the weights, in L1 and L2.
  double l2 = 0;            // Of the gradient.
};

/// A next iterate: where it is, how it differs from this one and by how much minus the dual is higher there.
struct Move {
  Point point;
  Values step;
  double rise;
};

/// Pairs of points and, in the same order, of unknowns.
struct Pairs {
  std::vector<std::int64_t> rows, columns, row_places, column_places;

  void add(Unknowns const& unknowns, std::int64_t i, std::int64_t j) {
    rows.push_back(i);
    columns.push_back(j);
    row_places.push_back(unknowns.row_place(i));
    column_places.push_back(unknowns.column_place(j));
  }
};

/// The first row, the first column and about `count` of the largest other entries: those of the kRowShare count / n
/// largest of each row, which is all of them unless few rows have most.
Pairs choose_pairs(PlanOperator& plan, Unknowns const& unknowns, std::int64_t count) {
  std::int64_t const n = plan.size(Side::rows), m = plan.size(Side::columns);
  double const share = std::ceil(kRowShare * static_cast<double>(count) / static_cast<double>(n));
  std::int64_t const width = std::min(m, static_cast<std::int64_t>(share));
  std::vector<LargeEntry> largest = largest_of_rows(plan, width);
  std::erase_if(largest, [&](LargeEntry const& entry) {
    return unknowns.row_place(entry.i) <= 0 || unknowns.column_place(entry.j) <= 0;
  });
  keep_largest(largest, static_cast<std::size_t>(count));
  Pairs pairs;
  for (std::int64_t const j : unknowns.columns()) pairs.add(unknowns, unknowns.rows().front(), j);
  for (std::size_t k = 1; k < unknowns.rows().size(); ++k)
    pairs.add(unknowns, unknowns.rows()[k], unknowns.columns().front());
  for (LargeEntry const& entry : largest) pairs.add(unknowns, entry.i, entry.j);
  return pairs;
}

class Splr {
 public:
  Splr(EntropicOperator& entropic, Marginals const& marginals, double eps, SplrOptions const& options,
       SplrLimits const& limits)
      : entropic_(entropic),
        vectors_(entropic.vectors()),
        marginals_(marginals),
        eps_(eps),
        options_(options),
        limits_(limits),
        unknowns_(marginals),
        weights_(unknowns_.gather({marginals.a, marginals.b})),
        mass_(std::accumulate(marginals.a.begin(), marginals.a.end(), 0.0)),
        cost_(std::max(entropic.centred_cost_bound(), eps)),
        rounding_(kUnitRoundoff * cost_) {
    auto const n = static_cast<double>(unknowns_.rows().size());
    auto const m = static_cast<double>(unknowns_.columns().size());
    double const density = options.density > 0 ? options.density : std::min(1.0, 10 / std::min(n, m));
    most_pairs_ = density * n * m;
    wanted_pairs_ = kFirstDensity * most_pairs_;
    for (std::size_t k = 0; k < 2; ++k) {
      for (Vectors* vectors : {&iterate_, &direction_, &candidate_, &marginal_, &best_})
        (*vectors)[k] = vectors_.make(kSides[k]);
    }
  }

  SplrResult run() {
    keep_potentials(iterate_);
    point_ = evaluate();
    std::optional<Status> end = observed();
    if (!end) {
      update_rows();  // Where P is far from both marginals the Hessian says little.
      keep_potentials(iterate_);
      for (double const potential : unknowns_.gather(on_host(iterate_)))
        rounding_ = std::max(rounding_, kUnitRoundoff * std::fabs(potential));
      point_ = evaluate();
      first_l2_ = point_.l2;
      end = observed();
    }
    while (!end) {
      end = iterate();
      if (!end) end = observed();
    }
    // The dual has risen all the way, but not each of the errors has fallen: without a plan of these marginals they may
    // end anywhere.
    set_potentials(best_, 0);
    best_check_.iteration = check_.iteration;
    best_check_.passes = check_.passes;
    return {*end, best_check_};
  }

 private:
  using Vectors = std::array<std::unique_ptr<Vector>, 2>;

  std::optional<Status> observed() {
    check_.l1_error = point_.l1 / mass_;
    check_.l2_error = point_.norm / mass_;
    check_.value = point_.value;
    check_.dual = point_.dual;
    if (!(best_check_.value <= check_.value)) {
      best_check_ = check_;
      for (std::size_t k = 0; k < 2; ++k) vectors_.combine(std::array{Term{1, iterate_[k].get()}}, *best_[k]);
    }
    bool const go_on = !limits_.observe || limits_.observe(check_);
    if (check_.value <= limits_.tolerance) return Status::converged;
    if (!go_on) return Status::stopped;
    // P is as good as the potentials over eps, and its sums to a few units.
    if (check_.l1_error <= rounding_ / eps_ + 10 * kUnitRoundoff) return Status::precision_limit;
    if (check_.passes >= limits_.passes) return Status::iteration_limit;
    return std::nullopt;
  }

  std::optional<Status> iterate() {
    ++check_.iteration;
    set_potentials(iterate_, 0);
    bool const fresh = age_ == 0;
    // Choosing pairs takes a pass.
    bool const offers = fresh && options_.candidate_sweeps > 0 && check_.passes + 1 < limits_.passes;
    age_ = (age_ + 1) % options_.pattern_reuse;
    Values const entries = entries_at_iterate(fresh);
    std::future<void> sweeps = offers ? start_candidate() : std::future<void>();
    if (fresh) {
      factor_.emplace(std::ssize(unknowns_.rows()), std::ssize(unknowns_.columns()), pairs_.row_places,
                      pairs_.column_places);
    }
    if (!factor(entries)) return Status::precision_limit;
    Values const direction = descent();
    if (offers) sweeps.get();
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

  /// The first half of a sweep: f becomes the best there is for g.
  void update_rows() {
    Term const old{1, iterate_[1].get()};
    entropic_.sweep({.eps = eps_}, 1);
    vectors_.combine({&old, 1}, entropic_.potential(Side::columns));
    ++check_.passes;
  }

  /// Sweeps from the iterate on another thread, for backends that do not enqueue them. Until get() nothing else may use
  /// the operator or what else is of its context.
  std::future<void> start_candidate() {
    int const sweeps = std::min(options_.candidate_sweeps, limits_.passes - check_.passes);
    check_.passes += sweeps;
    return std::async(std::launch::async, [this, sweeps] { entropic_.sweep({.eps = eps_}, sweeps); });
  }

  void keep_potentials(Vectors const& to) const {
    for (std::size_t k = 0; k < 2; ++k) {
      Term const all{1, &std::as_const(entropic_).potential(kSides[k])};
      vectors_.combine({&all, 1}, *to[k]);
    }
  }

  /// from + step * direction_.
  void set_potentials(Vectors const& from, double step) {
    for (std::size_t k = 0; k < 2; ++k) {
      Term const terms[] = {{1, from[k].get()}, {step, direction_[k].get()}};
      vectors_.combine(terms, entropic_.potential(kSides[k]));
    }
  }

  Both on_host(Vectors const& vectors) const {
    Both both{Values(marginals_.a.size()), Values(marginals_.b.size())};
    vectors_.write(*vectors[0], MutableVectorView(both.rows));
    vectors_.write(*vectors[1], MutableVectorView(both.columns));
    return both;
  }

  Point evaluate() {
    Evaluation const value = entropic_.evaluate(eps_, marginal_[0].get(), marginal_[1].get());
    ++check_.passes;
    Point point;
    point.marginals = on_host(marginal_);
    Both excess = point.marginals;
    add(-1, marginals_.a, excess.rows);
    add(-1, marginals_.b, excess.columns);
    point.gradient = unknowns_.gather(excess);
    point.mass = value.mass;
    point.dual = value.dual;
    point.value = criterion_value(limits_.criterion, value, eps_, mass_);
    point.l1 = value.row_error + value.column_error;
    point.norm = value.gradient_norm;
    point.l2 = std::sqrt(dot(point.gradient, point.gradient));
    return point;
  }

  // The matrix and the direction.

  /// Of the chosen pairs, which are chosen first where that is due.
  Values entries_at_iterate(bool choose) {
    std::unique_ptr<PlanOperator> const plan = entropic_.plan(eps_);
    if (choose) {
      adapt_density();
      pairs_ = choose_pairs(*plan, unknowns_, std::max<std::int64_t>(1, std::llround(wanted_pairs_)));
      check_.pairs = std::ssize(pairs_.rows);
      ++check_.passes;
    }
    Values entries(pairs_.rows.size());
    plan->entries_at({pairs_.rows.data(), std::ssize(entries)}, {pairs_.columns.data(), std::ssize(entries)},
                     MutableVectorView(entries));
    return entries;
  }

  void adapt_density() {
    if (check_.iteration == 1) return;
    bool const worse = last_l2_ < first_l2_ && point_.l2 > last_l2_;
    wanted_pairs_ = std::clamp(wanted_pairs_ * (worse ? kGrowth : kDecay), kLeastDensity * most_pairs_, most_pairs_);
  }

  /// eps B. It is positive definite with any shift, but perhaps not in float64.
  bool factor(Values const& entries) {
    Values const sums = unknowns_.gather(point_.marginals);
    double shift = std::min(point_.l2 / mass_, options_.shift) * mass_ * eps_ / cost_;
    for (;; shift = std::max(10 * shift, kUnitRoundoff * mass_)) {
      Values diagonal = sums;
      for (double& value : diagonal) value += shift;
      std::span<double const> const all(diagonal);
      std::size_t const rows = unknowns_.rows().size();
      if (factor_->factor(all.first(rows), all.subspan(rows), entries)) return true;
      if (!(shift < mass_)) return false;
    }
  }

  /// Minus the inverse of the corrected matrix times the gradient.
  Values descent() const {
    Values z = point_.gradient;
    auto const solve = [&](Values& values) {
      std::span<double> const all(values);
      factor_->solve(all.first(unknowns_.rows().size()), all.subspan(unknowns_.rows().size()));
      for (double& value : values) value *= eps_;
    };
    secant_ ? secant_->apply(solve, z) : solve(z);
    for (double& value : z) value = -value;
    return z;
  }

  // The next iterate.

  /// To the operator's potentials.
  Move move_to_candidate() {
    keep_potentials(candidate_);
    Both change = on_host(candidate_);
    Both const iterate = on_host(iterate_);
    add(-1, iterate.rows, change.rows);
    add(-1, iterate.columns, change.columns);
    Move move{evaluate(), unknowns_.gather(change), 0};
    move.rise = rise(move.point, dot(weights_, move.step));
    return move;
  }

  /// A difference of small terms: its rounding is that of P, not that of the dual.
  double rise(Point const& point, double weighted_step) const {
    return eps_ * (point.mass - point_.mass) - weighted_step;
  }

  /// Leaves the operator's potentials where it goes; none where the direction does not descend in float64.
  std::optional<Move> search(Values const& direction) {
    LinePoint const start{0, 0, dot(point_.gradient, direction)};
    if (!(start.slope < 0)) return std::nullopt;
    Both const both = unknowns_.scatter(direction);
    vectors_.read(VectorView(both.rows), *direction_[0]);
    vectors_.read(VectorView(both.columns), *direction_[1]);
    double const weighted = dot(weights_, direction);
    double at = 0;
    Point trial;
    auto const phi = [&](double step) {
      set_potentials(iterate_, step);
      trial = evaluate();
      at = step;
      return LinePoint{step, rise(trial, step * weighted), dot(trial.gradient, direction)};
    };
    LinePoint const end =
        wolfe_search(start, std::min(1.0, kStepGrowth * last_step_), phi, {.resolution = rounding_ * mass_}).point;
    if (end.step == 0) return std::nullopt;
    if (end.step != at) phi(end.step);
    last_step_ = end.step;
    Values step = direction;
    for (double& value : step) value *= end.step;
    return Move{std::move(trial), std::move(step), end.value};
  }

  void accept(Move&& move) {
    Values change = move.point.gradient;
    add(-1, point_.gradient, change);
    secant_ = Secant::of(std::move(move.step), std::move(change), kLeastCurvature * cost_ / mass_);
    last_l2_ = point_.l2;
    point_ = std::move(move.point);
  }

  EntropicOperator& entropic_;
  VectorOperations const& vectors_;
  Marginals const& marginals_;
  double eps_;
  SplrOptions const& options_;
  SplrLimits const& limits_;
  Unknowns unknowns_;
  Values weights_;  // Of the unknowns.
  double mass_;
  double cost_;      // What shifts are relative to.
  double rounding_;  // Of the potentials: 2^-53 of the cost, or of the start if that is larger.
  double most_pairs_, wanted_pairs_;

  Vectors iterate_, direction_, candidate_, marginal_;
  Vectors best_;  // Of the iterates, by what the criterion says.
  Point point_;   // At the iterate.
  Pairs pairs_;
  std::optional<SparseFactor> factor_;
  std::optional<Secant> secant_;
  SplrCheck check_;
  SplrCheck best_check_{.value = std::numeric_limits<double>::quiet_NaN()};
  int age_ = 0;           // Iterations since the pairs were chosen; 0: they are due.
  double last_step_ = 1;  // Of the search.
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
