// Conjugate gradients on vectors of the test's own, which count what the solver asks for.
#include "plan/conjugate_gradient.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "oracle/problem.hpp"

namespace monge {
namespace {

using oracle::Random;
using Status = LinearStatus;

constexpr double kUnit = 0x1p-53;
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

struct HostVector final : Vector {
  explicit HostVector(std::vector<double> numbers)
      : Vector(static_cast<std::int64_t>(numbers.size()), 1), values(std::move(numbers)) {}
  std::vector<double> values;
};

std::vector<double> const& values(Vector const& vector) {
  return static_cast<HostVector const&>(vector).values;
}
std::vector<double>& values(Vector& vector) {
  return static_cast<HostVector&>(vector).values;
}

class HostVectors final : public VectorOperations {
 public:
  explicit HostVectors(std::size_t size)
      : VectorOperations(static_cast<std::int64_t>(size), static_cast<std::int64_t>(size)), size_(size) {}
  void read(MatrixView, Vector&) const override { FAIL() << "a solver has no memory of its own to read"; }
  void write(Vector const&, MutableMatrixView) const override { FAIL() << "a solver sees no element"; }
  void combine(std::span<Term const> terms, Vector& out) const override {
    ++combines;
    ASSERT_LE(terms.size(), kMostTerms);
    std::vector<double> sum(size_, 0.0);
    for (Term const& term : terms) {
      for (std::size_t i = 0; i < size_; ++i) {
        double const factor = term.times ? term.factor * values(*term.times)[i] : term.factor;
        sum[i] += factor * values(*term.vector)[i];
      }
    }
    values(out) = sum;
  }
  void concatenate(std::span<Term const>, Vector&) const override { FAIL() << "not for conjugate gradients"; }
  void reciprocal(Vector const&, Vector&) const override { FAIL() << "not for conjugate gradients"; }
  void exp_difference(Vector const&, Vector const&, Vector const&, double, Vector&) const override {
    FAIL() << "not for conjugate gradients";
  }
  VectorNorms norms(Vector const&) const override {
    ADD_FAILURE() << "not for conjugate gradients";
    return {};
  }
  void row_dots(Vector const&, Vector const&, Vector&) const override { FAIL() << "not for conjugate gradients"; }
  void dots(std::span<std::pair<Vector const*, Vector const*> const> pairs, std::span<double> out) const override {
    ++waits;
    ASSERT_LE(pairs.size(), kMostDots);
    ASSERT_EQ(pairs.size(), out.size());
    for (std::size_t k = 0; k < pairs.size(); ++k) {
      out[k] = 0;
      for (std::size_t i = 0; i < size_; ++i) out[k] += values(*pairs[k].first)[i] * values(*pairs[k].second)[i];
    }
  }

  mutable int combines = 0, waits = 0;

 private:
  std::unique_ptr<Vector> zeros(std::int64_t, std::int64_t width) const override {
    EXPECT_EQ(width, 1);
    return std::make_unique<HostVector>(std::vector<double>(size_, 0.0));
  }

  std::size_t size_;
};

using Matrix = std::vector<std::vector<double>>;

std::vector<double> product(Matrix const& matrix, std::vector<double> const& x) {
  std::vector<double> out(x.size(), 0.0);
  for (std::size_t i = 0; i < x.size(); ++i) {
    for (std::size_t j = 0; j < x.size(); ++j) out[i] += matrix[i][j] * x[j];
  }
  return out;
}

LinearMap dense(Matrix const& matrix) {
  return [&matrix](Vector const& in, Vector& out) { values(out) = product(matrix, values(in)); };
}

/// out_i = d_i in_i.
LinearMap diagonal(std::vector<double> d) {
  return [d = std::move(d)](Vector const& in, Vector& out) {
    for (std::size_t i = 0; i < d.size(); ++i) values(out)[i] = d[i] * values(in)[i];
  };
}

std::vector<double> jacobi(Matrix const& matrix) {
  std::vector<double> inverse;
  for (std::size_t i = 0; i < matrix.size(); ++i) inverse.push_back(1 / matrix[i][i]);
  return inverse;
}

std::vector<double> random_vector(std::size_t size, std::uint64_t seed) {
  Random random(seed);
  return oracle::gaussian_points(static_cast<std::int64_t>(size), 1, random);
}

double norm(std::vector<double> const& vector) {
  double sum = 0;
  for (double const value : vector) sum += value * value;
  return std::sqrt(sum);
}

/// sum_k lambda_k w_k w_k^T with w_k orthonormal.
Matrix with_eigenvalues(std::vector<double> const& lambda, std::uint64_t seed) {
  std::size_t const n = lambda.size();
  Matrix basis;
  for (std::size_t k = 0; k < n; ++k) {
    std::vector<double> w = random_vector(n, 1000 * seed + k);
    for (int pass = 0; pass < 2; ++pass) {  // Twice is enough.
      for (std::vector<double> const& other : basis) {
        double along = 0;
        for (std::size_t i = 0; i < n; ++i) along += w[i] * other[i];
        for (std::size_t i = 0; i < n; ++i) w[i] -= along * other[i];
      }
    }
    double const length = norm(w);
    for (double& value : w) value /= length;
    basis.push_back(w);
  }
  Matrix matrix(n, std::vector<double>(n, 0.0));
  for (std::size_t k = 0; k < n; ++k) {
    for (std::size_t i = 0; i < n; ++i) {
      for (std::size_t j = 0; j < n; ++j) matrix[i][j] += lambda[k] * basis[k][i] * basis[k][j];
    }
  }
  return matrix;
}

/// `count` values from 1 to `condition` in a geometric sequence.
std::vector<double> spread(std::size_t count, double condition) {
  std::vector<double> lambda;
  for (std::size_t k = 0; k < count; ++k) {
    lambda.push_back(std::pow(condition, static_cast<double>(k) / static_cast<double>(count - 1)));
  }
  return lambda;
}

struct Outcome {
  ConjugateGradientResult result;
  std::vector<double> x;
  int combines, waits, products;
};

Outcome solve(LinearSystem system, std::vector<double> const& b, ConjugateGradientOptions const& options,
              std::vector<double> const& start = {}) {
  HostVectors const vectors(b.size());
  HostVector const right(b);
  HostVector x(start.empty() ? std::vector<double>(b.size(), 0.0) : start);
  int products = 0;
  LinearMap const matrix = std::move(system.matrix);
  system.matrix = [&](Vector const& in, Vector& out) {
    ++products;
    matrix(in, out);
  };
  ConjugateGradientResult const result = conjugate_gradient(vectors, system, right, x, options);
  return {result, x.values, vectors.combines, vectors.waits, products};
}

/// |b - A x| / |b|
double residual(Matrix const& matrix, std::vector<double> const& b, std::vector<double> const& x) {
  std::vector<double> r = product(matrix, x);
  for (std::size_t i = 0; i < r.size(); ++i) r[i] = b[i] - r[i];
  return norm(r) / norm(b);
}

/// Steps after which |r| <= tolerance |b|: |e_k|_A <= 2 q^k |e_0|_A with q = (s - 1) / (s + 1), s the root of the
/// condition, and |r| is between the roots of the least and the largest eigenvalue times |e|_A.
int step_bound(double condition, double tolerance) {
  double const root = std::sqrt(condition);
  return static_cast<int>(std::ceil(std::log(2 * root / tolerance) / std::log((root + 1) / (root - 1))));
}

TEST(ConjugateGradient, identity_takes_one_step) {
  std::vector<double> const b = random_vector(10, 1);
  Outcome const outcome = solve({diagonal(std::vector<double>(10, 1.0))}, b, {1e-14, 100});
  EXPECT_EQ(outcome.result.status, Status::converged);
  EXPECT_EQ(outcome.result.iterations, 1);
  EXPECT_EQ(outcome.x, b);
  EXPECT_EQ(outcome.result.residual, 0);
}

// With k distinct eigenvalues the residual polynomial of degree k that vanishes at them ends the iteration.
TEST(ConjugateGradient, takes_as_many_steps_as_there_are_eigenvalues) {
  for (std::size_t const distinct : {2u, 3u, 7u}) {
    SCOPED_TRACE(testing::Message() << distinct << " eigenvalues");
    std::vector<double> d(60), b = random_vector(60, 2);
    for (std::size_t i = 0; i < d.size(); ++i) d[i] = 1.0 + static_cast<double>(i % distinct);
    Outcome const outcome = solve({diagonal(d)}, b, {1e-13, 100});
    EXPECT_EQ(outcome.result.status, Status::converged);
    EXPECT_EQ(outcome.result.iterations, static_cast<int>(distinct));
    for (std::size_t i = 0; i < d.size(); ++i) EXPECT_NEAR(outcome.x[i], b[i] / d[i], 1e-13 * norm(b));
  }
}

TEST(ConjugateGradient, ends_within_n_steps_up_to_rounding) {
  std::size_t const n = 12;
  Matrix const matrix = with_eigenvalues(spread(n, 10), 3);
  std::vector<double> const b = random_vector(n, 4);
  Outcome const outcome = solve({dense(matrix)}, b, {1e-13, 100});
  EXPECT_EQ(outcome.result.status, Status::converged);
  EXPECT_LE(outcome.result.iterations, static_cast<int>(n));
  Outcome const short_of_it = solve({dense(matrix)}, b, {1e-13, static_cast<int>(n) - 2});
  EXPECT_EQ(short_of_it.result.status, Status::iteration_limit) << "the spectrum has as many points as the matrix";
}

TEST(ConjugateGradient, solves_dense_systems_within_the_bound_of_theory) {
  for (double const condition : {1.5, 30.0, 1000.0}) {
    for (double const tolerance : {1e-3, 1e-9}) {
      SCOPED_TRACE(testing::Message() << "condition " << condition << ", tolerance " << tolerance);
      Matrix const matrix = with_eigenvalues(spread(80, condition), 5);
      std::vector<double> const truth = random_vector(80, 6), b = product(matrix, truth);
      Outcome const outcome = solve({dense(matrix)}, b, {tolerance, 1000});
      EXPECT_EQ(outcome.result.status, Status::converged);
      EXPECT_LE(outcome.result.iterations, step_bound(condition, tolerance));
      EXPECT_LE(outcome.result.residual, tolerance);
      double const rounding = 80 * kUnit * condition * norm(truth) / norm(b);
      EXPECT_NEAR(outcome.result.residual, residual(matrix, b, outcome.x), rounding);
      // |x - x*| <= |r| / lambda_min.
      for (std::size_t i = 0; i < truth.size(); ++i)
        EXPECT_NEAR(outcome.x[i], truth[i], (tolerance + rounding) * norm(b));
    }
  }
}

TEST(ConjugateGradient, preconditioner_removes_a_bad_scaling) {
  // S B S with a well-conditioned B of unit-like diagonal and scales over six orders of magnitude.
  std::size_t const n = 60;
  double const inner = 4, tolerance = 1e-8;
  Matrix matrix = with_eigenvalues(spread(n, inner), 7);
  std::vector<double> const scale = spread(n, 1e3);
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t j = 0; j < n; ++j) matrix[i][j] *= scale[i] * scale[j];
  }
  std::vector<double> const b = random_vector(n, 8);
  Outcome const plain = solve({dense(matrix)}, b, {tolerance, 10000});
  Outcome const preconditioned = solve({dense(matrix), diagonal(jacobi(matrix))}, b, {tolerance, 10000});
  EXPECT_EQ(plain.result.status, Status::converged);
  EXPECT_EQ(preconditioned.result.status, Status::converged);
  // The scaled matrix has a condition of at most inner^2: its diagonal is between the eigenvalues of B. Its residual
  // is S^-1 r / sqrt(diag B), so the tolerance is tighter by the condition of S.
  int const bound = step_bound(inner * inner, tolerance / 1e3 / inner);
  EXPECT_LE(preconditioned.result.iterations, bound);
  EXPECT_GT(plain.result.iterations, bound);
  EXPECT_LE(residual(matrix, b, preconditioned.x), 1.01 * tolerance);
}

/// The Laplacian of a path with weights: its null space is the constants.
Matrix path_laplacian(std::vector<double> const& weights) {
  std::size_t const n = weights.size() + 1;
  Matrix matrix(n, std::vector<double>(n, 0.0));
  for (std::size_t i = 0; i + 1 < n; ++i) {
    matrix[i][i] += weights[i];
    matrix[i + 1][i + 1] += weights[i];
    matrix[i][i + 1] -= weights[i];
    matrix[i + 1][i] -= weights[i];
  }
  return matrix;
}

TEST(ConjugateGradient, solves_a_singular_system_up_to_its_null_vector) {
  std::size_t const n = 40;
  Matrix const matrix = path_laplacian(spread(n - 1, 100));
  HostVector const ones(std::vector<double>(n, 3.0));
  std::vector<double> const truth = random_vector(n, 9);
  std::vector<double> const range = product(matrix, truth);
  std::vector<double> b = range;
  for (double& value : b) value += 5;  // No solution without the projection.
  for (bool const preconditioned : {false, true}) {
    SCOPED_TRACE(preconditioned ? "with Jacobi" : "plain");
    LinearMap const preconditioner = preconditioned ? diagonal(jacobi(matrix)) : LinearMap{};
    Outcome const outcome = solve({dense(matrix), preconditioner, &ones}, b, {1e-12, 1000});
    EXPECT_EQ(outcome.result.status, Status::converged);
    EXPECT_LE(outcome.result.residual, 1e-12);
    EXPECT_LE(residual(matrix, range, outcome.x), 1e-11);
    // The least positive eigenvalue of the path is at least 2 (1 - cos(pi / n)) times the least weight.
    double const allowed = 1e-11 * norm(range) / (2 * (1 - std::cos(M_PI / static_cast<double>(n))));
    for (std::size_t i = 1; i < n; ++i) EXPECT_NEAR(outcome.x[i] - outcome.x[0], truth[i] - truth[0], 2 * allowed);

    Outcome const unprojected = solve({dense(matrix), preconditioner}, b, {1e-12, 100000});
    EXPECT_NE(unprojected.result.status, Status::converged);
    EXPECT_LT(unprojected.result.iterations, 100000) << "a system without a solution should be noticed";
  }
}

// Products of a rounded operator are not quite orthogonal to the null vector.
TEST(ConjugateGradient, a_product_that_leaks_along_the_null_vector_does_no_harm) {
  std::size_t const n = 40;
  Matrix const matrix = path_laplacian(spread(n - 1, 100));
  LinearMap const leaking = [&](Vector const& in, Vector& out) {
    values(out) = product(matrix, values(in));
    for (double& value : values(out)) value += 1e-6 * norm(values(in));
  };
  HostVector const ones(std::vector<double>(n, 1.0));
  std::vector<double> const b = product(matrix, random_vector(n, 21));
  Outcome const outcome = solve({leaking, diagonal(jacobi(matrix)), &ones}, b, {1e-12, 1000});
  EXPECT_EQ(outcome.result.status, Status::converged);
  EXPECT_LE(residual(matrix, b, outcome.x), 1e-11);
}

TEST(ConjugateGradient, a_system_without_a_solution_stagnates) {
  std::size_t const n = 2000;
  std::vector<double> d(n);
  for (std::size_t i = 0; i < n; ++i) d[i] = static_cast<double>(i) / static_cast<double>(n);
  Outcome const outcome = solve({diagonal(d)}, std::vector<double>(n, 1.0), {1e-6, 100000});
  EXPECT_EQ(outcome.result.status, Status::stagnation);
  EXPECT_LT(outcome.result.iterations, 1000);
  EXPECT_GE(outcome.result.residual, 1 / std::sqrt(static_cast<double>(n))) << "the part that no x reaches";
}

TEST(ConjugateGradient, a_right_side_along_the_null_vector_is_zero) {
  Matrix const matrix = path_laplacian({1, 1, 1});
  HostVector const ones({1, 1, 1, 1});
  Outcome const outcome = solve({dense(matrix), {}, &ones}, {2, 2, 2, 2}, {1e-12, 100}, {1, 2, 3, 4});
  EXPECT_EQ(outcome.result.status, Status::converged);
  EXPECT_EQ(outcome.x, std::vector<double>(4, 0.0));
}

TEST(ConjugateGradient, finds_negative_curvature_and_keeps_the_iterate_before_it) {
  // The first direction is b, with <b, A b> = 3; the second finds what is negative.
  std::vector<double> const d{1, 3, -1}, b{1, 1, 1};
  Outcome const outcome = solve({diagonal(d)}, b, {1e-12, 100});
  EXPECT_EQ(outcome.result.status, Status::negative_curvature);
  EXPECT_EQ(outcome.result.iterations, 1);
  EXPECT_EQ(outcome.x, b) << "alpha = |b|^2 / <b, A b> = 1";
  EXPECT_LT(outcome.result.curvature, 0);
  EXPECT_GE(outcome.result.curvature, -1 - 10 * kUnit) << "a Rayleigh quotient lies between the eigenvalues";
  EXPECT_NEAR(outcome.result.residual, std::sqrt((0 + 4 + 4) / 3.0), 1e-15);

  Outcome const at_once = solve({diagonal({-2, -2, -2})}, b, {1e-12, 100}, {1, 2, 3});
  EXPECT_EQ(at_once.result.status, Status::negative_curvature);
  EXPECT_EQ(at_once.result.iterations, 0);
  EXPECT_EQ(at_once.x, (std::vector<double>{1, 2, 3}));
  EXPECT_DOUBLE_EQ(at_once.result.curvature, -2);

  Outcome const flat = solve({diagonal({0, 0, 0})}, b, {1e-12, 100});
  EXPECT_EQ(flat.result.status, Status::negative_curvature);
  EXPECT_EQ(flat.result.curvature, 0);
  EXPECT_EQ(flat.result.residual, 1);
}

TEST(ConjugateGradient, breaks_down_at_what_is_not_finite) {
  std::vector<double> const b{1, 2, 3};
  for (double const bad : {kNaN, std::numeric_limits<double>::infinity()}) {
    Outcome const outcome = solve({diagonal({1, bad, 1})}, b, {1e-12, 100});
    EXPECT_EQ(outcome.result.status, Status::breakdown);
    EXPECT_EQ(outcome.result.iterations, 0);
    EXPECT_EQ(outcome.x, std::vector<double>(3, 0.0));
    EXPECT_EQ(outcome.result.residual, 1);

    EXPECT_EQ(solve({diagonal({1, 1, 1})}, {1, bad, 3}, {1e-12, 100}).result.status, Status::breakdown);
    EXPECT_EQ(solve({diagonal({1, 2, 3})}, b, {1e-12, 100}, {0, bad, 0}).result.status, Status::breakdown);
    EXPECT_EQ(solve({diagonal({1, 2, 3}), diagonal({1, bad, 1})}, b, {1e-12, 100}).result.status, Status::breakdown);
  }
  // Its solution is beyond the range of float64.
  Outcome const tiny = solve({diagonal({1e-310, 1e-310, 1e-310})}, b, {1e-12, 100});
  EXPECT_EQ(tiny.result.status, Status::breakdown);
  EXPECT_EQ(tiny.x, std::vector<double>(3, 0.0));
}

TEST(ConjugateGradient, keeps_the_iterate_before_an_operator_fails) {
  std::vector<double> const b{1, 2, 3};
  int calls = 0;
  LinearMap const exact = diagonal({1, 2, 3}), broken = diagonal({kNaN, kNaN, kNaN});
  LinearMap const matrix = [&](Vector const& in, Vector& out) { (++calls == 2 ? broken : exact)(in, out); };
  Outcome const outcome = solve({matrix}, b, {1e-12, 100});
  Outcome const one_step = solve({exact}, b, {1e-12, 1});
  EXPECT_EQ(outcome.result.status, Status::breakdown);
  EXPECT_EQ(outcome.result.iterations, 1);
  EXPECT_EQ(outcome.x, one_step.x);
  EXPECT_EQ(outcome.result.residual, one_step.result.residual);
}

TEST(ConjugateGradient, breaks_down_at_a_preconditioner_that_is_not_positive) {
  std::vector<double> const b{1, 1, 1}, d{1, 2, 3};
  for (std::vector<double> const& bad : {std::vector<double>{-1, -1, -1}, {0, 0, 0}}) {
    Outcome const outcome = solve({diagonal(d), diagonal(bad)}, b, {1e-12, 100});
    EXPECT_EQ(outcome.result.status, Status::breakdown);
    EXPECT_EQ(outcome.result.iterations, 0);
    EXPECT_EQ(outcome.x, std::vector<double>(3, 0.0));
  }
}

TEST(ConjugateGradient, stagnates_at_a_tolerance_below_rounding) {
  std::size_t const n = 60;
  double const condition = 1e6;
  Matrix const matrix = with_eigenvalues(spread(n, condition), 10);
  // All of x in the direction that A shrinks the most costs the most digits of the residual.
  std::vector<double> const b = random_vector(n, 11);
  for (double const tolerance : {1e-15, 0.0}) {
    SCOPED_TRACE(testing::Message() << "tolerance " << tolerance);
    Outcome const outcome = solve({dense(matrix)}, b, {tolerance, 100000});
    EXPECT_EQ(outcome.result.status, Status::stagnation);
    EXPECT_LT(outcome.result.iterations, 10000);
    // |b - A x| is evaluated to n u |A| |x|, and |x| is at most |b| / lambda_min.
    EXPECT_LE(outcome.result.residual, static_cast<double>(n) * kUnit * condition);
    EXPECT_GT(outcome.result.residual, tolerance);
  }
}

TEST(ConjugateGradient, restarts_where_the_updated_residual_has_drifted) {
  // A first product that is off by a hundredth spoils the updated residual, not the later ones.
  std::size_t const n = 30;
  Matrix const matrix = with_eigenvalues(spread(n, 20), 12);
  std::vector<double> const b = random_vector(n, 13);
  int calls = 0;
  LinearMap const spoilt = [&](Vector const& in, Vector& out) {
    values(out) = product(matrix, values(in));
    if (++calls == 3) {
      for (double& value : values(out)) value *= 1.01;
    }
  };
  Outcome const outcome = solve({spoilt}, b, {1e-10, 1000});
  EXPECT_EQ(outcome.result.status, Status::converged);
  EXPECT_LE(residual(matrix, b, outcome.x), 1.01e-10);
  EXPECT_GT(outcome.products, outcome.result.iterations + 1) << "the residual was evaluated more than once";

  calls = 0;
  Outcome const capped = solve({spoilt}, b, {1e-10, 5});
  EXPECT_EQ(capped.result.status, Status::iteration_limit);
  EXPECT_NEAR(capped.result.residual, residual(matrix, b, capped.x), 1e-14) << "evaluated, not updated";
}

/// A - E with |E_ij| <= error |A_ij|, symmetric.
Matrix rounded(Matrix matrix, double error) {
  Random random(14);
  for (std::size_t i = 0; i < matrix.size(); ++i) {
    for (std::size_t j = 0; j <= i; ++j) matrix[j][i] = matrix[i][j] *= 1 + error * random.uniform(-1, 1);
  }
  return matrix;
}

TEST(ConjugateGradient, steps_by_a_rough_matrix_reach_the_residuals_of_the_exact_one) {
  std::size_t const n = 80;
  int const most_rough = 64;
  for (double const condition : {1.5, 30.0, 10000.0}) {
    SCOPED_TRACE(testing::Message() << "condition " << condition);
    Matrix const matrix = with_eigenvalues(spread(n, condition), 5), rough = rounded(matrix, 1e-7);
    std::vector<double> const b = random_vector(n, 6);
    double const tolerance = 1e-6;
    int rough_products = 0;
    LinearSystem system{dense(matrix)};
    system.rough_matrix = [&, multiply = dense(rough)](Vector const& in, Vector& out) {
      ++rough_products;
      multiply(in, out);
    };
    Outcome const outcome = solve(system, b, {tolerance, 1000});
    EXPECT_EQ(outcome.result.status, Status::converged);
    EXPECT_LE(residual(matrix, b, outcome.x), 1.01 * tolerance);
    // Evaluations follow reductions by 1e-2, of which the error of the rough matrix leaves n * 1e-7 * condition at
    // most, and the last rough step.
    EXPECT_LE(outcome.result.iterations, most_rough + 3 * step_bound(condition, 1e-2));
    EXPECT_EQ(rough_products, std::min(most_rough, outcome.result.iterations));
    EXPECT_LE(outcome.products, outcome.result.iterations - rough_products + 5);
  }
}

TEST(ConjugateGradient, goes_over_to_the_exact_matrix_where_the_rough_one_fails) {
  std::size_t const n = 40;
  Matrix const matrix = with_eigenvalues(spread(n, 30), 5), other = with_eigenvalues(spread(n, 30), 9);
  std::vector<double> const b = random_vector(n, 6);
  Outcome const exact = solve({dense(matrix)}, b, {1e-10, 1000});
  std::vector<double> const lost(n, std::numeric_limits<double>::quiet_NaN());
  for (LinearMap const& rough :
       {diagonal(lost), diagonal(std::vector<double>(n, -1.0)), dense(other), diagonal(std::vector<double>(n, 0.0))}) {
    LinearSystem system{dense(matrix)};
    system.rough_matrix = rough;
    Outcome const outcome = solve(system, b, {1e-10, 1000});
    EXPECT_EQ(outcome.result.status, Status::converged);
    EXPECT_LE(residual(matrix, b, outcome.x), 1.01e-10);
    EXPECT_GE(outcome.products, exact.result.iterations);
    // Whatever step the rough matrix fails at, the cap is kept.
    for (int const cap : {0, 1, 2, 19, 20, 21, 22, 23, 24, 25, 40}) {
      Outcome const capped = solve(system, b, {0, cap});
      EXPECT_LE(capped.result.iterations, cap);
      EXPECT_NEAR(capped.result.residual, residual(matrix, b, capped.x), 1e-12);
    }
  }
}

TEST(ConjugateGradient, status_goes_by_the_residual_that_is_evaluated) {
  // The first product is off in a direction orthogonal to its vector: x is right and the updated residual is not.
  int calls = 0;
  LinearMap const matrix = [&](Vector const& in, Vector& out) {
    values(out) = values(in);
    if (++calls == 1) values(out)[1] += 1;
  };
  Outcome const outcome = solve({matrix}, {1, 0}, {1e-10, 1});
  EXPECT_EQ(outcome.result.status, Status::converged);
  EXPECT_EQ(outcome.result.residual, 0);
  EXPECT_EQ(outcome.x, (std::vector<double>{1, 0}));
}

TEST(ConjugateGradient, zero_right_side_gives_zero_at_once) {
  Outcome const outcome = solve({diagonal({1, 2, 3})}, {0, 0, 0}, {1e-12, 100}, {4, 5, 6});
  EXPECT_EQ(outcome.result.status, Status::converged);
  EXPECT_EQ(outcome.result.iterations, 0);
  EXPECT_EQ(outcome.result.residual, 0);
  EXPECT_EQ(outcome.products, 0);
  EXPECT_EQ(outcome.x, std::vector<double>(3, 0.0));
}

TEST(ConjugateGradient, a_start_at_the_solution_stays_there) {
  Matrix const matrix = with_eigenvalues(spread(20, 5), 14);
  std::vector<double> const truth = random_vector(20, 15), b = product(matrix, truth);
  Outcome const outcome = solve({dense(matrix)}, b, {1e-13, 100}, truth);
  EXPECT_EQ(outcome.result.status, Status::converged);
  EXPECT_EQ(outcome.result.iterations, 0);
  EXPECT_EQ(outcome.products, 1);
  EXPECT_EQ(outcome.x, truth);
}

TEST(ConjugateGradient, a_start_near_the_solution_saves_steps) {
  Matrix const matrix = with_eigenvalues(spread(80, 1000), 16);
  std::vector<double> const b = random_vector(80, 17);
  Outcome const cold = solve({dense(matrix)}, b, {1e-9, 1000});
  Outcome const rough = solve({dense(matrix)}, b, {1e-5, 1000});
  Outcome const warm = solve({dense(matrix)}, b, {1e-9, 1000}, rough.x);
  EXPECT_EQ(warm.result.status, Status::converged);
  EXPECT_LT(warm.result.iterations, cold.result.iterations);
  EXPECT_LE(residual(matrix, b, warm.x), 1.01e-9) << "relative to b, not to the first residual";
}

TEST(ConjugateGradient, cap_is_kept_and_its_residual_evaluated) {
  Matrix const matrix = with_eigenvalues(spread(80, 1e4), 18);
  std::vector<double> const b = random_vector(80, 19);
  for (int const cap : {0, 1, 5}) {
    Outcome const outcome = solve({dense(matrix)}, b, {1e-12, cap});
    EXPECT_EQ(outcome.result.status, Status::iteration_limit);
    EXPECT_EQ(outcome.result.iterations, cap);
    EXPECT_NEAR(outcome.result.residual, residual(matrix, b, outcome.x), 1e-12);
  }
}

TEST(ConjugateGradient, a_step_costs_one_product_three_passes_and_two_waits) {
  Matrix const matrix = path_laplacian(spread(39, 100));
  HostVector const ones(std::vector<double>(40, 1.0));
  std::vector<double> const b = random_vector(40, 20);
  for (Vector const* const null_vector : {static_cast<Vector const*>(nullptr), static_cast<Vector const*>(&ones)}) {
    LinearSystem const system{dense(matrix), diagonal(jacobi(matrix)), null_vector};
    Outcome const few = solve(system, b, {1e-12, 10}), more = solve(system, b, {1e-12, 20});
    ASSERT_EQ(more.result.iterations, 20);
    EXPECT_EQ(more.products - few.products, 10);
    EXPECT_EQ(more.combines - few.combines, 30);
    EXPECT_EQ(more.waits - few.waits, 20);
  }
}

}  // namespace
}  // namespace monge
