// The Schur complement of the dual's Hessian, S = diag(c) - P^T diag(1/r) P with r = P 1 and c = P^T 1 (and the same of
// the rows), as conjugate gradients on the plan's products: what Newton steps and gradients through the solution solve.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "oracle/backend_test.hpp"
#include "plan/conjugate_gradient.hpp"
#include "seam/plan_operator.hpp"

namespace monge::oracle {
namespace {

class SchurTest : public BackendTest {};
MONGE_FOR_EACH_OF(SchurTest, with_all_costs(all_devices()));
INSTANTIATE_TEST_SUITE_P(ordered, SchurTest, testing::Values(ordered_targets().back()), target_name);  // In float64.

constexpr double kTolerance = 1e-12;

/// Positive definite, row-major; solved by Cholesky's factorization.
class PositiveMatrix {
 public:
  explicit PositiveMatrix(Vector matrix) : factor_(std::move(matrix)) {
    while (n_ * n_ < factor_.size()) ++n_;
    for (std::size_t j = 0; j < n_; ++j) {
      for (std::size_t i = j; i < n_; ++i) {
        Real sum = factor_[i * n_ + j];
        for (std::size_t k = 0; k < j; ++k) sum -= factor_[i * n_ + k] * factor_[j * n_ + k];
        factor_[i * n_ + j] = i == j ? std::sqrt(sum) : sum / factor_[j * n_ + j];
      }
    }
  }

  Vector solve(Vector x) const {
    for (std::size_t i = 0; i < n_; ++i) {
      for (std::size_t k = 0; k < i; ++k) x[i] -= factor_[i * n_ + k] * x[k];
      x[i] /= factor_[i * n_ + i];
    }
    for (std::size_t i = n_; i-- > 0;) {
      for (std::size_t k = i + 1; k < n_; ++k) x[i] -= factor_[k * n_ + i] * x[k];
      x[i] /= factor_[i * n_ + i];
    }
    return x;
  }

 private:
  Vector factor_;
  std::size_t n_ = 0;
};

/// S of one side in long double, of the points that have weight: the others have no entries in P. Its null space is the
/// constants.
class DenseSchur {
 public:
  DenseSchur(Dense const& dense, Side side, Real eps, Potentials const& potentials) {
    Vector const plan = dense.plan(eps, potentials);
    Vector const inner = dense.marginal(other(side), eps, potentials);
    Vector const outer = dense.marginal(side, eps, potentials);
    auto const entry = [&](std::int64_t j, std::int64_t i) {
      return side == Side::rows ? plan[j * dense.size(Side::columns) + i] : plan[i * dense.size(Side::columns) + j];
    };
    for (std::int64_t j = 0; j < dense.size(side); ++j) {
      if (dense.weights(side)[j] > 0) active_.push_back(j);
    }
    for (std::int64_t const j : active_) {
      marginal_.push_back(outer[j]);
      for (std::int64_t const k : active_) {
        Real sum = 0;
        for (std::int64_t i = 0; i < dense.size(other(side)); ++i) {
          if (inner[i] > 0) sum += entry(j, i) * entry(k, i) / inner[i];
        }
        gram_.push_back(sum);
      }
    }
  }

  std::vector<std::int64_t> const& active() const { return active_; }
  std::size_t size() const { return active_.size(); }

  /// S v.
  Vector product(Vector const& v) const {
    Vector out(size());
    for (std::size_t j = 0; j < size(); ++j) {
      out[j] = marginal_[j] * v[j];
      for (std::size_t k = 0; k < size(); ++k) out[j] -= gram_[j * size() + k] * v[k];
    }
    return out;
  }

  /// (diag(c) + P^T diag(1/r) P) |v|: what relative errors of the plan's entries multiply.
  Vector magnitude(Vector const& v) const {
    Vector out(size());
    for (std::size_t j = 0; j < size(); ++j) {
      out[j] = marginal_[j] * std::abs(v[j]);
      for (std::size_t k = 0; k < size(); ++k) out[j] += gram_[j * size() + k] * std::abs(v[k]);
    }
    return out;
  }

  /// S + t 1 1^T is positive, and for a right side of mean 0 it has the solution of S of mean 0.
  PositiveMatrix pinned() const {
    Real const t = *std::max_element(marginal_.begin(), marginal_.end()) / static_cast<Real>(size());
    Vector matrix(gram_.size());
    for (std::size_t j = 0; j < size(); ++j) {
      for (std::size_t k = 0; k < size(); ++k)
        matrix[j * size() + k] = (j == k ? marginal_[j] : 0) - gram_[j * size() + k] + t;
    }
    return PositiveMatrix(std::move(matrix));
  }

 private:
  std::vector<std::int64_t> active_;
  Vector marginal_, gram_;
};

Vector centred(Vector v) {
  Real mean = 0;
  for (Real const value : v) mean += value / static_cast<Real>(v.size());
  for (Real& value : v) value -= mean;
  return v;
}

Real norm(Vector const& v) {
  Real sum = 0;
  for (Real const value : v) sum += value * value;
  return std::sqrt(sum);
}

TEST_P(SchurTest, conjugate_gradients_agree_with_a_dense_solve) {
  for (Recipe const& recipe : {Recipe{50, 40, 2, Weights::uniform, Place::origin, 0.1},
                               Recipe{40, 60, 3, Weights::with_zeros, Place::apart, 0.05},
                               Recipe{60, 33, 20, Weights::uniform, Place::shifted, 0.05}}) {
    Problem const problem = make_problem(recipe);
    double const eps = recipe.eps_over_spread * Magnitudes(problem).spread();
    auto const entropic = make_operator(problem);
    entropic->sweep({eps}, 10);
    // Newton's method linearizes away from the solution, too.
    Random random(recipe.seed + 1);
    Potentials disturbed = potentials_of(*entropic);
    for (Side const side : {Side::rows, Side::columns}) {
      for (Real& value : disturbed.of(side)) value += 0.3 * eps * random.uniform(-1, 1);
    }
    entropic->set_potentials(narrow(disturbed.f), narrow(disturbed.g));
    auto const plan = entropic->plan(eps);
    VectorOperations const& vectors = plan->vectors();
    Dense const dense(problem);
    Potentials const potentials = potentials_of(*entropic);
    Tolerance const tolerance(problem, eps, arithmetic(recipe.d));

    for (Side const side : {Side::rows, Side::columns}) {
      SCOPED_TRACE(testing::Message() << (side == Side::rows ? "rows of " : "columns of ") << recipe);
      DenseSchur const schur(dense, side, eps, potentials);
      std::vector<double> right(dense.size(side), 0.0), active(dense.size(side), 0.0);
      for (std::int64_t const j : schur.active()) {
        active[j] = 1;
        right[j] = dense.weights(side)[j] * random.normal();
      }

      auto const inverse_inner = vectors.make(other(side)), inverse_outer = vectors.make(side);
      vectors.reciprocal(plan->marginal(other(side)), *inverse_inner);
      vectors.reciprocal(plan->marginal(side), *inverse_outer);
      auto const ones = vectors.make(side), w = vectors.make(side), v = vectors.make(side);
      vectors.read(active, *ones);
      vectors.read(right, *w);
      LinearSystem const system{
          .matrix =
              [&](monge::Vector const& in, monge::Vector& out) {
                plan->multiply_gram(side, *inverse_inner, in, out);
                vectors.combine(std::vector<Term>{{1, &in, &plan->marginal(side)}, {-1, &out}}, out);
              },
          .preconditioner =
              [&](monge::Vector const& in, monge::Vector& out) {
                vectors.combine(std::vector<Term>{{1, &in, inverse_outer.get()}}, out);
              },
          .null_vector = ones.get()};
      ConjugateGradientResult const result =
          conjugate_gradient(vectors, system, *w, *v, {.tolerance = kTolerance, .iterations = 200});
      EXPECT_EQ(result.status, LinearStatus::converged);
      EXPECT_LE(result.residual, kTolerance);
      EXPECT_LE(result.iterations, static_cast<int>(schur.size()));

      std::vector<double> all(dense.size(side));
      vectors.write(*v, all);
      Vector found, centred_right;
      for (std::int64_t const j : schur.active()) {
        found.push_back(all[j]);
        centred_right.push_back(right[j]);
      }
      found = centred(found);
      centred_right = centred(centred_right);

      // An entry of the operator's S carries the relative error of at most three entries and sums of P. What that makes
      // of S v and what the iteration left of the residual pass through the inverse of S.
      Real entry_error = 0;
      for (Side const any : {Side::rows, Side::columns}) {
        for (Real const value : tolerance.plan(any, potentials)) entry_error = std::max(entry_error, 3 * value);
      }
      Vector residual = schur.product(found), residual_error = schur.magnitude(found);
      for (std::size_t j = 0; j < schur.size(); ++j) {
        residual[j] = centred_right[j] - residual[j];
        residual_error[j] *= entry_error;
      }
      Real const scale = norm(centred_right);
      expect_close("residual", result.residual, norm(residual) / scale, norm(residual_error) / scale);

      PositiveMatrix const pinned = schur.pinned();
      Vector allowed(schur.size(), 0);
      for (std::size_t k = 0; k < schur.size(); ++k) {
        Vector unit(schur.size(), 0);
        unit[k] = 1;
        Vector const column = pinned.solve(centred(unit));
        for (std::size_t j = 0; j < schur.size(); ++j)
          allowed[j] += std::abs(column[j]) * (residual_error[k] + kTolerance * scale);
      }
      expect_close("v", narrow(found), pinned.solve(centred_right), allowed);
    }
  }
}

}  // namespace
}  // namespace monge::oracle
