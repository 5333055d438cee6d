#include "plan_derivatives.hpp"

#include <cmath>
#include <utility>

#include "command_options.hpp"

namespace monge::cli {

void check_direction(Array const& direction, std::int64_t n, std::optional<std::int64_t> d) {
  if (!d) refuse("hvp: is given with cost; a cost matrix has no points to move, must be given with x and y");
  MatrixView const rows = points("hvp", direction);
  if (rows.type() == DataType::float16) refuse("hvp: is {}; must be float32 or float64", name(rows.type()));
  if (rows.rows() != n || rows.columns() != *d)
    refuse("hvp: is {} x {}; must be {} x {}, as x", rows.rows(), rows.columns(), n, *d);
  auto const check = [&](auto const& all) {
    for (std::size_t e = 0; e < all.size(); ++e) {
      double const value = to_double(all[e]);
      std::int64_t const at = static_cast<std::int64_t>(e);
      if (!std::isfinite(value)) refuse("hvp: row {}, column {} is {}; must be finite", at / *d, at % *d, value);
    }
  };
  std::visit(check, direction.values);
}

std::vector<ResultFile> gradient_files(std::int64_t n, std::int64_t m, std::optional<Array> const& x,
                                       std::optional<Array> const& y,
                                       std::function<void(GradientViews const&)> const& differentiate) {
  std::vector<double> by_a(static_cast<std::size_t>(n)), by_b(static_cast<std::size_t>(m));
  GradientViews out{.a = by_a, .b = by_b};
  std::optional<Array> by_x, by_y;
  if (x && y) {
    by_x = x->zeros(x->shape);
    by_y = y->zeros(y->shape);
    out.x = points("grad_x", *by_x);
    out.y = points("grad_y", *by_y);
  }
  differentiate(out);
  std::vector<ResultFile> files;
  if (by_x) files.push_back({"grad_x.npy", std::move(*by_x)});
  if (by_y) files.push_back({"grad_y.npy", std::move(*by_y)});
  files.push_back({"grad_a.npy", Array{{n}, std::move(by_a)}});
  files.push_back({"grad_b.npy", Array{{m}, std::move(by_b)}});
  return files;
}

DerivativeFiles derivative_files(Plan const& plan, DerivativeOptions const& options, std::optional<Array> const& x,
                                 std::optional<Array> const& y, std::optional<Array> const& direction) {
  DerivativeFiles result;
  if (options.gradients) {
    result.files = gradient_files(plan.rows(), plan.columns(), x, y, [&](GradientViews const& out) {
      GradientReport const report = plan.gradients(out);
      result.report["gradients"] = {
          {"scale", report.scale}, {"distance", report.distance}, {"iterations", report.iterations}};
    });
  }
  if (direction) {
    Array product = direction->zeros(direction->shape);
    LinearReport const report = plan.hessian_product({.x = points("hvp", *direction)}, {.x = points("hvp", product)});
    result.files.push_back({"hvp.npy", std::move(product)});
    result.report["hvp"] = {
        {"status", name(report.status)}, {"iterations", report.iterations}, {"residual", report.residual}};
  }
  return result;
}

}  // namespace monge::cli
