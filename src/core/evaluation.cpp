#include "core/evaluation.hpp"

#include <algorithm>
#include <cmath>

namespace monge {
namespace {

SideSums sums_of(SideValues const& side) {
  SideSums sums;
  for (std::size_t i = 0; i < side.weight.size(); ++i)
    sums.add(side.weight[i], side.marginal[i], side.potential[i], side.shift[i], side.penalty,
             side.left_out.empty() ? 0 : side.left_out[i]);
  return sums;
}

double sum_of(std::span<double const> values) {
  CompensatedSum sum;
  for (double const value : values) sum.add(value);
  return sum.value();
}

}  // namespace

Evaluation evaluate_plan(double eps, SideValues const& rows, SideValues const& columns, double centred_cost) {
  return evaluate_plan(eps, sums_of(rows), sums_of(columns), centred_cost,
                       std::min(sum_of(rows.left_out), sum_of(columns.left_out)));
}

Evaluation evaluate_plan(double eps, SideSums const& a, SideSums const& b, double centred_cost, double left_out) {
  Evaluation result{};
  result.mass = a.marginal.value();
  result.row_error = a.error.value();
  result.column_error = b.error.value();
  double const square = a.square.value() + b.square.value();
  // Squares that underflow leave the L1 norm, which is larger.
  result.gradient_norm = square > 0x1p-900 ? std::sqrt(square) : result.row_error + result.column_error;
  result.transport_cost = centred_cost + a.shift_marginal.value() + b.shift_marginal.value();
  // sum P log(P / a b^T) = sum P (f + g - C) / eps: the shifts cancel in it, so it is formed without them.
  double const terms = a.potential_marginal.value() + b.potential_marginal.value() - centred_cost;
  double const mass_terms = a.weight.value() * b.weight.value() - result.mass;
  result.entropy = terms + eps * mass_terms;
  result.penalty = a.penalty.value() + b.penalty.value();
  result.primal = result.transport_cost + result.entropy + result.penalty;
  result.tilt = terms - b.weight.value() * a.potential_weight.value() - a.weight.value() * b.potential_weight.value();
  result.dual_of_rows = a.dual.value();
  result.dual_of_columns = b.dual.value();
  result.dual = result.dual_of_rows + result.dual_of_columns + eps * mass_terms;
  result.gap = a.gap.value() + b.gap.value();
  if (left_out > 0) {
    result.left_out = left_out;
    result.dual -= eps * left_out;
    result.gap += eps * left_out;
  }
  return result;
}

double restore_digits(Evaluation& evaluation, double eps, double mean_cost, double cost_bound, double product_mass,
                      double forbidden_mass) {
  double const scale = eps * product_mass, size = cost_bound + std::abs(mean_cost);
  bool const is_far = size > 0 && eps > 0x1p50 * size;
  double both = evaluation.tilt + mean_cost * product_mass;
  if (is_far) both = std::clamp(both, 0.0, 4 * (cost_bound / eps) * cost_bound * product_mass);
  double const mean_square = std::max(both, 0.0) / scale;  // The mean of z^2.
  double const rounding = 0x1p-50 * product_mass, loss = eps * std::min(forbidden_mass, rounding);
  if (!(forbidden_mass <= rounding)) return loss;
  if (!(mean_square * std::sqrt(mean_square) <= 0x1p-50)) return loss;
  if (!(std::abs(both / 2 - evaluation.entropy) <= 0x1p-46 * scale)) return loss;
  evaluation.entropy = both / 2;
  if (is_far) {
    double const most = 4 * size * (evaluation.row_error + evaluation.column_error);
    evaluation.gap = std::clamp(evaluation.gap, -most, most);
  }
  evaluation.primal = evaluation.transport_cost + evaluation.entropy + evaluation.penalty;
  evaluation.dual = evaluation.primal - evaluation.gap;
  return loss;
}

}  // namespace monge
