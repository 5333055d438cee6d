// Newton's method on the semi-dual of entropic OT, one damped step at a time, on operators and plans of any backend
// (docs/math.md, section 15).
#pragma once
#include <memory>

#include "seam/backend.hpp"

namespace monge {

/// The state after an advance. Rows are exact: P 1 = a exp(-f / rho_a), which is a for a constraint.
struct NewtonProgress {
  double error;          ///< |P^T 1 - b exp(-g / rho_b)|_1 before the sweep that ended this advance
  double gradient_norm;  ///< The 2-norm of the same
  int passes;            ///< Passes of this advance over all pairs
  bool is_step;          ///< Whether this advance was a step, not a sweep
};

/// Maximises the dual as a function of g alone, with the best f for each g. With c = P^T 1, a' = a exp(-f / rho_a),
/// b' = b exp(-g / rho_b), and k_a = 1 + eps / rho_a, its gradient is b' - c, and a step d solves
///   (diag((1 + mu) c + eps / rho_b b') - P^T diag(1 / (k_a a')) P) d = eps (b' - c)
/// by conjugate gradients. For constraints a' = a, b' = b and k_a = 1. Clusters that no mass leaves give the matrix one
/// nearly null vector each, along which plain steps overshoot; mu, relative to c, bounds these steps (Levenberg,
/// Marquardt). The preconditioner is the same matrix with only the largest P_ij in the product. It keeps the full c, so
/// it is positive definite for any choice of entries. A plain sweep from g is an evaluation: it finds f, and c from the
/// update of g.
class NewtonMethod {
 public:
  /// `entropic`, in float64 and with these marginals and penalties, outlives this object and has no other user between
  /// two advances at one eps. `rough`, if given, is an operator of the same problem in less precision, which outlives
  /// this object, too: conjugate gradients multiply by its plan until its directions are refused.
  NewtonMethod(EntropicOperator& entropic, EntropicOperator* rough, Marginals const& marginals,
               Penalties const& penalties, Criterion criterion);
  ~NewtonMethod();

  /// The first advance at an eps evaluates the present potentials. Each other one takes a step of at most `most_passes`
  /// (>= 1) passes, or a plain sweep where a column has almost no mass or few passes are left. The potentials are then
  /// those after a plain sweep: columns exact, rows off by at most `error`.
  NewtonProgress advance(double eps, int most_passes);
  /// Goes back to the potentials with the least L1 error, or gradient norm if that is the criterion, since the first
  /// advance at this eps. Returns their L1 error. Steps raise the dual, which is unbounded if no plan has the
  /// marginals: the error may then grow without limit.
  double return_to_best();

 private:
  /// A pair of potentials, in the gauge of the operator: f is the best for g.
  struct Point {
    explicit Point(VectorOperations const& vectors);

    std::unique_ptr<Vector> f, g;
    std::unique_ptr<Vector> next;      // g after a plain sweep
    std::unique_ptr<Vector> marginal;  // c
    std::unique_ptr<Vector> wanted;    // b'
    double error = 0, norm = 0;        // L1 and L2 norm of c - b'.
  };

  double value(Point const& point) const { return criterion_ == Criterion::gradient ? point.norm : point.error; }
  void copy(Point const& from, Point& to) const;
  void evaluate(Vector const& g, Point& out);
  bool is_far() const;
  void sweep();
  std::unique_ptr<PlanOperator> plan_of(EntropicOperator& entropic) const;
  bool find_direction(int most_products);
  void find_wanted(Side side, Vector const& potential, Vector& out) const;
  void find_transform(Side side, Vector const& best, Vector& out) const;
  double gain() const;
  double gain_of(Side side, Vector const& from, Vector const& to) const;
  double largest(Side side, Vector const& potential) const;

  EntropicOperator& entropic_;
  EntropicOperator* rough_;
  VectorOperations const& vectors_;
  Penalties penalties_;
  Criterion criterion_;
  double mass_;
  double eps_ = 0;
  VectorPair weight_, support_;  // A support is 1 at positive weight, else 0.
  VectorPair zero_;              // f = 0 and g = 0 in the operator's gauge; null if both marginals are constraints.
  Point point_, trial_;
  Point best_;                    // The best of the points at which advances at eps_ have ended
  std::unique_ptr<Vector> step_;  // d
  double damping_;                // mu
  int most_products_;             // Limit for the next step.
  bool was_refused_ = false;      // The last step
  int passes_ = 0;

  // The preconditioner: its entries stay until conjugate gradients take many steps, their values for one step.
  std::unique_ptr<EntrySolver> entries_;
  bool entries_are_old_ = true;
  std::unique_ptr<Vector> rows_, inverse_rows_, diagonal_;  // The system's k_a a', its inverse, and its diagonal
  VectorPair scratch_, masses_;                             // Memory for one expression at a time
};

}  // namespace monge
