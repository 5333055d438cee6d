// Plan: what solve() returns. Potentials, report, and the plan P as an operator; nothing of size n x m is stored.
#pragma once
#include <memory>
#include <vector>

#include <monge/array.hpp>
#include <monge/report.hpp>

namespace monge {

/// P_ij = a_i b_j exp((f_i + g_j - C_ij) / eps). Keeps its own packed copies, so the caller's x, y, a, b may go away.
/// Move-only. Outputs may be float32 or float64, on the host or on the plan's device; where all of a call lies on the
/// device, the host does not wait for it. Products run in the report's precision (after tf32 in float32), in O((n + m)
/// d) memory and that of their own arguments. Costs below are passes over all pairs: the first product onto a side, and
/// P 1 or P^T 1, takes one more, unless V has several columns; later ones allocate nothing.
class Plan {
 public:
  struct State;  // src/solvers/plan.cpp
  explicit Plan(std::unique_ptr<State> state);
  Plan(Plan&&) noexcept;
  Plan& operator=(Plan&&) noexcept;
  ~Plan();

  Report const& report() const;
  Status status() const;
  std::int64_t rows() const;     ///< n
  std::int64_t columns() const;  ///< m

  /// Potentials in units of C: f (n), g (m).
  std::vector<double> f() const;
  std::vector<double> g() const;
  void potentials(MutableVectorView f, MutableVectorView g) const;

  /// P 1 (n) and P^T 1 (m).
  void marginals(MutableVectorView row, MutableVectorView column) const;
  /// out (n x p) = P v, v (m x p). One pass. FlashSinkhorn, eq. 15.
  void apply(MatrixView v, MutableMatrixView out) const;
  /// out (m x p) = P^T u, u (n x p). One pass. FlashSinkhorn, eq. 16.
  void apply_transpose(MatrixView u, MutableMatrixView out) const;
  /// out (n x p) = (P o l r^T) v, o the product entry by entry, l (n x k), r (m x k), v (m x p). One pass; nothing of
  /// size n x m is formed. FlashSinkhorn, Algorithm 5.
  void apply_hadamard(MatrixView l, MatrixView r, MatrixView v, MutableMatrixView out) const;
  /// out (m x p) = (P o l r^T)^T u, l (n x k), r (m x k), u (n x p). One pass.
  void apply_hadamard_transpose(MatrixView l, MatrixView r, MatrixView u, MutableMatrixView out) const;
  /// out (m) = P^T diag(w) P v, w (n), v (m): with w = 1 / (P 1) the step of a conjugate gradient on the Schur
  /// complement of the dual's Hessian. At most two passes. FlashSinkhorn, eq. 15-16.
  void apply_gram(VectorView w, VectorView v, MutableVectorView out) const;
  /// out (n) = P diag(w) P^T u, w (m), u (n).
  void apply_gram_transpose(VectorView w, VectorView u, MutableVectorView out) const;
  /// <C, P>: the report's float64 value, or one pass in the precision of the solve where the certificate was skipped.
  double transport_cost() const;

  /// out (n x d): barycentric projection of each x_i, sum_j P_ij y_j / sum_j P_ij; defined for a_i = 0 too.
  void barycentric_projection(MutableMatrixView out) const;
  /// The same map at new points (k x d): the entropic map of the target cloud's potential g.
  void map(MatrixView points, MutableMatrixView out) const;
  /// The potential f at new points: -eps log sum_j b_j exp((g_j - C(z, y_j)) / eps). out has k entries.
  void potential(MatrixView points, MutableVectorView out) const;

 private:
  std::unique_ptr<State> state_;
};

}  // namespace monge
