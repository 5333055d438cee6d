// Sinkhorn's algorithm on one or many problems at once.
#pragma once
#include <limits>
#include <memory>
#include <span>
#include <vector>

#include <monge/batch.hpp>

#include "entropic/input.hpp"
#include "seam/backend.hpp"

namespace monge {

/// A problem with checked input, its operator and its report.
struct SinkhornProblem {
  Geometry geometry;
  ValidMarginals marginals;
  SolveOptions options;
  double truncation = 0;                       // OperatorOptions::truncation
  WarmStart start;                             // The f and g that were given.
  std::unique_ptr<EntropicOperator> entropic;  // Its precision is first_precision(), after the solve the report's.
  Report report{};
  double translation = 0;  // t of the (f + t, g - t) with <a, f> = <b, g>, for the plan.
  /// The dual value less eps sum a sum b, from the certificate.
  double dual_terms = std::numeric_limits<double>::quiet_NaN();
  std::unique_ptr<EntropicOperator> first{};  // The operator that a float64 twin has replaced.
  SinkhornProblem* solved_by = nullptr;       // An equal problem that is solved instead of this one; null: none.
};

/// Whether a cloud is transported to itself: equal points, labels, weights and penalties on both sides.
bool meets_itself(SinkhornProblem const& problem);

/// Throws unsupported for a geometry or a backend that the method cannot take.
void require_method(Backend const& backend, Geometry const& geometry, SolveOptions const& options);

/// `solves`: the potentials of `problem`, if any, are a start.
SinkhornProblem checked_problem(Context const& context, BatchProblem const& problem, SolveOptions const& options,
                                bool solves);
/// The same for a validated geometry and weights that have been read.
SinkhornProblem checked_problem(Context const& context, BatchProblem const& problem, ValidMarginals const& given,
                                SolveOptions const& options, bool solves);

/// Adds the options to the inputs of a call in step.
void add(Digests& inputs, SolveOptions const& options);
/// The options with a callback that returns the answer of rank 0.
SolveOptions agreed(Context const& context, SolveOptions options);

/// The precision that a solve starts in.
Precision first_precision(SolveOptions const& options);

/// OperatorOptions::truncation of a solve that leaves out pairs, to a tolerance.
double truncation_to(double tolerance);
/// OperatorOptions::truncation of a solve; 0 where it takes all pairs.
double truncation_of(Backend const& backend, Geometry const& geometry, SolveOptions const& options);

/// The options of the problem's first operator.
OperatorOptions first_operator(SinkhornProblem const& problem);

/// Gives a symmetric solve of a cloud with itself an operator that keeps f = g. The rounding of two sides would part
/// them, and sweeps hardly reduce their difference where the plan is nearly the identity (docs/math.md, section 14).
void keep_potentials_equal(Backend const& backend, SinkhornProblem& problem);

/// Completes the set-up that needs the operator: eps, if it is relative to the mean cost, the potentials of a warm
/// start or, where pairs are left out, of coarse clouds, and the report, without values. With automatic precision,
/// costs that overflow float32 get a new operator in float64. Throws if they overflow there, too. If a solve follows
/// (`solves`), the warm start of a balanced problem with a tolerance may be shifted to (f + t, g - t), which changes no
/// plan.
void begin(Backend const& backend, SinkhornProblem& problem, bool solves, int index = 0);

/// Moves (f', g') by constants to equal means: large constants would leave few digits to the rest. The sum of both
/// means stays if it may be the dual value of a plan, and becomes 0 otherwise.
void centre(EntropicOperator& entropic, Marginals const& marginals);

/// Sets the potentials to those of a cold start: 0 in the operator's own gauge.
void forget_potentials(EntropicOperator& entropic);

/// Solves the problems without `solved_by` from the potentials that their operators have, and fills in their reports
/// except for the set-up time. The problems advance together; each ends by itself.
void run_sinkhorn(Backend const& backend, std::span<SinkhornProblem> problems);

/// Completes the reports of problems whose potentials stay as they were given.
void keep_potentials(std::span<SinkhornProblem> problems);

/// The plans of the problems' operators; moves the reports into them. `setup`: seconds of the set-up. `memory`: since
/// the call began.
std::vector<Plan> finished_plans(Context const& context, std::span<SinkhornProblem> problems, double setup,
                                 MemoryPeak const& memory);

}  // namespace monge
