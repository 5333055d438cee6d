// The Sinkhorn divergence: entropic optimal transport without the bias of its entropy.
//   S(a, b) = OT(a, b) - OT(a, a) / 2 - OT(b, b) / 2 + eps / 2 (sum a - sum b)^2,
// OT as in entropic.hpp. S(a, a) = 0, S is symmetric, and for the squared distance it is positive and convex in a and
// in b. Sources: Feydy et al., "Interpolating between optimal transport and MMD using Sinkhorn divergences" (2019);
// Sejourne et al., "Sinkhorn divergences for unbalanced optimal transport" (2019).
#pragma once
#include <monge/context.hpp>
#include <monge/derivatives.hpp>
#include <monge/entropic.hpp>
#include <monge/geometry.hpp>
#include <monge/plan.hpp>
#include <monge/report.hpp>

namespace monge {

struct DivergenceGradient {
  double scale = 0;         ///< The derivative of the value by PointCloud::scale; NaN where there are no points.
  double label_weight = 0;  ///< That by Labels::weight; NaN as in GradientReport.
  /// That of ab, and half of those of aa and bb. How far the derivatives of each are from its optimum says
  /// ab.gradients({}).distance, and so on. Those distances are relative: of the difference, which vanishes where the
  /// measures are the same, there is no such number.
  double marginal_error = 0;
};

/// What sinkhorn_divergence() returns: the value, and the three problems behind it with their reports.
struct Divergence {
  double value = 0;  ///< S, from the three dual values; NaN where SolveOptions::certificate is off.
  /// |gap| of ab, and half of those of aa and bb. Gaps are of first order in the marginal errors. The error of `value`
  /// is of second order: at most these, and the rounding of float64, for sweeps that have come close.
  double gap = 0;
  Plan ab, aa, bb;

  /// The least of the three: converged only if all are.
  Status status() const;

  /// Derivatives of `value` by points and weights, as those of Plan::gradients(): one or two passes over the pairs of
  /// ab, aa and bb for each output. Of balanced problems those by weights count along directions of zero sum.
  DivergenceGradient gradients(GradientViews const& out) const;
};

/// The costs of a divergence where there are no points.
struct DivergenceCosts {
  CostMatrix xy;  ///< n x m.
  CostMatrix xx;  ///< n x n, symmetric: asymmetry is not looked for, and enters OT(a, a) as it is.
  CostMatrix yy;  ///< m x m, the same.
};

/// S of two weighted clouds, a (n) and b (m) as in solve(). OT(a, a) and OT(b, b) have one potential each, and their
/// sweeps take half of the work; they come first and share the packed points of OT(a, b), which starts from their
/// potentials unless the options have f and g. So S(x, x) is 0 up to the rounding of float64 and the square of the
/// self terms' marginal error.
///
/// Of the options, eps_relative is of the mean cost of OT(a, b); iterations, tolerance and cache_bytes are for each of
/// the three; schedule is for OT(a, b) alone. Progress::problem is 0 for OT(a, b), 1 for OT(a, a), 2 for OT(b, b).
/// Throws Error as solve() does.
Divergence sinkhorn_divergence(Context const& context, PointCloud const& clouds, VectorView a, VectorView b,
                               SolveOptions const& options);
/// The same from cost matrices. The self terms are solved like any other.
Divergence sinkhorn_divergence(Context const& context, DivergenceCosts const& costs, VectorView a, VectorView b,
                               SolveOptions const& options);

}  // namespace monge
