#include "oracle/tolerance.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace monge::oracle {
namespace {

constexpr double kLogit = 2.0;          // roundings of h_j and of the sum with the product
constexpr double kProduct = 1.0;        // times sqrt(d), of a sum of products
constexpr double kStored = 2.0;         // of a score that is stored: roundings of the difference and of its factor
constexpr double kPower = 8.0;          // of a distance: the powers of its sum, and the root
constexpr double kSum = 8.0;            // exp and the first terms of a sum
constexpr double kEqualTotals = 1e-12;  // log_mass_ratio() takes totals for equal that differ by no more

std::vector<double> centre(std::vector<double> const& points, std::vector<double> const& weights, std::int64_t d) {
  Vector sum(d, 0);
  Real total = 0;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    total += weights[i];
    for (std::int64_t k = 0; k < d; ++k) sum[k] += weights[i] * Real(points[i * d + k]);
  }
  for (Real& coordinate : sum) coordinate /= total;
  return narrow(sum);
}

}  // namespace

Arithmetic arithmetic(Device device, Precision precision, std::int64_t d, Costs costs, std::int64_t classes) {
  double const unit = precision == Precision::float64 ? 0x1p-53 : 0x1p-24;
  if (d == 0 || !has_points(costs)) return {unit, kStored * unit};
  if (costs == Costs::euclidean || costs == Costs::p_norm || costs == Costs::labelled_distances)
    return {unit, (kPower + std::sqrt(d)) * unit};
  bool const differences = d <= 8 && (costs == Costs::points || costs == Costs::cosine);
  if (costs == Costs::labels) d += classes;
  if (precision == Precision::float64) return {0x1p-53, kProduct * 0x1p-53 * std::sqrt(d)};
  double const single = kProduct * 0x1p-24 * std::sqrt(d);
  if (device.type == DeviceType::cpu || differences) return {0x1p-24, single};
  // Tensor cores add with truncation, hence one more bit than rounding of the factors would cost.
  if (precision == Precision::tf32) return {0x1p-24, 0x1p-10};
  return {0x1p-24, single + 0x1p-21};
}

Arithmetic arithmetic(Device device, Precision precision, Problem const& problem) {
  auto const costs = [&] {
    if (!problem.has_points()) return Costs::distances;
    if (problem.has_labels() && problem.cost_function != CostFunction::euclidean) return Costs::labels;
    switch (problem.cost_function) {
      case CostFunction::cosine:
        return Costs::cosine;
      case CostFunction::dot:
        return Costs::dot;
      case CostFunction::euclidean:
        return Costs::euclidean;
      case CostFunction::p_norm:
        return Costs::p_norm;
      default:
        return Costs::points;
    }
  };
  return arithmetic(device, precision, problem.d(), costs(),
                    std::min(problem.label_cost.rows(), problem.label_cost.columns()));
}

Magnitudes::Magnitudes(Problem const& problem) {
  if (problem.has_points()) {
    measure_points(problem);
  } else {
    measure_matrix(problem);
  }
  for (Side const side : {Side::rows, Side::columns}) {
    std::vector<double> const& weight = side == Side::rows ? problem.a : problem.b;
    Half& half = side == Side::rows ? row_ : column_;
    for (std::size_t i = 0; i < weight.size(); ++i) {
      if (weight[i] == 0) continue;
      half.largest_square = std::max(half.largest_square, half.square[i]);
      half.largest_log_weight = std::max(half.largest_log_weight, std::abs(std::log(weight[i])));
    }
  }
}

void Magnitudes::measure_matrix(Problem const& problem) {
  std::vector<double> const costs = problem.costs();
  double least = std::numeric_limits<double>::infinity(), most = -least;
  for (double const cost : costs) {
    if (std::isinf(cost)) continue;
    least = std::min(least, cost);
    most = std::max(most, cost);
  }
  spread_ = most - least;
  origin_ = std::abs(least);
  std::size_t const n = problem.a.size(), m = problem.b.size();
  row_.shift.assign(n, least / 2);
  column_.shift.assign(m, least / 2);
  row_.square = row_.score = std::vector<double>(n, 0.0);
  column_.square = column_.score = std::vector<double>(m, 0.0);
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t j = 0; j < m; ++j) {
      double const cost = costs[i * m + j];
      if (std::isinf(cost)) continue;
      row_.score[i] = std::max(row_.score[i], cost - least);
      column_.score[j] = std::max(column_.score[j], cost - least);
    }
  }
}

void Magnitudes::measure_points(Problem const& problem) {
  std::int64_t const d = problem.d();
  double const s = problem.scale;
  bool const distances =
      problem.cost_function == CostFunction::euclidean || problem.cost_function == CostFunction::p_norm;
  bool const squares = !distances && problem.cost_function != CostFunction::dot;
  bool const directions = problem.cost_function == CostFunction::cosine;
  double const phi = distances ? 0 : problem.cost_function == CostFunction::sqeuclidean ? -2 * s : -s;
  double const q = squares ? -phi / 2 : 0;
  double const p = problem.cost_function == CostFunction::p_norm ? problem.p : 2;
  auto const length = [&](double const* x, double const* origin) {
    double sum = 0, largest = 0;
    for (std::int64_t k = 0; k < d; ++k) {
      largest = std::max(largest, std::abs(x[k] - origin[k]));
      sum += std::pow(std::abs(x[k] - origin[k]), p);
    }
    return std::isinf(p) ? largest : std::pow(sum, 1 / p);
  };
  std::vector<double> x = problem.x.values(), y = problem.y.values();
  for (Side const side : {Side::rows, Side::columns}) {
    Half& half = side == Side::rows ? row_ : column_;
    std::vector<double>& points = side == Side::rows ? x : y;
    std::vector<double> const& weights = side == Side::rows ? problem.a : problem.b;
    std::vector<double> const mean = centre(points, weights, d), zero(d, 0.0);
    for (std::size_t i = 0; i < weights.size(); ++i) {
      if (weights[i] > 0) half.radius = std::max(half.radius, length(&points[i * d], mean.data()));
      double const size = directions ? length(&points[i * d], zero.data()) : 1;
      for (std::int64_t k = 0; k < d; ++k) points[i * d + k] /= size;
    }
  }
  std::vector<double> const mu = centre(x, problem.a, d);
  std::vector<double> const nu = distances ? mu : centre(y, problem.b, d);
  double mean_x = 0, mean_y = 0, constant = 0;  // |mu|^2, |nu|^2, and the sum of the shifts' means
  for (std::int64_t k = 0; k < d; ++k) {
    mean_x += mu[k] * mu[k];
    mean_y += nu[k] * nu[k];
    constant += squares ? q * (mu[k] - nu[k]) * (mu[k] - nu[k]) : phi * mu[k] * nu[k];
  }

  auto half = [&](Half& result, std::vector<double> const& points, std::vector<double> const& weights,
                  std::vector<double> const& own, std::vector<double> const& other, double first) {
    for (std::size_t i = 0; i < weights.size(); ++i) {
      double product = 0;
      for (std::int64_t k = 0; k < d; ++k)
        product += phi * (points[i * d + k] - own[k]) * (squares ? other[k] - own[k] : other[k]);
      result.length.push_back(length(&points[i * d], own.data()));
      result.square.push_back(q * result.length[i] * result.length[i]);
      result.shift.push_back(product + first);
      if (weights[i] > 0) result.longest = std::max(result.longest, result.length[i]);
    }
  };
  half(row_, x, problem.a, mu, nu, constant / 2);
  half(column_, y, problem.b, nu, mu, constant / 2);
  double const own_radii = row_.radius + column_.radius;
  if (distances) row_.radius = column_.radius = row_.longest + column_.longest;
  double const reach = row_.longest + column_.longest;
  if (squares) {
    offset_ = constant;
    spread_ = q * reach * reach;
  } else if (distances) {
    spread_ = s * own_radii;
  } else {
    offset_ = std::abs(phi) * (std::sqrt(mean_x) + row_.longest) * (std::sqrt(mean_y) + column_.longest);
    spread_ = 2 * std::abs(phi) * row_.longest * column_.longest;
  }
  if (directions) {
    feature_error_ = 0x1p-52 * s * (reach + std::sqrt(offset_ / q));
    origin_ = s;  // The oracle takes the cosine from 1.
  }
  double label_score = 0;
  if (problem.has_labels()) measure_labels(problem, label_score);
  bool const differences = squares && d <= 8 && !problem.has_labels();
  auto score = [&](Half& own, Half const& far) {
    for (double const size : own.length) {
      double const product = std::abs(phi) * size * far.longest;
      own.score.push_back(distances     ? s * (size + far.longest) + label_score
                          : differences ? std::max(product, q * size * size)
                                        : product + label_score);
    }
  };
  score(row_, column_);
  score(column_, row_);
}

/// With the weights of the classes p and q: shifts W q and W^T p, each less half of the mean.
void Magnitudes::measure_labels(Problem const& problem, double& score) {
  std::vector<double> const cost = problem.label_cost.values();
  std::int64_t const rows = problem.label_cost.rows(), columns = problem.label_cost.columns();
  auto const shares = [](std::vector<std::int64_t> const& labels, std::vector<double> const& weights,
                         std::int64_t classes) {
    std::vector<double> result(classes, 0.0);
    for (std::size_t i = 0; i < labels.size(); ++i) result[labels[i]] += weights[i];
    double const total = std::accumulate(weights.begin(), weights.end(), 0.0);
    for (double& share : result) share /= total;
    return result;
  };
  std::vector<double> const p = shares(problem.labels_x, problem.a, rows);
  std::vector<double> const q = shares(problem.labels_y, problem.b, columns);
  double const w = problem.label_weight;
  double mean = 0;
  std::vector<double> of_row(rows, 0.0), of_column(columns, 0.0);
  for (std::int64_t k = 0; k < rows; ++k) {
    for (std::int64_t l = 0; l < columns; ++l) {
      of_row[k] += w * cost[k * columns + l] * q[l];
      of_column[l] += w * cost[k * columns + l] * p[k];
      mean += w * cost[k * columns + l] * p[k] * q[l];
    }
  }
  for (std::size_t i = 0; i < row_.shift.size(); ++i) row_.shift[i] += of_row[problem.labels_x[i]] - mean / 2;
  for (std::size_t j = 0; j < column_.shift.size(); ++j) column_.shift[j] += of_column[problem.labels_y[j]] - mean / 2;
  auto const [least, most] = std::minmax_element(cost.begin(), cost.end());
  double const range = w * (*most - *least);
  offset_ += w * std::max(std::abs(*least), std::abs(*most));
  spread_ += range;
  score = range * std::max(2.0, std::sqrt(2.0 * static_cast<double>(std::min(rows, columns))));
}

double Magnitudes::radius(Side side) const {
  return side == Side::rows ? row_.radius : column_.radius;
}

double Magnitudes::largest_square(Side side) const {
  return side == Side::rows ? row_.largest_square : column_.largest_square;
}

double Magnitudes::largest_log_weight(Side side) const {
  return side == Side::rows ? row_.largest_log_weight : column_.largest_log_weight;
}

Tolerance::Tolerance(Problem const& problem, double eps, Arithmetic arithmetic)
    : magnitudes_(problem), eps_(eps), arithmetic_(arithmetic), n_(problem.n()), m_(problem.m()), d_(problem.d()) {}

double Tolerance::sum_error(Side side) const {
  return arithmetic_.unit * (kSum + std::sqrt(std::min(1024.0, static_cast<double>(side == Side::rows ? m_ : n_))));
}

Real Tolerance::gauged_maximum(Side side, Vector const& potential) const {
  std::vector<double> const& shift = magnitudes_.shift(side);
  Real largest = 0;
  for (std::size_t j = 0; j < potential.size(); ++j) largest = std::max(largest, std::abs(potential[j] - shift[j]));
  return largest;
}

Real Tolerance::gauge_error(Side side, Vector const& potential) const {
  std::vector<double> const& shift = magnitudes_.shift(side);
  Real largest = 0;
  for (std::size_t j = 0; j < potential.size(); ++j) {
    largest = std::max(largest, std::abs(potential[j]) + std::abs(shift[j]) + magnitudes_.offset());
  }
  return 0x1p-52 * largest + 0x1p-63 * magnitudes_.origin() + magnitudes_.feature_error();
}

Vector Tolerance::logits(Side side, Vector const& potential) const {
  Side const far = other(side);
  Real const stored =
      (gauged_maximum(far, potential) + magnitudes_.largest_square(far)) / eps_ + magnitudes_.largest_log_weight(far);
  Real const gauge = gauge_error(far, potential) / eps_;
  Vector result;
  for (double const score : magnitudes_.score(side))
    result.push_back(kLogit * arithmetic_.unit * stored + arithmetic_.product * score / eps_ + gauge);
  return result;
}

Vector Tolerance::stored(Side side, Vector const& potential) const {
  std::vector<double> const& shift = magnitudes_.shift(side);
  std::vector<double> const& square = magnitudes_.square(side);
  Vector result;
  for (std::size_t i = 0; i < potential.size(); ++i) {
    Real const gauge = 0x1p-52 * (std::abs(potential[i]) + std::abs(shift[i]) + magnitudes_.offset());
    result.push_back(arithmetic_.unit * (std::abs(potential[i] - shift[i]) + square[i]) + gauge);
  }
  return result;
}

Vector Tolerance::softmin(Side side, Vector const& potential, Vector const& result) const {
  Vector tolerance = logits(side, potential);
  Vector const rounding = stored(side, result);
  for (std::size_t i = 0; i < tolerance.size(); ++i) {
    tolerance[i] = eps_ * (tolerance[i] + sum_error(side)) + 2 * rounding[i];
  }
  return tolerance;
}

Vector Tolerance::shares(Side side, Vector const& potential) const {
  Vector result = logits(side, potential);
  for (Real& error : result) error = 2 * std::expm1(error) + 2 * sum_error(side);
  return result;
}

Vector Tolerance::plan(Side side, Potentials const& potentials) const {
  Vector result = logits(side, potentials.of(other(side)));
  Vector const rounding = stored(side, potentials.of(side));
  double const log_weight = magnitudes_.largest_log_weight(side);
  for (std::size_t i = 0; i < result.size(); ++i) {
    result[i] =
        std::expm1(result[i] + kLogit * rounding[i] / eps_ + kLogit * arithmetic_.unit * log_weight) + sum_error(side);
  }
  return result;
}

Real Tolerance::sweeps(Sweep const& kind, int count, SweepResult const& result, Penalties const& penalties) const {
  auto largest = [&](Side side) {
    Vector const errors = softmin(side, result.potentials.of(other(side)), result.potentials.of(side));
    return *std::max_element(errors.begin(), errors.end());
  };
  Real const half_steps = kind.symmetric ? count : 2 * count;
  Real const error =
      half_steps * std::max<Real>(1, kind.relaxation) * std::max(largest(Side::rows), largest(Side::columns));
  if (penalties.balanced()) return error;
  return 4 * error + kEqualTotals / (1 / Real(penalties.a) + 1 / Real(penalties.b));
}

Real Tolerance::sweep_errors(SweepResult const& result, Real potential_error, Penalties const& penalties) const {
  // a_i |exp(-u_i) - exp(-f_i / rho)| with u_i off by the errors of the new and of the old potential.
  Real const per_rho = potential_error / std::min(penalties.a, penalties.b);
  return std::expm1(2 * potential_error / eps_ + per_rho) * result.size;
}

EvaluationTolerance Tolerance::evaluation(Dense const& dense, Potentials const& potentials,
                                          Penalties const& penalties) const {
  Vector const plan_matrix = dense.plan(eps_, potentials);
  EvaluationTolerance result{};
  double const double_sum = 0x1p-52 * std::log2(2.0 + static_cast<double>(n_ + m_));
  Real magnitude = 0;  // of the terms of the values
  for (Side const side : {Side::rows, Side::columns}) {
    Vector const relative = plan(side, potentials);
    Vector const logit = logits(side, potentials.of(other(side)));
    Vector const rounding = stored(side, potentials.of(side));
    std::vector<double> const& weight = dense.weights(side);
    std::vector<double> const& shift = magnitudes_.shift(side);
    std::vector<double> const& far_shift = magnitudes_.shift(other(side));
    for (std::int64_t i = 0; i < dense.size(side); ++i) {
      Real sum = 0, cost_error = 0;
      for (std::int64_t j = 0; j < dense.size(other(side)); ++j) {
        Real const p = plan_matrix[side == Side::rows ? i * m_ + j : j * m_ + i];
        if (p == 0) continue;  // A forbidden pair has an infinite cost.
        Real const centred = dense.cost(side, i, j) - shift[i] - far_shift[j];
        sum += p;
        cost_error += p * (relative[i] * (std::abs(centred) + std::abs(shift[i])) + eps_ * logit[i]);
      }
      Real const potential = std::abs(potentials.of(side)[i]);
      Real const sum_error = sum * relative[i];
      Real const rho = penalties.of(side);
      Real const wanted = weight[i] * std::exp(-potentials.of(side)[i] / rho);
      (side == Side::rows ? result.row_error : result.column_error) +=
          sum_error + wanted * rounding[i] / rho + double_sum * (sum + wanted);
      result.transport_cost += cost_error;
      result.primal += sum_error * potential + sum * rounding[i];
      result.dual += wanted * rounding[i];
      if (std::isinf(rho)) {
        result.gap += sum_error * potential + std::abs(sum - wanted) * rounding[i];
      } else if (sum > 0) {
        Real const second_order = rho * sum_error * relative[i];
        Real const log_error = double_sum * (rho + potential);
        auto const penalty_error = [&](Real to) {
          return rho * std::abs(std::log(sum / to)) * sum_error + std::abs(sum - to) * log_error + second_order;
        };
        result.primal += penalty_error(weight[i]);
        result.gap += penalty_error(wanted) + std::abs(sum - wanted) * rounding[i];
      }
      magnitude += (sum + weight[i]) * potential;
      if (side == Side::rows) result.mass += sum_error + double_sum * sum;
    }
  }
  result.transport_cost += double_sum * magnitude;
  result.gap += double_sum * magnitude;
  Real mass_product = eps_;  // eps sum a sum b
  for (Side const side : {Side::rows, Side::columns}) {
    std::vector<double> const& weight = dense.weights(side);
    mass_product *= std::accumulate(weight.begin(), weight.end(), Real(0));
  }
  Real const mass_terms = eps_ * result.mass + double_sum * mass_product;
  result.gap += 0x1p-62 * static_cast<double>(mass_product);  // The oracle's own, which takes a difference.
  result.dual += mass_terms + double_sum * magnitude;
  result.primal += mass_terms + double_sum * magnitude;
  return result;
}

namespace {

std::vector<double> magnitudes_of(std::span<double const> values) {
  std::vector<double> result;
  for (double const value : values) result.push_back(std::abs(value));
  return result;
}

}  // namespace

Vector Tolerance::product(Dense const& dense, Side side, Potentials const& potentials, std::span<double const> v,
                          std::int64_t p, bool normalized) const {
  Vector result = dense.average(side, eps_, potentials, magnitudes_of(v), p, normalized);
  Vector const relative = normalized ? shares(side, potentials.of(other(side))) : plan(side, potentials);
  for (std::size_t k = 0; k < result.size(); ++k) result[k] *= relative[k / p] + sum_error(side);
  return result;
}

Vector Tolerance::hadamard(Dense const& dense, Side side, Potentials const& potentials, std::span<double const> l,
                           std::span<double const> r, std::int64_t k, std::span<double const> v, std::int64_t p,
                           Arithmetic factors) const {
  auto norms = [&](std::span<double const> points) {
    std::vector<double> result(points.size() / k, 0.0);
    for (std::size_t i = 0; i < points.size(); ++i) result[i / k] += points[i] * points[i];
    for (double& value : result) value = std::sqrt(value);
    return result;
  };
  // <l_i, r_j> is off by a multiple of |l_i| |r_j|, and so is what its rounding adds; as a plan's product of the
  // largest entries it is a plain sum of |l_i| P_ij |r_j| |V_jp|.
  std::vector<double> const left = norms(l), right = norms(r);
  std::vector<double> sizes = magnitudes_of(v);
  for (std::size_t j = 0; j < sizes.size(); ++j) sizes[j] *= right[j / p];
  Vector result = dense.average(side, eps_, potentials, sizes, p, false);
  Vector const relative = plan(side, potentials);
  for (std::size_t i = 0; i < result.size(); ++i) {
    result[i] *= left[i / p] * (relative[i / p] + sum_error(side) + factors.product + 2 * factors.unit);
  }
  return result;
}

Vector Tolerance::gram(Dense const& dense, Side side, Potentials const& potentials, std::span<double const> w,
                       std::span<double const> v) const {
  // Each factor P is off as in a product of its own: the inner one as rows of the other side; the outer one with the
  // same exponentials, or as rows of this side in a pass of its own.
  Side const over = other(side);
  Vector inner = dense.average(over, eps_, potentials, magnitudes_of(v), 1, false);
  Vector const there = plan(over, potentials), here = plan(side, potentials);
  Real const largest_here = *std::max_element(here.begin(), here.end());
  for (std::size_t i = 0; i < inner.size(); ++i) {
    Real const first = there[i] + sum_error(over);
    Real const second = std::max(there[i], largest_here) + sum_error(side);
    inner[i] *= std::abs(w[i]) * ((1 + first) * (1 + second) - 1);
  }
  return dense.average(side, eps_, potentials, narrow(inner), 1, false);
}

}  // namespace monge::oracle
