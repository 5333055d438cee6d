// The values of the certificate from per-point vectors, in float64, for every backend alike.
#pragma once
#include <cmath>
#include <span>

#include "core/compensated_sum.hpp"

namespace monge {

/// One pass over the pairs at the current potentials, in the operator's arithmetic with float64 sums.
struct Evaluation {
  double mass;            // sum P
  double row_error;       // |P 1 - a|_1
  double column_error;    // |P^T 1 - b|_1
  double transport_cost;  // <C, P>
  double primal;
  double dual;
  double gap;  // <f, P 1 - a> + <g, P^T 1 - b>, which equals primal - dual
};

/// Per point of one side, all float64 on the host, potentials and shifts in units of C:
///   weight a_i, marginal r_i = sum_j P_ij, potential f'_i and shift s_i with f_i = f'_i + s_i (units of C).
struct SideValues {
  std::span<double const> weight;
  std::span<double const> marginal;
  std::span<double const> potential;
  std::span<double const> shift;
};

/// What the values take of one side: sums over its points.
struct SideSums {
  CompensatedSum weight, marginal, error, potential_weight, potential_excess, potential_marginal, shift_marginal;

  MONGE_HOST_DEVICE void add(double a, double r, double f, double shift) {
    double const excess = r - a;
    weight.add(a);
    marginal.add(r);
    error.add(std::fabs(excess));
    // The potential in the user's gauge, in two parts: the shift can be many orders larger than the rest.
    potential_weight.add(f * a);
    potential_weight.add(shift * a);
    potential_excess.add(f * excess);
    potential_excess.add(shift * excess);
    potential_marginal.add(f * r);
    shift_marginal.add(shift * r);
  }
  MONGE_HOST_DEVICE void add(SideSums const& other) {
    weight.add(other.weight);
    marginal.add(other.marginal);
    error.add(other.error);
    potential_weight.add(other.potential_weight);
    potential_excess.add(other.potential_excess);
    potential_marginal.add(other.potential_marginal);
    shift_marginal.add(other.shift_marginal);
  }
};

/// `centred_cost` is <C', P> with C_ij = C'_ij + rows.shift_i + columns.shift_j. Sums are compensated: the gap is a
/// difference of close numbers, and offsets of the clouds make terms large.
Evaluation evaluate_plan(double eps, SideSums const& rows, SideSums const& columns, double centred_cost);
Evaluation evaluate_plan(double eps, SideValues const& rows, SideValues const& columns, double centred_cost);

}  // namespace monge
