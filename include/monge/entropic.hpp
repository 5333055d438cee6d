// Entropic optimal transport, balanced or not:
//   min_{P >= 0}  <C, P> + eps KL(P | a b^T) + rho_a KL(P 1 | a) + rho_b KL(P^T 1 | b),
//   KL(P | Q) = sum P log(P / Q) - P + Q,      P_ij = a_i b_j exp((f_i + g_j - C_ij) / eps).
// An infinite rho is a constraint, P 1 = a or P^T 1 = b; the totals of a and b may differ unless both are infinite.
// Symbols as in docs/math.md. Sources: FlashSinkhorn, eq. 1-5 and 10-11; Sejourne, Vialard, Peyre 2022.
#pragma once
#include <functional>
#include <limits>

#include <monge/context.hpp>
#include <monge/geometry.hpp>
#include <monge/options.hpp>
#include <monge/plan.hpp>
#include <monge/report.hpp>

namespace monge {

/// The order of the updates within a sweep.
enum class Schedule {
  overrelaxed,  ///< Alternating with safeguarded adaptive overrelaxation: the default, the fastest to a tolerance.
  alternating,  ///< f from g, then g from the new f (eq. 2-3), nothing else.
  symmetric,    ///< f and g from the old pair, averaged with it (eq. 4-5).
};
constexpr auto names_of(Schedule) {
  using enum Schedule;
  return std::to_array<Named<Schedule>>(
      {{overrelaxed, "overrelaxed"}, {alternating, "alternating"}, {symmetric, "symmetric"}});
}

/// Options of solve(). A member that is not set keeps a default that is right for someone who sets nothing but eps.
struct SolveOptions {
  double eps = 0;           ///< Regularisation, in the units of C. One of eps and eps_relative is given, > 0; 0: not.
  double eps_relative = 0;  ///< eps as a share of the mean cost (Report::mean_cost), which must be positive.
  double tolerance = 1e-6;  ///< On Report::marginal_error, relative to the larger of the totals of a and b. 0: run
                            ///< `iterations` sweeps.
  int iterations = 10000;   ///< Cap on the sweeps, annealing included; one sweep updates f and g. >= 1.
  Schedule schedule = Schedule::overrelaxed;
  /// rho_a and rho_b > 0, in the units of C; infinity: P 1 = a, P^T 1 = b. Far below eps they lose digits: f is rounded
  /// to 2^-53 of C, and the marginal is a exp(-f / rho_a).
  double penalty_a = std::numeric_limits<double>::infinity();
  double penalty_b = std::numeric_limits<double>::infinity();
  double annealing = 0.25;  ///< Factor of the eps ladder, in (0, 1]; 1: no ladder. A solve begins with 10 sweeps at
                            ///< eps, from f and g or from 0 (for points: of the centred clouds); if they leave a tenth
                            ///< of the mass in the wrong place, eps comes down from the squared diameter, by this
                            ///< factor as soon as 1e-4 of the mass or less is out of place.
  Precision precision = Precision::automatic;
  int check_every = 10;     ///< At most so many sweeps between checks; the host waits for the device only there. >= 1.
  bool certificate = true;  ///< Evaluate marginal error, values and gap in float64 from the returned potentials.
  double cache_bytes = 1073741824;  ///< Memory for what is quicker to read than to make again: scores between sweeps
                                    ///< (CPU), and of the plan between its products (CPU: scores, CUDA: entries). >= 0;
                                    ///< 0: none is kept.

  VectorView f = {};                                   ///< Warm start (n) in units of C, with g. Finite where a_i > 0.
  VectorView g = {};                                   ///< Warm start (m).
  std::function<bool(Progress const&)> progress = {};  ///< Called at each check; return false to stop.
};

/// The list of the fields that a name and a value can set: visit(Field, member) for each, in this order. A constraint
/// is of a value that is given: of eps and eps_relative one stays 0.
template <class Options, class Visitor>
void visit_solve_options(Options& options, Visitor&& visit) {
  visit(Field{"eps", kPositive, "regularisation, in the units of the cost"}, options.eps);
  visit(Field{"eps_relative", kPositive, "instead of eps: a share of the mean cost; not for euclidean and p-norm"},
        options.eps_relative);
  visit(Field{"tolerance", kNotNegative,
              "stop when the L1 marginal error is at most this times the mass; 0 runs all iterations"},
        options.tolerance);
  visit(Field{"iterations", at_least(1), "at most this many sweeps, annealing included"}, options.iterations);
  visit(Field{"schedule", OneOf<Schedule>(), "order of the updates in a sweep"}, options.schedule);
  visit(Field{"penalty_a", kPositiveOrInfinite, "weight of KL(P 1 | a), in the units of the cost; inf: P 1 is a"},
        options.penalty_a);
  visit(Field{"penalty_b", kPositiveOrInfinite, "weight of KL(P^T 1 | b); inf: P^T 1 is b"}, options.penalty_b);
  visit(Field{"annealing", Bounds{.least = 0, .most = 1, .most_open = false},
              "factor of the eps ladder that hard problems come down; 1 is none"},
        options.annealing);
  visit(Field{"precision", OneOf<Precision>(), "arithmetic of the sweeps; tf32 is for CUDA only"}, options.precision);
  visit(Field{"check_every", at_least(1), "at most so many sweeps between checks of the error"}, options.check_every);
  visit(Field{"certificate", OneOf<bool>(), "evaluate error, values and gap in float64 at the end"},
        options.certificate);
  visit(Field{"cache_bytes", at_least(0), "memory for scores and entries of the plan that are kept; 0 keeps none"},
        options.cache_bytes);
}

/// Solves the problem at the head of this file; a (n) and b (m) are non-negative with positive totals, which are equal
/// where both penalties are infinite. An empty a or b means uniform with total 1 (with the total of the other, if that
/// one is given). Throws Error (invalid_argument, unsupported, out_of_memory, device_failure). Not converging is a
/// Status.
Plan solve(Context const& context, Geometry const& geometry, VectorView a, VectorView b, SolveOptions const& options);
inline Plan solve(Context const& context, Geometry const& geometry, SolveOptions const& options) {
  return solve(context, geometry, {}, {}, options);
}

}  // namespace monge
