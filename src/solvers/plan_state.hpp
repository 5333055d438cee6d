// What a Plan keeps; and the solver's entry, which makes it.
#pragma once
#include <functional>
#include <memory>

#include <monge/entropic.hpp>

#include "operators/backend.hpp"

namespace monge {

/// Makes the operator of one problem in a precision, which may keep scores in so much memory; keeps nothing of the
/// caller's.
using OperatorFactory = std::function<std::unique_ptr<EntropicOperator>(Precision, double cache_bytes)>;

struct Plan::State {
  Context context;
  std::unique_ptr<PlanOperator> plan;
  std::int64_t dimension;  // Of the points.
  Report report;
  std::unique_ptr<Vector> scratch[2][2] = {};  // Two vectors of each side, made when first needed.

  Vector& vector(Side side, int which) {
    std::unique_ptr<Vector>& vector = scratch[static_cast<int>(side)][which];
    if (!vector) vector = plan->vectors().make(side);
    return *vector;
  }
};

/// The precision that a solve starts in.
inline Precision first_precision(SolveOptions const& options) {
  return options.precision == Precision::automatic ? Precision::float32 : options.precision;
}

/// The solver proper: sweeps `problem`, of the first precision, from its current potentials. `make` makes its float64
/// twin: for the certificate, and to take its place where the precision is automatic and float32 can go no further.
Report run_sinkhorn(std::unique_ptr<EntropicOperator>& problem, OperatorFactory const& make, double mass,
                    SolveOptions const& options);

}  // namespace monge
