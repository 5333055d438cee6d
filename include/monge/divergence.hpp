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
  double label_weight = 0;  ///< The derivative by Labels::weight; NaN as in GradientReport.
  /// Of ab, plus half of those of aa and bb. ab.gradients({}).distance, and so on, estimate the relative distance of
  /// each part from its derivatives at the optimum. The derivative of the divergence has no relative distance: it
  /// vanishes where the measures are equal.
  double marginal_error = 0;
};

/// What sinkhorn_divergence() returns: the value, and the three problems behind it with their reports.
struct Divergence {
  double value = 0;  ///< S, from the three dual values; NaN where SolveOptions::certificate is off.
  /// |gap| of ab, plus half of those of aa and bb. Gaps are of first order in the marginal errors, the error of `value`
  /// is of second order. Near convergence the error is therefore at most this, plus the rounding of float64.
  double gap = 0;
  Plan ab, aa, bb;

  /// The worst of the three: converged only if all are.
  Status status() const;

  /// Derivatives of `value` by points and weights, as in Plan::gradients(): one or two passes over the pairs of ab, aa
  /// and bb for each output. In balanced problems derivatives by weights are defined along directions of zero sum.
  DivergenceGradient gradients(GradientViews const& out) const;
};

/// The costs of a divergence without points.
struct DivergenceCosts {
  CostMatrix xy;  ///< n x m.
  CostMatrix xx;  ///< n x n, symmetric. Symmetry is not checked: OT(a, a) uses the matrix as given.
  CostMatrix yy;  ///< m x m, likewise.
};

/// S of two weighted clouds, a (n) and b (m) as in solve(). OT(a, a) and OT(b, b) have one potential each, and their
/// sweeps take half of the work. They are solved first and share the packed points of OT(a, b). OT(a, b) starts from
/// their potentials unless the options have f and g. S(x, x) is therefore 0 up to the rounding of float64 and the
/// square of the self terms' marginal error.
///
/// Of the options, eps_relative is a share of the mean cost of OT(a, b); iterations, tolerance and cache_bytes are for
/// each of the three; schedule is for OT(a, b) alone. Progress::problem is 0 for OT(a, b), 1 for OT(a, a), 2 for OT(b,
/// b). Throws Error as solve() does.
Divergence sinkhorn_divergence(Context const& context, PointCloud const& clouds, VectorView a, VectorView b,
                               SolveOptions const& options);
/// The same from cost matrices. The self terms are solved like any other.
Divergence sinkhorn_divergence(Context const& context, DivergenceCosts const& costs, VectorView a, VectorView b,
                               SolveOptions const& options);

}  // namespace monge
