// Entropic optimal transport, balanced or not:
//   min_{P >= 0}  <C, P> + eps KL(P | a b^T) + rho_a KL(P 1 | a) + rho_b KL(P^T 1 | b),
//   KL(P | Q) = sum P log(P / Q) - P + Q,      P_ij = a_i b_j exp((f_i + g_j - C_ij) / eps).
// An infinite rho is a constraint, P 1 = a or P^T 1 = b; the totals of a and b may differ unless both are infinite.
// Symbols as in docs/math.md. Sources: FlashSinkhorn, eq. 1-5 and 10-11; Sejourne, Vialard, Peyre 2022.
#pragma once
#include <functional>
#include <limits>

#include <monge/context.hpp>
#include <monge/export.hpp>
#include <monge/geometry.hpp>
#include <monge/options.hpp>
#include <monge/plan.hpp>
#include <monge/report.hpp>

namespace monge {

/// The order of the updates within a sweep.
enum class Schedule {
  overrelaxed,  ///< Alternating; Anderson's mixing, then adaptive overrelaxation: the default, the fastest.
  alternating,  ///< f from g, then g from the new f (eq. 2-3), nothing else.
  symmetric,    ///< f and g from the old pair, averaged with it (eq. 4-5).
};
constexpr auto names_of(Schedule) {
  using enum Schedule;
  return std::to_array<Named<Schedule>>(
      {{overrelaxed, "overrelaxed"}, {alternating, "alternating"}, {symmetric, "symmetric"}});
}

/// The method by which potentials are found.
enum class Method {
  automatic,   ///< "auto": Sinkhorn, then Newton's method where the observed rate predicts that it needs fewer passes.
               ///< Newton's method needs schedule overrelaxed and precision auto or float64; otherwise Sinkhorn alone.
               ///< For many points in up to 3 dimensions it is `multiscale` (docs/guide.md).
  sinkhorn,    ///< Sweeps alone, by `schedule`.
  newton,      ///< Annealed, damped Newton on the potential g, in float64 (docs/math.md, section 15).
  splr,        ///< The sparse-plus-low-rank quasi-Newton method, in float64 (cuRegOT; docs/math.md, section 16). Both
               ///< marginals are constraints.
  multiscale,  ///< As `automatic`, from coarse clouds to fine ones, by passes that leave out pairs without mass
               ///< (docs/math.md, section 20). For squared distances of points, without ranks; on a CUDA device
               ///< with up to 8 dimensions and classes of labels together.
};
constexpr auto names_of(Method) {
  using enum Method;
  return std::to_array<Named<Method>>(
      {{automatic, "auto"}, {sinkhorn, "sinkhorn"}, {newton, "newton"}, {splr, "splr"}, {multiscale, "multiscale"}});
}

/// The quantity that the tolerance bounds.
enum class Criterion {
  l1,        ///< Report::marginal_error, relative to the larger of the totals of a and b or, with a penalty, to the
             ///< mass of the plan where it is smaller.
  gradient,  ///< Report::gradient_norm, relative to the same mass.
  gap,       ///< Report::gap, relative to the larger of Report::primal and eps times the mass, in absolute values. The
             ///< relative marginal error must also be at most the square root of the tolerance, since the gap has no
             ///< meaning far from the marginals.
};
constexpr auto names_of(Criterion) {
  using enum Criterion;
  return std::to_array<Named<Criterion>>({{l1, "l1"}, {gradient, "gradient"}, {gap, "gap"}});
}

/// Options of Method::splr.
struct SplrOptions {
  /// Largest fraction of the pairs in the sparse part, <= 1; 0: 10 / min(n, m). The first sparse part has four tenths
  /// of this fraction. On the CPU a sparse part whose factor would take longer than two passes is made smaller.
  double density = 0;
  /// Largest number added to the diagonal of the matrix, in units of mass over cost. > 0.
  double shift = 1e-3;
  int pattern_reuse = 30;    ///< Iterations that share one choice of pairs, >= 1.
  int candidate_sweeps = 3;  ///< Sinkhorn sweeps after each choice of pairs; 0: none.
};

/// Options of solve(). By default eps is 5 % of the mean cost.
struct SolveOptions {
  double eps = 0;  ///< Regularisation, in the units of C, > 0. 0: eps_relative sets it.
  /// Where eps is 0: eps as a fraction of the mean cost (Report::mean_cost), which must be positive.
  double eps_relative = 0.05;
  Method method = Method::automatic;
  /// Bound of the quantity of `criterion`. 0: run `iterations` sweeps, iterations of splr, or steps of Newton's method
  /// at eps, and return the last potentials.
  double tolerance = 1e-6;
  Criterion criterion = Criterion::l1;  ///< Criteria other than l1 need the certificate.
  /// Limit of the sweeps, annealing included, >= 1; one sweep updates f and g. In Newton's method each pass over all
  /// pairs counts as one sweep. splr completes an iteration that it has begun. A tolerance of 0 changes the meaning:
  /// see `tolerance`.
  int iterations = 10000;
  Schedule schedule = Schedule::overrelaxed;
  /// rho_a and rho_b > 0, in the units of C; infinity: P 1 = a, P^T 1 = b. Penalties far below eps lose digits: f is
  /// rounded to 2^-53 of C, and the marginal is a exp(-f / rho_a).
  double penalty_a = std::numeric_limits<double>::infinity();
  double penalty_b = std::numeric_limits<double>::infinity();
  /// Factor by which eps falls from one rung of the ladder to the next, in (0, 1]; 1: no ladder. The ladder is for hard
  /// problems. A solve first takes 10 or more sweeps at eps. If they leave more than a tenth of the mass in the wrong
  /// place, it goes on at the squared diameter in place of eps, and descends from there, a rung whenever at most 3e-4
  /// of the mass is out of place. docs/math.md, section 6, has the exceptions. splr has no ladder.
  double annealing = 0.25;
  Precision precision = Precision::automatic;
  /// Largest number of sweeps between checks, >= 1. The host waits for the device only at checks. Checks are more
  /// frequent at the start and near the tolerance, unless the tolerance is 0.
  int check_every = 10;
  bool certificate = true;  ///< Evaluate marginal error, values and gap in float64 from the returned potentials.
  /// Memory for numbers that are faster to read than to compute again: scores between sweeps (CPU), and scores (CPU) or
  /// entries (CUDA) between products of the plan. >= 0; 0: none are kept.
  double cache_bytes = 1073741824;
  SplrOptions splr = {};

  VectorView f = {};                                   ///< Warm start (n) in units of C, with g. Finite where a_i > 0.
  VectorView g = {};                                   ///< Warm start (m).
  std::function<bool(Progress const&)> progress = {};  ///< Called at each check; return false to stop.
};

/// Calls visit(Field, member), in this order, for each field that a name and a value can set. Constraints hold for
/// values that are set: eps may stay 0.
template <class Options, class Visitor>
void visit_solve_options(Options& options, Visitor&& visit) {
  visit(Field{"eps", kPositive, "regularisation, in the units of the cost"}, options.eps);
  visit(Field{"eps_relative", kPositive,
              "eps as a fraction of the mean cost, where eps is not given; takes one pass for euclidean and p-norm"},
        options.eps_relative);
  visit(Field{"method", OneOf<Method>(),
              "how potentials are found; auto is sinkhorn, and newton or multiscale where that pays; multiscale is for "
              "many points in few dimensions"},
        options.method);
  visit(Field{"tolerance", kNotNegative,
              "stop when the quantity of the criterion is at most this; 0 runs all iterations of the method"},
        options.tolerance);
  visit(Field{"criterion", OneOf<Criterion>(),
              "quantity that the tolerance bounds: the L1 marginal error or the L2 gradient of the dual, as fractions "
              "of the mass, or the gap, as a fraction of the primal value (or of eps times the mass, if that is more)"},
        options.criterion);
  visit(Field{"iterations", at_least(1), "at most this many sweeps or other passes, annealing included"},
        options.iterations);
  visit(Field{"schedule", OneOf<Schedule>(), "order of the updates in a sweep"}, options.schedule);
  visit(Field{"penalty_a", kPositiveOrInfinite, "weight of KL(P 1 | a), in the units of the cost; inf: P 1 is a"},
        options.penalty_a);
  visit(Field{"penalty_b", kPositiveOrInfinite, "weight of KL(P^T 1 | b); inf: P^T 1 is b"}, options.penalty_b);
  visit(Field{"annealing", Bounds{.least = 0, .most = 1, .most_open = false},
              "factor by which eps falls on the ladder for hard problems; 1: no ladder"},
        options.annealing);
  visit(Field{"precision", OneOf<Precision>(), "arithmetic of the sweeps; tf32 is for CUDA only"}, options.precision);
  visit(Field{"check_every", at_least(1), "at most this many sweeps between checks of the error"}, options.check_every);
  visit(Field{"certificate", OneOf<bool>(), "evaluate error, values and gap in float64 at the end"},
        options.certificate);
  visit(Field{"cache_bytes", at_least(0), "memory in which scores and entries of the plan are kept; 0 keeps none"},
        options.cache_bytes);
  visit(Field{"splr_density", Bounds{.least = 0, .most = 1, .least_open = false, .most_open = false},
              "method splr: largest fraction of the pairs in the sparse part; 0: 10 / min(n, m)"},
        options.splr.density);
  visit(Field{"splr_shift", kPositive, "method splr: largest number added to the diagonal, in mass over cost"},
        options.splr.shift);
  visit(Field{"splr_reuse", at_least(1), "method splr: iterations that share one choice of pairs"},
        options.splr.pattern_reuse);
  visit(Field{"splr_candidates", at_least(0),
              "method splr: sweeps after each choice of pairs, whose end may be the next iterate"},
        options.splr.candidate_sweeps);
}

/// Throws Error (invalid_argument, unsupported) for options that every solve refuses.
MONGE_API void validate(SolveOptions const& options);

/// Solves the problem at the head of this file. a (n) and b (m) are non-negative with positive totals. If both
/// penalties are infinite, the totals must be equal, up to a relative difference of 1e-6 and of half of the tolerance;
/// of 1e-6 alone if a or b is float32 or the tolerance is 0. b is then scaled to the total of a. An empty a or b is
/// uniform with total 1, or with the total of the other if that one is given. Throws Error (invalid_argument,
/// unsupported, out_of_memory, device_failure). A solve that does not converge throws nothing: Report::status says so.
MONGE_API Plan solve(Context const& context, Geometry const& geometry, VectorView a, VectorView b,
                     SolveOptions const& options = {});
inline Plan solve(Context const& context, Geometry const& geometry, SolveOptions const& options = {}) {
  return solve(context, geometry, {}, {}, options);
}

/// The plan of given potentials: SolveOptions::f and g, which are required. There is no sweep and no certificate. A
/// point of zero weight gets the potential that an update would give it. The other options with an effect are eps or
/// eps_relative, penalties, cache_bytes and precision. `automatic` is the precision of the first sweeps of solve(). The
/// report has status completed, and NaN for each value of a certificate. Throws Error as solve() does.
MONGE_API Plan plan_of(Context const& context, Geometry const& geometry, VectorView a, VectorView b,
                       SolveOptions const& options);

}  // namespace monge
