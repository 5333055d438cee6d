// Updates of potentials: to the best value under the penalty of their side, beyond it where overrelaxation is safe, and
// by a translation (f + t, g - t). Shared by the CPU code and the CUDA kernels (docs/math.md, sections 5 and 10).
#pragma once
#include <cmath>

#include "core/host_device.hpp"

namespace monge {

/// The factor of the step from f to f*, the best value of one row: omega, or 1 where omega is not safe.
/// u = (f* - f) / eps, and v = (f* - f) / rho, which is 0 for a constraint.
///
/// Moving a row's potential by omega (f* - f) raises the dual by eps a exp(-f* / rho) q(omega),
///   q(omega) = rho / eps (exp(v) - exp((1 - omega) v)) - exp((omega - 1) u) + exp(-u),
/// whose first term is omega u for a constraint; the plain step is the maximum. Near the optimum q(omega) = omega
/// (2 - omega) q(1). A row takes the factor omega only if it gains at least half of that. Every sweep therefore raises
/// the dual, by at least a fixed fraction of a plain sweep's gain: convergence does not depend on omega. The rows are
/// independent given the other potential, so the test needs no sum over rows. After Thibault et al. (2021), who take
/// one omega for all rows and a global test, for constraints.
MONGE_HOST_DEVICE inline double safe_relaxation(double u, double v, double omega) {
  if (omega == 1.0) return 1.0;
  // For so small a step the quadratic expansion holds to 1e-4, and the two sides would cancel.
  if (std::fabs(u + v) < 1e-4) return omega;
  double const rho_over_eps = v == 0 ? 0 : u / v;
  double const decay = std::expm1(-u);
  double const plain = (v == 0 ? u : rho_over_eps * std::expm1(v)) + decay;
  double const gain = v == 0 ? omega * u : rho_over_eps * (std::expm1(v) - std::expm1((1.0 - omega) * v));
  double const relaxed = gain - std::expm1((omega - 1.0) * u) + decay;
  return relaxed >= 0.5 * omega * (2.0 - omega) * plain ? omega : 1.0;
}

/// The update of the points of one side in a sweep. Potentials are those of the operator's gauge, f = f' + shift;
/// `plus` is f'+, the soft c-transform of the other side's potential.
struct UpdateRule {
  double eps;
  double penalty;  // rho; infinity for a constraint.
  double relaxation = 1;
  bool symmetric = false;

  MONGE_HOST_DEVICE bool is_constraint() const { return std::isinf(penalty); }
  /// f'*: f* = f+ rho / (rho + eps) holds for the user's potentials, so the shift is damped with the rest.
  MONGE_HOST_DEVICE double best(double plus, double shift) const {
    if (is_constraint()) return plus;
    return plus / (1 + eps / penalty) - shift * (eps / (penalty + eps));
  }
  MONGE_HOST_DEVICE double next(double old, double plus, double shift) const {
    double const target = best(plus, shift), step = target - old;
    if (symmetric) return 0.5 * (old + target);
    double const factor = safe_relaxation(step / eps, is_constraint() ? 0 : step / penalty, relaxation);
    return factor == 1.0 ? target : old + factor * step;
  }
  /// |r_i / a_i - exp(-f_i / rho)| of the old f_i: the marginal's distance from its value at the best f_i.
  MONGE_HOST_DEVICE double error(double old, double plus, double shift) const {
    double const marginal = (old - plus) / eps;  // log(r_i / a_i), beside the logarithm of its target.
    if (is_constraint()) return std::fabs(std::expm1(marginal));
    double const wanted = -(old + shift) / penalty;
    return -std::exp(std::fmax(marginal, wanted)) * std::expm1(-std::fabs(marginal - wanted));
  }
};

/// Sums over points of the errors of their marginals, and of the squares.
struct ErrorSums {
  double absolute = 0, square = 0;

  MONGE_HOST_DEVICE void add(double error) { join({error, error * error}); }
  MONGE_HOST_DEVICE void join(ErrorSums const& part) {
    absolute += part.absolute;
    square += part.square;
  }
};

/// log(sum_i a_i exp(-f_i / rho) / sum a) = -least / rho + logarithm, where least is the smallest f_i of a point of
/// positive weight; both are 0 for a constraint. No f / rho overflows, or is lost beside a 1.
struct LogMean {
  double least, logarithm;
};
/// Sums over points, or over parts that are joined, from which a LogMean is made. No potential may lie below `least`.
struct LogMeanSums {
  double least;
  double excess = 0;  // sum_i a_i (exp((least - f_i) / rho) - 1)
  double sum = 0;     // sum_i a_i exp((least - f_i) / rho)

  MONGE_HOST_DEVICE void add(double weight, double potential, double penalty) {
    join({potential, 0.0, weight}, penalty);
  }
  MONGE_HOST_DEVICE void join(LogMeanSums const& part, double penalty) {
    double const change = std::expm1((least - part.least) / penalty);
    excess += part.excess + change * part.sum;
    sum += (1 + change) * part.sum;
  }
  MONGE_HOST_DEVICE LogMean over(double total) const {
    return {least, excess > -0.5 * total ? std::log1p(excess / total) : std::log(sum / total)};
  }
};

/// The t for which the dual at (f + t, g - t) is largest; the plan is the same for all t:
///   t = rho_a rho_b / (rho_a + rho_b) log(sum_i a_i exp(-f_i / rho_a) / sum_j b_j exp(-g_j / rho_b)).
/// At least one penalty is finite. `log_mass_ratio` is log(sum a / sum b). Source: Sejourne, Vialard, Peyre, *Faster
/// Unbalanced Optimal Transport: Translation invariant Sinkhorn and 1-D Frank-Wolfe* (2022).
MONGE_HOST_DEVICE inline double best_translation(double penalty_a, double penalty_b, double log_mass_ratio,
                                                 LogMean const& a, LogMean const& b) {
  double const of_a = 1 / (1 + penalty_a / penalty_b), of_b = 1 / (1 + penalty_b / penalty_a);
  return (log_mass_ratio + a.logarithm - b.logarithm) / (1 / penalty_a + 1 / penalty_b) - of_a * a.least +
         of_b * b.least;
}

/// An argument of best_translation(). Totals that agree to rounding count as equal: a large rho would amplify their
/// difference.
inline double log_mass_ratio(double total_a, double total_b) {
  return std::fabs(total_a - total_b) <= 1e-12 * total_a ? 0.0 : std::log(total_a / total_b);
}

}  // namespace monge
