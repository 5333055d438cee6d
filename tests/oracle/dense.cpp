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
  SweepResult& result;

  /// Moves the potential of `side` towards `target`; returns the L1 error that its marginal had.
  Real operator()(Side side, Vector const& target) {
    Vector& potential = result.potentials.of(side);
    Real error = 0;
    for (std::size_t i = 0; i < target.size(); ++i) {
      Real const u = (target[i] - potential[i]) / kind.eps;
      error += dense.weights(side)[i] * std::abs(std::expm1(-u));
      if (kind.symmetric) {
        potential[i] = (potential[i] + target[i]) / 2;
      } else if (kind.relaxation != 1 && accepts(u)) {
        potential[i] += kind.relaxation * (target[i] - potential[i]);
      } else {
        potential[i] = target[i];
      }
    }
    return error;
  }

  // Below this gain is near twice the promise, and comparing them would be all rounding.
  static constexpr Real kSmall = 1e-3L;

  bool accepts(Real u) {
    Real const w = kind.relaxation;
    Real const plain_gain = u - 1 + std::exp(-u);
    Real const gain = w * u - std::exp((w - 1) * u) + std::exp(-u);
    Real const promise = w * (2 - w) * plain_gain / 2;
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

SweepResult sweep(Dense const& dense, Sweep const& kind, int count, Potentials potentials) {
  SweepResult result{std::move(potentials)};
  Update update{dense, kind, result};
  for (int k = 0; k < count; ++k) {
    Vector const f = dense.softmin(Side::rows, kind.eps, result.potentials.g);
    if (kind.symmetric) {
      Vector const g = dense.softmin(Side::columns, kind.eps, result.potentials.f);
      result.row_error = update(Side::rows, f);
      result.column_error = update(Side::columns, g);
    } else {
      result.row_error = update(Side::rows, f);
      result.column_error = update(Side::columns, dense.softmin(Side::columns, kind.eps, result.potentials.f));
    }
  }
  return result;
}

DenseEvaluation evaluate(Dense const& dense, Real eps, Potentials const& potentials) {
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
  result.primal = result.transport_cost + eps * entropy;
  Real mass_a = 0, mass_b = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    result.mass += rows[i];
    result.row_error += std::abs(rows[i] - a[i]);
    result.dual += potentials.f[i] * a[i];
    mass_a += a[i];
  }
  for (std::size_t j = 0; j < b.size(); ++j) {
    result.column_error += std::abs(columns[j] - b[j]);
    result.dual += potentials.g[j] * b[j];
    mass_b += b[j];
  }
  result.dual -= eps * (result.mass - mass_a * mass_b);
  result.gap = result.primal - result.dual;
  return result;
}

Potentials solve(Dense const& dense, Real eps, Real tolerance, int most_sweeps) {
  std::vector<double> const& a = dense.weights(Side::rows);
  Real const mass = std::accumulate(a.begin(), a.end(), Real(0));
  Sweep const kind{static_cast<double>(eps)};
  SweepResult result{{Vector(a.size(), 0), Vector(dense.weights(Side::columns).size(), 0)}};
  for (int k = 0; k < most_sweeps; ++k) {
    result = sweep(dense, kind, 1, std::move(result.potentials));
    if (result.column_error <= tolerance * mass) break;
  }
  return result.potentials;
}

}  // namespace monge::oracle
