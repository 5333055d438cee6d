// Costs of any size, and eps from far below to far above them.
#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <monge/monge.hpp>

#include "oracle/backend_test.hpp"
#include "oracle/refusal.hpp"

namespace monge::oracle {
namespace {

constexpr Real kUnit = 0x1p-53L;

/// The cost of points, or of a matrix with their squared distances.
enum class Kind { matrix, squares, distances };

class ValuesAtAnyScale : public BackendTest {
 protected:
  static constexpr int kRows = 20, kColumns = 15, kDimension = 3;

  ValuesAtAnyScale() {
    for (int k = 0; k < kRows * kDimension; ++k) x_.push_back(std::fmod(k * 0.6180339887, 1.0));
    for (int k = 0; k < kColumns * kDimension; ++k) y_.push_back(0.3 + std::fmod(k * 0.7548776662, 1.0));
    // Powers of two: the totals are exactly 1.
    for (int i = 0; i < kRows; ++i) a_.push_back(i < 12 ? 0x1p-4 : 0x1p-5);
    for (int j = 0; j < kColumns; ++j) b_.push_back(j < 14 ? 0x1p-4 : 0x1p-3);
    for (int i = 0; i < kRows; ++i) {
      for (int j = 0; j < kColumns; ++j) {
        Real square = 0;
        for (int k = 0; k < kDimension; ++k) {
          Real const difference = Real(x_[i * kDimension + k]) - y_[j * kDimension + k];
          square += difference * difference;
        }
        squares_.push_back(square);
      }
    }
    for (Real const square : squares_) cost_.push_back(static_cast<double>(square));
  }

  static std::vector<double> scaled(std::vector<double> values, double unit) {
    for (double& value : values) value *= unit;
    return values;
  }
  Vector cost(Kind kind) const {
    Vector result = kind == Kind::matrix ? widen(cost_) : squares_;
    if (kind == Kind::distances) std::ranges::transform(result, result.begin(), [](Real c) { return std::sqrt(c); });
    return result;
  }
  Real mean(Vector const& cost) const {
    Real sum = 0;
    for (int i = 0; i < kRows; ++i) {
      for (int j = 0; j < kColumns; ++j) sum += Real(a_[i]) * b_[j] * cost[i * kColumns + j];
    }
    return sum;
  }
  /// Costs in units of `unit`.
  Plan solve(Kind kind, double unit, SolveOptions const& options) const {
    if (kind == Kind::matrix) {
      std::vector<double> const cost = scaled(cost_, unit);
      return monge::solve(context(), CostMatrix{{cost.data(), kRows, kColumns}}, a_, b_, options);
    }
    double const length = kind == Kind::distances ? unit : std::sqrt(unit);
    std::vector<double> const x = scaled(x_, length), y = scaled(y_, length);
    PointCloud clouds{{x.data(), kRows, kDimension}, {y.data(), kColumns, kDimension}};
    if (kind == Kind::distances) clouds.cost_function = CostFunction::euclidean;
    return monge::solve(context(), clouds, a_, b_, options);
  }

  struct Values {
    Real value, transport_cost;
  };
  /// The optimum. Sweeps change potentials by eps log(1 + sum_j b_j (exp(z_ij) - 1)), z_ij = (f_i + g_j - C_ij) / eps:
  /// their rounding is that of the costs, whatever eps is. Each row and column has a z of 0 at the start, so no sum of
  /// exponentials underflows.
  Values optimum(Vector const& cost, Real eps) const {
    Vector f(kRows, 1e10L), g(kColumns, 1e10L);
    for (int k = 0; k < kRows * kColumns; ++k) g[k % kColumns] = std::min(g[k % kColumns], cost[k]);
    for (int k = 0; k < kRows * kColumns; ++k) f[k / kColumns] = std::min(f[k / kColumns], cost[k] - g[k % kColumns]);
    auto const excess = [&](int i, int j) { return std::expm1((f[i] + g[j] - cost[i * kColumns + j]) / eps); };
    for (Real change = 1; change > 1e-17L;) {
      change = 0;
      for (int i = 0; i < kRows; ++i) {
        Real sum = 0;
        for (int j = 0; j < kColumns; ++j) sum += b_[j] * excess(i, j);
        change = std::max(change, std::abs(eps * std::log1p(sum)));
        f[i] -= eps * std::log1p(sum);
      }
      for (int j = 0; j < kColumns; ++j) {
        Real sum = 0;
        for (int i = 0; i < kRows; ++i) sum += a_[i] * excess(i, j);
        g[j] -= eps * std::log1p(sum);
      }
    }
    Values values{};
    for (int i = 0; i < kRows; ++i) values.value += a_[i] * f[i];
    for (int j = 0; j < kColumns; ++j) values.value += b_[j] * g[j];
    for (int i = 0; i < kRows; ++i) {
      for (int j = 0; j < kColumns; ++j)
        values.transport_cost += a_[i] * b_[j] * (1 + excess(i, j)) * cost[i * kColumns + j];
    }
    return values;
  }

  std::vector<double> x_, y_, a_, b_, cost_;
  Vector squares_;
};
MONGE_FOR_EACH_DEVICE(ValuesAtAnyScale);

/// Potentials whose marginal error is e lose e^2 times the larger of eps and some mean costs of the dual. The primal
/// value is off by the gap more. Besides these:
/// - The entropy as a difference is off by the rounding of numbers near eps, some 64 u eps. Beyond eps of about 2^17
///   times the costs c its terms have the size of the costs, and the series leaves eps (c / eps)^3, which is less.
/// - Entries of the plan have the rounding of exponentials and logarithms, some 64 u. It is a marginal error, too.
TEST_P(ValuesAtAnyScale, values_keep_their_digits_from_eps_far_below_to_far_above_the_costs) {
  for (Kind const kind : {Kind::matrix, Kind::squares, Kind::distances}) {
    Vector const cost = this->cost(kind);
    Real const mean = this->mean(cost);
    for (int exponent = -2; exponent <= 20; ++exponent) {
      double const eps = static_cast<double>(mean) * std::pow(10.0, exponent);
      Values const truth = optimum(cost, eps);
      for (Precision const precision : {Precision::automatic, Precision::float64, Precision::float32}) {
        SCOPED_TRACE(testing::Message() << static_cast<int>(kind) << ", eps / mean cost 1e" << exponent << ", "
                                        << name(precision));
        bool const is_float32 = precision == Precision::float32;
        Plan const plan = solve(kind, 1, {.eps = eps, .tolerance = is_float32 ? 1e-5 : 1e-9, .precision = precision});
        Report const& report = plan.report();
        EXPECT_EQ(report.status, Status::converged) << report.message;
        Real const error = report.marginal_error + 64 * kUnit;
        Real const second_order = 2 * (eps + 10 * mean) * error * error;
        Real const rounding = 64 * kUnit * (mean + std::min<Real>(eps, mean * 0x1p18L));
        Real const allowed = std::abs(report.gap) + second_order + rounding;
        EXPECT_NEAR(report.primal, truth.value, allowed);
        EXPECT_NEAR(report.dual, truth.value, second_order + rounding);
        EXPECT_NEAR(report.gap, report.primal - report.dual, allowed - std::abs(report.gap));
        // To first order <C, P> moves with the plan.
        EXPECT_NEAR(report.transport_cost, truth.transport_cost, 100 * mean * (error + (1 + mean / eps) * 64 * kUnit));
        // That of float32, in its own arithmetic: d + 64 roundings of costs, and of logits that have the size of costs.
        Plan const again = plan_of(context(), CostMatrix{{cost_.data(), kRows, kColumns}}, a_, b_,
                                   {.eps = eps,
                                    .precision = is_float32 ? Precision::float32 : Precision::float64,
                                    .f = plan.f(),
                                    .g = plan.g()});
        if (kind != Kind::matrix) continue;
        Real const unit = is_float32 ? 0x1p-24L : kUnit;
        EXPECT_NEAR(again.transport_cost(), report.transport_cost, 64 * unit * mean * (1 + mean / eps));
      }
    }
  }
}

/// A forbidden pair adds some eps a_i b_j to the value, which may be far above the costs and below the rounding of eps.
/// The point of little weight w, with all of its mass on the allowed columns, adds eps w log 2 (z = log 2 there), up to
/// terms of the size w of the costs. Values without digits have the error of the rounding of numbers near eps.
TEST_P(ValuesAtAnyScale, values_beside_forbidden_pairs_of_little_weight_have_digits_or_the_report_says_so) {
  constexpr int n = 5, m = 4;
  std::vector<double> cost;
  for (int k = 0; k < n * m; ++k) cost.push_back(std::fmod(k * 0.6180339887, 1.0));
  std::vector<double> const b{0.5, 0.25, 0.125, 0.125};
  // At eps far above the costs, the value without the point of little weight is the mean cost, up to costs^2 / eps.
  Real mean = 0;
  for (int k = m; k < n * m; ++k) mean += Real(cost[k]) * b[k % m] / 4;
  cost[0] = std::numeric_limits<double>::infinity();
  for (double const weight : {0x1p-40, 0x1p-46, 0x1p-50, 0x1p-53, 0x1p-66, 0x1p-100, 0x1p-200, 0.0}) {
    std::vector<double> const a{weight, 0.25, 0.25, 0.25, 0.25 - weight};
    for (bool const transposed : {false, true}) {
      for (double const eps : {1e8, 1e12, 1e16, 1e22}) {
        SCOPED_TRACE(testing::Message() << "weight " << weight << ", eps " << eps << ", " << transposed);
        CostMatrix matrix{{cost.data(), n, m}};
        matrix.transposed = transposed;
        Plan const plan = transposed ? monge::solve(context(), matrix, b, a, {.eps = eps})
                                     : monge::solve(context(), matrix, a, b, {.eps = eps});
        Report const& report = plan.report();
        Real const truth = mean + eps * Real(weight) * std::log(2.0L);
        bool const told = report.message.find("leave the values an error") != std::string::npos;
        Real const allowed = told ? 64 * kUnit * eps : 2e-3L * truth;
        EXPECT_NEAR(report.primal, truth, allowed) << report.message;
        EXPECT_NEAR(report.dual, truth, allowed) << report.message;
        EXPECT_TRUE(!told || eps * weight > 1e-4L * truth);
      }
    }
  }
}

/// All numbers scale with the costs, up to the rounding of the units, as long as products of two coordinates are
/// numbers.
TEST_P(ValuesAtAnyScale, costs_of_any_unit_have_the_same_plan) {
  for (Kind const kind : {Kind::matrix, Kind::squares, Kind::distances}) {
    Real const mean = this->mean(cost(kind));
    for (double const share : {1e-2, 1.0, 1e8}) {
      double const eps = share * static_cast<double>(mean);
      SolveOptions options{.tolerance = 1e-6};
      options.eps = eps;
      Report const expected = solve(kind, 1, options).report();
      for (double const unit : {1e-280, 1e-200, 1e-60, 1e-40, 1e-20, 1e20, 1e36, 1e60, 1e200, 1e280}) {
        if (kind == Kind::distances && std::abs(std::log10(unit)) > 150) continue;
        SCOPED_TRACE(testing::Message() << static_cast<int>(kind) << ", eps " << share << " of the mean, unit "
                                        << unit);
        options.eps = unit * eps;
        Report const report = solve(kind, unit, options).report();
        EXPECT_EQ(report.status, Status::converged) << report.message;
        Real const allowed = std::abs(expected.gap) + std::abs(report.gap) / unit +
                             2 * eps * (std::pow(expected.marginal_error, 2) + std::pow(report.marginal_error, 2)) +
                             1e-12L * mean;
        EXPECT_NEAR(report.primal / unit, expected.primal, allowed);
        EXPECT_NEAR(report.dual / unit, expected.dual, allowed);
      }
    }
  }
}

TEST_P(ValuesAtAnyScale, divergences_keep_their_digits_where_eps_is_far_above_the_costs) {
  // The limit is half of the squared distance of the means; the next term is smaller by the costs over eps.
  Real limit = 0;
  for (int k = 0; k < kDimension; ++k) {
    Real difference = 0;
    for (int i = 0; i < kRows; ++i) difference += Real(a_[i]) * x_[i * kDimension + k];
    for (int j = 0; j < kColumns; ++j) difference -= Real(b_[j]) * y_[j * kDimension + k];
    limit += difference * difference;
  }
  for (double const unit : {1e-4, 1e-8, 1e-20}) {
    std::vector<double> const x = scaled(x_, unit), y = scaled(y_, unit);
    PointCloud const clouds{{x.data(), kRows, kDimension}, {y.data(), kColumns, kDimension}};
    for (double const share : {1e6, 1e9, 1e13}) {
      SCOPED_TRACE(testing::Message() << "unit " << unit << ", eps " << share);
      Divergence const made = sinkhorn_divergence(context(), clouds, a_, b_, {.eps = share * unit * unit});
      EXPECT_NEAR(made.value / (unit * unit), limit, 10 / share + 1e-9);
    }
  }
}

TEST_P(ValuesAtAnyScale, squares_that_overflow_are_refused) {
  for (double const far : {1e154, 1e155, 1e300}) {
    double const x[] = {far, 0, far, 1}, y[] = {-far, 0, -far, 1};
    for (std::int64_t const count : {1, 2}) {
      for (CostFunction const function : {CostFunction::sqeuclidean, CostFunction::dot}) {
        for (Precision const precision : {Precision::automatic, Precision::float32, Precision::float64}) {
          SCOPED_TRACE(testing::Message() << far << ", " << name(function) << ", " << name(precision));
          PointCloud clouds{{x, count, 2}, {y, count, 2}};
          clouds.cost_function = function;
          std::string const text = refusal_of([&] { monge::solve(context(), clouds, {}, {}, {.eps = 1.0}); });
          EXPECT_NE(text.find("overflow"), std::string::npos) << text;
        }
      }
    }
  }
}

TEST_P(ValuesAtAnyScale, eps_relative_needs_a_mean_cost_that_is_a_number) {
  double const cost[] = {0, 1e300, 1e300, 0};
  for (double const weight : {1e-170, 1e155}) {
    double const weights[] = {weight, weight};
    VectorView const view(weights, 2);
    std::string const text = refusal_of([&] {
      monge::solve(context(), CostMatrix{{cost, 2, 2}}, view, view, {.eps_relative = 0.05});
    });
    EXPECT_NE(text.find("eps_relative"), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace monge::oracle
