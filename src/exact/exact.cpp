#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include <monge/entropic.hpp>
#include <monge/exact.hpp>
#include <monge/solver.hpp>

#include "core/compensated_sum.hpp"
#include "core/stopwatch.hpp"
#include "entropic/input.hpp"
#include "exact/network_simplex.hpp"
#include "exact/pair_costs.hpp"
#include "geometry/validation.hpp"
#include "plan/hard_transform.hpp"

namespace monge {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// Up to this many pairs all are candidates; above kQuick, from potentials of some sweeps.
constexpr std::int64_t kAllPairs = 1 << 17;
constexpr std::int64_t kQuick = 3 << 12;
/// Pairs of a row that a pass over all pairs offers.
constexpr std::int64_t kOffered = 16;
/// Of the entropic solves that the first candidates come from: the error, the sweeps, the memory for scores, eps and
/// the largest eps as shares of the spread of a row's candidates, and the number of times that eps may fall.
constexpr double kStartError = 3e-3;
constexpr int kStartSweeps = 50, kQuickSweeps = 10;
constexpr double kStartCache = 1 << 27;
constexpr double kStartEps = 0.3, kMostEps = 0.6, kMostEpsOfEqual = 1;
constexpr int kMostStarts = 6;
constexpr double kLeastEps = std::numeric_limits<double>::min();  // Its reciprocal is finite.
/// The points of each cloud that anneal alone, before all others join, and the sweeps of these solves.
constexpr std::int64_t kCoarse = 6000;
constexpr int kFullSweeps = 20;

/// A mass may exceed the smaller total by this share of it: the rounding of weights.
constexpr double kSameTotals = 1e-6;
/// The largest gap of an optimal plan, as a share of its cost.
constexpr double kMostGap = 1e-6;
/// A warm start with a potential above this many times the costs of a sample is as good as none.
constexpr double kMostStart = 1000;
/// Masses are the same if they differ by at most this share: the rounding of weights and of their sums.
constexpr double kSameMass = 1e-12;

std::size_t at(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

Mass total_of(std::vector<Mass> const& masses) {
  return std::accumulate(masses.begin(), masses.end(), Mass{0});
}

/// Weights as whole numbers of quanta; both sides have one total. In a relaxed problem the last column is a dustbin
/// that takes what rows leave, and the last row gives what columns lack.
struct Masses {
  std::vector<Mass> a, b;
  double quantum;  // Times 2^exponent.
  int exponent;

  double weight(Mass mass) const { return std::ldexp(static_cast<double>(mass) * quantum, exponent); }
};

bool is_partial(ExactOptions const& options) {
  return std::isfinite(options.mass);
}
bool is_relaxed(ExactOptions const& options) {
  return is_partial(options) || std::isfinite(std::min(options.penalty_a, options.penalty_b));
}

bool is_uniform(std::vector<double> const& weights) {
  return std::all_of(weights.begin(), weights.end(), [&](double weight) { return weight == weights[0]; });
}

/// The smallest numbers that fit uniform weights, so that equal ones give a permutation, or part of one.
std::optional<Masses> masses_of_uniform(ValidMarginals const& marginals, ExactOptions const& options) {
  if (!is_uniform(marginals.a) || !is_uniform(marginals.b)) return {};
  std::size_t const n = marginals.a.size(), m = marginals.b.size();
  std::size_t in_a = 1, in_b = 1;  // Quanta of a weight.
  if (marginals.total_a == marginals.total_b) {
    std::size_t const common = std::gcd(n, m);
    in_a = m / common;
    in_b = n / common;
  } else if (marginals.a[0] != marginals.b[0]) {
    return {};
  }
  Masses const masses{std::vector<Mass>(n, static_cast<Mass>(in_a)), std::vector<Mass>(m, static_cast<Mass>(in_b)),
                      marginals.a[0] / static_cast<double>(in_a), 0};
  double const quanta = options.mass / masses.quantum;
  if (is_partial(options) && std::abs(quanta - std::nearbyint(quanta)) > kSameMass * quanta) return {};
  return masses;
}

Masses masses_of_any(ValidMarginals const& marginals, ExactOptions const& options) {
  // No point moves more than the mass of partial transport. Twice this mass is as good as any larger weight: what
  // bounds neither plan nor potentials may be less, and the digits are those of the mass.
  double const most = 2 * options.mass, points = static_cast<double>(std::max(marginals.a.size(), marginals.b.size()));
  // A power of two with 100 binary digits for the total: weights down to 2^-47 of it are exact, whole ones always.
  int const exponent = std::ilogb(std::min(marginals.mass(), most * points)) - 100;
  Masses masses{{}, {}, 1, exponent};
  auto const rounded = [&](double weight) {
    double const quanta = std::ldexp(std::min(weight, most), -exponent);
    return static_cast<Mass>(quanta < 0x1p53 ? std::nearbyint(quanta) : quanta);
  };
  for (double const weight : marginals.a) masses.a.push_back(rounded(weight));
  for (double const weight : marginals.b) masses.b.push_back(rounded(weight));
  // The totals of a balanced problem differ by rounding alone, far less than the largest weight.
  if (!is_relaxed(options))
    *std::max_element(masses.b.begin(), masses.b.end()) += total_of(masses.a) - total_of(masses.b);
  return masses;
}

Masses masses_of(ValidMarginals const& marginals, ExactOptions const& options) {
  std::optional<Masses> const uniform = masses_of_uniform(marginals, options);
  Masses masses = uniform ? *uniform : masses_of_any(marginals, options);
  if (!is_relaxed(options)) return masses;
  Mass const of_a = total_of(masses.a), of_b = total_of(masses.b);
  Mass kept = 0;  // Mass that neither row nor column of the dustbin takes.
  if (is_partial(options)) {
    double const quanta = std::ldexp(options.mass / masses.quantum, -masses.exponent);
    kept = std::min({static_cast<Mass>(uniform ? std::nearbyint(quanta) : quanta), of_a, of_b});
  }
  masses.a.push_back(of_b - kept);
  masses.b.push_back(of_a - kept);
  return masses;
}

ValidMarginals marginals_of(Backend const& backend, VectorView a, VectorView b, Shape shape,
                            ExactOptions const& options) {
  ValidMarginals marginals = read_marginals(backend, {}, a, b, shape.rows, shape.columns);
  if (!is_relaxed(options))
    return with_equal_totals(std::move(marginals), {.tolerance = 0},
                             "; others need a solve with penalty_a, penalty_b or mass");
  if (!is_partial(options)) return marginals;
  require(std::isinf(std::min(options.penalty_a, options.penalty_b)),
          "mass: is given with a penalty; must be alone, since the mass decides what is left");
  double const most = std::min(marginals.total_a, marginals.total_b);
  require(options.mass <= most * (1 + kSameTotals), "mass: is {}; must be at most {}, the smaller total of a and b",
          options.mass, most);
  return marginals;
}

/// The largest potential of the first `size` points, of those with mass; -infinity if none has mass.
double largest_with_mass(std::vector<Mass> const& masses, std::vector<double> const& potentials, std::int64_t size) {
  double largest = -kInfinity;
  for (std::size_t i = 0; i < at(size); ++i) largest = masses[i] > 0 ? std::max(largest, potentials[i]) : largest;
  return largest;
}

class ExactSolve {
 public:
  /// `geometry` is null where the costs are sparse.
  ExactSolve(Context const& context, Geometry const* geometry, PairCosts costs, Shape shape, VectorView a, VectorView b,
             ExactOptions const& options)
      : context_(context),
        geometry_(geometry),
        options_(options),
        n_(shape.rows),
        m_(shape.columns),
        marginals_(marginals_of(backend_of(context), a, b, shape, options)),
        reachable_(marginals_),
        masses_(masses_of(marginals_, options)),
        costs_(std::move(costs)),
        simplex_(masses_.a, masses_.b) {
    if (is_relaxed(options_)) open_dustbin();
    WarmStart const warm = warm_start();
    has_all_candidates_ = costs_.is_sparse() || n_ * m_ <= kAllPairs;
    if (has_all_candidates_) {
      take_all_pairs(warm.g);
    } else if (warm.f.empty()) {
      take_entropic_candidates();
    } else if (options_.start) {
      v_ = warm.g;
      take(best_pairs(), warm.g);
    } else {
      take_candidates_near(warm);
    }
    report_.seconds.start = watch_.seconds();
  }

  ExactPlan solve() {
    while (!improve()) {
    }
    if (stopped_ && best_dual_ < 0) price_of_zero();
    Proof const proof = proof_of(simplex_.entries());
    split_mass_price();
    complete_potentials();
    return result(proof);
  }

 private:
  WarmStart given_start() const {
    if (!options_.start || !options_.f.empty() || !options_.g.empty())
      return validated_warm_start(backend_of(context_), options_.f, options_.g, marginals_);
    WarmStart warm{options_.start->f, options_.start->g};
    // Those of points without mass may be infinite, and the points may have mass in this problem.
    for (std::vector<double>* const potentials : {&warm.f, &warm.g})
      std::ranges::replace_if(
          *potentials, [](double value) { return !std::isfinite(value); }, 0.0);
    return warm;
  }

  WarmStart warm_start() {
    WarmStart warm = given_start();
    if (warm.f.empty()) return warm;
    double most = 0;
    for (Arc const& arc : sample()) most = std::max(most, kMostStart * std::abs(arc.cost));
    auto const fits = [&](double potential) { return std::abs(potential) <= most; };
    return std::ranges::all_of(warm.f, fits) && std::ranges::all_of(warm.g, fits) ? warm : WarmStart{};
  }

  /// One round. Returns whether it was the last.
  bool improve() {
    Stopwatch search;
    if (goes_on()) simplex_.run([&] { return goes_on(); });
    report_.seconds.search += search.seconds();
    if (stopped_) report_.status = ExactStatus::stopped;
    if (stopped_ && report_.rounds > 0) return true;  // Its potentials are those of the last pass.
    Stopwatch pricing;
    bool const stuck = !stopped_ && simplex_.left() > 0;
    if (!stuck) read_potentials();
    std::vector<Arc> offered = stuck ? ways_out() : best_pairs();
    if (stuck) {
      simplex_.add(offered);
    } else {
      ++report_.rounds;
      price(offered);
    }
    report_.seconds.pricing += pricing.seconds();
    if (stopped_) return true;
    if (stuck) return false;
    bool const is_proved = report_.worst_reduced_cost >= -tolerance();
    report_.status = is_proved ? ExactStatus::optimal : ExactStatus::round_limit;
    if (report_.rounds >= options_.rounds) return true;
    std::int64_t const before = simplex_.arcs();
    if (!is_proved) simplex_.add(offered);
    if (simplex_.arcs() > before) return false;
    // All better pairs are candidates, which have an optimal basis: what differs is the rounding of potentials.
    if (!is_proved) report_.status = ExactStatus::precision_limit;
    Proof const proof = proof_of(simplex_.entries());
    if (std::exchange(has_small_potentials_, true) || (is_proved && proof.rounding <= proof.allowed)) return true;
    start(std::vector(at(m_), 0.0), pairs_of_basis());
    return false;
  }

  /// Prices the potentials g = 0, whose dual value is >= 0 where all costs are >= 0. A solve that was stopped may have
  /// potentials of a smaller dual value.
  void price_of_zero() {
    v_.assign(at(m_), 0);
    dustbin_ = 0;
    if (is_relaxed(options_))
      for (std::size_t j = 0; j < v_.size(); ++j) v_[j] = std::min(0.0, lacking_.price[j]);
    std::vector<Arc> offered = best_pairs();
    price(offered);
  }

  /// The gap of the plan, the rounding of reduced costs in it, and how much an optimal plan may have.
  struct Proof {
    double gap, rounding, allowed;
    /// An upper bound of the cost of the plan above the optimum. `hidden` bounds the error of the dual value that the
    /// rounding of the pass makes.
    double bound(double hidden) const { return gap + rounding + hidden; }
    bool holds(double hidden) const { return bound(hidden) <= allowed; }
  };

  Proof proof_of(std::vector<PlanEntry> const& entries) {
    CompensatedSum gap;
    Proof proof{};
    for (PlanEntry const& entry : entries) {
      double const value = masses_.weight(entry.mass), f = f_[at(entry.row)], g = g_[at(entry.column)];
      gap.add(value * (entry.cost - f - g));
      proof.rounding += 0x1p-52 * value * std::abs(entry.cost) + 0x1p-52 * value * std::abs(f) +
                        0x1p-52 * value * std::abs(g);  // Terms apart, since a sum may overflow.
      proof.allowed += kMostGap * value * std::abs(entry.cost);
    }
    proof.gap = gap.value();
    if (!proof.holds(hidden_))
      proof.allowed += options_.tolerance * std::min(marginals_.total_a, options_.mass) * mean_of_least();
    return proof;
  }

  std::vector<Arc> pairs_of_basis() const {
    std::vector<PlanEntry> const entries = simplex_.entries();
    return {entries.begin(), entries.end()};
  }

  double tolerance() const { return options_.tolerance * std::min(report_.cost_scale, potential_scale_); }
  /// The share of the mass that has no place; all of it before the first candidates.
  double left() const {
    return simplex_.arcs() > 0 ? masses_.weight(simplex_.left()) / masses_.weight(total_of(masses_.a)) : 1;
  }

  bool goes_on() {
    if (!stopped_ && options_.progress)
      stopped_ = !options_.progress({report_.rounds, simplex_.arcs(), left(), best_dual_, watch_.seconds()});
    return !stopped_;
  }

  bool has_mass(std::int64_t i, std::int64_t j) const { return masses_.a[at(i)] > 0 && masses_.b[at(j)] > 0; }

  /// Arcs of points with mass and finite cost, with their costs.
  std::vector<Arc> priced(std::vector<Arc> arcs) {
    std::erase_if(arcs, [&](Arc const& arc) { return !has_mass(arc.row, arc.column); });
    costs_.set(arcs);
    return finite(std::move(arcs));
  }

  /// The arcs of finite cost. Potentials are sums of up to n + m costs, and prices are four times as large.
  std::vector<Arc> finite(std::vector<Arc> arcs) {
    std::erase_if(arcs, [](Arc const& arc) { return std::isinf(arc.cost); });
    for (Arc const& arc : arcs) report_.cost_scale = std::max(report_.cost_scale, std::abs(arc.cost));
    double const most = std::numeric_limits<double>::max() / 16 / static_cast<double>(n_ + m_ + 2);
    require(report_.cost_scale <= most,
            "cost: is up to {}, with penalties; must be at most {:.1e}: sums must be finite", report_.cost_scale, most);
    return arcs;
  }

  /// Finds the prices of the dustbin, and adds its arcs. With penalties a row may also get rid of mass by a pair to a
  /// column that has enough, and a column may get mass from a row that has none left, at the cost of the pair and of
  /// the other side's penalty.
  void open_dustbin() {
    leaving_ = prices_of(Side::rows);
    lacking_ = prices_of(Side::columns);
    std::vector<Arc> arcs;
    std::int32_t const row = static_cast<std::int32_t>(n_), column = static_cast<std::int32_t>(m_);
    for (std::int32_t i = 0; i < row; ++i) arcs.push_back({i, column, leaving_.price[at(i)]});
    for (std::int32_t j = 0; j < column; ++j) arcs.push_back({row, j, lacking_.price[at(j)]});
    if (!is_partial(options_)) arcs.push_back({row, column, 0});
    std::erase_if(arcs, [&](Arc const& arc) { return !has_mass(arc.row, arc.column); });
    simplex_.add(finite(std::move(arcs)));
  }

  /// The price of a unit of mass between each point and the dustbin: the penalty, or less by way of a partner, the
  /// point of the other side at the least cost.
  struct Prices {
    std::vector<double> price;
    std::vector<std::int32_t> partner;  // -1 for the penalty itself.
  };

  /// Sets the weight of a point in reachable_ to 0 if all its pairs are forbidden.
  Prices prices_of(Side side) {
    bool const by_rows = side == Side::rows, partial = is_partial(options_);
    std::int64_t const size = by_rows ? n_ : m_;
    double const penalty = by_rows ? options_.penalty_a : options_.penalty_b;
    double const other = by_rows ? options_.penalty_b : options_.penalty_a;
    bool const no_dustbin = partial && (by_rows ? masses_.b.back() : masses_.a.back()) == 0;
    Prices found{std::vector<double>(at(size), partial ? (no_dustbin ? kInfinity : 0) : penalty),
                 std::vector<std::int32_t>(at(size), -1)};
    if (partial && !costs_.may_forbid()) return found;
    std::vector<Arc> const nearest = cheapest_pairs(side);
    for (std::size_t i = 0; i < nearest.size(); ++i) {
      Arc const& pair = nearest[i];
      if (std::isinf(pair.cost)) (by_rows ? reachable_.a : reachable_.b)[i] = 0;
      if (partial) continue;
      require(pair.cost >= -penalty - other,
              "penalty_a: penalty_a + penalty_b is {}; must be at least {}, minus the least cost: mass would be made "
              "without end",
              penalty + other, -pair.cost);
      if (pair.cost + other < penalty) {
        found.price[i] = pair.cost + other;
        found.partner[i] = by_rows ? pair.column : pair.row;
      }
      require(std::isfinite(found.price[i]), "cost: forbids all pairs of {} {}, whose mass must not stay",
              by_rows ? "row" : "column", i);
    }
    return found;
  }

  /// The pair of least cost of each point, whatever the weights.
  std::vector<Arc> cheapest_pairs(Side side) {
    bool const by_rows = side == Side::rows;
    std::int32_t const size = static_cast<std::int32_t>(by_rows ? n_ : m_);
    std::int32_t const other_size = static_cast<std::int32_t>(by_rows ? m_ : n_);
    auto const pair = [&](std::int32_t own, std::int32_t other) {
      return by_rows ? Arc{own, other, 0} : Arc{other, own, 0};
    };
    std::vector<Arc> cheapest;
    if (!costs_.may_forbid()) {
      HardTransform all(backend_of(context_), *geometry_,
                        {std::vector<double>(at(n_), 1.0), std::vector<double>(at(m_), 1.0)});
      std::vector<std::int64_t> nearest(at(size));
      all.nearest(side, std::vector<double>(at(other_size), 0), {nearest.data(), size, 1, 1});
      for (std::int32_t i = 0; i < size; ++i) cheapest.push_back(pair(i, static_cast<std::int32_t>(nearest[at(i)])));
      costs_.set(cheapest);
      return cheapest;
    }
    for (std::int32_t i = 0; i < size; ++i) cheapest.push_back(pair(i, 0)), cheapest.back().cost = kInfinity;
    auto const any = [](std::size_t) { return true; };
    for_each_pair(side, any, any, [&](Arc const& arc) {
      Arc& least = cheapest[at(by_rows ? arc.row : arc.column)];
      if (arc.cost < least.cost) least = arc;
    });
    return cheapest;
  }

  /// Calls visit(arc) for the pairs of those points of a side that are wanted with those of the other side that are.
  template <class Wanted, class OtherWanted, class Visit>
  void for_each_pair(Side side, Wanted const& wanted, OtherWanted const& other_wanted, Visit const& visit) const {
    bool const by_rows = side == Side::rows;
    if (costs_.is_sparse()) {
      for (Arc const& arc : costs_.pairs()) {
        if (wanted(at(by_rows ? arc.row : arc.column)) && other_wanted(at(by_rows ? arc.column : arc.row))) visit(arc);
      }
      return;
    }
    std::int32_t const size = static_cast<std::int32_t>(by_rows ? n_ : m_);
    std::int32_t const other_size = static_cast<std::int32_t>(by_rows ? m_ : n_);
    std::vector<Arc> line;
    for (std::int32_t i = 0; i < size; ++i) {
      if (!wanted(at(i))) continue;
      line.clear();
      for (std::int32_t j = 0; j < other_size; ++j) {
        if (other_wanted(at(j))) line.push_back(by_rows ? Arc{i, j, 0} : Arc{j, i, 0});
      }
      costs_.set(line);
      for (Arc const& arc : line) visit(arc);
    }
  }

  bool is_dustbin(Arc const& arc) const { return arc.row == n_ || arc.column == m_; }

  /// Potentials of the simplex method, translated: with penalties to 0 at the dustbin, with a given mass to the same
  /// number on both sides of it. No column is above what its price allows.
  void read_potentials() {
    v_ = simplex_.v();
    double const largest = largest_with_mass(masses_.b, v_, m_);
    for (std::size_t j = 0; j < at(m_); ++j) {
      if (masses_.b[j] == 0) v_[j] = largest;  // So that a pass has no larger range.
    }
    if (!is_relaxed(options_)) return;
    bool const takes = masses_.b[at(m_)] > 0, gives = masses_.a[at(n_)] > 0;
    double const v = v_[at(m_)], u = simplex_.u(static_cast<std::int32_t>(n_));
    v_.pop_back();
    shift_ = !is_partial(options_) ? v : takes && gives ? (v - u) / 2 : takes ? v : gives ? -u : 0;
    dustbin_ = is_partial(options_) && takes && gives ? (v + u) / 2 : 0;
    for (std::size_t j = 0; j < v_.size(); ++j) v_[j] = std::min(v_[j] - shift_, lacking_.price[j] - dustbin_);
  }

  void take_all_pairs(std::vector<double> const& g) {
    std::vector<Arc> arcs;
    arcs.reserve(costs_.is_sparse() ? costs_.pairs().size() : at(n_ * m_));
    for_each_pair(
        Side::rows, [&](std::size_t i) { return masses_.a[i] > 0; }, [&](std::size_t j) { return masses_.b[j] > 0; },
        [&](Arc const& arc) { arcs.push_back(arc); });
    simplex_.add(finite(std::move(arcs)));
    bool const sweeps = !costs_.is_sparse() && n_ * m_ > kQuick;
    start(!g.empty() ? g
          : sweeps   ? entropic_plan(start_options(kQuickSweeps)).g()
                     : std::vector(at(m_), 0.0),
          first_pairs());
  }

  std::vector<Arc> first_pairs() { return options_.start ? pairs_of(*options_.start) : std::vector<Arc>{}; }

  void start(std::vector<double> g, std::vector<Arc> const& pairs) {
    double const dustbin = options_.start && is_partial(options_) ? -options_.start->report.mass_price / 2 : 0;
    for (std::size_t j = 0; j < g.size(); ++j) {
      if (masses_.b[j] == 0) g[j] = 0;
      if (is_relaxed(options_)) g[j] = std::min(g[j], lacking_.price[j] - dustbin);
    }
    if (is_relaxed(options_)) g.push_back(dustbin);
    simplex_.start(g, pairs);
  }

  /// The pairs of a plan, which become candidates, and those of the dustbin with the rest of the mass of points.
  std::vector<Arc> pairs_of(ExactPlan const& plan) {
    std::vector<Arc> pairs;
    std::vector<double> a = marginals_.a, b = marginals_.b;
    std::int32_t const n = static_cast<std::int32_t>(n_), m = static_cast<std::int32_t>(m_);
    for (std::int32_t i = 0; i < n; ++i) {
      for (std::int64_t k = plan.row_begin[at(i)]; k < plan.row_begin[at(i) + 1]; ++k) {
        std::int32_t const j = static_cast<std::int32_t>(plan.column_indices[at(k)]);
        pairs.push_back({i, j, 0});
        a[at(i)] -= plan.values[at(k)];
        b[at(j)] -= plan.values[at(k)];
      }
    }
    simplex_.add(priced(pairs));
    if (!is_relaxed(options_)) return pairs;
    for (std::int32_t i = 0; i < n; ++i) {
      if (a[at(i)] > kSameMass * marginals_.a[at(i)]) pairs.push_back({i, m, 0});
    }
    for (std::int32_t j = 0; j < m; ++j) {
      if (b[at(j)] > kSameMass * marginals_.b[at(j)]) pairs.push_back({n, j, 0});
    }
    pairs.push_back({n, m, 0});
    return pairs;
  }

  /// Penalties of entropic problems near this one.
  double entropic_penalty(double penalty, double eps) const { return is_partial(options_) ? 4 * eps : penalty; }

  /// Of the first entropic solve.
  SolveOptions start_options(int sweeps) {
    SolveOptions options{.eps = first_eps(),
                         .method = Method::sinkhorn,
                         .tolerance = kStartError,
                         .iterations = sweeps,
                         .certificate = false,
                         .cache_bytes = kStartCache,
                         .progress = [&](Progress const&) { return goes_on(); }};
    options.penalty_a = entropic_penalty(options_.penalty_a, options.eps);
    options.penalty_b = entropic_penalty(options_.penalty_b, options.eps);
    return options;
  }

  Plan entropic_plan(SolveOptions const& options) {
    return monge::solve(context_, *geometry_, reachable_.a, reachable_.b, options);
  }

  struct Annealed {
    Plan plan;
    double eps;
    std::vector<Arc> candidates;
  };

  /// The plan of entropic problems whose eps falls until it is near the differences of the reduced costs of a point's
  /// candidates.
  Annealed annealed(Geometry const& geometry, Marginals const& weights, SolveOptions options) {
    // Pivots cost less where weights are equal, since trees are shallow.
    double const most = is_uniform(weights.a) && is_uniform(weights.b) ? kMostEpsOfEqual : kMostEps;
    std::vector<double> f, g;
    Solver solver(context_, geometry, weights.a, weights.b, options);  // Reads the costs of a matrix once.
    for (int k = 0;; ++k) {
      Plan plan = solver.solve(options);
      std::vector<Arc> arcs;
      double const spread = candidates_of(plan, options.eps, arcs);
      if (options.eps <= most * spread || spread == 0 || k == kMostStarts || stopped_)
        return {std::move(plan), options.eps, std::move(arcs)};
      double const next = std::max({options.eps / 16, kStartEps * spread, kLeastEps});
      f = plan.f();
      g = g_of(plan, weights.b, options.eps - next);
      options.eps = next;
      options.f = f;
      options.g = g;
      options.annealing = 1;  // The ladder is this loop.
    }
  }

  /// The plan's g for an eps that is lower by `fall`. If n > m most rows have one partner, where f_i + g_j is
  /// C_ij - eps log b_j: f_i and g_j + eps log b_j change little with eps. If n <= m, g_j and f_i + eps log a_i change
  /// little, and f is found anew from g.
  std::vector<double> g_of(Plan const& plan, std::vector<double> const& b, double fall) const {
    std::vector<double> g = plan.g();
    if (n_ <= m_) return g;
    for (std::size_t j = 0; j < g.size(); ++j) g[j] += b[j] > 0 ? fall * std::log(b[j]) : 0;
    return g;
  }

  void take_entropic_candidates() {
    SolveOptions options = start_options(kStartSweeps);
    std::vector<double> f, g;
    std::int64_t const stride = std::min(n_, m_) / kCoarse;
    if (stride > 1 && !costs_.may_forbid() && set_coarse_start(stride, options, g)) {
      f.assign(at(n_), 0);  // A sweep begins with f.
      options.f = f;
      options.g = g;
      options.iterations = kFullSweeps;
      options.annealing = 1;
    }
    Annealed near = annealed(*geometry_, reachable_, options);
    take(std::move(near.candidates), g_of(near.plan, reachable_.b, near.eps));
  }

  /// Every stride-th point of both clouds anneals alone. Sets eps to its last, and g to the largest that its f allow.
  /// Returns whether some of these points have mass on both sides.
  bool set_coarse_start(std::int64_t stride, SolveOptions& options, std::vector<double>& g) {
    auto const some_weights = [&](std::vector<double> const& weights) {
      std::vector<double> some;
      for (std::size_t i = 0; i < weights.size(); i += at(stride)) some.push_back(weights[i]);
      double const share =
          std::reduce(some.begin(), some.end(), 0.0) / std::reduce(weights.begin(), weights.end(), 0.0);
      for (double& weight : some) weight = share > 0 ? weight / share : 0;
      return some;
    };
    auto const has_mass = [](double weight) { return weight > 0; };
    Marginals const weights{some_weights(reachable_.a), some_weights(reachable_.b)};
    if (std::ranges::none_of(weights.a, has_mass) || std::ranges::none_of(weights.b, has_mass)) return false;
    auto const some_points = [&](MatrixView points, std::vector<double> const& some) {
      return MatrixView(points.data(), points.type(), std::ssize(some), points.columns(), points.row_stride() * stride,
                        points.device());
    };
    auto const some_labels = [&](IndexView labels, std::vector<double> const& some) {
      labels.stride *= stride;
      labels.size = labels.empty() ? 0 : std::ssize(some);
      return labels;
    };
    PointCloud const all = std::get<PointCloud>(*geometry_);
    PointCloud some_rows = all;
    some_rows.x = some_points(all.x, weights.a);
    some_rows.labels.x = some_labels(all.labels.x, weights.a);
    PointCloud some = some_rows;
    some.y = some_points(all.y, weights.b);
    some.labels.y = some_labels(all.labels.y, weights.b);

    Annealed const coarse = annealed(some, weights, options);
    HardTransform transform(backend_of(context_), some_rows, {weights.a, std::vector<double>(at(m_), 1.0)});
    std::vector<std::int64_t> nearest(at(m_));
    g = transform.nearest(Side::columns, coarse.plan.f(), {nearest.data(), m_, 1, 1});
    options.eps = coarse.eps;
    return true;
  }

  void take_candidates_near(WarmStart const& warm) {
    double const eps = first_eps() / 256;
    std::vector<Arc> arcs;
    Plan const plan = plan_of(context_, *geometry_, reachable_.a, reachable_.b,
                              {.eps = eps,
                               .penalty_a = entropic_penalty(options_.penalty_a, eps),
                               .penalty_b = entropic_penalty(options_.penalty_b, eps),
                               .cache_bytes = kStartCache,
                               .f = warm.f,
                               .g = warm.g});
    candidates_of(plan, eps, arcs);
    take(std::move(arcs), plan.g());
  }

  /// Pairs of finite cost of some rows and columns with mass.
  std::vector<Arc> const& sample() {
    if (!sample_.empty()) return sample_;
    constexpr std::int64_t kRows = 32, kColumns = 256;
    auto const some = [](std::vector<double> const& weights, std::int64_t most) {
      std::vector<std::int32_t> with_mass, chosen;
      for (std::size_t i = 0; i < weights.size(); ++i) {
        if (weights[i] > 0) with_mass.push_back(static_cast<std::int32_t>(i));
      }
      std::size_t const count = std::min(with_mass.size(), at(most));
      for (std::size_t k = 0; k < count; ++k) chosen.push_back(with_mass[k * with_mass.size() / count]);
      return chosen;
    };
    std::vector<std::int32_t> const rows = some(reachable_.a, kRows), columns = some(reachable_.b, kColumns);
    for (std::int32_t const i : rows) {
      if (costs_.is_sparse()) {
        std::span<Arc const> const row = costs_.row(i);
        sample_.insert(sample_.end(), row.begin(), row.end());
        continue;
      }
      for (std::int32_t const j : columns) sample_.push_back({i, j, 0});
    }
    return sample_ = priced(std::move(sample_));
  }

  /// A fifth of the mean |C_ij - u_i - v_j| over the sample: u_i is the mean cost of row i, v_j the mean of the rest in
  /// column j.
  double first_eps() {
    std::vector<Arc> sample = this->sample();
    auto const centre = [&](auto const& point_of, std::int64_t size) {
      std::vector<double> mean(at(size), 0), count(at(size), 0);
      for (Arc const& arc : sample) ++count[at(point_of(arc))];
      for (Arc const& arc : sample) mean[at(point_of(arc))] += arc.cost / count[at(point_of(arc))];
      for (Arc& arc : sample) arc.cost -= mean[at(point_of(arc))];
    };
    centre([](Arc const& arc) { return arc.row; }, n_);
    centre([](Arc const& arc) { return arc.column; }, m_);
    double mean = 0;
    for (Arc const& arc : sample) mean += std::abs(arc.cost) / static_cast<double>(sample.size());
    return std::max({mean / 5, 1e-6 * report_.cost_scale, 256 * kLeastEps});
  }

  /// The mean of the least |C_ij| > 0 of the rows of the sample.
  double mean_of_least() {
    std::vector<double> least(at(n_), kInfinity);
    for (Arc const& arc : sample()) {
      if (arc.cost != 0) least[at(arc.row)] = std::min(least[at(arc.row)], std::abs(arc.cost));
    }
    std::erase(least, kInfinity);
    double mean = 0;
    for (double const cost : least) mean += cost / static_cast<double>(least.size());
    return mean;
  }

  /// Appends the largest entries of each row and column. Returns a typical difference of the reduced costs of a point's
  /// first and last candidate: the mean over the rows times the mean over the columns, under a root. The geometric mean
  /// suits clouds of different sizes: a point with many near partners has far smaller differences.
  double candidates_of(Plan const& plan, double eps, std::vector<Arc>& arcs) const {
    double spread = 1;
    for (Side const side : kSides) {
      bool const by_rows = side == Side::rows;
      std::int64_t const size = by_rows ? plan.rows() : plan.columns();
      std::int64_t const k = std::min<std::int64_t>(options_.candidates, by_rows ? plan.columns() : plan.rows());
      std::vector<std::int64_t> partners(at(size * k));
      std::vector<double> entries(partners.size());
      double mean = 0;
      MutableIndexView const indices{partners.data(), size, k, k};
      (by_rows ? plan.top_k(indices, {entries.data(), size, k})
               : plan.top_k_transpose(indices, {entries.data(), size, k}));
      for (std::int64_t i = 0; i < size; ++i) {
        for (std::int64_t q = i * k; q < (i + 1) * k; ++q) {
          std::int32_t const own = static_cast<std::int32_t>(i), other = static_cast<std::int32_t>(partners[at(q)]);
          arcs.push_back(by_rows ? Arc{own, other, 0} : Arc{other, own, 0});
        }
        double const ratio = entries[at(i * k)] / entries[at((i + 1) * k - 1)];
        if (std::isfinite(ratio)) mean += eps * std::log(ratio) / static_cast<double>(size);
      }
      spread *= std::sqrt(mean);
    }
    return spread;
  }

  void take(std::vector<Arc> arcs, std::vector<double> g) {
    std::sort(arcs.begin(), arcs.end());
    simplex_.add(priced(std::move(arcs)));
    start(std::move(g), first_pairs());
  }

  /// For each row some pairs of least reduced cost, the least among them; none if all pairs are candidates.
  std::vector<Arc> best_pairs() {
    if (has_all_candidates_) return {};
    if (!hard_) {
      Marginals weights;
      for (std::int64_t i = 0; i < n_; ++i) weights.a.push_back(masses_.a[at(i)] > 0 && reachable_.a[at(i)] > 0);
      for (std::int64_t j = 0; j < m_; ++j) weights.b.push_back(masses_.b[at(j)] > 0 && reachable_.b[at(j)] > 0);
      hard_.emplace(backend_of(context_), *geometry_, weights);
    }
    std::int64_t const k = std::min(kOffered, m_);
    std::vector<std::int64_t> nearest(at(n_ * k));
    hard_->nearest(Side::rows, v_, {nearest.data(), n_, k, k});
    std::vector<Arc> arcs;
    for (std::int64_t i = 0; i < n_; ++i) {
      for (std::int64_t q = 0; q < k; ++q)
        arcs.push_back({static_cast<std::int32_t>(i), static_cast<std::int32_t>(nearest[at(i * k + q)]), 0});
    }
    return priced(std::move(arcs));
  }

  /// Pairs from rows whose mass finds no room among the candidates to columns that it does not reach: the best of each
  /// row, and those by which the mass, row by row, takes the best room that is left. If there are none, drops the
  /// mass if it is rounding, or throws.
  std::vector<Arc> ways_out() {
    std::vector<double> const v = simplex_.v();
    std::vector<Mass> room(at(m_));
    for (std::int32_t j = 0; j < m_; ++j) room[at(j)] = simplex_.room_of(j);
    std::vector<Arc> ways, line;
    double supply = 0, demand = 0;
    std::int64_t closed = 0;
    for (std::int64_t i = 0; i < n_; ++i) {
      if (!simplex_.is_closed(static_cast<std::int32_t>(i))) continue;
      closed = i;
      supply += marginals_.a[at(i)];
      line.clear();
      for (std::int32_t j = 0; j < m_ && !has_all_candidates_; ++j) {
        if (!simplex_.is_closed_column(j)) line.push_back({static_cast<std::int32_t>(i), j, 0});
      }
      line = priced(std::move(line));
      // Ties are broken in another order for each row, so that rows of equal costs open different columns.
      auto const turned = [&](std::int64_t j) { return (j + (m_ - i % m_) * kOffered) % m_; };
      auto const is_better = [&](Arc const& x, Arc const& y) {
        double const a = x.cost - v[at(x.column)], b = y.cost - v[at(y.column)];
        return a != b ? a < b : turned(x.column) < turned(y.column);
      };
      std::size_t const count = std::min(line.size(), at(kOffered));
      std::partial_sort(line.begin(), line.begin() + static_cast<std::ptrdiff_t>(count), line.end(), is_better);
      ways.insert(ways.end(), line.begin(), line.begin() + static_cast<std::ptrdiff_t>(count));
      Mass left = simplex_.left_of(static_cast<std::int32_t>(i));
      if (left == 0) continue;
      std::erase_if(line, [&](Arc const& arc) { return room[at(arc.column)] == 0; });
      auto const is_worse = [&](Arc const& x, Arc const& y) { return is_better(y, x); };
      std::make_heap(line.begin(), line.end(), is_worse);
      for (; left > 0 && !line.empty(); line.pop_back()) {
        std::pop_heap(line.begin(), line.end(), is_worse);
        Mass const flow = std::min(left, room[at(line.back().column)]);
        room[at(line.back().column)] -= flow;
        left -= flow;
        ways.push_back(line.back());
      }
    }
    for (std::int32_t j = 0; j < m_; ++j) demand += simplex_.is_closed_column(j) ? marginals_.b[at(j)] : 0;
    if (ways.empty() && left() <= kSameMass) {
      drop_rest();
      return ways;
    }
    require(!is_partial(options_) || !ways.empty(),
            "mass: is {}; must be at most {}, all that pairs of finite cost can take", options_.mass,
            options_.mass - masses_.weight(simplex_.left()));
    require(
        !ways.empty(),
        "cost: forbids too many pairs; row {} and others have the mass {}, and all columns that they may send it to "
        "take {}",
        closed, supply, demand);
    return ways;
  }

  /// Begins again without the mass that has no place, and without the room for it: weights of points that forbidden
  /// pairs keep apart from others have equal totals up to rounding alone.
  void drop_rest() {
    std::vector<Arc> const basis = pairs_of_basis();
    for (std::size_t i = 0; i < masses_.a.size(); ++i) masses_.a[i] -= simplex_.left_of(static_cast<std::int32_t>(i));
    for (std::size_t j = 0; j < masses_.b.size(); ++j) masses_.b[j] -= simplex_.room_of(static_cast<std::int32_t>(j));
    std::vector<Arc> arcs = simplex_.all_arcs();
    std::erase_if(arcs, [&](Arc const& arc) { return !has_mass(arc.row, arc.column); });
    simplex_ = NetworkSimplex(masses_.a, masses_.b);
    simplex_.add(std::move(arcs));
    start(std::vector(at(m_), 0.0), basis);
    hard_.reset();
  }

  /// Finds the largest f that offered pairs and candidates allow, keeps the offered pairs of negative reduced cost, and
  /// evaluates the dual.
  void price(std::vector<Arc>& offered) {
    std::vector<double> f = leaving_.price;
    f.resize(at(n_), kInfinity);
    for (double& potential : f) potential -= dustbin_;
    std::vector<double> v = v_;
    if (is_relaxed(options_)) v.push_back(dustbin_);
    std::vector<double> const least = simplex_.least_of_rows(v);
    for (std::size_t i = 0; i < f.size(); ++i) f[i] = std::min(f[i], least[i]);
    for (Arc const& arc : offered) f[at(arc.row)] = std::min(f[at(arc.row)], arc.cost - v_[at(arc.column)]);
    double worst = 0, scale = 0, rounding = 0;
    CompensatedSum sum;
    auto const add = [&](Mass mass, double potential) {
      double const term = masses_.weight(mass) * potential;
      sum.add(term);
      // Of potential, weight and term, which may lie below the least normal number.
      if (potential != 0) rounding += 0x1p-51 * std::abs(term) + std::numeric_limits<double>::denorm_min();
    };
    for (std::int64_t i = 0; i < n_; ++i) {
      if (masses_.a[at(i)] == 0) continue;
      worst = std::min(worst, f[at(i)] - u(i));
      scale = std::max(scale, std::abs(u(i)));
      add(masses_.a[at(i)], f[at(i)]);
    }
    for (std::int64_t j = 0; j < m_; ++j) {
      if (masses_.b[at(j)] == 0) continue;
      scale = std::max(scale, std::abs(v_[at(j)]));
      add(masses_.b[at(j)], v_[at(j)]);
    }
    if (is_relaxed(options_)) {
      add(masses_.a[at(n_)], dustbin_);
      add(masses_.b[at(m_)], dustbin_);
    }
    potential_scale_ = scale;
    report_.worst_reduced_cost = worst;
    double const hidden = hidden_by_rounding(offered, f);
    std::erase_if(offered, [&](Arc const& arc) { return arc.cost - u(arc.row) - v_[at(arc.column)] >= -tolerance(); });
    double const dual = sum.value() - rounding - hidden;
    if (dual < best_dual_) return;
    best_dual_ = dual;
    hidden_ = hidden;
    f_ = std::move(f);
    g_ = v_;
    f_.push_back(dustbin_);
    g_.push_back(dustbin_);
  }

  /// In partial transport of all mass of a side, one side of the dustbin has no mass. Its potential may then be any
  /// number below a limit. Takes the least price of mass that is optimal, and gives both sides of the dustbin the same
  /// potential.
  void split_mass_price() {
    if (!is_partial(options_) || (masses_.a[at(n_)] > 0 && masses_.b[at(m_)] > 0)) return;
    double const most_f = largest_with_mass(masses_.a, f_, n_), most_g = largest_with_mass(masses_.b, g_, m_);
    double const half = (most_f + most_g) / 2;
    for (double& potential : f_) potential += half - most_f;
    for (double& potential : g_) potential += half - most_g;
    f_.back() = g_.back() = -half;
    leaving_.price.assign(at(n_), 0);
    lacking_.price.assign(at(m_), 0);
  }

  /// How much lower the dual value may be, since rounding in the pass decides which pairs are offered. Pairs that are
  /// not offered have at least the largest cost that is, less the rounding of both.
  double hidden_by_rounding(std::vector<Arc> const& offered, std::vector<double> const& f) const {
    if (has_all_candidates_ || kOffered >= m_) return 0;
    std::vector<double> largest(at(n_), -kInfinity);
    std::vector<std::int64_t> count(at(n_), 0);
    for (Arc const& arc : offered) {
      ++count[at(arc.row)];
      largest[at(arc.row)] = std::max(largest[at(arc.row)], arc.cost - v_[at(arc.column)]);
    }
    double sum = 0;
    for (std::int64_t i = 0; i < n_; ++i) {
      if (count[at(i)] == kOffered)  // Or else all of finite cost are.
        sum += masses_.weight(masses_.a[at(i)]) * std::max(0.0, 2 * hard_->rounding() - (largest[at(i)] - f[at(i)]));
    }
    return sum;
  }

  double u(std::int64_t row) const { return simplex_.u(static_cast<std::int32_t>(row)) + shift_; }

  /// Potentials of points without mass: first of columns, from rows with mass, then of rows, from all columns.
  void complete_potentials() {
    complete(Side::columns);
    complete(Side::rows);
  }

  void complete(Side side) {
    bool const by_rows = side == Side::rows;
    std::vector<double>&own = by_rows ? f_ : g_, &others = by_rows ? g_ : f_;
    std::vector<Mass> const &mass = by_rows ? masses_.a : masses_.b, &other_mass = by_rows ? masses_.b : masses_.a;
    if (std::find(mass.begin(), mass.end(), Mass{0}) == mass.end()) return;
    // Columns have their potentials before rows do.
    auto const counts = [&](std::size_t j) { return other_mass[j] > 0 || (by_rows && std::isfinite(others[j])); };
    std::vector<double> const& price = by_rows ? leaving_.price : lacking_.price;
    for (std::size_t i = 0; i < at(by_rows ? n_ : m_); ++i) {
      if (mass[i] == 0) own[i] = price.empty() ? kInfinity : price[i] - others.back();
    }
    for_each_pair(
        side, [&](std::size_t i) { return mass[i] == 0; }, counts,
        [&](Arc const& arc) {
          double& potential = own[at(by_rows ? arc.row : arc.column)];
          potential = std::min(potential, arc.cost - others[at(by_rows ? arc.column : arc.row)]);
        });
  }

  /// Entries of the plan, in order. Those of the dustbin become entries of pairs or penalties.
  std::vector<PlanEntry> plan_entries(CompensatedSum& penalties) const {
    std::vector<PlanEntry> entries = simplex_.entries();
    for (PlanEntry& entry : entries) {
      if (!is_dustbin(entry)) continue;
      double const value = masses_.weight(entry.mass);
      bool const leaves = entry.row < n_, lacks = entry.column < m_;
      Prices const& prices = leaves ? leaving_ : lacking_;
      std::int32_t const partner = leaves == lacks ? -1 : prices.partner[at(leaves ? entry.row : entry.column)];
      double const penalty = partner < 0 ? entry.cost : leaves ? options_.penalty_b : options_.penalty_a;
      penalties.add(value * penalty);
      if (partner < 0) continue;
      (leaves ? entry.column : entry.row) = partner;
      costs_.set({static_cast<Arc*>(&entry), 1});
    }
    std::erase_if(entries, [&](PlanEntry const& entry) { return is_dustbin(entry); });
    std::sort(entries.begin(), entries.end());
    for (std::size_t k = entries.size(); k-- > 1;) {
      if (entries[k].is_same_pair(entries[k - 1])) entries[k - 1].mass += std::exchange(entries[k].mass, 0);
    }
    std::erase_if(entries, [](PlanEntry const& entry) { return entry.mass == 0; });
    return entries;
  }

  std::string message(double rounding) const {
    switch (report_.status) {
      case ExactStatus::optimal:
        return "The plan is optimal.";
      case ExactStatus::precision_limit:
        return fmt::format(
            "The gap is {:.1e}, of which rounding hides up to {:.1e}, above a millionth of the cost of the plan, since "
            "costs are up to {:.1e}{}.",
            report_.gap, rounding, report_.cost_scale, costs_.may_forbid() ? "; forbid the largest by inf" : "");
      case ExactStatus::round_limit:
        return "The limit of rounds was reached; allow more of them.";
      case ExactStatus::stopped:
        break;
    }
    return "The progress callback stopped the solve.";
  }

  ExactPlan result(Proof const& proof) {
    ExactPlan plan;
    CompensatedSum cost, penalties;
    std::vector<PlanEntry> const entries = plan_entries(penalties);
    if (report_.status == ExactStatus::optimal && !proof.holds(hidden_)) report_.status = ExactStatus::precision_limit;
    report_.mass_price = is_partial(options_) ? 0 - 2 * g_.back() : 0;  // 0, not -0.
    f_.resize(at(n_));
    g_.resize(at(m_));
    plan.f = std::move(f_);
    plan.g = std::move(g_);
    plan.row_begin.assign(at(n_ + 1), 0);
    Mass sum = 0;
    for (PlanEntry const& entry : entries) {
      double const value = masses_.weight(entry.mass);
      ++plan.row_begin[at(entry.row) + 1];
      plan.column_indices.push_back(entry.column);
      plan.values.push_back(value);
      cost.add(value * entry.cost);
      sum += entry.mass;
    }
    std::partial_sum(plan.row_begin.begin(), plan.row_begin.end(), plan.row_begin.begin());
    report_.candidates = simplex_.arcs();
    report_.pivots = simplex_.pivots();
    report_.nonzeros = static_cast<std::int64_t>(entries.size());
    report_.mass = marginals_.total_a;
    report_.transported_mass = masses_.weight(sum);
    report_.missing_mass = masses_.weight(simplex_.left());
    report_.transport_cost = cost.value();
    report_.value = cost.value() + penalties.value();
    report_.dual = best_dual_;
    report_.gap = simplex_.left() == 0 ? proof.bound(hidden_) : std::numeric_limits<double>::quiet_NaN();
    report_.message = message(proof.rounding + hidden_);
    report_.seconds.total = watch_.seconds();
    plan.report = std::move(report_);
    return plan;
  }

  Stopwatch watch_;
  Context const& context_;
  Geometry const* geometry_;
  ExactOptions const& options_;
  std::int64_t n_, m_;
  ValidMarginals marginals_;
  Marginals reachable_;  // The same, with weight 0 for points whose pairs are all forbidden.
  Masses masses_;
  PairCosts costs_;
  NetworkSimplex simplex_;
  bool has_all_candidates_ = false;
  std::optional<HardTransform> hard_;
  ExactReport report_;
  double best_dual_ = -kInfinity;
  double hidden_ = 0;           // How much lower the rounding of the pass may make it.
  double potential_scale_ = 0;  // The largest |u_i| or |v_j| of the last round.
  bool has_small_potentials_ = false;
  bool stopped_ = false;
  std::vector<Arc> sample_;
  Prices leaving_, lacking_;        // Of rows and columns, in a relaxed problem.
  std::vector<double> v_;           // Potentials of the last round, the simplex method's less shift_ ...
  double shift_ = 0, dustbin_ = 0;  // ... and that of both sides of the dustbin.
  std::vector<double> f_, g_;       // Of the best dual value; the last is the dustbin's.
};

void validate_start(ExactPlan const& plan, Shape shape) {
  std::int64_t const n = plan.rows(), m = plan.columns(), count = std::ssize(plan.column_indices);
  require(n == shape.rows && m == shape.columns, "start: is a plan of {} x {} points; must be one of {} x {}", n, m,
          shape.rows, shape.columns);
  std::vector<std::int64_t> const& begin = plan.row_begin;
  require(std::ssize(begin) == n + 1 && begin.front() == 0 && begin.back() == count && std::ranges::is_sorted(begin) &&
              std::ssize(plan.values) == count &&
              std::ranges::all_of(plan.column_indices, [&](std::int64_t j) { return j >= 0 && j < m; }),
          "start: is no CSR matrix; must be a plan of solve_exact()");
}

void add(Digests& inputs, Geometry const& geometry) {
  inputs.add(geometry);
}

void add(Digests& inputs, SparseCost const& cost) {
  inputs.add("columns", cost.columns);
  inputs.add("row_begin", cost.row_begin);
  inputs.add("column_indices", cost.column_indices);
  inputs.add("values", cost.values);
}

Shape shape_of(SparseCost const& cost) {
  return {cost.rows(), cost.columns, 0};
}

void validate(SparseCost const& cost, Device context) {
  constexpr std::int64_t kMost = std::int64_t{1} << 30;  // Pairs are counted in 32 bits.
  require(cost.rows() >= 1 && cost.columns >= 1, "cost: is {} x {}; must have rows and columns", cost.rows(),
          cost.columns);
  for (auto const& [field, view] : {std::pair{"row_begin", cost.row_begin}, {"column_indices", cost.column_indices}})
    require(view.device.type == DeviceType::cpu && (view.data != nullptr || view.empty()),
            "{}: lies on {}; must be in host memory", field, to_string(view.device));
  require(cost.column_indices.size <= kMost, "column_indices: has {} pairs; must have at most {}",
          cost.column_indices.size, kMost);
  require(cost.values.size() == cost.column_indices.size, "values: has size {}; must be {}, one of each pair",
          cost.values.size(), cost.column_indices.size);
  if (!cost.values.empty()) validate_vector("values", cost.values, cost.values.size(), context);
}

/// Checks the arguments and calls make(), which solves.
template <class Cost, class Make>
ExactPlan solve_any(Context const& context, Cost const& cost, VectorView a, VectorView b, ExactOptions const& options,
                    Make const& make) {
  auto const inputs = [&](Digests& inputs) {
    visit_exact_options(options, inputs);
    inputs.add("progress", static_cast<bool>(options.progress));
    add(inputs, cost);
    inputs.add("a", a);
    inputs.add("b", b);
    inputs.add("f", options.f);
    inputs.add("g", options.g);
    inputs.add("start", options.start != nullptr);
    if (options.start) {
      auto const indices = [&](std::vector<std::int64_t> const& of) { return IndexView{of.data(), std::ssize(of)}; };
      inputs.add("start.row_begin", indices(options.start->row_begin));
      inputs.add("start.column_indices", indices(options.start->column_indices));
      inputs.add("start.values", options.start->values);
      inputs.add("start.f", options.start->f);
      inputs.add("start.g", options.start->g);
      inputs.add("start.mass_price", options.start->report.mass_price);
    }
  };
  return in_step(context, "solve_exact", inputs, [&] {
    visit_exact_options(options, kCheckField);
    validate(cost, context.device());
    Shape const shape = shape_of(cost);
    if (options.start) validate_start(*options.start, shape);
    constexpr std::int64_t kMost = std::int64_t{1} << 27;  // Candidates are counted in 32 bits.
    require(std::max(shape.rows, shape.columns) <= kMost / options.candidates,
            "candidates: is {} for {} x {} points; must be at most {}, of a side's points", options.candidates,
            shape.rows, shape.columns, kMost / std::max(shape.rows, shape.columns));
    ExactOptions now = options;
    now.progress = agreed(context, options.progress);
    return make(shape, now);
  });
}

}  // namespace

ExactPlan solve_exact(Context const& context, Geometry const& geometry, VectorView a, VectorView b,
                      ExactOptions const& options) {
  return solve_any(context, geometry, a, b, options, [&](Shape shape, ExactOptions const& now) {
    return ExactSolve(context, &geometry, PairCosts(backend_of(context), geometry), shape, a, b, now).solve();
  });
}

ExactPlan solve_exact(Context const& context, SparseCost const& cost, VectorView a, VectorView b,
                      ExactOptions const& options) {
  return solve_any(context, cost, a, b, options, [&](Shape shape, ExactOptions const& now) {
    return ExactSolve(context, nullptr, PairCosts(backend_of(context), cost), shape, a, b, now).solve();
  });
}

}  // namespace monge
