#include "oracle/derivatives.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace monge::oracle {

SquareMatrix::SquareMatrix(Vector matrix) : matrix_(std::move(matrix)) {
  while (n_ * n_ < matrix_.size()) ++n_;
  for (std::size_t k = 0; k < n_; ++k) {
    std::size_t pivot = k;
    for (std::size_t i = k + 1; i < n_; ++i) {
      if (std::abs(matrix_[i * n_ + k]) > std::abs(matrix_[pivot * n_ + k])) pivot = i;
    }
    pivots_.push_back(pivot);
    for (std::size_t j = 0; j < n_; ++j) std::swap(matrix_[k * n_ + j], matrix_[pivot * n_ + j]);
    for (std::size_t i = k + 1; i < n_; ++i) {
      Real const factor = matrix_[i * n_ + k] /= matrix_[k * n_ + k];
      for (std::size_t j = k + 1; j < n_; ++j) matrix_[i * n_ + j] -= factor * matrix_[k * n_ + j];
    }
  }
}

Vector SquareMatrix::solve(Vector right) const {
  for (std::size_t k = 0; k < n_; ++k) std::swap(right[k], right[pivots_[k]]);
  for (std::size_t i = 0; i < n_; ++i) {
    for (std::size_t k = 0; k < i; ++k) right[i] -= matrix_[i * n_ + k] * right[k];
  }
  for (std::size_t i = n_; i-- > 0;) {
    for (std::size_t k = i + 1; k < n_; ++k) right[i] -= matrix_[i * n_ + k] * right[k];
    right[i] /= matrix_[i * n_ + i];
  }
  return right;
}

PointProblem::PointProblem(Problem const& problem, Real eps, Penalties penalties)
    : n_(problem.n()),
      m_(problem.m()),
      d_(problem.d()),
      x_(widen(problem.x.values())),
      y_(widen(problem.y.values())),
      a_(problem.a),
      b_(problem.b),
      scale_(problem.scale),
      eps_(eps),
      penalties_(penalties),
      label_cost_(to_size(n_ * m_), 0) {
  std::vector<double> const of_classes = problem.label_cost.values();
  for (std::int64_t i = 0; problem.has_labels() && i < n_; ++i) {
    for (std::int64_t j = 0; j < m_; ++j)
      label_cost_[i * m_ + j] = Real(problem.label_weight) *
                                of_classes[problem.labels_x[i] * problem.label_cost.columns() + problem.labels_y[j]];
  }
}

Dense PointProblem::dense() const {
  Vector cost;
  for (std::int64_t i = 0; i < n_; ++i) {
    for (std::int64_t j = 0; j < m_; ++j) {
      Real square = 0;
      for (std::int64_t k = 0; k < d_; ++k) square += std::pow(x_[i * d_ + k] - y_[j * d_ + k], 2.0L);
      cost.push_back(scale_ * square + label_cost_[i * m_ + j]);
    }
  }
  return Dense(cost, a_, b_);
}

bool PointProblem::is_balanced() const {
  return std::isinf(penalties_.a) && std::isinf(penalties_.b);
}

Potentials PointProblem::optimum() const {
  Dense const problem = dense();
  Potentials result{Vector(n_, 0), Vector(m_, 0)};
  for (int sweep = 0; sweep < 20000; ++sweep) {
    Real change = 0, size = 0;
    for (Side const side : {Side::rows, Side::columns}) {
      Real const rho = penalties_.of(side), factor = std::isinf(rho) ? Real(1) : rho / (rho + eps_);
      Vector next = problem.softmin(side, eps_, result.of(other(side)));
      for (std::size_t i = 0; i < next.size(); ++i) {
        next[i] *= factor;
        change = std::max(change, std::abs(next[i] - result.of(side)[i]));
        size = std::max(size, std::abs(next[i]));
      }
      result.of(side) = next;
    }
    if (change < 1e-17L * (size + eps_)) break;
  }
  return result;
}

namespace {

Real value_of(Real potential, Real rho) {
  return std::isinf(rho) ? potential : rho * (1 - std::exp(-potential / rho));
}

}  // namespace

Real PointProblem::dual(Potentials const& potentials) const {
  Vector const plan = dense().plan(eps_, potentials);
  Real result = -eps_ * std::accumulate(plan.begin(), plan.end(), Real(0)), product = eps_;
  for (Side const side : {Side::rows, Side::columns}) {
    Real total = 0;
    for (std::int64_t i = 0; i < size(side); ++i) {
      result += weights(side)[i] * value_of(potentials.of(side)[i], penalties_.of(side));
      total += weights(side)[i];
    }
    product *= total;
  }
  return result + product;
}

Real PointProblem::slope(Side side, std::int64_t i, std::int64_t j, std::int64_t k) const {
  return 2 * scale_ * (points(side)[i * d_ + k] - points(other(side))[j * d_ + k]);
}

Vector PointProblem::gradient(Side side, Potentials const& potentials, Tilt const& tilt) const {
  Vector const plan = dense().plan(eps_, potentials);
  Vector result(size(side) * d_, 0);
  for (std::int64_t i = 0; i < size(side); ++i) {
    for (std::int64_t j = 0; j < size(other(side)); ++j) {
      Real const entry = plan[side == Side::rows ? i * m_ + j : j * m_ + i] * (tilt ? tilt(i, j) : Real(1));
      for (std::int64_t k = 0; k < d_; ++k) result[i * d_ + k] += entry * slope(side, i, j, k);
    }
  }
  return result;
}

Vector PointProblem::weight_gradient(Side side, Potentials const& potentials) const {
  Vector const softmins = dense().softmin(side, eps_, potentials.of(other(side)));
  Real total = 0;
  for (double const weight : weights(other(side))) total += weight;
  Vector result;
  for (std::int64_t i = 0; i < size(side); ++i) {
    Real const f = potentials.of(side)[i];
    result.push_back(value_of(f, penalties_.of(side)) - eps_ * (std::exp((f - softmins[i]) / eps_) - total));
  }
  return result;
}

Vector PointProblem::system(Potentials const& potentials, bool pinned) const {
  Vector const plan = dense().plan(eps_, potentials);
  std::int64_t const all = n_ + m_;
  Vector matrix(all * all, 0);
  Real largest = 0;
  for (std::int64_t i = 0; i < n_; ++i) {
    for (std::int64_t j = 0; j < m_; ++j) {
      Real const entry = plan[i * m_ + j];
      matrix[i * all + n_ + j] = matrix[(n_ + j) * all + i] = entry;
      matrix[i * all + i] += entry * (1 + eps_ / penalties_.a);
      matrix[(n_ + j) * all + n_ + j] += entry * (1 + eps_ / penalties_.b);
      largest = std::max(largest, entry);
    }
  }
  for (std::int64_t i = 0; i < all; ++i) {
    if (matrix[i * all + i] == 0) matrix[i * all + i] = 1;
  }
  if (!pinned || !is_balanced()) return matrix;
  // Where masses are of very different sizes, equal terms everywhere would exceed the digits of the small ones.
  Vector share(all);
  Real most = 0;
  for (std::int64_t i = 0; i < all; ++i) most = std::max(most, share[i] = matrix[i * all + i]);
  for (std::int64_t i = 0; i < all; ++i) {
    for (std::int64_t j = 0; j < all; ++j) {
      if (weights(i < n_ ? Side::rows : Side::columns)[i < n_ ? i : i - n_] == 0) continue;
      if (weights(j < n_ ? Side::rows : Side::columns)[j < n_ ? j : j - n_] == 0) continue;
      matrix[i * all + j] += largest * (share[i] / most) * (share[j] / most) * ((i < n_) == (j < n_) ? 1 : -1);
    }
  }
  return matrix;
}

Vector PointProblem::solve(Potentials const& potentials, Vector right) const {
  for (std::int64_t i = 0; i < n_ + m_; ++i) {
    if (weights(i < n_ ? Side::rows : Side::columns)[i < n_ ? i : i - n_] == 0) right[i] = 0;
  }
  return SquareMatrix(system(potentials, true)).solve(right);
}

Real PointProblem::change_of_cost(std::int64_t i, std::int64_t j, std::span<double const> v) const {
  Real result = 0;
  for (std::int64_t k = 0; k < d_; ++k)
    result += slope(Side::rows, i, j, k) * (Real(v[i * d_ + k]) - v[(n_ + j) * d_ + k]);
  return result;
}

Vector PointProblem::response(Potentials const& potentials, std::span<double const> v) const {
  Vector const plan = dense().plan(eps_, potentials);
  Vector right(n_ + m_, 0);
  for (std::int64_t i = 0; i < n_; ++i) {
    for (std::int64_t j = 0; j < m_; ++j) {
      Real const change = plan[i * m_ + j] * change_of_cost(i, j, v);
      right[i] += change;
      right[n_ + j] += change;
    }
  }
  return solve(potentials, right);
}

Vector PointProblem::hessian_product(Potentials const& potentials, std::span<double const> v) const {
  Vector const plan = dense().plan(eps_, potentials), response = this->response(potentials, v);
  Vector result((n_ + m_) * d_, 0);
  for (std::int64_t i = 0; i < n_; ++i) {
    for (std::int64_t j = 0; j < m_; ++j) {
      Real const tilt = (response[i] + response[n_ + j] - change_of_cost(i, j, v)) / eps_;
      for (std::int64_t k = 0; k < d_; ++k) {
        Real const direct = 2 * scale_ * (Real(v[i * d_ + k]) - v[(n_ + j) * d_ + k]);
        Real const term = plan[i * m_ + j] * (direct + tilt * slope(Side::rows, i, j, k));
        result[i * d_ + k] += term;
        result[(n_ + j) * d_ + k] -= term;
      }
    }
  }
  return result;
}

}  // namespace monge::oracle
