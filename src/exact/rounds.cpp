#include "exact/exact_solve.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace monge {
namespace {

/// Pairs of a row that a pass over all pairs offers.
constexpr std::int64_t kOffered = 16;

}  // namespace

bool ExactSolve::improve() {
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
  start(filled(m_, 0), pairs_of_basis());
  return false;
}

bool ExactSolve::goes_on() {
  if (!stopped_ && options_.progress)
    stopped_ = !options_.progress({report_.rounds, simplex_.arcs(), left(), best_dual_, watch_.seconds()});
  return !stopped_;
}

double ExactSolve::left() const {
  return simplex_.arcs() > 0 ? masses_.weight(simplex_.left()) / masses_.weight(total_of(masses_.a)) : 1;
}

std::vector<Arc> ExactSolve::pairs_of_basis() const {
  std::vector<PlanEntry> const entries = simplex_.entries();
  return {entries.begin(), entries.end()};
}

void ExactSolve::read_potentials() {
  v_ = simplex_.v();
  double const largest = largest_with_mass(masses_.b, v_, m_);
  for (std::size_t j = 0; j < to_size(m_); ++j) {
    if (masses_.b[j] == 0) v_[j] = largest;  // A pass then has no larger range.
  }
  if (!is_relaxed(options_)) return;
  bool const takes = masses_.b[to_size(m_)] > 0, gives = masses_.a[to_size(n_)] > 0;
  double const v = v_[to_size(m_)], u = simplex_.u(static_cast<std::int32_t>(n_));
  v_.pop_back();
  shift_ = !is_partial(options_) ? v : takes && gives ? (v - u) / 2 : takes ? v : gives ? -u : 0;
  dustbin_ = is_partial(options_) && takes && gives ? (v + u) / 2 : 0;
  for (std::size_t j = 0; j < v_.size(); ++j) v_[j] = std::min(v_[j] - shift_, lacking_.price[j] - dustbin_);
}

std::vector<Arc> ExactSolve::best_pairs() {
  if (has_all_candidates_) return {};
  if (!hard_) {
    Marginals weights;
    for (std::int64_t i = 0; i < n_; ++i)
      weights.a.push_back(masses_.a[to_size(i)] > 0 && reachable_.a[to_size(i)] > 0);
    for (std::int64_t j = 0; j < m_; ++j)
      weights.b.push_back(masses_.b[to_size(j)] > 0 && reachable_.b[to_size(j)] > 0);
    hard_.emplace(backend_of(context_), *geometry_, weights);
  }
  std::int64_t const k = std::min(kOffered, m_);
  std::vector<std::int64_t> nearest(to_size(n_ * k));
  hard_->nearest(Side::rows, v_, {nearest.data(), n_, k, k});
  std::vector<Arc> arcs;
  for (std::int64_t i = 0; i < n_; ++i) {
    for (std::int64_t q = 0; q < k; ++q)
      arcs.push_back({static_cast<std::int32_t>(i), static_cast<std::int32_t>(nearest[to_size(i * k + q)]), 0});
  }
  return priced(std::move(arcs));
}

std::vector<Arc> ExactSolve::ways_out() {
  std::vector<double> const v = simplex_.v();
  std::vector<Mass> room(to_size(m_));
  for (std::int32_t j = 0; j < m_; ++j) room[to_size(j)] = simplex_.room_of(j);
  std::vector<Arc> ways, line;
  double supply = 0, demand = 0;
  std::int64_t closed = 0;
  for (std::int64_t i = 0; i < n_; ++i) {
    if (!simplex_.is_closed(static_cast<std::int32_t>(i))) continue;
    closed = i;
    supply += marginals_.a[to_size(i)];
    line.clear();
    for (std::int32_t j = 0; j < m_ && !has_all_candidates_; ++j) {
      if (!simplex_.is_closed_column(j)) line.push_back({static_cast<std::int32_t>(i), j, 0});
    }
    line = priced(std::move(line));
    // Ties are broken in another order for each row, so that rows of equal costs open different columns.
    auto const turned = [&](std::int64_t j) { return (j + (m_ - i % m_) * kOffered) % m_; };
    auto const is_better = [&](Arc const& x, Arc const& y) {
      double const a = x.cost - v[to_size(x.column)], b = y.cost - v[to_size(y.column)];
      return a != b ? a < b : turned(x.column) < turned(y.column);
    };
    std::size_t const count = std::min(line.size(), to_size(kOffered));
    std::partial_sort(line.begin(), line.begin() + static_cast<std::ptrdiff_t>(count), line.end(), is_better);
    ways.insert(ways.end(), line.begin(), line.begin() + static_cast<std::ptrdiff_t>(count));
    Mass left = simplex_.left_of(static_cast<std::int32_t>(i));
    if (left == 0) continue;
    std::erase_if(line, [&](Arc const& arc) { return room[to_size(arc.column)] == 0; });
    auto const is_worse = [&](Arc const& x, Arc const& y) { return is_better(y, x); };
    std::make_heap(line.begin(), line.end(), is_worse);
    for (; left > 0 && !line.empty(); line.pop_back()) {
      std::pop_heap(line.begin(), line.end(), is_worse);
      Mass const flow = std::min(left, room[to_size(line.back().column)]);
      room[to_size(line.back().column)] -= flow;
      left -= flow;
      ways.push_back(line.back());
    }
  }
  for (std::int32_t j = 0; j < m_; ++j) demand += simplex_.is_closed_column(j) ? marginals_.b[to_size(j)] : 0;
  if (ways.empty() && left() <= kSameMass) {
    drop_rest();
    return ways;
  }
  require(!is_partial(options_) || !ways.empty(),
          "mass: is {}; must be at most {}, all that pairs of finite cost can take", options_.mass,
          options_.mass - masses_.weight(simplex_.left()));
  require(!ways.empty(),
          "cost: forbids too many pairs; row {} and others have the mass {}, and all columns that they may send it to "
          "take {}",
          closed, supply, demand);
  return ways;
}

void ExactSolve::price(std::vector<Arc>& offered) {
  std::vector<double> f = leaving_.price;
  f.resize(to_size(n_), kInfinity);
  for (double& potential : f) potential -= dustbin_;
  std::vector<double> v = v_;
  if (is_relaxed(options_)) v.push_back(dustbin_);
  std::vector<double> const least = simplex_.least_of_rows(v);
  for (std::size_t i = 0; i < f.size(); ++i) f[i] = std::min(f[i], least[i]);
  for (Arc const& arc : offered)
    f[to_size(arc.row)] = std::min(f[to_size(arc.row)], arc.cost - v_[to_size(arc.column)]);
  double worst = 0, scale = 0, rounding = 0;
  CompensatedSum sum;
  auto const add = [&](Mass mass, double potential) {
    double const term = masses_.weight(mass) * potential;
    sum.add(term);
    // Rounding of potential, weight and term, which may lie below the least normal number.
    if (potential != 0) rounding += 0x1p-51 * std::abs(term) + std::numeric_limits<double>::denorm_min();
  };
  for (std::int64_t i = 0; i < n_; ++i) {
    if (masses_.a[to_size(i)] == 0) continue;
    worst = std::min(worst, f[to_size(i)] - u(i));
    scale = std::max(scale, std::abs(u(i)));
    add(masses_.a[to_size(i)], f[to_size(i)]);
  }
  for (std::int64_t j = 0; j < m_; ++j) {
    if (masses_.b[to_size(j)] == 0) continue;
    scale = std::max(scale, std::abs(v_[to_size(j)]));
    add(masses_.b[to_size(j)], v_[to_size(j)]);
  }
  if (is_relaxed(options_)) {
    add(masses_.a[to_size(n_)], dustbin_);
    add(masses_.b[to_size(m_)], dustbin_);
  }
  potential_scale_ = scale;
  report_.worst_reduced_cost = worst;
  double const hidden = hidden_by_rounding(offered, f);
  std::erase_if(offered,
                [&](Arc const& arc) { return arc.cost - u(arc.row) - v_[to_size(arc.column)] >= -tolerance(); });
  double const dual = sum.value() - rounding - hidden;
  if (dual < best_dual_) return;
  best_dual_ = dual;
  hidden_ = hidden;
  f_ = std::move(f);
  g_ = v_;
  f_.push_back(dustbin_);
  g_.push_back(dustbin_);
}

void ExactSolve::price_of_zero() {
  v_.assign(to_size(m_), 0);
  dustbin_ = 0;
  if (is_relaxed(options_))
    for (std::size_t j = 0; j < v_.size(); ++j) v_[j] = std::min(0.0, lacking_.price[j]);
  std::vector<Arc> offered = best_pairs();
  price(offered);
}

double ExactSolve::hidden_by_rounding(std::vector<Arc> const& offered, std::vector<double> const& f) const {
  if (has_all_candidates_ || kOffered >= m_) return 0;
  std::vector<double> largest(to_size(n_), -kInfinity);
  std::vector<std::int64_t> count(to_size(n_), 0);
  for (Arc const& arc : offered) {
    ++count[to_size(arc.row)];
    largest[to_size(arc.row)] = std::max(largest[to_size(arc.row)], arc.cost - v_[to_size(arc.column)]);
  }
  double sum = 0;
  for (std::int64_t i = 0; i < n_; ++i) {
    if (count[to_size(i)] == kOffered)  // A row with fewer has all of finite cost.
      sum += masses_.weight(masses_.a[to_size(i)]) *
             std::max(0.0, 2 * hard_->rounding() - (largest[to_size(i)] - f[to_size(i)]));
  }
  return sum;
}

void ExactSolve::drop_rest() {
  std::vector<Arc> const basis = pairs_of_basis();
  for (std::size_t i = 0; i < masses_.a.size(); ++i) masses_.a[i] -= simplex_.left_of(static_cast<std::int32_t>(i));
  for (std::size_t j = 0; j < masses_.b.size(); ++j) masses_.b[j] -= simplex_.room_of(static_cast<std::int32_t>(j));
  std::vector<Arc> arcs = simplex_.all_arcs();
  std::erase_if(arcs, [&](Arc const& arc) { return !has_mass(arc.row, arc.column); });
  simplex_ = NetworkSimplex(masses_.a, masses_.b);
  simplex_.add(std::move(arcs));
  start(filled(m_, 0), basis);
  hard_.reset();
}

}  // namespace monge
