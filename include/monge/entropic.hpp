// Entropic optimal transport:
//   min_{P >= 0}  <C, P> + eps KL(P | a b^T)   subject to   P 1 = a,  P^T 1 = b,
//   KL(P | Q) = sum P log(P / Q) - P + Q,      P_ij = a_i b_j exp((f_i + g_j - C_ij) / eps).
// Symbols as in docs/math.md. Source: FlashSinkhorn, eq. 1-5 and 10-11.
#pragma once
#include <functional>
#include <string_view>

#include <monge/context.hpp>
#include <monge/geometry.hpp>
#include <monge/plan.hpp>
#include <monge/report.hpp>

namespace monge {

/// The order of the updates within a sweep.
enum class Schedule {
  overrelaxed,  ///< Alternating with safeguarded adaptive overrelaxation: the default, the fastest to a tolerance.
  alternating,  ///< f from g, then g from the new f (eq. 2-3), nothing else.
  symmetric,    ///< f and g from the old pair, averaged with it (eq. 4-5).
};

std::string_view name(Schedule schedule);

/// Options of solve(). A member that is not set keeps a default that is right for someone who sets nothing but eps.
struct SolveOptions {
  double eps = 0;           ///< Regularisation, in the units of C. Must be given, > 0.
  double tolerance = 1e-6;  ///< On |P 1 - a|_1 + |P^T 1 - b|_1, relative to the mass sum a. 0: run `iterations` sweeps.
  int iterations = 10000;   ///< Cap on the sweeps, annealing included; one sweep updates f and g. >= 1.
  Schedule schedule = Schedule::overrelaxed;
  double annealing = 0.5;  ///< Factor of the eps ladder that starts at the squared diameter, in (0, 1]; 1: no ladder.
  Precision precision = Precision::automatic;
  int check_every = 10;     ///< Sweeps between checks; the host waits for the device only there. >= 1.
  bool certificate = true;  ///< Evaluate marginal error, values and gap in float64 from the returned potentials.
  double cache_bytes = 1073741824;  ///< Memory that the CPU may spend on keeping scores between sweeps; 0: none. >= 0.

  VectorView f = {};  ///< Warm start (n) in units of C, with g; the ladder is then skipped.
  VectorView g = {};  ///< Warm start (m).
  std::function<bool(Progress const&)> progress = {};  ///< Called at each check; return false to stop.
};

/// The one list of option fields, for validation, command lines, bindings and reports. `visit` is called as
/// visit(name, member, constraint, description); constraint and description are for people.
template <class Options, class Visitor>
void visit_solve_options(Options& options, Visitor&& visit) {
  visit("eps", options.eps, "> 0", "regularisation, in the units of the cost");
  visit("tolerance", options.tolerance, ">= 0",
        "stop when the L1 marginal error is at most this times the mass; 0 runs all iterations");
  visit("iterations", options.iterations, ">= 1", "at most this many sweeps, annealing included");
  visit("schedule", options.schedule, "overrelaxed, alternating or symmetric", "order of the updates in a sweep");
  visit("annealing", options.annealing, "in (0, 1]", "factor of the eps ladder from the squared diameter; 1 is none");
  visit("precision", options.precision, "auto, float32, tf32 (CUDA only) or float64", "arithmetic of the sweeps");
  visit("check_every", options.check_every, ">= 1", "sweeps between checks of the marginal error");
  visit("certificate", options.certificate, "true or false", "evaluate error, values and gap in float64 at the end");
  visit("cache_bytes", options.cache_bytes, ">= 0", "memory that the CPU may use to keep scores between sweeps");
}

/// Solves the problem at the head of this file; a (n) and b (m) are non-negative with equal, positive totals. An empty
/// a or b means uniform with total 1 (with the total of the other, if that one is given). Throws Error
/// (invalid_argument, unsupported, out_of_memory, device_failure). Not converging is a Status.
Plan solve(Context const& context, Geometry const& geometry, VectorView a, VectorView b, SolveOptions const& options);
inline Plan solve(Context const& context, Geometry const& geometry, SolveOptions const& options) {
  return solve(context, geometry, {}, {}, options);
}

}  // namespace monge
