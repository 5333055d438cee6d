// The state of a Plan.
#pragma once
#include <initializer_list>
#include <memory>
#include <utility>
#include <variant>

#include <monge/entropic.hpp>

#include "geometry/point_cost.hpp"
#include "plan/plan_derivatives.hpp"
#include "seam/backend.hpp"

namespace monge {

struct Plan::State {
  Context context;
  std::unique_ptr<PlanOperator> plan;
  std::unique_ptr<PlanOperator> rough;  // The same in float32, where a float64 twin has replaced it; else null.
  std::int64_t dimension;               // Coordinates of a point; 0 where the costs have no points.
  CostTerms terms;
  Penalties penalties;
  Report report;
  std::unique_ptr<Vector> scratch[2][2] = {};  // Two vectors of each side, made when first needed.
  std::unique_ptr<PlanDerivatives> derivatives_ = {};

  Vector& vector(Side side, int which) {
    std::unique_ptr<Vector>& vector = scratch[static_cast<int>(side)][which];
    if (!vector) vector = plan->vectors().make(side);
    return *vector;
  }
  PlanDerivatives& derivatives();
};

/// The arguments of a call on a plan.
using NamedInput = std::pair<char const*, std::variant<MatrixView, VectorView, double, std::uint64_t>>;
using NamedInputs = std::initializer_list<NamedInput>;
inline void add(Digests& digests, NamedInputs inputs) {
  for (auto const& [name, value] : inputs)
    std::visit([&, field = name](auto const& of) { digests.add(field, of); }, value);
}

/// in_step() for a call on a plan.
template <class Body>
auto in_step(Plan::State const& state, char const* call, NamedInputs inputs, Body const& body) {
  return in_step(
      state.context, call, [&](Digests& digests) { add(digests, inputs); }, body);
}

/// The results of Plan::gradients(): a vector for each view that is given.
struct GradientVectors {
  VectorPair points, weights;
};
/// Throws Error where a view does not fit the plan.
GradientVectors gradient_vectors(Plan::State& state, GradientViews const& out);
void write_gradients(VectorOperations const& vectors, GradientVectors const& gradients, GradientViews const& out);

}  // namespace monge
