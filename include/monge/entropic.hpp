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

/// How potentials are found.
enum class Method {
  automatic,  ///< "auto": Sinkhorn, and Newton's method where the observed rate says that it needs fewer passes. Newton
              ///< needs both marginals as constraints, schedule overrelaxed and precision auto or float64: without
              ///< these it is Sinkhorn.
  sinkhorn,   ///< Sweeps alone, in the order of `schedule`.
  newton,     ///< Annealed, damped Newton on the potential g, in float64 (docs/math.md, section 15).
  splr,       ///< The sparse-plus-low-rank quasi-Newton method, in float64 (cuRegOT; docs/math.md, section 16).
};
constexpr auto names_of(Method) {
  using enum Method;
  return std::to_array<Named<Method>>(
      {{automatic, "auto"}, {sinkhorn, "sinkhorn"}, {newton, "newton"}, {splr, "splr"}});
}

/// What the tolerance is on.
enum class Criterion {
  l1,        ///< Report::marginal_error, relative to the larger of the totals of a and b.
  gradient,  ///< Report::gradient_norm, relative to the same.
  gap,       ///< The report's |gap|, relative to its |primal| or, if that is larger, to eps times the mass, where the
             ///< relative marginal error is at most the root of the tolerance: of a plan that is far from its marginals
             ///< the gap says nothing.
};
constexpr auto names_of(Criterion) {
  using enum Criterion;
  return std::to_array<Named<Criterion>>({{l1, "l1"}, {gradient, "gradient"}, {gap, "gap"}});
}

/// Of Method::splr.
struct SplrOptions {
  /// At most this share of the pairs is in the sparse part, <= 1; 0: 10 / min(n, m). It begins with a tenth of that.
  double density = 0;
  /// The most that is added to the diagonal of the matrix, in units of mass over cost. > 0.
  double shift = 1e-3;
  int pattern_reuse = 30;    ///< Iterations that choose no pairs of their own but one; 1: each does. >= 1.
  int candidate_sweeps = 3;  ///< Of Sinkhorn, whenever pairs are chosen; 0: none.
};

/// Options of solve(). A member that is not set keeps a default that is right for someone who sets nothing but eps.
struct SolveOptions {
  double eps = 0;           ///< Regularisation, in the units of C. One of eps and eps_relative is given, > 0; 0: not.
  double eps_relative = 0;  ///< eps as a share of the mean cost (Report::mean_cost), which must be positive.
  Method method = Method::automatic;
  double tolerance = 1e-6;              ///< On what `criterion` says. 0: run `iterations` sweeps.
  Criterion criterion = Criterion::l1;  ///< Others than l1 need the certificate.
  int iterations = 10000;  ///< Cap on the sweeps, annealing included; one sweep updates f and g. Of Newton's method
                           ///< each pass over all pairs counts as one; an iteration of splr that has begun ends. >= 1.
  Schedule schedule = Schedule::overrelaxed;
  /// rho_a and rho_b > 0, in the units of C; infinity: P 1 = a, P^T 1 = b. Far below eps they lose digits: f is rounded
  /// to 2^-53 of C, and the marginal is a exp(-f / rho_a).
  double penalty_a = std::numeric_limits<double>::infinity();
  double penalty_b = std::numeric_limits<double>::infinity();
  double annealing = 0.25;  ///< Factor of the eps ladder, in (0, 1]; 1: no ladder. A solve begins with 10 sweeps at
                            ///< eps, from f and g or from 0 (for points: of the centred clouds); if they leave a tenth
                            ///< of the mass in the wrong place, eps comes down from the squared diameter, by this
                            ///< factor as soon as 1e-4 of the mass or less is out of place (docs/math.md, section 6;
                            ///< where Newton's method may follow, sooner). splr has no ladder.
  Precision precision = Precision::automatic;
  int check_every = 10;     ///< At most so many sweeps between checks; the host waits for the device only there. Fewer
                            ///< at the start and close to the tolerance, unless that is 0. >= 1.
  bool certificate = true;  ///< Evaluate marginal error, values and gap in float64 from the returned potentials.
  double cache_bytes = 1073741824;  ///< Memory for what is quicker to read than to make again: scores between sweeps
                                    ///< (CPU), and of the plan between its products (CPU: scores, CUDA: entries). >= 0;
                                    ///< 0: none is kept.
  SplrOptions splr = {};

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
  visit(Field{"method", OneOf<Method>(), "how potentials are found; auto is sinkhorn, and newton where that pays"},
        options.method);
  visit(Field{"tolerance", kNotNegative, "stop when what the criterion says is at most this; 0 runs all iterations"},
        options.tolerance);
  visit(
      Field{"criterion", OneOf<Criterion>(),
            "what the tolerance is on: the L1 marginal error and the L2 gradient of the dual, of the mass, or the gap, "
            "of the primal value (or of eps times the mass, if that is more)"},
      options.criterion);
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
  visit(Field{"splr_density", Bounds{.least = 0, .most = 1, .least_open = false, .most_open = false},
              "of method splr: the share of the pairs in the sparse part, at most; 0 is 10 / min(n, m)"},
        options.splr.density);
  visit(Field{"splr_shift", kPositive, "the most that is added to its diagonal, of mass over cost"},
        options.splr.shift);
  visit(Field{"splr_reuse", at_least(1), "iterations that keep the pairs of the sparse part; 1: none does"},
        options.splr.pattern_reuse);
  visit(Field{"splr_candidates", at_least(0), "sweeps whose end may be the next iterate, whenever pairs are chosen"},
        options.splr.candidate_sweeps);
}

/// Solves the problem at the head of this file; a (n) and b (m) are non-negative with positive totals, which are equal
/// where both penalties are infinite: to 1e-6 relative and to half of the tolerance, or to 1e-6 alone where a or b is
/// float32. What is left between them goes into b, which is scaled to the total of a. An empty a or b means uniform
/// with total 1 (with the total of the other, if that one is given). Throws Error (invalid_argument, unsupported,
/// out_of_memory, device_failure). Not converging is a Status.
Plan solve(Context const& context, Geometry const& geometry, VectorView a, VectorView b, SolveOptions const& options);
inline Plan solve(Context const& context, Geometry const& geometry, SolveOptions const& options) {
  return solve(context, geometry, {}, {}, options);
}

}  // namespace monge
