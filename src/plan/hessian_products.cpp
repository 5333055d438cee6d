// Products of the Hessian by the points (docs/math.md, section 11), and of its inverse.
#include <cmath>
#include <utility>
#include <vector>

#include "plan/conjugate_gradient.hpp"
#include "plan/plan_derivatives.hpp"

namespace monge {

/// By features, then by points. For the cosine features are directions u_i, and change by w_i = (vx_i - u_i <u_i,
/// vx_i>) / |x_i|. With the derivatives h_i by features and g_i by points, their map by_points() changes by
///   -(w_i <u_i, h_i> + u_i <g_i, vx_i> + g_i <u_i, vx_i>) / |x_i|.
LinearReport PlanDerivatives::hessian_product(VectorPair v, VectorPair const& out, LinearOptions const& options) {
  if (cost().is_distance()) return distance_product(std::move(v), out, options);
  if (!has_directions()) return feature_product(std::move(v), out, options);
  VectorPair motion;
  for (Side const side : kSides) {
    if (!v[side]) continue;
    combine({{1, v[side].get()}}, *(motion[side] = make(side, true)));
    by_points(side, *motion[side]);
  }
  LinearReport const report = feature_product(std::move(motion), out, options);
  for (Side const side : kSides) {
    if (out[side] == nullptr) continue;
    by_points(side, *out[side]);
    if (!v[side]) continue;
    Vector const &u = *kept(side).direction, &inverse_length = *kept(side).inverse_length;
    std::unique_ptr<Vector> const g = make(side, true), w = make(side, true), part = make(side);
    auto const subtract = [&](Vector const& first, Vector const& second, Vector const& third) {
      vectors_.row_dots(first, second, *part);
      combine({{1, part.get(), &inverse_length}}, *part);
      combine({{1, out[side]}, {-1, &third, part.get()}}, *out[side]);
    };
    combine({{1, v[side].get()}}, *w);
    by_points(side, *w);
    feature_gradient(side, *g);
    subtract(u, *g, *w);
    by_points(side, *g);
    subtract(*g, *v[side], u);
    subtract(u, *v[side], *g);
  }
  return report;
}

LinearReport PlanDerivatives::distance_product(VectorPair v, VectorPair const& out, LinearOptions const& options) {
  for (Side const side : kSides)
    if (!v[side]) v[side] = make(side, true);
  double const size = normalise(v);
  VectorPair right, changes;
  for (Side const side : kSides) {
    right[side] = make(side);
    changes[side] = make(side, true);
    plan_.points().distance_changes(side, *v[side], *v[opposite(side)], *right[side], *changes[side]);
  }
  Response const response = solve(right, options);
  for (Side const side : kSides) {
    if (out[side] == nullptr) continue;
    tilted_gradient(side, *right[side], response, {}, *out[side]);
    combine({{size, changes[side].get()}, {size / eps_, out[side]}}, *out[side]);
  }
  return response.report;
}

/// With dC_ij = dC'_ij + ds_i + dt_j along v, where dC'_ij = product (<x'_i, vy_j> + <vx_i, y'_j>), ds_i = <slope_i,
/// vx_i> and dt_j likewise, the system is solved for df - ds and dg - dt: the offsets of the clouds cost no digits.
LinearReport PlanDerivatives::feature_product(VectorPair v, VectorPair const& out, LinearOptions const& options) {
  PointForm const form = cost().form();
  double const size = normalise(v);
  VectorPair right, products, shifts;
  double terms = 0;
  for (Side const side : kSides) right[side] = make(side);
  for (Side const side : kSides) {
    std::unique_ptr<Vector> const part = make(side);
    if (v[opposite(side)]) {
      products[side] = product(side, *v[opposite(side)]);
      vectors_.row_dots(features(side), *products[side], *part);
      terms += terms_of(side, features(side), *products[side]);
      combine({{1, right[side].get()}, {form.product, part.get()}}, *right[side]);
    }
    if (v[side]) {
      vectors_.row_dots(*v[side], far_features(side), *part);
      terms += terms_of(side, *v[side], far_features(side));
      combine({{1, right[side].get()}, {form.product, part.get()}}, *right[side]);
      if (penalty_ratio(side) == 0) continue;
      shifts[side] = make(side);
      vectors_.row_dots(slopes(side), *v[side], *shifts[side]);
      combine({{1, right[side].get()}, {-penalty_ratio(side), &plan_.marginal(side), shifts[side].get()}},
              *right[side]);
    }
  }
  Response const response = solve(right, options, std::abs(form.product) * terms);

  double const factor = -form.product / eps_;
  for (Side const side : kSides) {
    if (out[side] == nullptr) continue;
    Vector& to = *out[side];
    Vector const& marginal = plan_.marginal(side);
    std::vector<Tilt> tilts;
    if (v[side]) tilts.push_back({1, v[side].get(), &features(opposite(side))});
    if (v[opposite(side)]) tilts.push_back({1, &features(side), v[opposite(side)].get()});
    std::unique_ptr<Vector> const tilt = tilted(side, response, -form.product, tilts);
    // sum_j P_ij (df_i + dg_j - dC_ij) / eps = -r_i df_i / rho, which is 0 for a constraint.
    combine({{size * form.product * factor, tilt.get()}}, to);
    if (v[side]) combine({{1, &to}, {size * form.curvature, v[side].get(), &marginal}}, to);
    if (products[side]) combine({{1, &to}, {size * form.product, products[side].get()}}, to);
    if (penalty_ratio(side) > 0) {
      std::unique_ptr<Vector> const total = make(side);
      double const rate = -1 / penalties_.of(side);
      combine({{rate, &marginal, response.change[side]}, {rate * response.constant[side_index(side)], &marginal}},
              *total);
      if (shifts[side]) combine({{1, total.get()}, {rate, &marginal, shifts[side].get()}}, *total);
      combine({{1, &to}, {size, &slopes(side), total.get()}}, to);
    }
  }
  return response.report;
}

LinearReport PlanDerivatives::inverse_hessian_product(Vector const& v, Vector& out, double shift,
                                                      LinearOptions const& options) {
  VectorPair right;
  combine({{1, &v}}, *(right[Side::rows] = make(Side::rows, true)));
  double const size = normalise(right);
  LinearOptions inner = options;
  inner.tolerance *= 0.1;
  LinearReport worst;
  LinearSystem const system{.matrix = [&](Vector const& in, Vector& result) {
    VectorPair direction, product;
    direction[Side::rows] = make(Side::rows, true);
    product[Side::rows] = make(Side::rows, true);
    combine({{1, &in}}, *direction[Side::rows]);
    LinearReport const report = hessian_product(std::move(direction), product, inner);
    if (report.status != LinearStatus::converged) worst = report;
    combine({{1, product[Side::rows].get()}, {shift, &in}}, result);
  }};
  ConjugateGradientResult const end =
      conjugate_gradient(vectors_, system, *right[Side::rows], out, {options.tolerance, options.iterations});
  combine({{size, &out}}, out);
  LinearStatus const status = end.status == LinearStatus::converged ? worst.status : end.status;
  return {status, end.iterations, end.residual};
}

}  // namespace monge
