#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include <monge/entropic.hpp>
#include <monge/exact.hpp>

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

/// Up to this many pairs all are candidates: an entropic solve would take longer than it saves.
constexpr std::int64_t kAllPairs = 1 << 15;
/// Pairs of a row that a pass over all pairs offers.
constexpr std::int64_t kOffered = 4;
/// Of the entropic solves that the first candidates come from: the error, the sweeps, the memory for scores, eps as a
/// share of the spread of a row's candidates, and the number of times that eps may fall.
constexpr double kStartError = 3e-3;
constexpr int kStartSweeps = 50;
constexpr double kStartCache = 1 << 27;
constexpr double kStartEps = 0.3;
constexpr int kMostStarts = 6;

std::size_t at(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

/// Weights as whole numbers of quanta; both sides have one total.
struct Masses {
  std::vector<Mass> a, b;
  double quantum;  // Times 2^exponent.
  int exponent;

  double weight(Mass mass) const { return std::ldexp(static_cast<double>(mass) * quantum, exponent); }
};

bool is_uniform(std::vector<double> const& weights) {
  return std::all_of(weights.begin(), weights.end(), [&](double weight) { return weight == weights[0]; });
}

Masses masses_of(ValidMarginals const& marginals) {
  std::size_t const n = marginals.a.size(), m = marginals.b.size();
  // The smallest numbers that fit uniform weights, so that equal sizes give a permutation.
  if (is_uniform(marginals.a) && is_uniform(marginals.b)) {
    std::size_t const common = std::gcd(n, m);
    return {std::vector<Mass>(n, static_cast<Mass>(m / common)), std::vector<Mass>(m, static_cast<Mass>(n / common)),
            marginals.a[0] / static_cast<double>(m / common), 0};
  }
  // A power of two with 100 binary digits for the total: weights down to 2^-47 of it are exact, whole ones always.
  int const exponent = std::ilogb(marginals.total_a) - 100;
  Masses masses{{}, {}, 1, exponent};
  auto const rounded = [&](double weight) {
    double const quanta = std::ldexp(weight, -exponent);
    return static_cast<Mass>(quanta < 0x1p53 ? std::nearbyint(quanta) : quanta);
  };
  for (double const weight : marginals.a) masses.a.push_back(rounded(weight));
  for (double const weight : marginals.b) masses.b.push_back(rounded(weight));
  // The totals differ by rounding alone, far less than the largest weight.
  *std::max_element(masses.b.begin(), masses.b.end()) += std::accumulate(masses.a.begin(), masses.a.end(), Mass{0}) -
                                                         std::accumulate(masses.b.begin(), masses.b.end(), Mass{0});
  return masses;
}

class ExactSolve {
 public:
  ExactSolve(Context const& context, Geometry const& geometry, VectorView a, VectorView b, ExactOptions const& options)
      : context_(context),
        geometry_(geometry),
        options_(options),
        n_(shape_of(geometry).rows),
        m_(shape_of(geometry).columns),
        marginals_(with_equal_totals(read_marginals(backend_of(context), {}, a, b, n_, m_), {.tolerance = 0})),
        masses_(masses_of(marginals_)),
        costs_(backend_of(context), geometry),
        simplex_(masses_.a, masses_.b) {
    WarmStart const warm = validated_warm_start(backend_of(context), options.f, options.g, marginals_);
    if (n_ * m_ <= kAllPairs) {
      take_all_pairs(warm.g);
    } else if (warm.f.empty()) {
      take_entropic_candidates();
    } else {
      take_candidates_near(warm);
    }
    report_.seconds.start = watch_.seconds();
  }

  ExactPlan solve() {
    while (!improve()) {
    }
    complete_potentials();
    return result();
  }

 private:
  /// One round. Returns whether it was the last.
  bool improve() {
    Stopwatch search;
    if (goes_on()) simplex_.run([&] { return goes_on(); });
    report_.seconds.search += search.seconds();
    Stopwatch pricing;
    bool const stuck = !stopped_ && simplex_.left() > 0;
    std::vector<Arc> offered = stuck ? ways_out() : best_pairs();
    if (stuck) {
      simplex_.add(offered);
    } else {
      ++report_.rounds;
      price(offered);
    }
    report_.seconds.pricing += pricing.seconds();
    if (stopped_) {
      report_.status = ExactStatus::stopped;
      return true;
    }
    if (stuck) return false;
    report_.status = report_.worst_reduced_cost >= -tolerance() ? ExactStatus::optimal : ExactStatus::round_limit;
    if (report_.status == ExactStatus::optimal || report_.rounds >= options_.rounds) return true;
    simplex_.add(offered);
    return false;
  }

  double tolerance() const { return options_.tolerance * report_.cost_scale; }
  /// The share of the mass that has no place; all of it before the first candidates.
  double left() const { return simplex_.arcs() > 0 ? masses_.weight(simplex_.left()) / marginals_.total_a : 1; }

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
    std::erase_if(arcs, [](Arc const& arc) { return std::isinf(arc.cost); });
    for (Arc const& arc : arcs) report_.cost_scale = std::max(report_.cost_scale, std::abs(arc.cost));
    return arcs;
  }

  void take_all_pairs(std::vector<double> const& g) {
    std::vector<Arc> arcs;
    for (std::int64_t i = 0; i < n_; ++i) {
      for (std::int64_t j = 0; j < m_; ++j)
        arcs.push_back({static_cast<std::int32_t>(i), static_cast<std::int32_t>(j), 0});
    }
    costs_.set(arcs);
    all_pairs_ = arcs;
    simplex_.add(priced(std::move(arcs)));
    simplex_.start(g.empty() ? std::vector<double>(at(m_), 0) : g);
  }

  /// Potentials near the optimum, of entropic problems whose eps falls until it is near the differences of the reduced
  /// costs of a row's candidates.
  void take_entropic_candidates() {
    SolveOptions options{.eps = first_eps(),
                         .method = Method::sinkhorn,
                         .tolerance = kStartError,
                         .iterations = kStartSweeps,
                         .precision = Precision::float32,
                         .certificate = false,
                         .cache_bytes = kStartCache,
                         .progress = [&](Progress const&) { return goes_on(); }};
    std::vector<double> f, g;
    for (int k = 0;; ++k) {
      Plan const plan = monge::solve(context_, geometry_, marginals_.a, marginals_.b, options);
      std::vector<Arc> arcs;
      double const spread = candidates_of(plan, options.eps, arcs);
      f = plan.f();
      g = plan.g();
      if (options.eps <= 2 * kStartEps * spread || spread == 0 || k == kMostStarts || stopped_) {
        take(std::move(arcs), g);
        return;
      }
      options.eps = std::max(options.eps / 16, kStartEps * spread);
      options.f = f;
      options.g = g;
    }
  }

  void take_candidates_near(WarmStart const& warm) {
    double const eps = first_eps() / 256;
    std::vector<Arc> arcs;
    Plan const plan = plan_of(context_, geometry_, marginals_.a, marginals_.b,
                              {.eps = eps, .cache_bytes = kStartCache, .f = warm.f, .g = warm.g});
    candidates_of(plan, eps, arcs);
    take(std::move(arcs), plan.g());
  }

  /// A fifth of the mean size of what a sample of the costs has besides terms of one point.
  double first_eps() {
    constexpr std::int64_t kRows = 32, kColumns = 256;
    auto const some = [](std::vector<Mass> const& masses, std::int64_t most) {
      std::vector<std::int32_t> with_mass, chosen;
      for (std::size_t i = 0; i < masses.size(); ++i) {
        if (masses[i] > 0) with_mass.push_back(static_cast<std::int32_t>(i));
      }
      std::size_t const count = std::min(with_mass.size(), at(most));
      for (std::size_t k = 0; k < count; ++k) chosen.push_back(with_mass[k * with_mass.size() / count]);
      return chosen;
    };
    std::vector<std::int32_t> const rows = some(masses_.a, kRows), columns = some(masses_.b, kColumns);
    std::vector<Arc> sample;
    for (std::int32_t const i : rows) {
      for (std::int32_t const j : columns) sample.push_back({i, j, 0});
    }
    sample = priced(std::move(sample));
    auto const centre = [&](auto const& point_of, std::int64_t size) {
      std::vector<double> sum(at(size), 0), count(at(size), 0);
      for (Arc const& arc : sample) {
        sum[at(point_of(arc))] += arc.cost;
        ++count[at(point_of(arc))];
      }
      for (Arc& arc : sample) arc.cost -= sum[at(point_of(arc))] / count[at(point_of(arc))];
    };
    centre([](Arc const& arc) { return arc.row; }, n_);
    centre([](Arc const& arc) { return arc.column; }, m_);
    double mean = 0;
    for (Arc const& arc : sample) mean += std::abs(arc.cost) / static_cast<double>(sample.size());
    double const least = 1e-6 * report_.cost_scale;
    return std::max(mean / 5, least > 0 ? least : 1.0);
  }

  /// Appends the largest entries of each row and column. Returns the mean difference of the reduced costs of a row's
  /// first and last candidate.
  double candidates_of(Plan const& plan, double eps, std::vector<Arc>& arcs) const {
    double spread = 0;
    for (Side const side : kSides) {
      bool const by_rows = side == Side::rows;
      std::int64_t const size = by_rows ? n_ : m_, k = std::min<std::int64_t>(options_.candidates, by_rows ? m_ : n_);
      std::vector<std::int64_t> partners(at(size * k));
      std::vector<double> entries(partners.size());
      MutableIndexView const indices{partners.data(), size, k, k};
      (by_rows ? plan.top_k(indices, {entries.data(), size, k})
               : plan.top_k_transpose(indices, {entries.data(), size, k}));
      for (std::int64_t i = 0; i < size; ++i) {
        for (std::int64_t q = i * k; q < (i + 1) * k; ++q) {
          std::int32_t const own = static_cast<std::int32_t>(i), other = static_cast<std::int32_t>(partners[at(q)]);
          arcs.push_back(by_rows ? Arc{own, other, 0} : Arc{other, own, 0});
        }
        double const ratio = entries[at(i * k)] / entries[at((i + 1) * k - 1)];
        if (by_rows && std::isfinite(ratio)) spread += eps * std::log(ratio) / static_cast<double>(size);
      }
    }
    return spread;
  }

  void take(std::vector<Arc> arcs, std::vector<double> g) {
    std::sort(arcs.begin(), arcs.end());
    simplex_.add(priced(std::move(arcs)));
    for (std::size_t j = 0; j < g.size(); ++j) {
      if (masses_.b[j] == 0) g[j] = 0;
    }
    simplex_.start(g);
  }

  /// For each row some pairs of least reduced cost, the least among them.
  std::vector<Arc> best_pairs() {
    if (!all_pairs_.empty()) return priced(all_pairs_);
    if (!hard_) {
      Marginals weights;
      for (Mass const mass : masses_.a) weights.a.push_back(mass > 0 ? 1 : 0);
      for (Mass const mass : masses_.b) weights.b.push_back(mass > 0 ? 1 : 0);
      hard_.emplace(backend_of(context_), geometry_, weights);
    }
    std::vector<double> v = simplex_.v();
    std::int64_t const k = std::min(kOffered, m_);
    std::vector<std::int64_t> nearest(at(n_ * k));
    hard_->nearest(Side::rows, v, {nearest.data(), n_, k, k});
    std::vector<Arc> arcs;
    for (std::int64_t i = 0; i < n_; ++i) {
      for (std::int64_t q = 0; q < k; ++q)
        arcs.push_back({static_cast<std::int32_t>(i), static_cast<std::int32_t>(nearest[at(i * k + q)]), 0});
    }
    return priced(std::move(arcs));
  }

  /// Pairs from rows whose mass finds no room among the candidates to columns that it does not reach. Throws if there
  /// are none.
  std::vector<Arc> ways_out() {
    std::vector<double> const v = simplex_.v();
    std::vector<Arc> ways, line;
    double supply = 0, demand = 0;
    std::int64_t closed = 0;
    for (std::int64_t i = 0; i < n_; ++i) {
      if (!simplex_.is_closed(static_cast<std::int32_t>(i))) continue;
      closed = i;
      supply += marginals_.a[at(i)];
      line.clear();
      for (std::int32_t j = 0; j < m_ && all_pairs_.empty(); ++j) {
        if (!simplex_.is_closed_column(j)) line.push_back({static_cast<std::int32_t>(i), j, 0});
      }
      line = priced(std::move(line));
      std::size_t const count = std::min(line.size(), at(kOffered));
      std::partial_sort(
          line.begin(), line.begin() + static_cast<std::ptrdiff_t>(count), line.end(),
          [&](Arc const& x, Arc const& y) { return x.cost - v[at(x.column)] < y.cost - v[at(y.column)]; });
      ways.insert(ways.end(), line.begin(), line.begin() + static_cast<std::ptrdiff_t>(count));
    }
    for (std::int32_t j = 0; j < m_; ++j) demand += simplex_.is_closed_column(j) ? marginals_.b[at(j)] : 0;
    require(
        !ways.empty(),
        "cost: forbids too many pairs; row {} and others have the mass {}, and all columns that they may send it to "
        "take {}",
        closed, supply, demand);
    return ways;
  }

  /// Finds the largest f that the offered pairs allow, keeps the pairs of negative reduced cost, and evaluates the
  /// dual.
  void price(std::vector<Arc>& offered) {
    std::vector<double> const v = simplex_.v();
    std::vector<double> f(at(n_), kInfinity);
    for (Arc const& arc : offered) f[at(arc.row)] = std::min(f[at(arc.row)], arc.cost - v[at(arc.column)]);
    double worst = 0;
    CompensatedSum dual;
    for (std::int64_t i = 0; i < n_; ++i) {
      if (masses_.a[at(i)] == 0) continue;
      worst = std::min(worst, f[at(i)] - simplex_.u(static_cast<std::int32_t>(i)));
      dual.add(marginals_.a[at(i)] * f[at(i)]);
    }
    for (std::int64_t j = 0; j < m_; ++j) dual.add(masses_.b[at(j)] > 0 ? marginals_.b[at(j)] * v[at(j)] : 0);
    report_.worst_reduced_cost = worst;
    std::erase_if(offered,
                  [&](Arc const& arc) { return arc.cost - simplex_.u(arc.row) - v[at(arc.column)] >= -tolerance(); });
    if (dual.value() < best_dual_) return;
    best_dual_ = dual.value();
    f_ = std::move(f);
    g_ = v;
  }

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
    for (std::size_t i = 0; i < own.size(); ++i) {
      if (mass[i] == 0) own[i] = kInfinity;
    }
    std::vector<Arc> line;
    for (std::size_t i = 0; i < own.size(); ++i) {
      if (mass[i] > 0) continue;
      line.clear();
      for (std::size_t j = 0; j < others.size(); ++j) {
        std::int32_t const own_index = static_cast<std::int32_t>(i), other = static_cast<std::int32_t>(j);
        if (counts(j)) line.push_back(by_rows ? Arc{own_index, other, 0} : Arc{other, own_index, 0});
      }
      costs_.set(line);
      for (Arc const& arc : line) own[i] = std::min(own[i], arc.cost - others[at(by_rows ? arc.column : arc.row)]);
    }
  }

  ExactPlan result() {
    ExactPlan plan;
    plan.f = std::move(f_);
    plan.g = std::move(g_);
    std::vector<PlanEntry> entries = simplex_.entries();
    std::sort(entries.begin(), entries.end());
    plan.row_begin.assign(at(n_ + 1), 0);
    CompensatedSum cost, gap;
    Mass sum = 0;
    for (PlanEntry const& entry : entries) {
      double const value = masses_.weight(entry.mass);
      ++plan.row_begin[at(entry.row) + 1];
      plan.column_indices.push_back(entry.column);
      plan.values.push_back(value);
      cost.add(value * entry.cost);
      gap.add(value * (entry.cost - plan.f[at(entry.row)] - plan.g[at(entry.column)]));
      sum += entry.mass;
    }
    std::partial_sum(plan.row_begin.begin(), plan.row_begin.end(), plan.row_begin.begin());
    report_.candidates = simplex_.arcs();
    report_.pivots = simplex_.pivots();
    report_.nonzeros = static_cast<std::int64_t>(entries.size());
    report_.mass = marginals_.total_a;
    report_.transported_mass = masses_.weight(sum);
    report_.transport_cost = cost.value();
    report_.dual = best_dual_;
    report_.gap = simplex_.left() == 0 ? gap.value() : std::numeric_limits<double>::quiet_NaN();
    report_.message = report_.status == ExactStatus::optimal   ? "The plan is optimal."
                      : report_.status == ExactStatus::stopped ? "The progress callback stopped the solve."
                                                               : "The limit of rounds was reached; allow more of them.";
    report_.seconds.total = watch_.seconds();
    plan.report = std::move(report_);
    return plan;
  }

  Stopwatch watch_;
  Context const& context_;
  Geometry const& geometry_;
  ExactOptions const& options_;
  std::int64_t n_, m_;
  ValidMarginals marginals_;
  Masses masses_;
  PairCosts costs_;
  NetworkSimplex simplex_;
  std::vector<Arc> all_pairs_;  // If they are the candidates.
  std::optional<HardTransform> hard_;
  ExactReport report_;
  double best_dual_ = -kInfinity;
  bool stopped_ = false;
  std::vector<double> f_, g_;  // Of the best dual value.
};

}  // namespace

ExactPlan solve_exact(Context const& context, Geometry const& geometry, VectorView a, VectorView b,
                      ExactOptions const& options) {
  visit_exact_options(options, kCheckField);
  validate(geometry, context.device());
  Shape const shape = shape_of(geometry);
  constexpr std::int64_t kMost = std::int64_t{1} << 27;  // Candidates are counted in 32 bits.
  require(std::max(shape.rows, shape.columns) <= kMost / options.candidates,
          "candidates: is {} for {} x {} points; must be at most {}, of a side's points", options.candidates,
          shape.rows, shape.columns, kMost / std::max(shape.rows, shape.columns));
  return ExactSolve(context, geometry, a, b, options).solve();
}

}  // namespace monge
