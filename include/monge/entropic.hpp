// Entropic optimal transport:
//   min_{P >= 0}  <C, P> + eps KL(P | a b^T)   subject to   P 1 = a,  P^T 1 = b,
//   KL(P | Q) = sum P log(P / Q) - P + Q,      P_ij = a_i b_j exp((f_i + g_j - C_ij) / eps).
// Symbols as in docs/math.md. Source: FlashSinkhorn, eq. 1-5 and 10-11.
#pragma once
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <monge/context.hpp>
#include <monge/geometry.hpp>
#include <monge/plan.hpp>

namespace monge {

/// The order of the updates within a sweep.
enum class Schedule {
  overrelaxed,  ///< Alternating with safeguarded adaptive overrelaxation: the default, the fastest to a tolerance.
  alternating,  ///< f from g, then g from the new f (eq. 2-3), nothing else.
  symmetric,    ///< f and g from the old pair, averaged with it (eq. 4-5).
};

/// Arithmetic of the sweeps. The certificate is float64 whatever this says.
enum class Precision {
  automatic,  ///< "auto": float32, and where that can go no further, float64 from there. The report says which.
  float32,    ///< Results good to float32 rounding.
  tf32,       ///< Products rounded to 11 bits. CUDA only, never chosen silently.
  float64,
};

/// How a solve ended.
enum class Status {
  converged,        ///< marginal_error <= tolerance * mass, in float64 unless the certificate was skipped.
  completed,        ///< tolerance = 0: ran exactly the sweeps that were asked for.
  iteration_limit,  ///< `iterations` sweeps did not reach the tolerance.
  precision_limit,  ///< The arithmetic of `precision` can go no further; the report names one that can, if any.
  stopped,          ///< The progress callback asked to stop.
};

std::string_view name(Schedule schedule);
std::string_view name(Precision precision);
std::string_view name(Status status);

/// What a progress callback sees at each check.
struct Progress {
  int iteration = 0;          ///< Sweeps so far, annealing included.
  double eps = 0;             ///< The eps of the last sweep; above the target while annealing.
  double marginal_error = 0;  ///< As the sweep measured it, in its own precision; relative to the mass.
  double relaxation = 1;      ///< omega of the last sweep; 1 is plain Sinkhorn.
  double seconds = 0;         ///< Since the solve began.
};

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

/// One check of the solve, for a convergence plot.
struct Check {
  int iteration;
  double eps;
  double marginal_error;  ///< Relative to the mass, as the sweep measured it.
  double relaxation;
  Precision precision;
};

/// What a solve reached. Values that were not evaluated are NaN.
struct Report {
  Status status = Status::completed;
  std::string message;            ///< One sentence: what happened and, if short of the tolerance, what would help.
  int iterations = 0;             ///< Sweeps done, annealing included.
  int annealing_iterations = 0;   ///< Of these, sweeps at an eps above the target.
  int refinement_iterations = 0;  ///< Of these, in float64 after float32 could go no further (precision auto).
  Precision precision = Precision::float32;  ///< Of the last sweeps, and of the plan's products.
  bool certified = false;                    ///< The values below are float64 evaluations of the returned potentials.
  double mass = 0;                           ///< sum a = sum b.
  double marginal_error = 0;                 ///< |P 1 - a|_1 + |P^T 1 - b|_1.
  double transport_cost = 0;                 ///< <C, P>.
  double primal = 0;                         ///< <C, P> + eps KL(P | a b^T).
  double dual = 0;                           ///< <f, a> + <g, b> - eps (sum P - sum a sum b).
  double gap = 0;                            ///< primal - dual = <f, P 1 - a> + <g, P^T 1 - b>.
  struct {
    double setup = 0, sweeps = 0, certificate = 0, total = 0;
  } seconds;
  std::vector<Check> history;
};

/// Solves the problem at the head of this file; a (n) and b (m) are non-negative with equal, positive totals. An empty
/// a or b means uniform with total 1 (with the total of the other, if that one is given). Throws Error
/// (invalid_argument, unsupported, out_of_memory, device_failure). Not converging is a Status.
Plan solve(Context const& context, Geometry const& geometry, VectorView a, VectorView b, SolveOptions const& options);
inline Plan solve(Context const& context, Geometry const& geometry, SolveOptions const& options) {
  return solve(context, geometry, {}, {}, options);
}

}  // namespace monge
