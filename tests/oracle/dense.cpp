#include "oracle/dense.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

namespace monge::oracle {

Vector widen(std::span<double const> values) {
  return {values.begin(), values.end()};
}

std::vector<double> narrow(Vector const& values) {
  return {values.begin(), values.end()};
}

Dense::Dense(Problem const& problem) : Dense(dense_costs(problem), problem.a, problem.b) {}

Dense::Dense(Vector cost, std::vector<double> a, std::vector<double> b)
    : n_(static_cast<std::int64_t>(a.size())),
      m_(static_cast<std::int64_t>(b.size())),
      a_(std::move(a)),
      b_(std::move(b)),
      cost_(std::move(cost)) {}

Real Dense::largest_cost() const {
  Real largest = -std::numeric_limits<Real>::infinity();
  for (Real const cost : cost_) largest = std::isfinite(cost) ? std::max(largest, cost) : largest;
  return largest;
}

Vector Dense::softmin(Side side, Real eps, Vector const& potential) const {
  std::vector<double> const& weight = weights(other(side));
  Vector result(size(side));
  Vector logits(weight.size());
  for (std::int64_t i = 0; i < size(side); ++i) {
    Real largest = -std::numeric_limits<Real>::infinity();
    for (std::size_t j = 0; j < weight.size(); ++j) {
      if (weight[j] == 0) continue;
      logits[j] = (potential[j] - cost(side, i, j)) / eps + std::log(Real(weight[j]));
      largest = std::max(largest, logits[j]);
    }
    Real sum = 0;
    for (std::size_t j = 0; j < weight.size(); ++j) {
      if (weight[j] > 0) sum += std::exp(logits[j] - largest);
    }
    result[i] = -eps * (largest + std::log(sum));
  }
  return result;
}

Vector Dense::plan(Real eps, Potentials const& potentials) const {
  Vector result(n_ * m_, 0);
  for (std::int64_t i = 0; i < n_; ++i) {
    for (std::int64_t j = 0; j < m_; ++j) {
      Real const weight = Real(a_[i]) * b_[j];
      if (weight == 0) continue;
      result[i * m_ + j] = weight * std::exp((potentials.f[i] + potentials.g[j] - cost_[i * m_ + j]) / eps);
    }
  }
  return result;
}

Vector Dense::marginal(Side side, Real eps, Potentials const& potentials) const {
  Vector const matrix = plan(eps, potentials);
  Vector result(size(side), 0);
  for (std::int64_t i = 0; i < n_; ++i) {
    for (std::int64_t j = 0; j < m_; ++j) result[side == Side::rows ? i : j] += matrix[i * m_ + j];
  }
  return result;
}

Vector Dense::average(Side side, Real eps, Potentials const& potentials, std::span<double const> v, std::int64_t p,
                      bool normalized) const {
  std::vector<double> const& weight = weights(other(side));
  Vector const& own = potentials.of(side);
  Vector const& others = potentials.of(other(side));
  Vector const softmins = softmin(side, eps, others);
  Vector result(size(side) * p, 0);
  for (std::int64_t i = 0; i < size(side); ++i) {
    // Rows of P sum to a_i exp((f_i - f+_i) / eps), where f+ is the softmin.
    Real const sum = normalized ? Real(1) : weights(side)[i] * std::exp((own[i] - softmins[i]) / eps);
    for (std::size_t j = 0; j < weight.size(); ++j) {
      if (weight[j] == 0) continue;
      Real const share = sum * weight[j] * std::exp((softmins[i] + others[j] - cost(side, i, j)) / eps);
      for (std::int64_t k = 0; k < p; ++k) result[i * p + k] += share * v[j * p + k];
    }
  }
  return result;
}

Vector Dense::hadamard(Side side, Real eps, Potentials const& potentials, std::span<double const> l,
                       std::span<double const> r, std::int64_t k, std::span<double const> v, std::int64_t p) const {
  Vector const matrix = plan(eps, potentials);
  Vector result(size(side) * p, 0);
  for (std::int64_t i = 0; i < size(side); ++i) {
    for (std::int64_t j = 0; j < size(other(side)); ++j) {
      Real factor = 0;
      for (std::int64_t q = 0; q < k; ++q) factor += Real(l[i * k + q]) * r[j * k + q];
      Real const entry = matrix[side == Side::rows ? i * m_ + j : j * m_ + i] * factor;
      for (std::int64_t q = 0; q < p; ++q) result[i * p + q] += entry * v[j * p + q];
    }
  }
  return result;
}

namespace {

struct Update {
  Dense const& dense;
  Sweep const& kind;
  Penalties const& penalties;
  SweepResult& result;
  Real square = 0;

  /// Moves the potential of `side`, whose soft c-transform is `plus`; returns the L1 error that its marginal had,
  /// whose square goes to `square`.
  Real operator()(Side side, Vector const& plus) {
    Vector& potential = result.potentials.of(side);
    Real const rho = penalties.of(side), damping = std::isinf(rho) ? 1 : rho / (rho + kind.eps);
    Real error = 0;
    for (std::size_t i = 0; i < plus.size(); ++i) {
      Real const target = damping * plus[i];
      Real const marginal = std::exp((potential[i] - plus[i]) / kind.eps), wanted = std::exp(-potential[i] / rho);
      Real const off = dense.weights(side)[i] * std::abs(marginal - wanted);
      error += off;
      square += off * off;
      if (dense.weights(side)[i] > 0) result.size += dense.weights(side)[i] * std::max(marginal, wanted);
      if (kind.symmetric) {
        potential[i] = (potential[i] + target) / 2;
      } else if (kind.relaxation != 1 && accepts(potential[i], plus[i], target, rho)) {
        potential[i] += kind.relaxation * (target - potential[i]);
      } else {
        potential[i] = target;
      }
    }
    return error;
  }

  // Below this gain is near twice the promise, and comparing them would be all rounding.
  static constexpr Real kSmall = 1e-3L;

  /// What f + step adds to the dual of a row, over that of f, a and eps apart: from its definition.
  Real gain_of(Real step, Real f, Real plus, Real rho) const {
    Real const eps = kind.eps;
    Real const penalty = std::isinf(rho) ? step : -rho * std::exp(-f / rho) * std::expm1(-step / rho);
    return penalty / eps - std::exp((f - plus) / eps) * std::expm1(step / eps);
  }
  bool accepts(Real f, Real plus, Real target, Real rho) {
    Real const w = kind.relaxation, u = (target - f) / kind.eps * (std::isinf(rho) ? 1 : 1 + kind.eps / rho);
    Real const gain = gain_of(w * (target - f), f, plus, rho);
    Real const promise = w * (2 - w) * gain_of(target - f, f, plus, rho) / 2;
    if (std::abs(u) > kSmall) {
      Real const scale = std::max(std::abs(gain), std::abs(promise));
      if (std::isfinite(scale)) {
        result.decision_margin = std::min(result.decision_margin, std::abs(gain - promise) / scale);
      }
    }
    bool const accepted = std::abs(u) <= kSmall || gain >= promise;
    result.plain_steps += !accepted;
    return accepted;
  }
};

}  // namespace

Potentials translated(Dense const& dense, Penalties const& penalties, Potentials potentials) {
  if (penalties.balanced()) return potentials;
  auto const log_sum = [&](Side side) {
    Real const rho = penalties.of(side);
    Vector const& potential = potentials.of(side);
    std::vector<double> const& weight = dense.weights(side);
    Real largest = -std::numeric_limits<Real>::infinity(), sum = 0;
    for (std::size_t i = 0; i < weight.size(); ++i)
      if (weight[i] > 0) largest = std::max(largest, -potential[i] / rho);
    for (std::size_t i = 0; i < weight.size(); ++i)
      if (weight[i] > 0) sum += weight[i] * std::exp(-potential[i] / rho - largest);
    return largest + std::log(sum);
  };
  Real const t = (log_sum(Side::rows) - log_sum(Side::columns)) / (1 / Real(penalties.a) + 1 / Real(penalties.b));
  for (Real& f : potentials.f) f += t;
  for (Real& g : potentials.g) g -= t;
  return potentials;
}

SweepResult sweep(Dense const& dense, Sweep const& kind, int count, Potentials potentials, Penalties const& penalties) {
  SweepResult result{std::move(potentials)};
  Update update{dense, kind, penalties, result};
  for (int k = 0; k < count; ++k) {
    result.potentials = translated(dense, penalties, std::move(result.potentials));
    result.size = update.square = 0;
    Vector const f = dense.softmin(Side::rows, kind.eps, result.potentials.g);
    if (kind.symmetric) {
      Vector const g = dense.softmin(Side::columns, kind.eps, result.potentials.f);
      result.row_error = update(Side::rows, f);
      result.column_error = update(Side::columns, g);
    } else {
      result.row_error = update(Side::rows, f);
      result.column_error = update(Side::columns, dense.softmin(Side::columns, kind.eps, result.potentials.f));
    }
    result.gradient_norm = std::sqrt(update.square);
  }
  return result;
}

namespace {

/// What the values have of one side.
struct SideTerms {
  Real error = 0, penalty = 0, dual = 0, mass = 0;
  SideTerms(std::vector<double> const& weight, Vector const& marginal, Vector const& potential, Real rho) {
    for (std::size_t i = 0; i < weight.size(); ++i) {
      Real const a = weight[i], r = marginal[i], f = potential[i];
      mass += a;
      if (std::isinf(rho)) {
        error += std::abs(r - a);
        dual += f * a;
      } else if (a > 0) {
        error += std::abs(r - a * std::exp(-f / rho));
        penalty += rho * (r == 0 ? a : r * std::log(r / a) - r + a);
        dual += rho * a * (1 - std::exp(-f / rho));
      }
    }
  }
};

}  // namespace

DenseEvaluation evaluate(Dense const& dense, Real eps, Potentials const& potentials, Penalties const& penalties) {
  std::vector<double> const& a = dense.weights(Side::rows);
  std::vector<double> const& b = dense.weights(Side::columns);
  Vector const plan = dense.plan(eps, potentials);
  DenseEvaluation result{};
  Vector rows(a.size(), 0), columns(b.size(), 0);
  Real entropy = 0;  // KL(P | a b^T)
  for (std::size_t i = 0; i < a.size(); ++i) {
    for (std::size_t j = 0; j < b.size(); ++j) {
      Real const p = plan[i * b.size() + j];
      Real const c = dense.cost(Side::rows, i, j);
      rows[i] += p;
      columns[j] += p;
      entropy += Real(a[i]) * b[j];
      if (p == 0) continue;  // A forbidden pair has an infinite cost.
      result.transport_cost += c * p;
      entropy += p * (potentials.f[i] + potentials.g[j] - c) / eps - p;
    }
  }
  SideTerms const of_a(a, rows, potentials.f, penalties.a), of_b(b, columns, potentials.g, penalties.b);
  result.mass = std::accumulate(rows.begin(), rows.end(), Real(0));
  result.row_error = of_a.error;
  result.column_error = of_b.error;
  result.primal = result.transport_cost + eps * entropy + of_a.penalty + of_b.penalty;
  result.dual = of_a.dual + of_b.dual - eps * (result.mass - of_a.mass * of_b.mass);
  result.gap = result.primal - result.dual;
  return result;
}

Potentials solve(Dense const& dense, Real eps, Real tolerance, int most_sweeps, Penalties const& penalties) {
  std::vector<double> const &a = dense.weights(Side::rows), &b = dense.weights(Side::columns);
  Real const mass =
      std::max(std::accumulate(a.begin(), a.end(), Real(0)), std::accumulate(b.begin(), b.end(), Real(0)));
  Sweep const kind{static_cast<double>(eps)};
  SweepResult result{{Vector(a.size(), 0), Vector(b.size(), 0)}};
  for (int k = 0; k < most_sweeps; ++k) {
    result = sweep(dense, kind, 1, std::move(result.potentials), penalties);
    if (result.column_error <= tolerance * mass) break;
  }
  return result.potentials;
}

}  // namespace monge::oracle
