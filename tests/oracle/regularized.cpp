#include "oracle/regularized.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace monge::oracle {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

std::size_t at(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

/// The root of an increasing function that is at most 0 at low and at least 0 at high.
template <class Function>
Real bisect(Real low, Real high, Function&& function) {
  for (int k = 0; k < 200; ++k) {
    Real const middle = (low + high) / 2;
    (function(middle) <= 0 ? low : high) = middle;
  }
  return low;
}

/// The same by regula falsi (Illinois), in fewer steps.
template <class Function>
Real root_of(Real low, Real high, Function&& function) {
  Real at_low = function(low), at_high = function(high);
  for (int k = 0; k < 300 && at_low < 0 && at_high > 0; ++k) {
    Real const middle = (low * at_high - high * at_low) / (at_high - at_low), value = function(middle);
    if (!(middle > low && middle < high)) break;
    if (value <= 0) {
      low = middle;
      at_low = value;
      at_high /= 2;
    } else {
      high = middle;
      at_high = value;
      at_low /= 2;
    }
  }
  return at_high > 0 && at_low < 0 ? (low + high) / 2 : at_low >= 0 ? low : high;
}

std::vector<double> transpose(std::vector<double> const& values, std::int64_t n, std::int64_t m) {
  std::vector<double> result(values.size());
  for (std::int64_t i = 0; i < n; ++i) {
    for (std::int64_t j = 0; j < m; ++j) result[at(j * n + i)] = values[at(i * m + j)];
  }
  return result;
}

std::vector<double> random_shares(std::int64_t size, bool has_zeros, Random& random) {
  std::vector<double> shares(at(size));
  double total = 0;
  for (std::int64_t i = 0; i < size; ++i) {
    bool const is_zero = has_zeros && size > 2 && i % 5 == 1;
    total += shares[at(i)] = is_zero ? 0 : random.uniform(0.5, 1.5);
  }
  for (double& share : shares) share /= total;
  return shares;
}

}  // namespace

RegularizedData::RegularizedData(RegularizedRecipe const& given) : recipe(given) {
  if (recipe.has_points) recipe.offset = 0;
  std::int64_t const n = recipe.n, m = recipe.m;
  Random random(recipe.seed);
  p = random_shares(n, recipe.has_zero_shares, random);
  q = random_shares(m, recipe.has_zero_shares, random);

  // Squared distances of two clouds in the plane.
  std::vector<double> points(at(2 * (n + m)));
  for (double& value : points) value = random.normal();
  for (std::int64_t k = 2 * n; k < 2 * (n + m); ++k) points[at(k)] += 1;
  costs.resize(at(n * m));
  std::vector<double> masks(at(n * m), 1), weights(at(n * m));
  double most = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    for (std::int64_t j = 0; j < m; ++j) {
      double const d0 = points[at(2 * i)] - points[at(2 * (n + j))];
      double const d1 = points[at(2 * i + 1)] - points[at(2 * (n + j) + 1)];
      most = std::max(most, costs[at(i * m + j)] = d0 * d0 + d1 * d1 + (recipe.has_points ? 0 : 0.01));
    }
  }
  for (std::int64_t i = 0; i < n; ++i) {
    for (std::int64_t j = 0; j < m; ++j) {
      double& cost = costs[at(i * m + j)];
      cost = recipe.offset + recipe.range * cost / most;
      // Whatever is forbidden, each point keeps partners: those with equal and those with close remainders.
      bool const is_kept = (i - j) % 3 == 0 || n < 4 || m < 4;
      if (recipe.has_infinite_costs && !is_kept && random.uniform() < 0.3) cost = kInfinity;
      if (recipe.has_zero_shares && ((n > 2 && i == 1) || (m > 2 && j == 1))) cost = kInfinity;
      if (recipe.has_mask && !is_kept && random.uniform() < 0.3) masks[at(i * m + j)] = 0;
      weights[at(i * m + j)] = random.uniform() < 0.2 ? 0 : random.uniform();
    }
  }
  cost = recipe.transposed ? Stored(transpose(costs, n, m), m, n, recipe.storage, 3)
                           : Stored(costs, n, m, recipe.storage, 3);
  costs = recipe.transposed ? transpose(cost.values(), m, n) : cost.values();
  geometry = CostMatrix{cost.view(), recipe.transposed};
  if (recipe.has_points) {
    auto const middle = points.begin() + static_cast<std::ptrdiff_t>(2 * n);
    x = Stored(std::vector<double>(points.begin(), middle), n, 2, recipe.storage, 1);
    y = Stored(std::vector<double>(middle, points.end()), m, 2, recipe.storage, 2);
    geometry = PointCloud{x.view(), y.view(), recipe.range / most};
  }

  terms.quadratic = recipe.quadratic * recipe.range / recipe.mass;
  terms.group_lasso = recipe.group_lasso * recipe.range;
  terms.l1 = recipe.l1 * recipe.range;
  terms.hypentropy = recipe.hypentropy * recipe.range;
  terms.hypentropy_width = recipe.hypentropy_width * recipe.mass;
  if (recipe.group_lasso > 0 && recipe.has_pair_groups) {
    constexpr std::int64_t kPadding = 3;
    pair_groups.assign(at(n * (m + kPadding)), -7);
    for (std::int64_t i = 0; i < n; ++i) {
      for (std::int64_t j = 0; j < m; ++j) {
        double const place = random.uniform();
        std::int64_t const group = static_cast<std::int64_t>(place * place * static_cast<double>(recipe.groups));
        pair_groups[at(i * (m + kPadding) + j)] = random.uniform() < 0.2 ? -1 : group;
      }
    }
    terms.pair_groups = {pair_groups.data(), n, m, m + kPadding};
  } else if (recipe.group_lasso > 0) {
    for (std::int64_t i = 0; i < n; ++i) {
      double const place = random.uniform();
      // Each group has a row of its own.
      std::int64_t const group = i < recipe.groups
                                     ? recipe.groups - 1 - i
                                     : static_cast<std::int64_t>(place * place * static_cast<double>(recipe.groups));
      terms.groups.push_back(static_cast<std::int32_t>(group));
    }
  }
  if (recipe.group_lasso > 0) {
    for (std::int64_t g = 0; g < recipe.groups; ++g) {
      double const weight = g == 0 ? 0 : random.uniform(0.5, 1.5);
      terms.group_weights.push_back(recipe.has_group_weights ? weight : 1);
    }
  }
  if (recipe.l1 > 0) {
    l1_weights = Stored(weights, n, m, recipe.storage, 2);
    terms.l1_weights = l1_weights.view();
  }
  if (recipe.has_mask) {
    mask = Stored(masks, n, m, recipe.storage, 1);
    terms.mask = mask.view();
    for (std::int64_t e = 0; e < n * m; ++e) {
      if (masks[at(e)] == 0) costs[at(e)] = kInfinity;
    }
  }
}

std::vector<std::unique_ptr<SplittingOperator>> make_splitting(Backend const& backend,
                                                               std::span<RegularizedInput const> inputs,
                                                               Precision precision) {
  std::vector<SplittingInput> of_splitting;
  for (auto const& costs : backend.regularized_costs(inputs)) of_splitting.push_back({costs, precision});
  return backend.splitting_operators(of_splitting);
}

RegularizedOracle::RegularizedOracle(RegularizedData const& data)
    : n_(data.recipe.n), m_(data.recipe.m), p_(widen(data.p)), q_(widen(data.q)) {
  std::vector<double> const weights = data.terms.l1 > 0 ? data.l1_weights.values() : std::vector<double>(at(n_ * m_));
  double least = kInfinity, most = -kInfinity, least_of_all = kInfinity;
  for (std::int64_t e = 0; e < n_ * m_; ++e) {
    double const cost = data.costs[at(e)];
    if (cost == kInfinity) continue;
    bool const has_mass = data.p[at(e / m_)] > 0 && data.q[at(e % m_)] > 0;
    least_of_all = std::min(least_of_all, cost);
    if (has_mass) least = std::min(least, cost);
    if (has_mass) most = std::max(most, cost + data.terms.l1 * weights[at(e)]);
  }
  Real const mass = data.recipe.mass, entry = mass / (Real(data.recipe.n) * data.recipe.m);
  Real range = Real(most) - Real(least);
  if (!(range > 0)) {  // The slope of h at equal entries.
    range = data.terms.quadratic * entry;
    if (data.terms.group_lasso > 0) range += data.terms.group_lasso * std::ranges::max(data.terms.group_weights);
    if (data.terms.hypentropy > 0) range += data.terms.hypentropy * std::asinh(entry / data.terms.hypentropy_width);
    if (range == 0) range = 1;
  }
  scale_ = {
      .offset = least, .range = static_cast<double>(range), .mass = data.recipe.mass, .depth = least - least_of_all};
  quadratic_ = data.terms.quadratic * mass / range;
  hypentropy_ = data.terms.hypentropy / range;
  width_ = data.terms.hypentropy_width / mass;
  for (std::int64_t e = 0; e < n_ * m_; ++e) {
    // Points without mass may have smaller costs, which count as 0.
    c_.push_back(std::max((Real(data.costs[at(e)]) - Real(least)) / range, Real(0)));
    w_.push_back(Real(data.terms.l1) / range * weights[at(e)]);
    s_.push_back(c_.back() + w_.back());
  }
  RegularizerTerms const& terms = data.terms;
  auto const weight = [&](std::size_t g) { return Real(terms.group_lasso) / range * terms.group_weights[g]; };
  std::size_t const count = terms.group_weights.size();
  shares_weights_ = !terms.pair_groups.empty();
  if (shares_weights_) {
    for (std::size_t g = 0; g < count; ++g) groups_.push_back({{}, weight(g)});
    groups_.push_back({{}, 0});
    for (std::int64_t e = 0; e < n_ * m_; ++e) {
      std::int64_t const label = data.pair_groups[at(e / m_ * terms.pair_groups.row_stride + e % m_)];
      groups_[label < 0 ? count : at(label)].pairs.push_back(e);
    }
    return;
  }
  for (std::int64_t j = 0; j < m_; ++j) {
    std::size_t const first = groups_.size();
    for (std::size_t g = 0; g < count; ++g) groups_.push_back({{}, weight(g)});
    if (count == 0) groups_.push_back({{}, 0});
    for (std::int64_t i = 0; i < n_; ++i)
      groups_[first + (count == 0 ? 0 : at(terms.groups[at(i)]))].pairs.push_back(i * m_ + j);
  }
}

Real RegularizedOracle::slack(std::int64_t pair, Vector const& u, Real v) const {
  return allows(pair / m_, pair % m_) ? std::max<Real>(u[at(pair / m_)] + v - s_[at(pair)], 0) : 0;
}

Real RegularizedOracle::norm_of_slacks(std::vector<std::int64_t> const& pairs, Vector const& u, Vector const& v) const {
  Real squares = 0;
  for (std::int64_t const e : pairs) {
    Real const z = slack(e, u, v[at(e % m_)]);
    squares += z * z;
  }
  return std::sqrt(squares);
}

bool RegularizedOracle::allows(std::int64_t i, std::int64_t j) const {
  return std::isfinite(s_[at(i * m_ + j)]);
}

void RegularizedOracle::sum_terms(Splitting& state) const {
  state.a.assign(at(n_), 0);
  state.b.assign(at(m_), 0);
  state.alpha = -1;
  for (std::int64_t i = 0; i < n_; ++i) {
    for (std::int64_t j = 0; j < m_; ++j) {
      Real const y = state.x[at(i * m_ + j)] + state.phi[at(i)] + state.psi[at(j)];
      state.a[at(i)] += y;
      state.b[at(j)] += y;
      state.alpha += y;
    }
  }
  for (std::int64_t i = 0; i < n_; ++i) state.a[at(i)] -= p_[at(i)];
  for (std::int64_t j = 0; j < m_; ++j) state.b[at(j)] -= q_[at(j)];
}

RegularizedOracle::Splitting RegularizedOracle::start(Real step) const {
  Splitting state{step, 0, Vector(at(n_ * m_), 0), {}, {}, {}, {}};
  for (std::int64_t i = 0; i < n_; ++i) state.phi.push_back(step * Real(m_) / Real(n_ + m_));
  for (std::int64_t j = 0; j < m_; ++j) state.psi.push_back(step * Real(n_) / Real(n_ + m_));
  sum_terms(state);
  return state;
}

void RegularizedOracle::set_step(Splitting& state, Real step) const {
  for (Real& phi : state.phi) phi *= step / state.step;
  for (Real& psi : state.psi) psi *= step / state.step;
  state.step = step;
  sum_terms(state);
}

Vector RegularizedOracle::prox(Vector const& v, Real step) const {
  Vector x(v.size(), 0);
  Real const slope = 1 + step * quadratic_, h = step * hypentropy_;
  for (Group const& group : groups_) {
    Real norm = 0;
    for (std::int64_t const e : group.pairs) norm += v[at(e)] * v[at(e)];
    norm = std::sqrt(norm);
    Real const threshold = step * group.weight;
    Real const factor = threshold == 0 ? 1 : norm > threshold ? 1 - threshold / norm : 0;
    for (std::int64_t const e : group.pairs) {
      Real const value = factor * v[at(e)];
      x[at(e)] = h == 0 ? value / slope
                        : bisect(0, value, [&](Real t) { return t * slope + h * std::asinh(t / width_) - value; });
    }
    if (h == 0 || threshold == 0) continue;
    Vector values;
    for (std::int64_t const e : group.pairs) values.push_back(v[at(e)]);
    values = group_solution(values, threshold, slope, h);
    for (std::size_t k = 0; k < values.size(); ++k) x[at(group.pairs[k])] = values[k];
  }
  return x;
}

Vector RegularizedOracle::group_solution(Vector const& v, Real threshold, Real slope, Real h) const {
  Vector x(v.size(), 0);
  auto const norm_of = [](Vector const& values) {
    Real squares = 0;
    for (Real const value : values) squares += value * value;
    return std::sqrt(squares);
  };
  Real const norm = norm_of(v);
  if (norm <= threshold) return x;
  // factor width sinh(y) + h y = v is convex in y, so Newton's method decreases from an upper bound.
  auto const solve_entry = [&](Real value, Real factor) {
    Real y = std::min(value / h, std::asinh(value / (factor * width_)));
    for (int k = 0; k < 100; ++k) {
      Real const next = y - (factor * width_ * std::sinh(y) + h * y - value) / (factor * width_ * std::cosh(y) + h);
      if (!(next < y)) break;
      y = next;
    }
    return width_ * std::sinh(y);
  };
  auto const solve = [&](Real of_group) {
    for (std::size_t k = 0; k < v.size(); ++k) x[k] = v[k] == 0 ? 0 : solve_entry(v[k], slope + threshold / of_group);
  };
  // asinh(t) is at most t. The whole v, spent on one of the terms, gives a larger norm than the solution.
  Real const low = (norm - threshold) / (slope + h / width_);
  Real const high = slope > 0 ? norm / slope : width_ * std::sinh(norm / h) * std::sqrt(Real(v.size()));
  solve(root_of(low, high, [&](Real of_group) {
    solve(of_group);
    return of_group / norm_of(x) - 1;
  }));
  return x;
}

void RegularizedOracle::iterate(Splitting& state) const {
  Vector v(at(n_ * m_), 0);
  for (std::int64_t i = 0; i < n_; ++i) {
    for (std::int64_t j = 0; j < m_; ++j) {
      std::size_t const e = at(i * m_ + j);
      if (allows(i, j)) v[e] = std::max<Real>(state.x[e] + state.phi[at(i)] + state.psi[at(j)] - state.step * s_[e], 0);
    }
  }
  state.x = prox(v, state.step);
  Vector r(at(n_), 0), c(at(m_), 0);
  Real excess = -1;
  for (std::int64_t i = 0; i < n_; ++i) {
    for (std::int64_t j = 0; j < m_; ++j) {
      Real const x = state.x[at(i * m_ + j)];
      r[at(i)] += x;
      c[at(j)] += x;
      excess += x;
    }
  }
  Real const shift = (2 * excess - state.alpha) / Real(n_ + m_);
  state.alpha -= excess;
  for (std::int64_t i = 0; i < n_; ++i) {
    r[at(i)] -= p_[at(i)];
    state.a[at(i)] -= r[at(i)];
    state.phi[at(i)] = (state.a[at(i)] - r[at(i)] + shift) / Real(m_);
  }
  for (std::int64_t j = 0; j < m_; ++j) {
    c[at(j)] -= q_[at(j)];
    state.b[at(j)] -= c[at(j)];
    state.psi[at(j)] = (state.b[at(j)] - c[at(j)] + shift) / Real(n_);
  }
}

Vector RegularizedOracle::feasible(Vector const& u, Vector const& v) const {
  if ((quadratic_ > 0 || hypentropy_ > 0) && evaluate(Vector(at(n_ * m_), 0), u, v).dual >= 0) return v;
  // The pairs of each group in each column, with a share of its weight.
  std::vector<std::vector<Group>> parts(at(m_));
  Real most = 1;
  for (Group const& group : groups_) {
    std::vector<Group> of_columns(at(m_));
    for (std::int64_t const e : group.pairs) of_columns[at(e % m_)].pairs.push_back(e);
    Real const norm = norm_of_slacks(group.pairs, u, v);
    most += group.weight;
    for (std::int64_t j = 0; j < m_; ++j) {
      Group& part = of_columns[at(j)];
      if (part.pairs.empty()) continue;
      bool const is_whole = part.pairs.size() == group.pairs.size() && !shares_weights_;
      part.weight = is_whole ? group.weight : norm > 0 ? group.weight * norm_of_slacks(part.pairs, u, v) / norm : 0;
      parts[at(j)].push_back(part);
    }
  }
  Vector result(at(m_), 0);
  for (std::int64_t j = 0; j < m_; ++j) {
    // The slacks of each part have a norm of at most its weight.
    auto const excess = [&](Real t) {
      Real largest = -1;
      for (Group const& part : parts[at(j)])
        largest = std::max(largest, norm_of_slacks(part.pairs, u, Vector(at(m_), t)) - part.weight);
      return largest;
    };
    bool has_partner = false;
    Real high = 1;
    for (std::int64_t i = 0; i < n_; ++i) {
      has_partner = has_partner || allows(i, j);
      if (allows(i, j)) high = std::max(high, s_[at(i * m_ + j)] + std::abs(u[at(i)]));
    }
    high += most;
    if (has_partner) result[at(j)] = bisect(-high - 1, high + 1, excess);
  }
  return result;
}

OracleValues RegularizedOracle::evaluate(Vector const& x, Vector const& u, Vector const& v) const {
  OracleValues values{};
  Vector row(at(n_), 0), column(at(m_), 0);
  auto const hypentropy = [&](Real t) {
    return t * std::asinh(t / width_) - (std::sqrt(t * t + width_ * width_) - width_);
  };
  for (std::int64_t i = 0; i < n_; ++i) {
    for (std::int64_t j = 0; j < m_; ++j) {
      std::size_t const e = at(i * m_ + j);
      if (x[e] == 0) continue;
      ++values.nonzeros;
      row[at(i)] += x[e];
      column[at(j)] += x[e];
      values.transported_mass += x[e];
      values.transport_cost += x[e] * c_[e];
      values.regularization += x[e] * w_[e] + quadratic_ / 2 * x[e] * x[e] + hypentropy_ * hypentropy(x[e]);
    }
  }
  auto const add_point = [&](Real sum, Real share, Real potential) {
    values.residual_squares += (sum - share) * (sum - share);
    values.residual_l1 += std::abs(sum - share);
    values.dual += share * potential;
    values.dual_size += std::abs(share * potential);
  };
  for (std::int64_t i = 0; i < n_; ++i) add_point(row[at(i)], p_[at(i)], u[at(i)]);
  for (std::int64_t j = 0; j < m_; ++j) add_point(column[at(j)], q_[at(j)], v[at(j)]);

  auto const add_conjugate = [&](Real value, Real slope) {
    values.dual -= value;
    values.dual_size += std::abs(value);
    values.conjugate_slope += slope;
  };
  for (Group const& group : groups_) {
    Real x_squares = 0, z_sum = 0;
    for (std::int64_t const e : group.pairs) {
      x_squares += x[at(e)] * x[at(e)];
      Real const z = slack(e, u, v[at(e % m_)]);
      z_sum += z;
      if (hypentropy_ == 0 || z == 0 || group.weight > 0) continue;
      // sup z t - h(t) is where h'(t) = z.
      Real const t =
          bisect(0, std::min(width_ * std::sinh(z / hypentropy_), quadratic_ > 0 ? z / quadratic_ : Real(1e30)),
                 [&](Real y) { return quadratic_ * y + hypentropy_ * std::asinh(y / width_) - z; });
      add_conjugate(z * t - quadratic_ / 2 * t * t - hypentropy_ * hypentropy(t), t);
    }
    values.regularization += group.weight * std::sqrt(x_squares);
    if (hypentropy_ > 0 && group.weight > 0) {
      Vector z;
      for (std::int64_t const e : group.pairs) z.push_back(slack(e, u, v[at(e % m_)]));
      Vector const t = group_solution(z, group.weight, quadratic_, hypentropy_);
      Real squares = 0;
      for (Real const entry : t) squares += entry * entry;
      for (std::size_t k = 0; k < t.size(); ++k)
        add_conjugate(z[k] * t[k] - quadratic_ / 2 * t[k] * t[k] - hypentropy_ * hypentropy(t[k]), t[k]);
      add_conjugate(-group.weight * std::sqrt(squares), 0);
    }
    Real const norm = norm_of_slacks(group.pairs, u, v), excess = norm - group.weight;
    if (hypentropy_ == 0 && quadratic_ > 0 && excess > 0)
      add_conjugate(excess * excess / (2 * quadratic_), excess / quadratic_ * z_sum / norm);
  }
  return values;
}

std::vector<double> dense(RegularizedPlan const& plan) {
  std::vector<double> values(static_cast<std::size_t>(plan.rows() * plan.columns()));
  plan.dense({values.data(), plan.rows(), plan.columns()});
  return values;
}

}  // namespace monge::oracle
