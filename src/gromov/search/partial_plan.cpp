#include "gromov/search/partial_plan.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/numbers.hpp"
#include "core/parallel.hpp"

namespace monge {
namespace {

/// log s, for the s with sum_i min(w_i, s w_i t_i) = mass, of log t.
double log_scale(DenseVector const& weights, DenseVector const& logs, double mass) {
  std::vector<Eigen::Index> order;
  for (Eigen::Index i = 0; i < weights.size(); ++i)
    if (weights(i) > 0) order.push_back(i);
  std::sort(order.begin(), order.end(), [&](auto i, auto k) { return logs(i) > logs(k); });
  // rest[k]: the logarithm of the sum of w t over order[k], order[k + 1], ...
  std::vector<double> rest(order.size());
  double sum = 0, top = logs(order.back());
  for (std::size_t k = order.size(); k-- > 0;) {
    double const next = logs(order[k]);
    sum = sum * std::exp(top - next) + weights(order[k]);
    rest[k] = next + std::log(sum);
    top = next;
  }
  double left = mass;
  for (std::size_t k = 0; k < order.size() && left > 0; ++k) {
    double const scale = std::log(left) - rest[k];
    if (scale + logs(order[k]) <= 0) return scale;
    left -= weights(order[k]);
  }
  return -logs(order.back());
}

/// The potentials that bring each row to at most its weight, and all to the mass.
void fill(DenseVector const& weights, DenseVector const& logs, double mass, double eps,
          std::vector<double>& potential) {
  double const most = log_scale(weights, logs, mass);
  for (Eigen::Index i = 0; i < weights.size(); ++i) potential[to_size(i)] = eps * std::min(most, -logs(i));
}

}  // namespace

DenseVector log_sums(int threads, DenseMatrix const& costs, DenseVector const& weights,
                     std::vector<double> const& potential, double eps) {
  DenseVector const base =
      Eigen::Map<DenseVector const>(potential.data(), weights.size()).array() / eps + weights.array().log();
  DenseVector sums(costs.rows());
  constexpr std::int64_t kPairsOfTerm = 16;  // Pairs of a pass in the time of a term.
  int const useful = useful_threads(threads, costs.rows(), kPairsOfTerm * costs.cols());
  parallel_for(useful, costs.rows(), [&](std::int64_t i) {
    DenseVector const terms = base - costs.row(i).transpose() / eps;
    double const top = terms.maxCoeff();
    sums(i) = top + std::log((terms.array() - top).exp().sum());
  });
  return sums;
}

PartialPlan solve_partial(int threads, DenseMatrix const& costs, DenseVector const& a, DenseVector const& b,
                          double mass, double eps, double tolerance, int sweeps, PartialPlan start) {
  DenseMatrix const turned = costs.transpose();
  start.f.resize(to_size(a.size()));
  start.g.resize(to_size(b.size()));
  start.converged = false;
  for (start.sweeps = 0;; ++start.sweeps) {
    DenseVector const of_rows = log_sums(threads, costs, b, start.g, eps);
    if (start.sweeps > 0) {
      double excess = 0;
      for (Eigen::Index i = 0; i < a.size(); ++i)
        excess += a(i) * std::max(std::expm1(start.f[to_size(i)] / eps + of_rows(i)), 0.0);
      start.converged = excess <= tolerance * mass;
    }
    if (start.converged || start.sweeps == sweeps) return start;
    fill(a, of_rows, mass, eps, start.f);
    fill(b, log_sums(threads, turned, a, start.f, eps), mass, eps, start.g);
  }
}

}  // namespace monge
