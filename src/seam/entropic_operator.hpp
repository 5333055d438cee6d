// The seam: the operations of an entropic problem for solvers, whatever its geometry and backend.
//
// An operator holds packed costs and weights, which it shares with its plans, and the pair of potentials (f, g), all in
// its backend's memory. Solvers see only this class, the vectors and the plan that it makes: no loop over data above
// it, no decision about stopping below it. Calls are fused passes over the pairs (i, j); the virtual call sits above
// whole sweeps, so a CUDA graph or a persistent kernel fits behind it. Nothing here promises that a pass touches all
// pairs or that a vector sits in one place.
//
// Potentials cross the seam in units of C, for the cost of the user's geometry (only the operator knows the centring:
// C_ij = C'_ij + s_i + t_j, and inside f' = f - s, g' = g - t). A new operator starts at f' = g' = 0.
#pragma once
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>

#include <monge/array.hpp>

#include "core/evaluation.hpp"
#include "core/side.hpp"
#include "seam/plan_operator.hpp"
#include "seam/vectors.hpp"

namespace monge {

/// rho of the terms rho_a KL(P 1 | a) and rho_b KL(P^T 1 | b), in the units of C; infinity: the marginal is a
/// constraint.
struct Penalties {
  double a = std::numeric_limits<double>::infinity();
  double b = std::numeric_limits<double>::infinity();
  double of(Side side) const { return side == Side::rows ? a : b; }
  /// Both marginals are constraints.
  bool balanced() const { return std::isinf(a) && std::isinf(b); }
  friend bool operator==(Penalties const&, Penalties const&) = default;
};

/// One kind of sweep. Alternating: f from g, then g from the new f; symmetric: both from the old pair, then averaged.
/// With relaxation omega != 1 (alternating only) each update moves by omega (f* - f), where f* is the best value. A row
/// takes the plain step instead if its dual would rise by less than half of the gain that theory promises near the
/// optimum (docs/math.md, section 5). So the dual never decreases, for any omega in (0, 2). With a finite penalty a
/// sweep begins with the translation (f + t, g - t) that raises the dual most (section 10), unless `translates` is off.
struct Sweep {
  double eps;
  bool symmetric = false;
  double relaxation = 1.0;
  bool translates = true;  // A Sweeper takes no other sweeps.
};

/// L1 errors that the updates of the last sweep saw: row |P 1 - a exp(-f / rho_a)|_1 before f moved, column |P^T 1 - b
/// exp(-g / rho_b)|_1 before g moved (for symmetric sweeps both of the old pair). After a plain alternating sweep the
/// columns are exact and the row error is at most `column`. `gradient_norm` is the 2-norm of both errors together.
struct SweepErrors {
  double row = 0;
  double column = 0;
  double gradient_norm = 0;
};

/// The size of the costs.
struct CostSize {
  /// An upper bound of the centred cost C' (each cloud at its own mean) of points with weight: where the eps ladder
  /// starts. Translating a cloud does not change it; 0 when each cloud is a single point.
  double centred_bound;
  /// The same for all points, whatever their weights; in a cost matrix, for points with weight.
  double bound_of_all;
  /// sum_ij a_i b_j C_ij / sum_ij a_i b_j over the pairs that are allowed, for the user's cost.
  double mean;
  double forbidden;  // sum_ij a_i b_j over the pairs that are forbidden.
};

class EntropicOperator {
 public:
  EntropicOperator(std::int64_t n, std::int64_t m, bool is_self = false) : n_(n), m_(m), is_self_(is_self) {}
  virtual ~EntropicOperator() = default;
  EntropicOperator(EntropicOperator const&) = delete;
  EntropicOperator& operator=(EntropicOperator const&) = delete;

  std::int64_t size(Side side) const { return side == Side::rows ? n_ : m_; }
  /// Whether a measure is transported to itself: the columns are the rows, with the same weights and a symmetric cost.
  /// Callers set f = g and sweep symmetrically, which keeps f = g; a sweep then does half of the work.
  bool is_self() const { return is_self_; }

  virtual CostSize cost_size() const = 0;

  virtual VectorOperations const& vectors() const = 0;

  /// Replaces (f, g); an empty view means zeros for the user's cost, whatever the internal gauge. Points of zero weight
  /// take no part in sweeps: get_potentials() then gives them the value of an update, f* of the other potential. A self
  /// problem takes the mean of (f', g').
  virtual void set_potentials(VectorView f, VectorView g) = 0;
  virtual void get_potentials(MutableVectorView f, MutableVectorView g) const = 0;
  /// The potential of one side in the operator's own gauge (f' or g'), which operators of one problem share whatever
  /// their precision: combine() copies it from one to another or moves it along a line. The non-const overload marks it
  /// as changed, even if the caller does not write.
  virtual Vector const& potential(Side side) const = 0;
  virtual Vector& potential(Side side) = 0;

  /// Enqueues `count` sweeps; does not wait for them.
  virtual void sweep(Sweep const& sweep, int count) = 0;
  /// Waits; the errors of the last sweep.
  virtual SweepErrors errors() = 0;

  /// Also writes P 1 and P^T 1, which it finds on the way, to the vectors that are not null.
  virtual Evaluation evaluate(double eps, Vector* row_marginal, Vector* column_marginal) = 0;
  Evaluation evaluate(double eps) { return evaluate(eps, nullptr, nullptr); }

  /// The plan of the current potentials, which it has as (f + t, g - t). It shares no memory that only sweeps need.
  virtual std::unique_ptr<PlanOperator> plan(double eps, double t) const = 0;
  std::unique_ptr<PlanOperator> plan(double eps) const { return plan(eps, 0); }

 private:
  std::int64_t n_, m_;
  bool is_self_;
};

/// Between operators of one problem, whatever their precision.
inline void copy_potentials(EntropicOperator const& from, EntropicOperator& to) {
  for (Side const side : kSides) {
    to.vectors().copy(from.potential(side), to.potential(side));
  }
}

}  // namespace monge
