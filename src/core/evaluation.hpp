// The values of the certificate from per-point vectors, in float64, for every backend alike.
#pragma once
#include <cmath>
#include <limits>
#include <span>

#include "core/compensated_sum.hpp"

namespace monge {

/// One pass over the pairs at the current potentials, in the operator's arithmetic with float64 sums.
struct Evaluation {
  double mass;            // sum P
  double row_error;       // |P 1 - a exp(-f / rho_a)|_1, which is |P 1 - a|_1 for a constraint
  double column_error;    // |P^T 1 - b exp(-g / rho_b)|_1
  double gradient_norm;   // The 2-norm of both sides' errors
  double transport_cost;  // <C, P>
  double penalty;         // The penalties of both marginals; 0 for constraints.
  double entropy;         // eps KL(P | a b^T)
  double tilt;            // sum_ij (P_ij - a_i b_j) (f_i + g_j) - <C, P>
  double primal;          // transport_cost + entropy + penalty
  double dual;
  double dual_of_rows;     // <a, f>, or <a, rho_a (1 - exp(-f / rho_a))>
  double dual_of_columns;  // The same of b and g
  double gap;              // primal - dual, from sums of small terms: SideSums::gap of both sides
  /// An upper bound of the mass that the sums of the pass lack. Errors, dual and gap are bounds that allow for it;
  /// mass, costs and entropy do not: they follow from the sums as they are.
  double left_out = 0;
};

/// Per point of one side, all float64 on the host, potentials and shifts in units of C:
///   weight a_i, marginal r_i = sum_j P_ij, potential f'_i and shift s_i with f_i = f'_i + s_i (units of C); the
///   penalty rho is the side's.
struct SideValues {
  std::span<double const> weight;
  std::span<double const> marginal;
  std::span<double const> potential;
  std::span<double const> shift;
  double penalty = std::numeric_limits<double>::infinity();
  std::span<double const> left_out = {};  // Upper bounds of what the marginal lacks; empty: nothing.
};

/// r log(r / target) - r + target with log_ratio = log(r / target), without cancellation where log_ratio is small.
MONGE_HOST_DEVICE inline double relative_entropy(double r, double target, double log_ratio) {
  double const x = log_ratio;
  if (r == 0) return target;
  if (std::fabs(x) > 1) return r * (x - 1) + target;
  if (std::fabs(x) > 1e-3) return target * ((x - 1) * std::expm1(x) + x);
  return target * x * x * (1.0 / 2 + x * (1.0 / 3 + x * (1.0 / 8 + x * (1.0 / 30 + x / 144))));
}

/// Sums over the points of one side, from which the values of an Evaluation are made.
struct SideSums {
  CompensatedSum weight, marginal, error, square;
  CompensatedSum penalty;  // rho KL(r | a); 0 for a constraint.
  CompensatedSum dual;     // <a, f>, or <a, rho (1 - exp(-f / rho))>
  CompensatedSum gap;      // <f, r - a>, or rho KL(r | a exp(-f / rho))
  CompensatedSum potential_marginal, shift_marginal;
  CompensatedSum potential_weight;  // <a, f>

  /// The largest size of a number from x to x + lack.
  MONGE_HOST_DEVICE static double largest(double x, double lack) {
    return lack > 0 ? std::fmax(std::fabs(x), std::fabs(x + lack)) : std::fabs(x);
  }
  /// The marginal is r or more, by up to `lack`.
  MONGE_HOST_DEVICE void add(double a, double r, double f, double shift, double rho, double lack = 0) {
    if (a == 0) return;  // A point of weight 0 has no mass, and its potential may be infinite.
    weight.add(a);
    marginal.add(r);
    potential_marginal.add(f * r);
    shift_marginal.add(shift * r);
    // The potential in the user's gauge, in two parts: the shift can be many orders larger than the rest.
    potential_weight.add(f * a);
    potential_weight.add(shift * a);
    if (std::isinf(rho)) {
      double const excess = r - a, most = largest(excess, lack);
      error.add(most);
      square.add(most * most);
      dual.add(f * a);
      dual.add(shift * a);
      gap.add(f * excess);
      gap.add(shift * excess);
      return;
    }
    double const potential = f + shift, slope = potential / rho, target = a * std::exp(-slope);
    double const log_ratio = r > 0 ? std::log(r / a) : 0, off = log_ratio + slope;  // log(r / target)
    double const most = largest(r - target, lack);
    error.add(most);
    square.add(most * most);
    penalty.add(rho * relative_entropy(r, a, log_ratio));
    dual.add(-rho * a * std::expm1(-slope));
    // Far from the target slope may overflow: the same formula with rho multiplied out.
    gap.add(r > 0 && std::fabs(off) <= 1 ? rho * relative_entropy(r, target, off)
                                         : r * (rho * (log_ratio - 1) + potential) + rho * target);
  }
  MONGE_HOST_DEVICE void add(SideSums const& other) {
    weight.add(other.weight);
    marginal.add(other.marginal);
    error.add(other.error);
    square.add(other.square);
    penalty.add(other.penalty);
    dual.add(other.dual);
    gap.add(other.gap);
    potential_marginal.add(other.potential_marginal);
    shift_marginal.add(other.shift_marginal);
    potential_weight.add(other.potential_weight);
  }
};

/// `centred_cost` is <C', P> with C_ij = C'_ij + rows.shift_i + columns.shift_j. Sums are compensated: the gap is a
/// difference of close numbers, and offsets of the clouds make terms large.
/// `left_out` is Evaluation::left_out.
Evaluation evaluate_plan(double eps, SideSums const& rows, SideSums const& columns, double centred_cost,
                         double left_out = 0);
Evaluation evaluate_plan(double eps, SideValues const& rows, SideValues const& columns, double centred_cost);

/// Gives the entropy and both values their digits where eps is far above the costs: eps KL(P | a b^T) is then a small
/// difference of numbers near eps `product_mass`, which is sum a sum b. `mean_cost` is <C, a b^T> / (sum a sum b), or
/// NaN; `cost_bound` is CostSize::centred_bound, or infinity if the problem is unbalanced; `forbidden_mass` is
/// sum_ij a_i b_j over the forbidden pairs. With z_ij = log(P_ij / (a_i b_j)),
///   KL(P | a b^T)                                  = sum_ij a_i b_j (z_ij^2 / 2 + z_ij^3 / 3 + ...)
///   (KL(P | a b^T) + KL(a b^T | P)) / 2            = sum_ij a_i b_j (z_ij^2 / 2 + z_ij^3 / 4 + ...)
///   eps (KL(P | a b^T) + KL(a b^T | P))            = tilt + mean_cost product_mass
/// The terms of the last line have the size of the costs. Half of it replaces the entropy where the difference of the
/// series is below the rounding of the entropy. A forbidden pair adds about eps a_i b_j to the entropy and breaks the
/// last line, so nothing is replaced where these terms are above the rounding. Where eps is 2^50 times the costs, the
/// rounding of potentials, eps 2^-53, is above the costs, and two bounds hold the values: |z_ij| <= 2 cost_bound / eps,
/// so the last line is at most 4 cost_bound^2 / eps per unit of mass; and the same plan has potentials of the size of
/// the costs, so the gap is at most this size times the errors of the marginals. Returns the loss of the values beside
/// forbidden pairs: about the smaller of these terms and the rounding.
double restore_digits(Evaluation& evaluation, double eps, double mean_cost, double cost_bound, double product_mass,
                      double forbidden_mass);

}  // namespace monge
