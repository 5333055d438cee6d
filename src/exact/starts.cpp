#include "exact/exact_solve.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include <monge/entropic.hpp>
#include <monge/solver.hpp>

#include "entropic/sinkhorn.hpp"
#include "geometry/points.hpp"

namespace monge {
namespace {

/// Above this many pairs, if all are candidates, potentials of some sweeps are the start.
constexpr std::int64_t kQuick = 3 << 12;
/// Settings of the entropic solves that the first candidates come from: the error, the sweeps (kTruncatedSweeps where
/// they leave out pairs, since separate clusters need more), the memory for scores, eps and the largest eps as
/// fractions of the spread of a row's candidates, and the number of times that eps may fall.
constexpr double kStartError = 3e-3;
constexpr int kStartSweeps = 50, kQuickSweeps = 10, kTruncatedSweeps = 200;
constexpr double kStartCache = 1 << 27;
constexpr double kStartEps = 0.3, kMostEps = 0.6, kMostEpsOfEqual = 1;
constexpr int kMostStarts = 6;
constexpr double kLeastEps = std::numeric_limits<double>::min();  // Its reciprocal is finite.
/// The points of each cloud that anneal alone, before all others join, and the sweeps of these solves.
constexpr std::int64_t kCoarse = 6000;
constexpr int kFullSweeps = 20;

/// A warm start with a potential above this many times the costs of a sample is as good as none.
constexpr double kMostStart = 1000;

}  // namespace

WarmStart ExactSolve::given_start() const {
  if (!options_.start || !options_.f.empty() || !options_.g.empty())
    return validated_warm_start(backend_of(context_), options_.f, options_.g, marginals_);
  WarmStart warm{options_.start->f, options_.start->g};
  // Potentials of points without mass may be infinite, and the points may have mass in this problem.
  for (std::vector<double>* const potentials : {&warm.f, &warm.g})
    std::ranges::replace_if(
        *potentials, [](double value) { return !std::isfinite(value); }, 0.0);
  return warm;
}

WarmStart ExactSolve::warm_start() {
  WarmStart warm = given_start();
  if (warm.f.empty()) return warm;
  double most = 0;
  for (Arc const& arc : sample()) most = std::max(most, kMostStart * std::abs(arc.cost));
  auto const fits = [&](double potential) { return std::abs(potential) <= most; };
  return std::ranges::all_of(warm.f, fits) && std::ranges::all_of(warm.g, fits) ? warm : WarmStart{};
}

void ExactSolve::take_all_pairs(std::vector<double> const& g) {
  std::vector<Arc> arcs;
  arcs.reserve(costs_.is_sparse() ? costs_.pairs().size() : to_size(n_ * m_));
  for_each_pair(
      Side::rows, [&](std::size_t i) { return masses_.a[i] > 0; }, [&](std::size_t j) { return masses_.b[j] > 0; },
      [&](Arc const& arc) { arcs.push_back(arc); });
  simplex_.add(finite(std::move(arcs)));
  bool const sweeps = !costs_.is_sparse() && n_ * m_ > kQuick;
  auto const swept = [&] {
    return monge::solve(context_, *geometry_, reachable_.a, reachable_.b, start_options(first_eps(), kQuickSweeps)).g();
  };
  start(!g.empty() ? g : sweeps ? swept() : filled(m_, 0), first_pairs());
}

void ExactSolve::start(std::vector<double> g, std::vector<Arc> const& pairs) {
  double const dustbin = options_.start && is_partial(options_) ? -options_.start->report.mass_price / 2 : 0;
  for (std::size_t j = 0; j < g.size(); ++j) {
    if (masses_.b[j] == 0) g[j] = 0;
    if (is_relaxed(options_)) g[j] = std::min(g[j], lacking_.price[j] - dustbin);
  }
  if (is_relaxed(options_)) g.push_back(dustbin);
  simplex_.start(g, pairs);
}

std::vector<Arc> ExactSolve::pairs_of(ExactPlan const& plan) {
  std::vector<Arc> pairs;
  std::vector<double> a = marginals_.a, b = marginals_.b;
  std::int32_t const n = static_cast<std::int32_t>(n_), m = static_cast<std::int32_t>(m_);
  for (std::int32_t i = 0; i < n; ++i) {
    for (std::int64_t k = plan.row_begin[to_size(i)]; k < plan.row_begin[to_size(i) + 1]; ++k) {
      std::int32_t const j = static_cast<std::int32_t>(plan.column_indices[to_size(k)]);
      pairs.push_back({i, j, 0});
      a[to_size(i)] -= plan.values[to_size(k)];
      b[to_size(j)] -= plan.values[to_size(k)];
    }
  }
  simplex_.add(priced(pairs));
  if (!is_relaxed(options_)) return pairs;
  for (std::int32_t i = 0; i < n; ++i) {
    if (a[to_size(i)] > kSameMass * marginals_.a[to_size(i)]) pairs.push_back({i, m, 0});
  }
  for (std::int32_t j = 0; j < m; ++j) {
    if (b[to_size(j)] > kSameMass * marginals_.b[to_size(j)]) pairs.push_back({n, j, 0});
  }
  pairs.push_back({n, m, 0});
  return pairs;
}

SolveOptions ExactSolve::start_options(double eps, int sweeps) {
  SolveOptions options{.eps = eps,
                       .method = Method::sinkhorn,
                       .tolerance = kStartError,
                       .iterations = sweeps,
                       .certificate = false,
                       .cache_bytes = kStartCache,
                       .progress = [&](Progress const&) { return goes_on(); }};
  if (truncation_of(backend_of(context_), *geometry_, {.eps = options.eps}) > 0) {
    options.method = Method::multiscale;
    options.iterations = kTruncatedSweeps;
  }
  options.penalty_a = entropic_penalty(options_.penalty_a, options.eps);
  options.penalty_b = entropic_penalty(options_.penalty_b, options.eps);
  return options;
}

ExactSolve::Annealed ExactSolve::annealed(Geometry const& geometry, Marginals const& weights, SolveOptions options) {
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

std::vector<double> ExactSolve::g_of(Plan const& plan, std::vector<double> const& b, double fall) const {
  std::vector<double> g = plan.g();
  if (n_ <= m_) return g;
  for (std::size_t j = 0; j < g.size(); ++j) g[j] += b[j] > 0 ? fall * std::log(b[j]) : 0;
  return g;
}

void ExactSolve::take_entropic_candidates() {
  SolveOptions options = start_options(first_eps(), kStartSweeps);
  std::vector<double> f, g;
  std::int64_t const stride = std::min(n_, m_) / kCoarse;
  if (stride > 1 && !costs_.may_forbid()) set_coarse_start(stride, options, g);
  if (!g.empty()) {
    f.assign(to_size(n_), 0);  // A sweep begins with f.
    options.f = f;
    options.g = g;
    options.iterations = kFullSweeps;
    options.annealing = 1;
  }
  Annealed near = annealed(*geometry_, reachable_, options);
  take(std::move(near.candidates), g_of(near.plan, reachable_.b, near.eps));
}

void ExactSolve::set_coarse_start(std::int64_t stride, SolveOptions& options, std::vector<double>& g) {
  auto const some_weights = [&](std::vector<double> const& weights) {
    std::vector<double> some;
    for (std::size_t i = 0; i < weights.size(); i += to_size(stride)) some.push_back(weights[i]);
    double const share = std::reduce(some.begin(), some.end(), 0.0) / std::reduce(weights.begin(), weights.end(), 0.0);
    for (double& weight : some) weight = share > 0 ? weight / share : 0;
    return some;
  };
  auto const has_mass = [](double weight) { return weight > 0; };
  Marginals const weights{some_weights(reachable_.a), some_weights(reachable_.b)};
  if (std::ranges::none_of(weights.a, has_mass) || std::ranges::none_of(weights.b, has_mass)) return;
  PointCloud const some_rows = every(clouds_of(*geometry_), Side::rows, stride);
  PointCloud const some = every(some_rows, Side::columns, stride);

  Annealed const coarse = annealed(some, weights, options);
  options.eps = coarse.eps;
  if (options.method == Method::multiscale) return;  // Its own coarse clouds are a better start.
  HardTransform transform(backend_of(context_), some_rows, {weights.a, filled(m_, 1)});
  std::vector<std::int64_t> nearest(to_size(m_));
  g = transform.nearest(Side::columns, coarse.plan.f(), {nearest.data(), m_, 1, 1});
}

void ExactSolve::take_candidates_near(WarmStart const& warm) {
  SolveOptions options = start_options(first_eps() / 256, kQuickSweeps);
  options.f = warm.f;
  options.g = warm.g;
  std::vector<Arc> arcs;
  Plan const plan = plan_of(context_, *geometry_, reachable_.a, reachable_.b, options);
  candidates_of(plan, options.eps, arcs);
  take(std::move(arcs), plan.g());
}

std::vector<Arc> const& ExactSolve::sample() {
  if (!sample_.empty()) return sample_;
  constexpr std::int64_t kRows = 32, kColumns = 256;
  auto const some = [](std::vector<double> const& weights, std::int64_t most) {
    std::vector<std::int32_t> with_mass, chosen;
    for (std::size_t i = 0; i < weights.size(); ++i) {
      if (weights[i] > 0) with_mass.push_back(static_cast<std::int32_t>(i));
    }
    std::size_t const count = std::min(with_mass.size(), to_size(most));
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

double ExactSolve::first_eps() {
  std::vector<Arc> sample = this->sample();
  auto const centre = [&](auto const& point_of, std::int64_t size) {
    std::vector<double> mean(to_size(size), 0), count(to_size(size), 0);
    for (Arc const& arc : sample) ++count[to_size(point_of(arc))];
    for (Arc const& arc : sample) mean[to_size(point_of(arc))] += arc.cost / count[to_size(point_of(arc))];
    for (Arc& arc : sample) arc.cost -= mean[to_size(point_of(arc))];
  };
  centre([](Arc const& arc) { return arc.row; }, n_);
  centre([](Arc const& arc) { return arc.column; }, m_);
  double mean = 0;
  for (Arc const& arc : sample) mean += std::abs(arc.cost) / static_cast<double>(sample.size());
  return std::max({mean / 5, 1e-6 * report_.cost_scale, 256 * kLeastEps});
}

double ExactSolve::candidates_of(Plan const& plan, double eps, std::vector<Arc>& arcs) const {
  double spread = 1;
  for (Side const side : kSides) {
    bool const by_rows = side == Side::rows;
    std::int64_t const size = by_rows ? plan.rows() : plan.columns();
    std::int64_t const k = std::min<std::int64_t>(options_.candidates, by_rows ? plan.columns() : plan.rows());
    std::vector<std::int64_t> partners(to_size(size * k));
    std::vector<double> entries(partners.size());
    double mean = 0;
    MutableIndexView const indices{partners.data(), size, k, k};
    (by_rows ? plan.top_k(indices, {entries.data(), size, k})
             : plan.top_k_transpose(indices, {entries.data(), size, k}));
    for (std::int64_t i = 0; i < size; ++i) {
      for (std::int64_t q = i * k; q < (i + 1) * k; ++q) {
        std::int32_t const own = static_cast<std::int32_t>(i), other = static_cast<std::int32_t>(partners[to_size(q)]);
        arcs.push_back(by_rows ? Arc{own, other, 0} : Arc{other, own, 0});
      }
      double const ratio = entries[to_size(i * k)] / entries[to_size((i + 1) * k - 1)];
      if (std::isfinite(ratio)) mean += eps * std::log(ratio) / static_cast<double>(size);
    }
    spread *= std::sqrt(mean);
  }
  return spread;
}

void ExactSolve::take(std::vector<Arc> arcs, std::vector<double> g) {
  std::sort(arcs.begin(), arcs.end());
  simplex_.add(priced(std::move(arcs)));
  start(std::move(g), first_pairs());
}

}  // namespace monge
