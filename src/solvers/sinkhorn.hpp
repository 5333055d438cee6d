// Sinkhorn's algorithm on entropic operators, one or many in step.
#pragma once
#include <memory>
#include <span>

#include "operators/backend.hpp"
#include "solvers/input.hpp"

namespace monge {

/// A problem whose input has been checked, and how it went.
struct SinkhornProblem {
  Geometry geometry;
  ValidMarginals marginals;
  SolveOptions options;                        // With the problem's own warm start.
  std::unique_ptr<EntropicOperator> entropic;  // In first_precision(); at the end in the precision of the report.
  Report report;
};

/// The precision that a solve starts in.
Precision first_precision(SolveOptions const& options);

/// Solves the problems from the potentials that their operators have, and fills in their reports but for the time of
/// the set-up. All steps are taken together; each problem ends by itself.
void run_sinkhorn(Backend const& backend, std::span<SinkhornProblem> problems);

}  // namespace monge
