// Derivatives of entropic optimal transport: arguments and reports of the methods of Plan.
//
//   D(f, g) = sum_i phi_a(f_i) a_i + sum_j phi_b(g_j) b_j - eps (sum_ij P_ij - sum a sum b),
//   phi(f) = rho (1 - exp(-f / rho)), or f where the marginal is a constraint (rho infinite).
//
// The report's dual value is D at the plan's potentials. docs/math.md, section 11; FlashSinkhorn, Theorem 5 and
// Appendix F.
#pragma once
#include <cstdint>
#include <limits>

#include <monge/array.hpp>
#include <monge/names.hpp>

namespace monge {

/// A vector for each point: x (n x d), y (m x d). An empty input is zero; an empty output is not computed.
struct PointViews {
  MatrixView x = {}, y = {};
};
struct MutablePointViews {
  MutableMatrixView x = {}, y = {};
};

/// Outputs of derivatives. An empty view is not computed.
struct GradientViews {
  MutableMatrixView x = {};  ///< n x d.
  MutableMatrixView y = {};  ///< m x d.
  MutableVectorView a = {};  ///< n. In a balanced problem it is defined only along directions that keep sum a = sum b.
  MutableVectorView b = {};  ///< m.
};

struct GradientOptions {
  int error_iterations = 20;  ///< Limit of steps for GradientReport::distance, >= 0; 0: no estimate.
  /// Whether to evaluate GradientReport::scale and label_weight; if not, both are NaN. It takes a pass over all pairs
  /// if the plan has no certificate, or if there are labels.
  bool scale = true;
};

struct GradientReport {
  double scale = 0;  ///< The derivative by PointCloud::scale, sum_ij P_ij c(x_i, y_j). NaN for a cost matrix.
  /// The derivative by Labels::weight, sum_ij P_ij W[l_i, l_j]. NaN if there are no labels or the weight is 0.
  double label_weight = std::numeric_limits<double>::quiet_NaN();
  double marginal_error = 0;  ///< Report::marginal_error of the plan.
  /// A first-order estimate of the distance to the derivatives at the optimum: the relative change |change| /
  /// |gradient| of the derivatives by x and y (2-norm) under a Newton step for the potentials. Without derivatives by
  /// points, as for a cost matrix, it is the root mean square over P of the relative changes of the entries of P, which
  /// are the derivatives by the costs. The estimate includes rounding errors only as far as they change the Newton
  /// step. NaN without an estimate, and where the plan or the step is not finite or the system for the step breaks
  /// down.
  double distance = std::numeric_limits<double>::quiet_NaN();
  int iterations = 0;           ///< Steps of the estimate.
  std::int64_t peak_bytes = 0;  ///< Report::peak_bytes, of the call for the derivatives.
};

/// Options of the conjugate gradients for a system in the potentials, with the matrix
///   S = diag(c) k_b - P^T diag(1 / (r k_a)) P,
///   r = P 1,   c = P^T 1,   k_a = 1 + eps / rho_a,   k_b = 1 + eps / rho_b.
struct LinearOptions {
  double damping = 0;       ///< The matrix of the system is S + damping diag(c); >= 0, dimensionless. 0: the exact
                            ///< derivative.
  double tolerance = 1e-6;  ///< Bound of the residual, relative to the right side; >= 0.
  int iterations = 1000;    ///< At most this many steps, >= 0, of two passes each (CPU: one).
};

enum class LinearStatus {
  converged,           ///< The residual, evaluated anew, is within the tolerance; or within the rounding of the two
                       ///< parts of the right side, which cancel where P nearly matches points one to one.
  iteration_limit,     ///< The residual is above the tolerance after all steps.
  negative_curvature,  ///< In inverse_hessian_product(): H + shift is not positive along a direction. The result is the
                       ///< iterate before this direction.
  breakdown,           ///< A number was not finite.
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
  double residual = 0;  ///< Relative to the right side, in the arithmetic of the plan; 0 if the right side is 0.
  std::int64_t peak_bytes = 0;  ///< Report::peak_bytes, of the call that solved the system.
};

}  // namespace monge
