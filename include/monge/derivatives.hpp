// Derivatives of entropic optimal transport: what the methods of Plan take and give.
//
//   D(f, g) = sum_i phi_a(f_i) a_i + sum_j phi_b(g_j) b_j - eps (sum_ij P_ij - sum a sum b),
//   phi(f) = rho (1 - exp(-f / rho)), or f where the marginal is a constraint (rho infinite).
//
// The report's dual value is D at the plan's potentials. docs/math.md, section 11; FlashSinkhorn, Theorem 5 and
// Appendix F.
#pragma once
#include <limits>

#include <monge/array.hpp>
#include <monge/names.hpp>

namespace monge {

/// Numbers of the points: x (n x d), y (m x d). As input an empty one is zero, as output it is not wanted.
struct PointViews {
  MatrixView x = {}, y = {};
};
struct MutablePointViews {
  MutableMatrixView x = {}, y = {};
};

/// Where derivatives go; an empty view is not wanted.
struct GradientViews {
  MutableMatrixView x = {};  ///< n x d.
  MutableMatrixView y = {};  ///< m x d.
  MutableVectorView a = {};  ///< n. Of a balanced problem they count along directions that keep sum a = sum b.
  MutableVectorView b = {};  ///< m.
};

struct GradientOptions {
  int error_iterations = 20;  ///< Steps that the estimate of GradientReport::distance may take, >= 0; 0: no estimate.
};

struct GradientReport {
  double scale = 0;  ///< The derivative by PointCloud::scale, sum_ij P_ij c(x_i, y_j). NaN for a cost matrix.
  /// That by Labels::weight, sum_ij P_ij W[l_i, l_j]: NaN where there are no labels, or the weight is 0.
  double label_weight = std::numeric_limits<double>::quiet_NaN();
  double marginal_error = 0;  ///< That of the plan's report.
  /// How far the derivatives are from those at the optimum, to first order, after a Newton step for the potentials:
  /// |change| / |gradient| of those by x and y in the 2-norm. Where there are none, as for a cost matrix, the root mean
  /// square over P of the relative changes of its entries, which are the derivatives by the costs. Rounding is seen as
  /// the step sees it. NaN if it was not wanted.
  double distance = std::numeric_limits<double>::quiet_NaN();
  int iterations = 0;  ///< That the estimate took.
};

/// How a system in the potentials, S = diag(c) k_b - P^T diag(1 / (r k_a)) P with k = 1 + eps / rho, is solved by
/// conjugate gradients.
struct LinearOptions {
  double damping = 0;       ///< S + damping diag(c), >= 0, without a unit. 0: the derivative itself.
  double tolerance = 1e-6;  ///< On the residual relative to the right side, >= 0.
  int iterations = 1000;    ///< At most this many steps, >= 0, of two passes each (CPU: one).
};

enum class LinearStatus {
  converged,           ///< The residual, evaluated anew, is within the tolerance.
  iteration_limit,     ///< It is not after so many steps.
  negative_curvature,  ///< Of inverse_hessian_product(): H + shift is not positive along a direction; the solution is
                       ///< the one before.
  breakdown,           ///< Something was not finite.
  stagnation,          ///< Rounding, or a system without a solution, keeps the residual from falling further.
};
constexpr auto names_of(LinearStatus) {
  using enum LinearStatus;
  return std::to_array<Named<LinearStatus>>({{converged, "converged"},
                                             {iteration_limit, "iteration_limit"},
                                             {negative_curvature, "negative_curvature"},
                                             {breakdown, "breakdown"},
                                             {stagnation, "stagnation"}});
}

struct LinearReport {
  LinearStatus status = LinearStatus::converged;
  int iterations = 0;   ///< Steps taken.
  double residual = 0;  ///< Relative to the right side, in the arithmetic of the plan; 0 if that is 0.
};

}  // namespace monge
