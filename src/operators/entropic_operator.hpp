// The seam: what a solver may ask of an entropic problem, whatever its geometry and backend.
//
// An operator owns packed data, the weights and the pair of potentials (f, g), all where its backend keeps them.
// Solvers see only this class: no loop over data above it, no decision about stopping below it. Calls are fused passes
// over the pairs (i, j); the virtual call sits above whole sweeps, so a CUDA graph or a persistent kernel fits behind
// it. Nothing here promises that a pass touches all pairs or that a vector sits in one place.
//
// Potentials cross the seam in units of C, for the cost of the user's geometry (centring is the operator's own affair:
// C_ij = C'_ij + s_i + t_j, and inside f' = f - s, g' = g - t). A new operator starts at f' = g' = 0.
#pragma once
#include <cstdint>
#include <memory>
#include <span>

#include <monge/array.hpp>

#include "core/evaluation.hpp"

namespace monge {

enum class Side { rows, columns };  // rows: a, x, f (n); columns: b, y, g (m)

constexpr Side opposite(Side side) {
  return side == Side::rows ? Side::columns : Side::rows;
}

/// One kind of sweep. Alternating: f from g, then g from the new f; symmetric: both from the old pair, then averaged.
/// With relaxation omega != 1 (alternating only) each update moves u = (f+ - f) / eps by omega u, unless that would
/// raise the dual of its row by less than half of what theory promises near the optimum; such a row takes the plain
/// step (docs/math.md, section 5). So the dual never decreases, whatever omega in (0, 2) is.
struct Sweep {
  double eps;
  bool symmetric = false;
  double relaxation = 1.0;
};

/// L1 errors as the updates of the last sweep saw them: row |P 1 - a|_1 before f moved, column |P^T 1 - b|_1 before g
/// moved (for symmetric sweeps both of the old pair). After a plain alternating sweep the columns are exact and the
/// row error is at most `column`.
struct SweepErrors {
  double row;
  double column;
};

class EntropicOperator {
 public:
  EntropicOperator(std::int64_t n, std::int64_t m) : n_(n), m_(m) {}
  virtual ~EntropicOperator() = default;
  EntropicOperator(EntropicOperator const&) = delete;
  EntropicOperator& operator=(EntropicOperator const&) = delete;

  std::int64_t size(Side side) const { return side == Side::rows ? n_ : m_; }

  /// An upper bound of the centred cost C' (each cloud at its own mean): where the eps ladder starts. Translating a
  /// cloud does not change it; 0 when each cloud is a single point.
  virtual double centred_cost_bound() const = 0;

  /// Replaces (f, g); an empty view leaves zeros of the user's cost, whatever the internal gauge. Points of no weight
  /// take no part in sweeps: after one, what get_potentials gives for them is the soft c-transform of the other side's.
  virtual void set_potentials(VectorView f, VectorView g) = 0;
  virtual void get_potentials(MutableVectorView f, MutableVectorView g) const = 0;

  /// Enqueues `count` sweeps; does not wait for them.
  virtual void sweep(Sweep const& sweep, int count) = 0;
  /// Waits; the errors of the last sweep.
  virtual SweepErrors errors() = 0;

  virtual Evaluation evaluate(double eps) = 0;
  virtual void marginals(double eps, MutableVectorView row, MutableVectorView column) = 0;

  /// out = the soft c-transform of the other side's potential: for rows f+_i = -eps log sum_j b_j exp((g_j - C_ij) /
  /// eps).
  virtual void softmin(Side side, double eps, MutableVectorView out) = 0;

  /// For rows, V (m x p) gives out (n x p): sum_j w_ij V_j with w_ij = P_ij, or P_ij / sum_j P_ij when `normalized`
  /// (which does not depend on f or a). For columns the same with the roles swapped. An empty V stands for the points
  /// of the other side themselves (then p = d).
  virtual void average(Side side, double eps, MatrixView v, MutableMatrixView out, bool normalized) = 0;

  /// The same problem with this side's points replaced, unit weights and zero potential there; the other side is shared
  /// and must not change while the result lives.
  virtual std::unique_ptr<EntropicOperator> with_points(Side side, MatrixView points) const = 0;

 private:
  std::int64_t n_, m_;
};

}  // namespace monge
