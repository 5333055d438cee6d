// Reports of solves: arithmetic, progress, end and values.
#pragma once
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include <monge/names.hpp>

namespace monge {

/// Arithmetic of the sweeps. The certificate is always float64.
enum class Precision {
  automatic,  ///< "auto": float32, then float64 where float32 can go no further; float64 from the start where it is
              ///< expected to be as fast. Report::precision is the last of them.
  float32,    ///< Results good to float32 rounding.
  tf32,       ///< Products rounded to 11 bits. CUDA only, never chosen silently.
  float64,
};
constexpr auto names_of(Precision) {
  using enum Precision;
  return std::to_array<Named<Precision>>(
      {{automatic, "auto"}, {float32, "float32"}, {tf32, "tf32"}, {float64, "float64"}});
}

/// The end of a solve.
enum class Status {
  converged,        ///< The quantity of the criterion is within the tolerance, in float64 if there is a certificate.
  completed,        ///< tolerance = 0: all sweeps that were asked for were run.
  iteration_limit,  ///< `iterations` sweeps did not reach the tolerance.
  precision_limit,  ///< The arithmetic of `precision` can go no further; the message names one that can, if any.
  stopped,          ///< The progress callback asked to stop.
};
constexpr auto names_of(Status) {
  using enum Status;
  return std::to_array<Named<Status>>({{converged, "converged"},
                                       {completed, "completed"},
                                       {iteration_limit, "iteration_limit"},
                                       {precision_limit, "precision_limit"},
                                       {stopped, "stopped"}});
}

/// The work of a solve up to a check.
enum class StepKind {
  sweeps,    ///< One or more, each from the potentials of the one before.
  mixed,     ///< One sweep from a combination of earlier ones, by Anderson's acceleration.
  rejected,  ///< The same, but its error was far above the least: the solve went back to the best potentials.
  newton,    ///< A step of Newton's method.
  splr,      ///< A step of SPLR.
};
constexpr auto names_of(StepKind) {
  using enum StepKind;
  return std::to_array<Named<StepKind>>(
      {{sweeps, "sweeps"}, {mixed, "mixed"}, {rejected, "rejected"}, {newton, "newton"}, {splr, "splr"}});
}

/// A pair of potentials, in the units of C.
struct Potentials {
  std::vector<double> f, g;  ///< n and m numbers.
};

/// Argument of a progress callback, at each check.
struct Progress {
  int iteration = 0;                 ///< Sweeps so far, annealing included.
  double eps = 0;                    ///< The eps of the last sweep; above the target while annealing.
  double marginal_error = 0;         ///< Measured by the sweep, in its precision; relative like the tolerance.
  double relaxation = 1;             ///< omega of the last sweep; 1 is plain Sinkhorn.
  StepKind kind = StepKind::sweeps;  ///< Kind of the work since the last check.
  double seconds = 0;                ///< Time since the solve began.
  int problem = 0;                   ///< Index in a batch, from 0.
  /// The present potentials, from which another solve may start (SolveOptions::f and g). Only for use in the callback.
  /// If there are points of zero weight it takes a pass, so either all ranks call it or none.
  std::function<Potentials()> potentials = {};
};

/// One check of the solve, for a convergence plot.
struct Check {
  int iteration;
  double eps;
  double marginal_error;  ///< Measured by the sweep; relative like the tolerance.
  double relaxation;
  StepKind kind;  ///< Kind of the work since the check before.
  Precision precision;
  double gradient_norm;  ///< The 2-norm of the errors of both marginals together, likewise.
  double seconds;        ///< Time since the solve began.
};

/// The result of a solve. Values that were not evaluated are NaN.
struct Report {
  Status status = Status::completed;
  std::string message;            ///< One sentence: the end and, if short of the tolerance, a remedy.
  double eps = 0;                 ///< In the units of C.
  double mean_cost = 0;           ///< sum_ij a_i b_j C_ij / sum_ij a_i b_j over the pairs that are allowed.
  double eps_relative = 0;        ///< eps / mean_cost; NaN where the mean is not positive.
  int iterations = 0;             ///< Sweeps done, annealing included, and other passes over all pairs.
  int annealing_iterations = 0;   ///< Sweeps among `iterations` at an eps above the target.
  int refinement_iterations = 0;  ///< Passes among `iterations` in float64, after float32 could go no further (auto).
  int coarse_iterations = 0;      ///< Sweeps of coarse clouds before all `iterations` (multiscale).
  int newton_steps = 0;           ///< Steps of Newton's method, or of splr.
  int newton_iterations = 0;      ///< Passes among `iterations` in such steps.
  /// Whether the CPU took the sweeps and the steps of Newton's method for a plan on a GPU. The GPU certified the
  /// result. The CPU is faster for at most 2^17 pairs. It takes no problems with labels or with ranks.
  bool newton_on_host = false;
  Precision precision = Precision::float32;  ///< Arithmetic of the last sweeps, and of the plan's products.
  bool certified = false;                    ///< The values below are float64 evaluations of the returned potentials.
  double penalty_a = std::numeric_limits<double>::infinity();  ///< SolveOptions::penalty_a.
  double penalty_b = std::numeric_limits<double>::infinity();
  double mass = 0;              ///< sum a.
  double mass_b = 0;            ///< sum b.
  double transported_mass = 0;  ///< sum P.
  double marginal_error = 0;    ///< |P 1 - a exp(-f / rho_a)|_1 + |P^T 1 - b exp(-g / rho_b)|_1: how far the potentials
                                ///< are from optimal. For a marginal that is a constraint: how far P is from it.
  double gradient_norm = 0;     ///< The same in the 2-norm, of both sides together: |gradient of the dual|_2.
  double transport_cost = 0;    ///< <C, P>.
  /// <C, P> + eps KL(P | a b^T) + rho_a KL(P 1 | a) + rho_b KL(P^T 1 | b), without the terms of constraints.
  double primal = 0;
  double dual = 0;  ///< A lower bound of the optimum: docs/math.md, sections 1 and 10.
  double gap = 0;   ///< primal - dual. To first order, its size is the error of primal: docs/math.md, section 1.
  /// An upper bound of the mass that the sums of passes lack, by method multiscale or automatic: the mass of the pairs
  /// left out and, on CUDA, the error of expansions (docs/math.md, section 20). marginal_error, dual and gap are bounds
  /// that hold for the plan of all pairs. The other values follow from the sums as they are. 0 where these lack
  /// nothing; NaN without a certificate.
  double left_out = 0;
  /// A row or a column of the plan lacks at most this part of its mass, and a row of P V this part of its mass times
  /// max |V| (docs/math.md, section 20). Where passes may leave out pairs, a twentieth of the tolerance, at most 5e-4,
  /// or 1e-8 for a tolerance of 0; elsewhere 0. It needs no certificate.
  double left_out_of_row = 0;
  int ranks = 1;  ///< Processes that shared the work: Context::distributed().
  struct {
    double setup = 0, sweeps = 0, certificate = 0, total = 0;
  } seconds;
  /// The most bytes that the library's arrays took at one time during the call, in the memory of the device: the arrays
  /// of the call, and those of plans and solvers that are alive. On a GPU it counts the arrays of the context. On the
  /// CPU it counts the arrays of the process, except vectors of one number for each point.
  std::int64_t peak_bytes = 0;
  std::vector<Check> history;
};

}  // namespace monge
