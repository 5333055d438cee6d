#include "gromov/open_matrices.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace monge {

OpenMatrixProblem::OpenMatrixProblem(Backend const& backend, GromovMatrices const& matrices, VectorView a, VectorView b,
                                     GromovOptions const& options)
    : MatrixProblem(backend, matrices, a, b, options) {
  constant_ = 0;
  if (is_unbalanced()) least_ = least_ < 0 ? -kInfinity : 0;  // Any mass is feasible.
}

void OpenMatrixProblem::linearise(DenseMatrix const& image, DenseMatrix& u, DenseMatrix& v) const {
  MatrixProblem::linearise(image, u, v);
  auto const plan = image.leftCols(b_.size());
  u.colwise() += alpha_ * source_->slopes(plan.rowwise().sum());
  u.rowwise() += alpha_ * target_->slopes(plan.colwise().sum().transpose()).transpose();
  if (!is_unbalanced()) return;
  if (!is_proximal_) u.array() += terms_of(image).divergence;
  u /= plan.sum();
}

double OpenMatrixProblem::energy(DenseMatrix const& image) const {
  auto const plan = image.leftCols(b_.size());
  DenseVector const row = plan.rowwise().sum(), column = plan.colwise().sum().transpose();
  return (row.dot(source_->slopes(row)) + column.dot(target_->slopes(column))) / 2 -
         2 * plan.cwiseProduct(image.rightCols(b_.size())).sum();
}

GromovValue OpenMatrixProblem::value_of(DenseMatrix image) const {
  GromovValue value;
  value.quadratic = std::max(energy(image), 0.0);
  if (is_fused()) value.linear = image.leftCols(b_.size()).cwiseProduct(cost_).sum();
  value.image = std::move(image);
  return value;
}

UnbalancedTerms OpenMatrixProblem::terms_of(DenseMatrix const& image) const {
  auto const plan = image.leftCols(b_.size());
  DenseVector const row = plan.rowwise().sum(), column = plan.colwise().sum().transpose();
  DenseVector const log_a = a_.array().log(), log_b = b_.array().log();
  UnbalancedTerms terms{plan.sum(), alpha_ * energy(image), 0};
  if (is_fused()) terms.value += (1 - alpha_) * plan.cwiseProduct(cost_).sum();
  terms.divergence = penalty_a_ * relative_entropy(row, a_) + penalty_b_ * relative_entropy(column, b_);
  for (std::int64_t i = 0; i < plan.rows() && eps_ > 0; ++i)
    for (std::int64_t j = 0; j < plan.cols(); ++j)
      if (plan(i, j) > 0) terms.divergence += eps_ * plan(i, j) * (std::log(plan(i, j)) - log_a(i) - log_b(j));
  return terms;
}

void OpenMatrixProblem::make_feasible(DenseMatrix& plan) const {
  if (is_unbalanced()) return;
  DenseVector row = plan.rowwise().sum();
  if (marginals_ == GromovMarginals::semirelaxed) {
    plan = plan * b_.unaryExpr([](double b) { return b > 0 ? 1.0 : 0.0; }).asDiagonal();
    row = plan.rowwise().sum();
    for (std::int64_t i = 0; i < plan.rows(); ++i) {
      if (row(i) > 0)
        plan.row(i) *= a_(i) / row(i);
      else
        plan.row(i) = a_(i) / total_ * b_.transpose();
    }
    return;
  }
  plan = a_.binaryExpr(row, factor_to).asDiagonal() * plan;
  plan = plan * b_.binaryExpr(plan.colwise().sum().transpose(), factor_to).asDiagonal();
  double const mass = plan.sum();
  if (mass >= total_) {
    plan *= total_ / mass;
    return;
  }
  DenseVector const lack = (a_ - plan.rowwise().sum()).cwiseMax(0.0);
  DenseVector const short_of = (b_ - plan.colwise().sum().transpose()).cwiseMax(0.0);
  plan += (total_ - mass) / (lack.sum() * short_of.sum()) * lack * short_of.transpose();
}

void OpenMatrixProblem::gradients(Gromov const& result, GromovGradients const& out) const {
  refuse_weights(out);
  MatrixProblem::gradients(result, out);
}

}  // namespace monge
