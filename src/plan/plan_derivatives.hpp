// Derivatives of a plan's dual value, of its optimum and of functions of its potentials, on the plan's products
// (docs/math.md, section 11). Written once for all backends: for costs with inner products on their features, for
// distances on the sums of PlanPoints.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include <monge/derivatives.hpp>
#include <monge/report.hpp>

#include "seam/entropic_operator.hpp"
#include "seam/plan_operator.hpp"

namespace monge {

class PlanDerivatives {
 public:
  /// `plan` outlives this object, and computes its products in `precision`. `rough`, if given, is the same plan in less
  /// precision, which outlives this object, too: conjugate gradients take its products for their steps. `dimension`: of
  /// the points, or 0 if there are none.
  PlanDerivatives(PlanOperator& plan, PlanOperator* rough, double eps, Penalties penalties, std::int64_t dimension,
                  Precision precision);

  /// sum_j P_ij dC_ij/dx_i, size(side) x d.
  void gradient(Side side, Vector& out);
  /// sum_j P_ij <l_i, r_j> dC_ij/dx_i; l has a row for each point of `side`, r one for each of the other.
  void weighted_gradient(Side side, Vector const& l, Vector const& r, Vector& out);
  /// GradientReport::distance, and the steps that it took.
  struct Distance {
    double value;
    int iterations;
  };
  Distance distance(int iterations);

  /// out = H v with the Hessian H in the points; `v`, of width d, is overwritten.
  LinearReport hessian_product(VectorPair v, VectorPair const& out, LinearOptions const& options);
  LinearReport inverse_hessian_product(Vector const& v, Vector& out, double shift, LinearOptions const& options);

  /// The gradients of L(f, g) by points and weights. `right` holds the derivatives of L by the potentials and is
  /// overwritten. Throws invalid_argument if both marginals are constraints and L changes with (f + t, g - t).
  LinearReport potential_gradients(VectorPair right, VectorPair const& points, VectorPair const& weights,
                                   LinearOptions const& options);
  /// The gradients of <u, P v> by points and weights: `factors` are u and v, of one width, and are overwritten.
  LinearReport product_gradients(VectorPair factors, VectorPair const& points, VectorPair const& weights,
                                 LinearOptions const& options);

 private:
  /// The solution of
  ///   k_a r df + P dg = right of rows,   P^T df + k_b c dg = right of columns,   k = 1 + eps / rho,
  /// is `change` + `constant` on each side. The two are kept apart: for a large penalty the constants are large, cancel
  /// in df_i + dg_j, and would cost the digits of the changes.
  struct Response {
    VectorPair change;
    double constant[2];
    LinearReport report;

    /// The sum of both constants, without their cancellation.
    double of_both = 0;
  };
  /// `terms`: of row_dots() in the right side, 0 where none made it.
  Response solve(VectorPair const& right, LinearOptions const& options, double terms = 0);
  /// sqrt(sum_i |l_i|^2 |r_i|^2), r a product with the plan: rounding of row_dots(l, r) is a fraction of it, however
  /// small <l_i, r_i> is.
  double terms_of(Side side, Vector const& l, Vector const& r);

  double penalty_ratio(Side side) const;  // eps / rho
  std::unique_ptr<Vector> make(Side side, bool wide = false) const;
  void combine(std::initializer_list<Term> terms, Vector& out) const;
  std::unique_ptr<Vector> product(Side side, Vector const& in);
  /// Vectors that are made when first needed, then kept.
  Vector const& inverse_marginal(Side side);
  Vector const& support(Side side);   // 1 where there is weight, else 0
  Vector const& features(Side side);  // x'_i
  Vector const& slopes(Side side);
  Vector const& far_features(Side side);  // sum_j P_ij y'_j
  Vector const& overlap();                // sum_i P_ij^2 / (r_i c_j)
  std::unique_ptr<Vector> inverse_of_diagonal(double k_a, double k_b);
  double mean_marginal(Side side);
  double mass_unit();
  bool has_rough_steps();
  Vector const& rough_marginal();  // P'^T diag(1 / r) P' 1 of columns, P' the rough plan

  double normalise(VectorPair const& v) const;
  void require_solvable(VectorPair const& right, double size);
  std::unique_ptr<Vector> totals(Side side, Vector const& right, Response const& response);
  /// factor <left_i, right_j>, of points i of one side and j of the other.
  struct Tilt {
    double factor;
    Vector const* left;
    Vector const* right;
  };
  struct Factors {
    std::unique_ptr<Vector> left, right;
  };
  double unit(Side side, Vector const& vector);
  Factors tilted_entries(Side side, Response const& response, double factor, std::span<Tilt const> tilts);
  std::unique_ptr<Vector> tilted(Side side, Response const& response, double factor, std::span<Tilt const> tilts);
  void tilted_gradient(Side side, Vector const& total, Response const& response, std::span<Tilt const> tilts,
                       Vector& out);
  PointCost const& cost() const { return plan_.points().cost(); }
  bool has_directions() const { return cost().function == CostFunction::cosine; }
  void by_points(Side side, Vector& w);
  void feature_gradient(Side side, Vector& out);
  LinearReport distance_product(VectorPair v, VectorPair const& out, LinearOptions const& options);
  LinearReport feature_product(VectorPair v, VectorPair const& out, LinearOptions const& options);

  /// The vector of a slot. It is made at its first use, and kept once fill(vector) has ended: that may throw.
  template <class Fill>
  Vector const& filled(std::unique_ptr<Vector>& slot, Side side, bool wide, Fill const& fill);
  struct Kept {
    std::unique_ptr<Vector> inverse_marginal, support, features, slopes, far_features, direction, inverse_length;
    double size_of_features = 0;  // A power of two.
  };
  Kept& kept(Side side) { return kept_[static_cast<int>(side)]; }

  PlanOperator& plan_;
  PlanOperator* rough_;
  VectorOperations const& vectors_;
  double eps_;
  Penalties penalties_;
  std::int64_t dimension_;
  double rounding_;  // The unit roundoff of the products.
  Kept kept_[2];
  std::unique_ptr<Vector> overlap_, rough_marginal_;
  std::optional<double> mass_unit_;  // mass_unit() and has_rough_steps(),
  std::optional<bool> suits_rough_;  // once they are needed.
};

}  // namespace monge
