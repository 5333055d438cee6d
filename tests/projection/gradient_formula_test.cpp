// project_backward() against two formulas in float64: the chain rule on the matrix itself, step by step, and the linear
// system of the limit. Neither shares anything with the library, which differentiates scalings.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "projection/cases.hpp"

namespace monge::oracle {
namespace {

class ProjectionGradientFormula : public BackendTest {};

using Matrix = std::vector<double>;  // n x n.

/// The steps X <- Y = X / q and, in reverse, their chain rule. A row step has q_i = sum_j X_ij (+ or max) eps and
///   d X_ij = (G_ij - sum_k G_ik Y_ik) / q_i,   or G_ij / eps where the sum was clamped.
/// A column step is the same with columns.
class MatrixChain {
 public:
  MatrixChain(ProjectionOptions const& options, int n) : options_(options), n_(n) {}

  Matrix gradient(Matrix x, Matrix g) {
    for (double& value : x) value /= options_.temperature;
    Matrix const k = start(x);
    Matrix y = k;
    int steps = 2 * options_.iterations;
    bool by_rows = options_.order == ProjectionOrder::rows_first;
    if (options_.start == ProjectionStart::softmax && by_rows) {  // The softmax is the first row step.
      --steps;
      by_rows = false;
    }
    for (int step = 0; step < steps; ++step, by_rows = !by_rows) y = forward(y, by_rows);
    while (!done_.empty()) {
      g = back(done_.back(), g);
      done_.pop_back();
    }
    return finish(x, k, g);
  }

 private:
  struct Step {
    bool by_rows;
    Matrix result;
    std::vector<double> sums;
  };
  std::size_t at(bool by_rows, int line, int k) const {
    return static_cast<std::size_t>(by_rows ? line * n_ + k : k * n_ + line);
  }
  double guarded(double sum) const {
    if (options_.epsilon_mode == EpsilonMode::denominator) return sum + options_.epsilon;
    return options_.epsilon_mode == EpsilonMode::clamp ? std::max(sum, options_.epsilon) : sum;
  }

  Matrix start(Matrix const& x) const {
    Matrix k = x;
    for (int i = 0; i < n_; ++i) {
      double largest = 0, sum = 0;
      if (options_.start != ProjectionStart::exp) {
        largest = x[at(true, i, 0)];
        for (int j = 1; j < n_; ++j) largest = std::max(largest, x[at(true, i, j)]);
      }
      for (int j = 0; j < n_; ++j) sum += k[at(true, i, j)] = std::exp(x[at(true, i, j)] - largest);
      if (options_.start != ProjectionStart::softmax) continue;
      for (int j = 0; j < n_; ++j) k[at(true, i, j)] = k[at(true, i, j)] / sum + options_.epsilon;
    }
    return k;
  }

  Matrix forward(Matrix x, bool by_rows) {
    std::vector<double> sums;
    for (int i = 0; i < n_; ++i) {
      double sum = 0;
      for (int k = 0; k < n_; ++k) sum += x[at(by_rows, i, k)];
      for (int k = 0; k < n_; ++k) x[at(by_rows, i, k)] /= guarded(sum);
      sums.push_back(sum);
    }
    done_.push_back({by_rows, x, sums});
    return x;
  }

  Matrix back(Step const& step, Matrix g) const {
    for (int i = 0; i < n_; ++i) {
      double const sum = step.sums[static_cast<std::size_t>(i)];
      bool const clamped = options_.epsilon_mode == EpsilonMode::clamp && sum < options_.epsilon;
      double through_sum = 0;
      for (int k = 0; k < n_ && !clamped; ++k)
        through_sum += g[at(step.by_rows, i, k)] * step.result[at(step.by_rows, i, k)];
      for (int k = 0; k < n_; ++k) {
        double& value = g[at(step.by_rows, i, k)];
        value = (value - through_sum) / guarded(sum);
      }
    }
    return g;
  }

  Matrix finish(Matrix const& x, Matrix const& k, Matrix g) const {
    for (int i = 0; i < n_; ++i) {
      double sum = 0;
      int largest = 0;
      double const eps = options_.start == ProjectionStart::softmax ? options_.epsilon : 0;
      for (int j = 0; j < n_; ++j) {
        std::size_t const e = at(true, i, j);
        g[e] *= k[e] - eps;
        sum += g[e];
        if (x[e] > x[at(true, i, largest)]) largest = j;
      }
      for (int j = 0; j < n_ && options_.start == ProjectionStart::softmax; ++j)
        g[at(true, i, j)] -= (k[at(true, i, j)] - eps) * sum;
      if (options_.start == ProjectionStart::exp_shifted) g[at(true, i, largest)] -= sum;
    }
    for (double& value : g) value /= options_.temperature;
    return g;
  }

  ProjectionOptions options_;
  int n_;
  std::vector<Step> done_;
};

/// P o (G - r 1' - 1 c') with r and c such that its row and column sums vanish: the gradient of the projection's limit.
Matrix gradient_of_the_limit(Matrix const& p, Matrix const& g, int n) {
  auto const at = [n](int i, int j) { return static_cast<std::size_t>(i * n + j); };
  std::vector<double> r(static_cast<std::size_t>(n)), c(r);
  auto const left = [&](int i, int j) {
    return p[at(i, j)] * (g[at(i, j)] - r[static_cast<std::size_t>(i)] - c[static_cast<std::size_t>(j)]);
  };
  for (int round = 0; round < 2000; ++round) {  // P has sums of 1, so each half makes the sums of its side vanish.
    for (int i = 0; i < n; ++i) {
      double sum = 0;
      for (int j = 0; j < n; ++j) sum += left(i, j);
      r[static_cast<std::size_t>(i)] += sum;
    }
    for (int j = 0; j < n; ++j) {
      double sum = 0;
      for (int i = 0; i < n; ++i) sum += left(i, j);
      c[static_cast<std::size_t>(j)] += sum;
    }
  }
  Matrix d(p.size());
  for (int i = 0; i < n; ++i)
    for (int j = 0; j < n; ++j) d[at(i, j)] = left(i, j);
  return d;
}

/// The square of the second singular value of a doubly stochastic P: the factor by which a pair of half-steps contracts
/// near the limit.
double contraction(Matrix const& p, int n) {
  std::vector<double> x(static_cast<std::size_t>(n)), y(x);
  for (int j = 0; j < n; ++j) x[static_cast<std::size_t>(j)] = std::cos(j + 1.0);
  double factor = 0;
  for (int round = 0; round < 200; ++round) {
    double mean = 0, before = 0, after = 0;
    for (double const value : x) mean += value / n;
    for (double& value : x) value -= mean, before += value * value;
    for (int i = 0; i < n; ++i) {
      y[static_cast<std::size_t>(i)] = 0;
      for (int j = 0; j < n; ++j)
        y[static_cast<std::size_t>(i)] += p[static_cast<std::size_t>(i * n + j)] * x[static_cast<std::size_t>(j)];
    }
    for (int j = 0; j < n; ++j) {
      double& value = x[static_cast<std::size_t>(j)] = 0;
      for (int i = 0; i < n; ++i)
        value += p[static_cast<std::size_t>(i * n + j)] * y[static_cast<std::size_t>(i)] / std::sqrt(before);
      after += value * value;
    }
    factor = std::sqrt(after);
  }
  return factor;
}

Matrix part(std::vector<float> const& values, int t, std::size_t cells) {
  auto const begin = values.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(t) * cells);
  return {begin, begin + static_cast<std::ptrdiff_t>(cells)};
}

/// The largest error over what is allowed. An entry of the gradient is P_ij times a sum of terms as large as those of
/// d_out, so `roundings` roundings of such terms are allowed, 2^-24 each, times the largest P_ij of the row: with
/// exp_shifted an entry takes up the others of its row.
double worst_error(Matrix const& actual, Matrix const& expected, Matrix const& plan, Matrix const& d_out, int size,
                   double roundings) {
  double largest = 0, worst = 0;
  for (double const value : d_out) largest = std::max(largest, std::abs(value));
  for (std::size_t e = 0; e < plan.size(); ++e) {
    auto const row = plan.begin() + static_cast<std::ptrdiff_t>(e / static_cast<std::size_t>(size)) * size;
    double const allowed = 6e-8 * roundings * largest * *std::max_element(row, row + size);
    double const error = std::abs(actual[e] - expected[e]) / allowed;
    worst = std::isnan(error) ? 1e30 : std::max(worst, error);
  }
  return worst;
}

TEST_P(ProjectionGradientFormula, UnrolledIsTheChainRuleOnTheMatrix) {
  auto const clamping = [](ProjectionOptions& o) { o.epsilon = 0.7; };
  auto const wide_guard = [](ProjectionOptions& o) { o.epsilon = 0.1; };
  auto const columns_first = [](ProjectionOptions& o) { o.order = ProjectionOrder::columns_first; };
  auto const rows_first = [](ProjectionOptions& o) { o.order = ProjectionOrder::rows_first; };
  auto const cold = [](ProjectionOptions& o) { o.temperature = 0.5; };
  auto const same = [](ProjectionOptions&) {};
  using P = ProjectionPreset;
  for (int const size : {2, 4, 7, 16, 66, 129}) {
    int const batch = size < 16 ? 200 : 3;
    for (ProjectionCase const& test :
         {ProjectionCase{"mhc_paper", with(P::mhc_paper, 20, same), size, size, batch},
          {"mhc_paper rows first", with(P::mhc_paper, 1, rows_first), size, size, batch},
          {"deepseek", with(P::deepseek, 20, same), size, size, batch},
          {"deepseek wide guard", with(P::deepseek, 5, wide_guard), size, size, batch},
          {"deepseek columns first", with(P::deepseek, 5, columns_first), size, size, batch},
          {"megatron", with(P::megatron, 20, same), size, size, batch},
          {"megatron clamping", with(P::megatron, 5, clamping), size, size, batch, 2},
          {"gumbel_sinkhorn", with(P::gumbel_sinkhorn, 20, cold), size, size, batch}}) {
      SCOPED_TRACE(test.name + " " + std::to_string(size));
      Data const data(test);
      std::size_t const cells = static_cast<std::size_t>(size * size);
      std::vector<float> d_logits(cells * static_cast<std::size_t>(batch));
      project_backward(context(), data.logit_view(), data.gradient_view(), {d_logits.data(), batch, size, size},
                       test.options);
      double worst = 0;
      for (int t = 0; t < batch; ++t) {
        Matrix const g = part(data.gradient, t, cells);
        Matrix const expected = MatrixChain(test.options, size).gradient(data.matrix(t), g);
        Matrix const actual = part(d_logits, t, cells);
        Matrix const plan = data.reference()(data.matrix(t), 0);
        // Roundings of the terms themselves, of the exponents of K, and of sums, whose signs are random. Half-steps
        // amplify none of them.
        double const largest_exponent = 4 * test.spread / test.options.temperature;
        double const roundings = 12 + largest_exponent + std::sqrt(2.0 * test.options.iterations) + std::sqrt(size);
        worst = std::max(worst, worst_error(actual, expected, plan, g, size, roundings));
      }
      EXPECT_LE(worst, 1);
      if (std::getenv("MONGE_SHOW_ERRORS") != nullptr)
        std::printf("%-28s %3d gradient %.3f of allowed\n", test.name.c_str(), size, worst);
    }
  }
}

TEST_P(ProjectionGradientFormula, ImplicitSolvesTheLinearSystemOfTheLimit) {
  for (int const size : {2, 4, 9, 33, 66}) {
    for (bool const log_domain : {false, true}) {
      ProjectionCase test{"implicit", {}, size, size, size < 16 ? 20 : 3, 0.7};
      test.options.log_domain = log_domain;
      test.options.iterations = 60;
      test.options.gradient = ProjectionGradient::implicit;
      Data const data(test);
      std::size_t const cells = static_cast<std::size_t>(size * size);
      std::vector<float> d_logits(cells * static_cast<std::size_t>(test.batch));
      project_backward(context(), data.logit_view(), data.gradient_view(), {d_logits.data(), test.batch, size, size},
                       test.options);
      ReferenceProjection reference = data.reference();
      reference.options.iterations = 500;
      double worst = 0;
      for (int t = 0; t < test.batch; ++t) {
        Matrix const g = part(data.gradient, t, cells), plan = reference(data.matrix(t), 0);
        Matrix const expected = gradient_of_the_limit(plan, g, size), actual = part(d_logits, t, cells);
        // As above. Roundings within a half-step, of P or of the gradient, are contracted by the half-steps that
        // follow.
        double const roundings = (12 + 4 * test.spread) / (1 - contraction(plan, size));
        worst = std::max(worst, worst_error(actual, expected, plan, g, size, roundings));
      }
      EXPECT_LE(worst, 1) << size << (log_domain ? " log domain" : "");
      if (std::getenv("MONGE_SHOW_ERRORS") != nullptr) std::printf("implicit %3d %.3f of allowed\n", size, worst);
    }
  }
}

MONGE_FOR_EACH_DEVICE(ProjectionGradientFormula);

}  // namespace
}  // namespace monge::oracle
