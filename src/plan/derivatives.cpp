// Derivatives as methods of Plan: checks of the arguments, and vectors for their views.
#include <limits>
#include <utility>

#include <monge/plan.hpp>

#include "core/memory_count.hpp"
#include "geometry/validation.hpp"
#include "plan/plan_state.hpp"

namespace monge {
namespace {

bool is_given(MatrixView view) {
  return view.data() != nullptr || view.rows() > 0;
}
bool is_given(VectorView view) {
  return view.data() != nullptr || !view.empty();
}

void validate_linear_options(LinearOptions const& options) {
  check("damping", kNotNegative, options.damping);
  check("tolerance", kNotNegative, options.tolerance);
  check("iterations", at_least(0), options.iterations);
}

/// in_step() for a call on a plan that solves a linear system.
template <class Body>
LinearReport solved_in_step(Plan::State const& state, char const* call, NamedInputs inputs,
                            LinearOptions const& options, Body const& body) {
  auto const describe = [&](Digests& digests) {
    add(digests, inputs);
    digests.add("tolerance", options.tolerance);
    digests.add("damping", options.damping);
    digests.add("iterations", options.iterations);
  };
  return in_step(state.context, call, describe, [&] {
    validate_linear_options(options);
    MemoryPeak const memory(backend_of(state.context).memory());
    LinearReport report = body();
    report.peak_bytes = memory.bytes();
    return report;
  });
}

void validate_points(Plan::State const& state, char const* field, Side side, MatrixView view) {
  state.plan->points();  // Throws for a cost matrix.
  validate_matrix(field, view, state.plan->size(side), state.dimension, state.context.device());
}

/// Vectors for the views that are given; points() also reads the values of its view.
class Views {
 public:
  explicit Views(Plan::State& state) : state_(state), vectors_(state.plan->vectors()) {}

  std::unique_ptr<Vector> make_points(Side side) const { return vectors_.make(side, state_.dimension); }
  std::unique_ptr<Vector> points(char const* field, Side side, MatrixView view) const {
    if (!is_given(view)) return nullptr;
    validate_points(state_, field, side, view);
    std::unique_ptr<Vector> vector = make_points(side);
    vectors_.read(view, *vector);
    return vector;
  }
  std::unique_ptr<Vector> for_points(char const* field, Side side, MatrixView view) const {
    if (!is_given(view)) return nullptr;
    validate_points(state_, field, side, view);
    return make_points(side);
  }
  std::unique_ptr<Vector> for_weights(char const* field, Side side, VectorView view) const {
    if (!is_given(view)) return nullptr;
    validate_vector(field, view, state_.plan->size(side), state_.context.device());
    return vectors_.make(side);
  }
  GradientVectors for_gradients(GradientViews const& out) const {
    GradientVectors result;
    auto& [points, weights] = result;
    points[Side::rows] = for_points("x", Side::rows, out.x);
    points[Side::columns] = for_points("y", Side::columns, out.y);
    weights[Side::rows] = for_weights("a", Side::rows, out.a);
    weights[Side::columns] = for_weights("b", Side::columns, out.b);
    return result;
  }
  template <class View>
  void write(Vector const* vector, View const& to) const {
    if (vector != nullptr) vectors_.write(*vector, to);
  }

 private:
  Plan::State& state_;
  VectorOperations const& vectors_;
};

}  // namespace

PlanDerivatives& Plan::State::derivatives() {
  if (!derivatives_)
    derivatives_ =
        std::make_unique<PlanDerivatives>(*plan, rough.get(), report.eps, penalties, dimension, report.precision);
  return *derivatives_;
}

GradientVectors gradient_vectors(Plan::State& state, GradientViews const& out) {
  GradientVectors result = Views(state).for_gradients(out);
  auto& [points, weights] = result;
  for (Side const side : kSides) {
    if (points[side]) state.derivatives().gradient(side, *points[side]);
    if (weights[side]) state.plan->weight_terms(side, state.penalties.of(side), {.gradient = weights[side].get()});
  }
  return result;
}

void write_gradients(VectorOperations const& vectors, GradientVectors const& gradients, GradientViews const& out) {
  auto const& [points, weights] = gradients;
  if (points[Side::rows]) vectors.write(*points[Side::rows], out.x);
  if (points[Side::columns]) vectors.write(*points[Side::columns], out.y);
  if (weights[Side::rows]) vectors.write(*weights[Side::rows], out.a);
  if (weights[Side::columns]) vectors.write(*weights[Side::columns], out.b);
}

GradientReport Plan::gradients(GradientViews const& out, GradientOptions const& options) const {
  return in_step(*state_, "Plan::gradients", {{"error_iterations", static_cast<double>(options.error_iterations)}},
                 [&] {
                   check("error_iterations", at_least(0), options.error_iterations);
                   MemoryPeak const memory(backend_of(state_->context).memory());
                   write_gradients(state_->plan->vectors(), gradient_vectors(*state_, out), out);

                   GradientReport report;
                   report.scale = std::numeric_limits<double>::quiet_NaN();
                   if (options.scale) {
                     double const of_labels = state_->terms.has_labels() ? state_->plan->label_cost() : 0;
                     report.scale = (transport_cost() - of_labels) / state_->terms.scale;
                     report.label_weight = of_labels / state_->terms.label_weight;
                   }
                   report.marginal_error = state_->report.marginal_error;
                   if (options.error_iterations > 0) {
                     auto const [value, iterations] = state_->derivatives().distance(options.error_iterations);
                     report.distance = value;
                     report.iterations = iterations;
                   }
                   report.peak_bytes = memory.bytes();
                   return report;
                 });
}

void Plan::cost_gradients(MatrixView l, MatrixView r, MutablePointViews const& out) const {
  in_step(*state_, "Plan::cost_gradients", {{"l", l}, {"r", r}}, [&] {
    Device const device = state_->context.device();
    VectorOperations const& vectors = state_->plan->vectors();
    require(l.columns() > 0, "l: has 0 columns; must have at least 1, and r as many");
    validate_matrix("l", l, rows(), l.columns(), device);
    validate_matrix("r", r, columns(), l.columns(), device);
    Views const views(*state_);
    VectorPair factors, points;
    for (Side const side : kSides) {
      bool const of_rows = side == Side::rows;
      points[side] = views.for_points(of_rows ? "out.x" : "out.y", side, of_rows ? out.x : out.y);
      factors[side] = vectors.make(side, l.columns());
      vectors.read(of_rows ? l : r, *factors[side]);
    }
    for (Side const side : kSides) {
      if (!points[side]) continue;
      state_->derivatives().weighted_gradient(side, *factors[side], *factors[opposite(side)], *points[side]);
      views.write(points[side].get(), side == Side::rows ? out.x : out.y);
    }
  });
}

LinearReport Plan::hessian_product(PointViews const& v, MutablePointViews const& out,
                                   LinearOptions const& options) const {
  return solved_in_step(*state_, "Plan::hessian_product", {{"v.x", v.x}, {"v.y", v.y}}, options, [&] {
    Views const views(*state_);
    VectorPair direction, result;
    direction[Side::rows] = views.points("v.x", Side::rows, v.x);
    direction[Side::columns] = views.points("v.y", Side::columns, v.y);
    result[Side::rows] = views.for_points("out.x", Side::rows, out.x);
    result[Side::columns] = views.for_points("out.y", Side::columns, out.y);
    LinearReport const report = state_->derivatives().hessian_product(std::move(direction), result, options);
    views.write(result[Side::rows].get(), out.x);
    views.write(result[Side::columns].get(), out.y);
    return report;
  });
}

LinearReport Plan::inverse_hessian_product(MatrixView v, MutableMatrixView out, double shift,
                                           LinearOptions const& options) const {
  return solved_in_step(*state_, "Plan::inverse_hessian_product", {{"v", v}, {"shift", shift}}, options, [&] {
    check("shift", kFinite, shift);
    Views const views(*state_);
    validate_points(*state_, "v", Side::rows, v);
    validate_points(*state_, "out", Side::rows, out);
    std::unique_ptr<Vector> const right = views.points("v", Side::rows, v), result = views.make_points(Side::rows);
    LinearReport const report = state_->derivatives().inverse_hessian_product(*right, *result, shift, options);
    views.write(result.get(), out);
    return report;
  });
}

LinearReport Plan::potential_gradients(VectorView of_f, VectorView of_g, GradientViews const& out,
                                       LinearOptions const& options) const {
  return solved_in_step(*state_, "Plan::potential_gradients", {{"of_f", of_f}, {"of_g", of_g}}, options, [&] {
    Views const views(*state_);
    PlanOperator& plan = *state_->plan;
    VectorPair right;
    for (Side const side : kSides) {
      VectorView const view = side == Side::rows ? of_f : of_g;
      right[side] = plan.vectors().make(side);
      if (!is_given(view)) continue;
      validate_vector(side == Side::rows ? "of_f" : "of_g", view, plan.size(side), state_->context.device());
      plan.vectors().read(view, *right[side]);
    }
    GradientVectors const result = views.for_gradients(out);
    LinearReport const report =
        state_->derivatives().potential_gradients(std::move(right), result.points, result.weights, options);
    write_gradients(plan.vectors(), result, out);
    return report;
  });
}

LinearReport Plan::product_gradients(MatrixView u, MatrixView v, GradientViews const& out,
                                     LinearOptions const& options) const {
  return solved_in_step(*state_, "Plan::product_gradients", {{"u", u}, {"v", v}}, options, [&] {
    Views const views(*state_);
    PlanOperator& plan = *state_->plan;
    Device const device = state_->context.device();
    require(u.columns() > 0, "u: has 0 columns; must have at least 1, and v as many");
    validate_matrix("u", u, rows(), u.columns(), device);
    validate_matrix("v", v, columns(), u.columns(), device);
    VectorPair factors;
    for (Side const side : kSides) {
      factors[side] = plan.vectors().make(side, u.columns());
      plan.vectors().read(side == Side::rows ? u : v, *factors[side]);
    }
    GradientVectors const result = views.for_gradients(out);
    LinearReport const report =
        state_->derivatives().product_gradients(std::move(factors), result.points, result.weights, options);
    write_gradients(plan.vectors(), result, out);
    return report;
  });
}

void Plan::dense(MutableMatrixView out) const {
  in_step(*state_, "Plan::dense", {}, [&] {
    validate_matrix("out", out, rows(), columns(), state_->context.device());
    state_->plan->entries().all(Side::rows, out);
  });
}

}  // namespace monge
