// Sinkhorn's algorithm on entropic operators, one or many in step.
#pragma once
#include <memory>
#include <span>
#include <vector>

#include <monge/batch.hpp>

#include "backend/backend.hpp"
#include "entropic/input.hpp"

namespace monge {

/// A problem whose input has been checked, and how it went.
struct SinkhornProblem {
  Geometry geometry;
  ValidMarginals marginals;
  SolveOptions options;
  WarmStart start;                             // The problem's own f and g, as they were read.
  std::unique_ptr<EntropicOperator> entropic;  // In first_precision(); at the end in the precision of the report.
  Report report{};
  bool keeps_first = false;                   // Whether the operator that float64 takes over from is still wanted:
  std::unique_ptr<EntropicOperator> first{};  // here it is.
};

SinkhornProblem checked_problem(Context const& context, BatchProblem const& problem, SolveOptions const& options);
/// The same of a geometry that has been validated and weights that have been read.
SinkhornProblem checked_problem(Context const& context, BatchProblem const& problem, ValidMarginals const& given,
                                SolveOptions const& options);

/// The precision that a solve starts in.
Precision first_precision(SolveOptions const& options);

/// What it starts with.
OperatorOptions first_operator(SolveOptions const& options);

/// What waits for the operator: eps, where it is a share of the mean cost, and a warm start; a new operator has the
/// potentials of a cold one. Where the precision was left to us and float32 does not hold the costs the operator is
/// made again, in float64. Throws if they overflow all the same.
void begin(Backend const& backend, SinkhornProblem& problem);

/// Solves the problems from the potentials that their operators have, and fills in their reports but for the time of
/// the set-up. All steps are taken together; each problem ends by itself.
void run_sinkhorn(Backend const& backend, std::span<SinkhornProblem> problems);

/// The plans of their operators; takes the reports. `setup`: seconds.
std::vector<Plan> finished_plans(Context const& context, std::span<SinkhornProblem> problems, double setup);

}  // namespace monge
