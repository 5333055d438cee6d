#include "exact/exact_solve.hpp"

#include <cmath>

namespace monge {

void ExactSolve::open_dustbin() {
  leaving_ = prices_of(Side::rows);
  lacking_ = prices_of(Side::columns);
  std::vector<Arc> arcs;
  std::int32_t const row = static_cast<std::int32_t>(n_), column = static_cast<std::int32_t>(m_);
  arcs.reserve(to_size(n_ + m_ + 1));
  for (std::int32_t i = 0; i < row; ++i) arcs.push_back({i, column, leaving_.price[to_size(i)]});
  for (std::int32_t j = 0; j < column; ++j) arcs.push_back({row, j, lacking_.price[to_size(j)]});
  if (!is_partial(options_)) arcs.push_back({row, column, 0});
  std::erase_if(arcs, [&](Arc const& arc) { return !has_mass(arc.row, arc.column); });
  simplex_.add(finite(std::move(arcs)));
}

ExactSolve::Prices ExactSolve::prices_of(Side side) {
  bool const by_rows = side == Side::rows, partial = is_partial(options_);
  std::int64_t const size = by_rows ? n_ : m_;
  double const penalty = by_rows ? options_.penalty_a : options_.penalty_b;
  double const other = by_rows ? options_.penalty_b : options_.penalty_a;
  bool const no_dustbin = partial && (by_rows ? masses_.b.back() : masses_.a.back()) == 0;
  Prices found{filled(size, partial ? (no_dustbin ? kInfinity : 0) : penalty),
               std::vector<std::int32_t>(to_size(size), -1)};
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

std::vector<Arc> ExactSolve::cheapest_pairs(Side side) {
  bool const by_rows = side == Side::rows;
  std::int32_t const size = static_cast<std::int32_t>(by_rows ? n_ : m_);
  std::int32_t const other_size = static_cast<std::int32_t>(by_rows ? m_ : n_);
  auto const pair = [&](std::int32_t own, std::int32_t other) {
    return by_rows ? Arc{own, other, 0} : Arc{other, own, 0};
  };
  std::vector<Arc> cheapest;
  if (!costs_.may_forbid()) {
    HardTransform all(backend_of(context_), *geometry_, {filled(n_, 1), filled(m_, 1)});
    std::vector<std::int64_t> nearest(to_size(size));
    all.nearest(side, filled(other_size, 0), {nearest.data(), size, 1, 1});
    for (std::int32_t i = 0; i < size; ++i) cheapest.push_back(pair(i, static_cast<std::int32_t>(nearest[to_size(i)])));
    costs_.set(cheapest);
    return cheapest;
  }
  for (std::int32_t i = 0; i < size; ++i) cheapest.push_back(pair(i, 0)), cheapest.back().cost = kInfinity;
  auto const any = [](std::size_t) { return true; };
  for_each_pair(side, any, any, [&](Arc const& arc) {
    Arc& least = cheapest[to_size(by_rows ? arc.row : arc.column)];
    if (arc.cost < least.cost) least = arc;
  });
  return cheapest;
}

void ExactSolve::split_mass_price() {
  if (!is_partial(options_) || (masses_.a[to_size(n_)] > 0 && masses_.b[to_size(m_)] > 0)) return;
  double const most_f = largest_with_mass(masses_.a, f_, n_), most_g = largest_with_mass(masses_.b, g_, m_);
  double const half = (most_f + most_g) / 2;
  for (double& potential : f_) potential += half - most_f;
  for (double& potential : g_) potential += half - most_g;
  f_.back() = g_.back() = -half;
  leaving_.price.assign(to_size(n_), 0);
  lacking_.price.assign(to_size(m_), 0);
}

}  // namespace monge
