// The Sinkhorn divergence: entropic optimal transport without the bias of its entropy.
//   S(a, b) = OT(a, b) - OT(a, a) / 2 - OT(b, b) / 2 + eps / 2 (sum a - sum b)^2,
// OT as in entropic.hpp. S(a, a) = 0, S is symmetric, and for the squared distance it is positive and convex in a and
// in b. Sources: Feydy et al., "Interpolating between optimal transport and MMD using Sinkhorn divergences" (2019);
// Sejourne et al., "Sinkhorn divergences for unbalanced optimal transport" (2019).
#pragma once
#include <span>
#include <variant>
#include <vector>

#include <monge/context.hpp>
#include <monge/derivatives.hpp>
#include <monge/entropic.hpp>
#include <monge/export.hpp>
#include <monge/geometry.hpp>
#include <monge/plan.hpp>
#include <monge/report.hpp>

namespace monge {

struct DivergenceGradient {
  double scale = 0;         ///< The derivative of the value by PointCloud::scale; NaN where there are no points.
  double label_weight = 0;  ///< The derivative by Labels::weight; NaN as in GradientReport.
  /// The marginal error of ab, plus half of those of aa and bb. ab.gradients({}).distance, and so on, estimate the
  /// relative distance of each plan's derivatives from those at the optimum. The derivative of the divergence has no
  /// relative distance: it vanishes where the measures are equal.
  double marginal_error = 0;
};

/// The result of sinkhorn_divergence(): the value, and the plans of the three problems with their reports.
struct MONGE_API Divergence {
  double value = 0;  ///< S, from the three dual values; NaN where SolveOptions::certificate is off.
  /// |gap| of ab, plus half of those of aa and bb. Gaps are of first order in the marginal errors, the error of `value`
  /// is of second order. Near convergence the error of `value` is therefore at most `gap`, plus the rounding of
  /// float64.
  double gap = 0;
  Plan ab, aa, bb;

  /// The worst of the three: converged only if all are.
  Status status() const;

  /// Derivatives of `value` by points and weights, as in Plan::gradients(): one or two passes over the pairs of ab, aa
  /// and bb for each output. In balanced problems derivatives by weights are defined along directions of zero sum.
  /// `scale`: as in GradientOptions.
  DivergenceGradient gradients(GradientViews const& out, bool scale = true) const;
};

/// The costs of a divergence without points.
struct DivergenceCosts {
  CostMatrix xy;  ///< n x m.
  /// n x n, symmetric. Symmetry is not checked: OT(a, a) uses the matrix as given. If each entry of the diagonal is at
  /// most eps in absolute value, the solve averages its sweeps and is several times as fast.
  CostMatrix xx;
  CostMatrix yy;  ///< m x m, likewise.
};

/// Two potentials in units of C, or none.
struct PotentialViews {
  VectorView f = {}, g = {};
  /// Precision of the plan that divergence_of() makes of them; automatic takes SolveOptions::precision.
  Precision precision = Precision::automatic;
};

/// Two measures, and potentials of OT(a, b), OT(a, a) and OT(b, b), each as SolveOptions::f and g. A self term of
/// points takes the mean of its two potentials.
struct DivergenceProblem {
  std::variant<PointCloud, DivergenceCosts> costs;
  VectorView a = {}, b = {};
  PotentialViews ab = {}, aa = {}, bb = {};
};

/// S of two clouds with weights a (n) and b (m), as in solve(). The self terms, OT(a, a) and OT(b, b), have one
/// potential each, and their sweeps take half of the work. The self terms are solved first, on the packed points of
/// OT(a, b). OT(a, b) starts from their potentials unless the options have f and g. For the squared distance, S of a
/// measure and its translation by t is therefore |t|^2, times scale and mass, up to the rounding of float64 and the
/// square of the self terms' marginal error.
///
/// If a and b are the same measure, one solve of OT(a, a) replaces all three. Value and gradients are exactly 0, and
/// the three reports are equal. Only the warm start of OT(a, a) is used. The measures count as the same if points and
/// labels are equal in the same order; in device memory they must have the same addresses.
///
/// In the options, eps_relative refers to the mean cost of OT(a, b). iterations, tolerance and cache_bytes apply to
/// each of the three solves, schedule to OT(a, b) alone. Progress::problem is 0 for OT(a, b), 1 for OT(a, a) and 2 for
/// OT(b, b). Throws Error as solve() does.
MONGE_API Divergence sinkhorn_divergence(Context const& context, PointCloud const& clouds, VectorView a, VectorView b,
                                         SolveOptions const& options = {});
/// The same from cost matrices. The self terms are solved like any other problem.
MONGE_API Divergence sinkhorn_divergence(Context const& context, DivergenceCosts const& costs, VectorView a,
                                         VectorView b, SolveOptions const& options = {});
/// The same with a warm start of each of the three solves. f and g of the options must be empty.
MONGE_API Divergence sinkhorn_divergence(Context const& context, DivergenceProblem const& problem,
                                         SolveOptions const& options = {});
/// The same for many problems at once, as solve_batch(): to the same bits. Progress::problem of problem k is 3 k, 3 k +
/// 1 or 3 k + 2.
MONGE_API std::vector<Divergence> sinkhorn_divergence_batch(Context const& context,
                                                            std::span<DivergenceProblem const> problems,
                                                            SolveOptions const& options = {});
/// The three plans of given potentials, all six required, as plan_of() makes them. `value` and `gap` are NaN.
MONGE_API Divergence divergence_of(Context const& context, DivergenceProblem const& problem,
                                   SolveOptions const& options);
MONGE_API std::vector<Divergence> divergences_of(Context const& context, std::span<DivergenceProblem const> problems,
                                                 SolveOptions const& options);

}  // namespace monge
