#include "plan_derivatives.hpp"

#include <utility>

#include "command_options.hpp"

namespace monge::cli {

void validate(DerivativeOptions const& options, GeometryArguments const& costs) {
  visit_hvp_options(options, [&](auto const& field, auto const& value) {
    if (!value) return;
    if (!field.constraint.contains(static_cast<double>(*value)))
      refuse("{}: is {}; must be {}", field.name, *value, field.constraint.text_in_full());
    if (options.hvp.empty()) refuse("{}: is {}; is for hvp, which is not given", field.name, *value);
  });
  if (!options.hvp.empty() && !costs.cost.empty())
    refuse("hvp: is given with cost; a cost matrix has no points to move, must be given with x and y");
}

void check_direction(Array const& direction, Array const& x) {
  MatrixView const rows = finite_points("hvp", direction);
  if (rows.rows() != x.rows() || rows.columns() != x.columns())
    refuse("hvp: is {} x {}; must be {} x {}, as x", rows.rows(), rows.columns(), x.rows(), x.columns());
}

std::vector<ResultFile> gradient_files(GeometryInput const& in,
                                       std::function<void(GradientViews const&)> const& differentiate) {
  std::vector<double> by_a(static_cast<std::size_t>(in.n())), by_b(static_cast<std::size_t>(in.m()));
  GradientViews out{.a = by_a, .b = by_b};
  std::optional<Array> by_x, by_y;
  if (in.x) {
    by_x = in.x->zeros(in.x->shape);
    by_y = in.y->zeros(in.y->shape);
    out.x = points("grad_x", *by_x);
    out.y = points("grad_y", *by_y);
  }
  differentiate(out);
  std::vector<ResultFile> files;
  if (by_x) files.push_back({kGradientFiles[0], std::move(*by_x)});
  if (by_y) files.push_back({kGradientFiles[1], std::move(*by_y)});
  files.push_back({kGradientFiles[2], Array{{in.n()}, std::move(by_a)}});
  files.push_back({kGradientFiles[3], Array{{in.m()}, std::move(by_b)}});
  return files;
}

DerivativeFiles derivative_files(Plan const& plan, DerivativeOptions const& options, GeometryInput const& in,
                                 std::optional<Array> const& direction) {
  DerivativeFiles result;
  if (options.gradients) {
    result.files = gradient_files(in, [&](GradientViews const& out) { result.gradients = plan.gradients(out); });
  }
  if (direction) {
    Array product = direction->zeros(direction->shape);
    LinearOptions linear;
    linear.damping = options.hvp_damping.value_or(linear.damping);
    linear.tolerance = options.hvp_tolerance.value_or(linear.tolerance);
    linear.iterations = options.hvp_iterations.value_or(linear.iterations);
    result.hvp = plan.hessian_product({.x = points("hvp", *direction)}, {.x = points("hvp", product)}, linear);
    result.files.push_back({"hvp.npy", std::move(product)});
  }
  return result;
}

}  // namespace monge::cli
