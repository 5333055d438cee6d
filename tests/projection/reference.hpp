// The conventions as their authors write them, in float64, one matrix at a time: the matrix itself is rescaled and
// nothing is rearranged. No formula is shared with the library.
#pragma once
#include <algorithm>
#include <cmath>
#include <vector>

#include <monge/projection.hpp>

namespace monge::oracle {

struct ReferenceProjection {
  ProjectionOptions options;
  int rows, columns;  ///< Size of the logits.
  std::vector<double> a = {}, b = {};

  int n() const { return rows + options.dustbin; }
  int m() const { return columns + options.dustbin; }

  /// P (n x m) of logits (rows x columns). `steps` gets the number of iterations that were done.
  std::vector<double> operator()(std::vector<double> const& logits, double score, int* steps = nullptr) const {
    int const n = this->n(), m = this->m();
    std::vector<double> mu = a, nu = b;
    if (mu.empty()) {
      mu.assign(static_cast<std::size_t>(n), options.row_sum);
      if (options.dustbin) mu.back() = options.row_sum * columns;
    }
    if (nu.empty()) {
      double total = 0;
      for (double const x : mu) total += x;
      nu.assign(static_cast<std::size_t>(m), total / m);
      if (options.dustbin && a.empty()) {
        std::fill(nu.begin(), nu.end(), options.row_sum);
        nu.back() = options.row_sum * rows;
      }
    }
    std::vector<double> x(static_cast<std::size_t>(n) * m, score / options.temperature);
    auto const at = [m](int i, int j) { return static_cast<std::size_t>(i) * m + j; };
    for (int i = 0; i < rows; ++i)
      for (int j = 0; j < columns; ++j)
        x[at(i, j)] = logits[static_cast<std::size_t>(i) * columns + j] / options.temperature;
    double const eps = options.epsilon;

    if (options.log_domain) {
      if (options.start == ProjectionStart::positive)
        for (double& value : x) value = std::log(value);
      std::vector<double> f(static_cast<std::size_t>(n)), g(static_cast<std::size_t>(m));
      bool first = true;
      auto const row_step = [&] {
        for (int i = 0; i < n; ++i) {
          double largest = -1e300, sum = 0;
          for (int j = 0; j < m; ++j) largest = std::max(largest, x[at(i, j)] + g[j]);
          for (int j = 0; j < m; ++j) sum += std::exp(x[at(i, j)] + g[j] - largest);
          f[i] = std::log(mu[i]) - largest - std::log(sum);
        }
      };
      auto const column_step = [&] {
        for (int j = 0; j < m; ++j) {
          double largest = -1e300, sum = 0;
          for (int i = 0; i < n; ++i) largest = std::max(largest, x[at(i, j)] + f[i]);
          for (int i = 0; i < n; ++i) sum += std::exp(x[at(i, j)] + f[i] - largest);
          g[j] = std::log(nu[j]) - largest - std::log(sum);
        }
      };
      int k = 0;
      for (; k < options.iterations; ++k) {
        if (k > 0 && options.tolerance > 0 && converged(x, f, g, mu, nu)) break;
        if (options.order == ProjectionOrder::rows_first) {
          if (!(first && options.start == ProjectionStart::softmax)) row_step();
          if (first && options.start == ProjectionStart::softmax) {
            std::vector<double> const kept = mu;
            std::fill(mu.begin(), mu.end(), 1.0);
            row_step();
            mu = kept;
          }
          column_step();
        } else {
          column_step();
          row_step();
        }
        first = false;
      }
      if (steps != nullptr) *steps = k;
      for (int i = 0; i < n; ++i)
        for (int j = 0; j < m; ++j) x[at(i, j)] = std::exp(x[at(i, j)] + f[i] + g[j]);
      return x;
    }

    if (options.start == ProjectionStart::exp) {
      for (double& value : x) value = std::exp(value);
    } else if (options.start != ProjectionStart::positive) {
      for (int i = 0; i < n; ++i) {
        double const largest = *std::max_element(x.begin() + at(i, 0), x.begin() + at(i, 0) + m);
        double sum = 0;
        for (int j = 0; j < m; ++j) sum += x[at(i, j)] = std::exp(x[at(i, j)] - largest);
        if (options.start != ProjectionStart::softmax) continue;
        for (int j = 0; j < m; ++j) x[at(i, j)] = x[at(i, j)] / sum + eps;
      }
    }
    if (options.epsilon_mode == EpsilonMode::matrix && options.start != ProjectionStart::softmax)
      for (double& value : x) value += eps;

    std::vector<double> u(static_cast<std::size_t>(n), 1.0), v(static_cast<std::size_t>(m), 1.0);
    auto const guarded = [&](double sum) {
      if (options.epsilon_mode == EpsilonMode::denominator) return sum + eps;
      if (options.epsilon_mode == EpsilonMode::clamp) return std::max(sum, eps);
      return sum;
    };
    bool const scaling = options.epsilon_mode == EpsilonMode::scaling;
    auto const row_step = [&] {
      for (int i = 0; i < n; ++i) {
        double sum = 0;
        for (int j = 0; j < m; ++j) sum += x[at(i, j)] * (scaling ? v[j] : 1);
        if (scaling) {
          u[i] = mu[i] / (sum + eps);
        } else {
          for (int j = 0; j < m; ++j) x[at(i, j)] *= mu[i] > 0 ? mu[i] / guarded(sum) : 0;
        }
      }
    };
    auto const column_step = [&] {
      for (int j = 0; j < m; ++j) {
        double sum = 0;
        for (int i = 0; i < n; ++i) sum += x[at(i, j)] * (scaling ? u[i] : 1);
        if (scaling) {
          v[j] = nu[j] / (sum + eps);
        } else {
          for (int i = 0; i < n; ++i) x[at(i, j)] *= nu[j] > 0 ? nu[j] / guarded(sum) : 0;
        }
      }
    };
    bool first = options.start == ProjectionStart::softmax;
    int k = 0;
    for (; k < options.iterations; ++k) {
      if (k > 0 && options.tolerance > 0) {
        double worst = 0;
        bool const by_rows = options.order == ProjectionOrder::rows_first;
        for (int i = 0; i < (by_rows ? n : m); ++i) {
          double sum = 0;
          for (int j = 0; j < (by_rows ? m : n); ++j)
            sum += by_rows ? x[at(i, j)] * u[i] * v[j] : x[at(j, i)] * u[j] * v[i];
          double const target = by_rows ? mu[i] : nu[i];
          if (target > 0) worst = std::max(worst, std::abs(sum / target - 1));
        }
        if (worst <= options.tolerance) break;
      }
      if (options.order == ProjectionOrder::rows_first) {
        if (!first) row_step();
        column_step();
      } else {
        column_step();
        row_step();
      }
      first = false;
    }
    if (steps != nullptr) *steps = k;
    if (scaling) {
      for (int i = 0; i < n; ++i)
        for (int j = 0; j < m; ++j) x[at(i, j)] *= u[i] * v[j];
    }
    return x;
  }

 private:
  bool converged(std::vector<double> const& x, std::vector<double> const& f, std::vector<double> const& g,
                 std::vector<double> const& mu, std::vector<double> const& nu) const {
    bool const by_rows = options.order == ProjectionOrder::rows_first;
    int const n = this->n(), m = this->m();
    double worst = 0;
    for (int i = 0; i < (by_rows ? n : m); ++i) {
      double sum = 0;
      for (int j = 0; j < (by_rows ? m : n); ++j) {
        int const r = by_rows ? i : j, c = by_rows ? j : i;
        sum += std::exp(x[static_cast<std::size_t>(r) * m + c] + f[r] + g[c]);
      }
      double const target = by_rows ? mu[i] : nu[i];
      if (target > 0) worst = std::max(worst, std::abs(sum / target - 1));
    }
    return worst <= options.tolerance;
  }
};

}  // namespace monge::oracle
