#include "core/evaluation.hpp"

#include <cmath>

#include "core/compensated_sum.hpp"

namespace monge {
namespace {

struct SideSums {
  double weight, marginal, error, potential_weight, potential_excess, potential_marginal, shift_marginal;
};

SideSums sums_of(SideValues const& side) {
  // The gap is a difference of close numbers, and offsets of the clouds make terms large.
  CompensatedSum weight, marginal, error, potential_weight, potential_excess, potential_marginal, shift_marginal;
  for (std::size_t i = 0; i < side.weight.size(); ++i) {
    double const excess = side.marginal[i] - side.weight[i];
    weight.add(side.weight[i]);
    marginal.add(side.marginal[i]);
    error.add(std::abs(excess));
    // The potential in the user's gauge, in two parts: the shift can be many orders larger than the rest.
    potential_weight.add(side.potential[i] * side.weight[i]);
    potential_weight.add(side.shift[i] * side.weight[i]);
    potential_excess.add(side.potential[i] * excess);
    potential_excess.add(side.shift[i] * excess);
    potential_marginal.add(side.potential[i] * side.marginal[i]);
    shift_marginal.add(side.shift[i] * side.marginal[i]);
  }
  return {weight.value(),           marginal.value(),           error.value(),         potential_weight.value(),
          potential_excess.value(), potential_marginal.value(), shift_marginal.value()};
}

}  // namespace

Evaluation evaluate_plan(double eps, SideValues const& rows, SideValues const& columns, double centred_cost) {
  SideSums const a = sums_of(rows);
  SideSums const b = sums_of(columns);
  Evaluation result{};
  result.mass = a.marginal;
  result.row_error = a.error;
  result.column_error = b.error;
  result.transport_cost = centred_cost + a.shift_marginal + b.shift_marginal;
  // sum P log(P / a b^T) = sum P (f + g - C) / eps: the shifts cancel in it, so it is formed without them.
  double const entropy = (a.potential_marginal + b.potential_marginal - centred_cost) / eps;
  double const mass_terms = a.weight * b.weight - result.mass;
  result.primal = result.transport_cost + eps * (entropy + mass_terms);
  result.dual = a.potential_weight + b.potential_weight + eps * mass_terms;
  result.gap = a.potential_excess + b.potential_excess;
  return result;
}

}  // namespace monge
