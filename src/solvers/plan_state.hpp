// What a Plan keeps: the operator at its final potentials, and how to make its float64 twin.
#pragma once
#include <functional>
#include <memory>

#include <monge/entropic.hpp>

#include "operators/backend.hpp"

namespace monge {

/// Makes the operator of one problem in a precision; keeps nothing of the caller's.
using OperatorFactory = std::function<std::unique_ptr<EntropicOperator>(Precision)>;

struct Plan::State {
  Context context;
  std::unique_ptr<EntropicOperator> problem;
  std::int64_t dimension;
  double eps;
  Report report;
};

/// The solver proper: sweeps `problem` from its current potentials. `exact` makes the operator of the certificate.
Report run_sinkhorn(EntropicOperator& problem, OperatorFactory const& exact, double mass, SolveOptions const& options);

}  // namespace monge
