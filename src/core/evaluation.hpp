// The values of the certificate from per-point vectors, in float64, for every backend alike.
#pragma once
#include <span>

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

/// `centred_cost` is <C', P> with C_ij = C'_ij + rows.shift_i + columns.shift_j. Sums are compensated.
Evaluation evaluate_plan(double eps, SideValues const& rows, SideValues const& columns, double centred_cost);

}  // namespace monge
