// Problems whose entropic plan is known in closed form.
#include <algorithm>
#include <cmath>

#include "oracle/backend_test.hpp"

namespace monge::oracle {
namespace {

class ClosedForm : public BackendTest {
 protected:
  Plan solve(Problem const& problem, double eps) const {
    SolveOptions const options{.eps = eps, .tolerance = tolerance(), .iterations = 100000, .precision = precision()};
    return monge::solve(context(), problem.geometry(), problem.a, problem.b, options);
  }
  double tolerance() const {
    if (is_float64()) return 1e-11;
    return precision() == Precision::tf32 ? 1e-3 : 1e-5;
  }
};
MONGE_FOR_EACH_POINT_TARGET(ClosedForm);

/// P V with V the identity: the plan itself, n x m.
std::vector<double> matrix_of(Plan const& plan) {
  std::int64_t const m = plan.columns();
  std::vector<double> identity(m * m, 0.0);
  for (std::int64_t j = 0; j < m; ++j) identity[j * m + j] = 1;
  std::vector<double> matrix(plan.rows() * m);
  plan.apply(MatrixView(identity.data(), m, m), MutableMatrixView(matrix.data(), plan.rows(), m));
  return matrix;
}

Problem weighted_line(std::vector<double> const& x, std::vector<double> const& y, std::vector<double> a,
                      std::vector<double> b) {
  auto const column = [](std::vector<double> const& points) {
    return Stored(points, static_cast<std::int64_t>(points.size()), 1);
  };
  return {column(x), column(y), std::move(a), std::move(b)};
}

TEST_P(ClosedForm, of_one_source_point_is_the_target_weights) {
  Problem problem = make_problem({1, 50, 3, Weights::uniform, Place::apart, 0.05, DataType::float64, 0, 1, 2});
  for (std::int64_t j = 0; j < 50; ++j) problem.b[j] *= 1 + (j - 24.5) / 50;
  Dense const dense(problem);
  for (double const eps : {1.0, 10.0, 100.0}) {
    Plan const plan = solve(problem, eps);
    EXPECT_EQ(plan.status(), Status::converged) << plan.report().message;
    // P_1j = b_j, so a_1 exp((f + g_j - C_1j) / eps) = 1.
    Tolerance const allowed(problem, eps, arithmetic(3));
    Vector error = allowed.softmin(Side::columns, widen(plan.f()), widen(plan.g()));
    Vector expected(50);
    for (std::int64_t j = 0; j < 50; ++j) {
      expected[j] = dense.cost(Side::rows, 0, j) - plan.f()[0] - eps * std::log(2.0L);
    }
    expect_close("g", plan.g(), expected, error);
  }
}

// The margins of a 2 x 2 plan leave one unknown p = P_11, and the scaling form fixes the cross ratio:
// p (1 - a - b + p) = k (a - p)(b - p), k = exp((C_12 + C_21 - C_11 - C_22) / eps).
TEST_P(ClosedForm, of_two_points_by_two) {
  for (double const eps : {0.2, 0.5, 1.0, 10.0}) {
    for (double const a : {0.5, 0.3}) {
      for (double const b : {0.5, 0.9}) {
        SCOPED_TRACE(testing::Message() << "eps " << eps << ", a " << a << ", b " << b);
        Problem const problem = weighted_line({0, 1}, {0.25, 0.75}, {a, 1 - a}, {b, 1 - b});
        Dense const dense(problem);
        Real const k = std::exp((dense.cost(Side::rows, 0, 1) + dense.cost(Side::rows, 1, 0) -
                                 dense.cost(Side::rows, 0, 0) - dense.cost(Side::rows, 1, 1)) /
                                eps);
        // (1 - k) p^2 + (1 - a - b + k (a + b)) p - k a b = 0, in the form that does not cancel.
        Real const linear = 1 - Real(a) - b + k * (Real(a) + b);
        Real const p = 2 * k * a * b / (linear + std::sqrt(linear * linear + 4 * (1 - k) * k * a * b));
        Plan const plan = solve(problem, eps);
        EXPECT_EQ(plan.status(), Status::converged) << plan.report().message;
        expect_close("P", matrix_of(plan), {p, a - p, b - p, 1 - a - b + p}, Vector(4, 2 * tolerance()));
      }
    }
  }
}

// Gaussians on a fine grid: the trapezoidal rule is exact to rounding for them, so the discrete plan is the Gaussian
// one (Janati et al. 2020; Mallasto et al. 2020). In one dimension its covariance c solves c / (s^2 t^2 - c^2) = 2 /
// eps.
TEST_P(ClosedForm, of_gaussians) {
  double const s = 1.0, t = 0.6, shift = 1.5;
  std::int64_t const count = 121;
  auto const grid = [&](double deviation, double mean, std::vector<double>& points, std::vector<double>& weights) {
    double total = 0;
    for (std::int64_t i = 0; i < count; ++i) {
      double const z = -9 + 18.0 * i / (count - 1);
      points.push_back(mean + deviation * z);
      weights.push_back(std::exp(-z * z / 2));
      total += weights.back();
    }
    for (double& weight : weights) weight /= total;
  };
  std::vector<double> x, y, a, b;
  grid(s, 0, x, a);
  grid(t, shift, y, b);
  Problem const problem = weighted_line(x, y, a, b);
  for (double const eps : {1.0, 4.0}) {
    SCOPED_TRACE(testing::Message() << "eps " << eps);
    Real const c = (std::sqrt(1 + 16 * Real(s * s * t * t) / (eps * eps)) - 1) * eps / 4;
    Real const cost = shift * shift + s * s + t * t - 2 * c;
    Real const entropy = -std::log(1 - c * c / (s * s * t * t)) / 2;
    Plan const plan = solve(problem, eps);
    EXPECT_EQ(plan.status(), Status::converged) << plan.report().message;
    // The error moves mass, by as much as f or g differ: 6 at most over two deviations, of half of the error.
    double const allowed = 3 * tolerance() + 1e-13;
    expect_close("transport_cost", plan.report().transport_cost, cost, allowed);
    expect_close("primal", plan.report().primal, cost + eps * entropy, allowed);
    expect_close("dual", plan.report().dual, cost + eps * entropy, allowed);
    // E[y | x] = shift + c / s^2 x. Far out, weights near 1e-18 leave the potential free.
    std::vector<double> map(count);
    plan.barycentric_projection(MutableMatrixView(map.data(), count, 1));
    for (std::int64_t i = 0; i < count; ++i) {
      if (std::abs(x[i]) > 2) continue;
      EXPECT_NEAR(map[i], shift + static_cast<double>(c) * x[i], 100 * allowed);
    }
  }
}

// As eps -> 0 the plan tends to the monotone matching, with a bias of at most eps log n: its own entropy is >= 0 and
// that of the matching is log n.
TEST_P(ClosedForm, on_a_line_tends_to_the_monotone_matching) {
  std::int64_t const n = 64;
  Random random(5);
  std::vector<double> const x = gaussian_points(n, 1, random), y = gaussian_points(n, 1, random, 2, 0.5);
  Problem const problem = weighted_line(x, y, std::vector<double>(n, 1.0 / n), std::vector<double>(n, 1.0 / n));
  std::vector<double> sorted_x = x, sorted_y = y;
  std::sort(sorted_x.begin(), sorted_x.end());
  std::sort(sorted_y.begin(), sorted_y.end());
  double best = 0;
  for (std::int64_t i = 0; i < n; ++i) best += (sorted_x[i] - sorted_y[i]) * (sorted_x[i] - sorted_y[i]) / n;
  double last = std::numeric_limits<double>::infinity();
  for (double const eps : {1.0, 0.1, 0.02}) {
    SCOPED_TRACE(testing::Message() << "eps " << eps);
    Plan const plan = solve(problem, eps);
    double const cost = plan.report().transport_cost;
    double const infeasible = plan.report().marginal_error * static_cast<double>(Dense(problem).largest_cost());
    EXPECT_GE(cost, best - infeasible);
    EXPECT_LE(cost, best + eps * std::log(static_cast<double>(n)) + infeasible);
    EXPECT_LE(cost, last);
    last = cost;
  }
  EXPECT_NEAR(last, best, 0.02);
}

TEST_P(ClosedForm, of_coinciding_points_is_the_product_of_the_weights) {
  Problem problem = make_problem({6, 9, 2, Weights::skewed});
  problem.x = Stored(std::vector<double>(12, -2.0), 6, 2);
  problem.y = Stored(std::vector<double>(18, -2.0), 9, 2);
  Plan const plan = solve(problem, 0.1);
  EXPECT_EQ(plan.status(), Status::converged) << plan.report().message;
  EXPECT_NEAR(plan.report().transport_cost, 0, 1e-12);
  EXPECT_NEAR(plan.report().primal, 0, 1e-6);
  // In float32 on CUDA an entry passes through memory as two fp16 numbers, which hold it to 2^-40 of its row's sum
  // (docs/math.md, section 8).
  bool const in_halves = GetParam().device == DeviceType::cuda && !is_float64();
  Vector expected, allowed;
  for (double const a : problem.a) {
    for (double const b : problem.b) {
      expected.push_back(Real(a) * b);
      allowed.push_back(64 * arithmetic(2).unit * a * b + (in_halves ? 0x1p-40 * a : 0));
    }
  }
  expect_close("P", matrix_of(plan), expected, allowed);
}

}  // namespace
}  // namespace monge::oracle
