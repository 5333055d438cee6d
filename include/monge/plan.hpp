// Plan: what solve() returns. Potentials, report, and the plan P as an operator.
#pragma once
#include <memory>
#include <vector>

#include <monge/array.hpp>
#include <monge/derivatives.hpp>
#include <monge/report.hpp>

namespace monge {

/// P_ij = a_i b_j exp((f_i + g_j - C_ij) / eps). Keeps its own packed copies, so the caller's x, y, a, b may go away.
/// Move-only. Outputs may be float32 or float64, on the host or on the plan's device; where all of a call lies on the
/// device, the host does not wait for it, but for the packing of new points. Products run in the report's precision
/// (after tf32 in float32).
///
/// Costs below are passes over all pairs. The first product onto a side, and P 1 or P^T 1, takes one more; later ones
/// allocate nothing. Memory is O((n + m) d) and that of the arguments. On CUDA, products with several columns and
/// entries pass some rows of P through memory (256 MiB each, or less if P is smaller), where in float32 an entry of a
/// product is held to 2^-22 of itself or 2^-40 of its row's sum, whichever is larger. What SolveOptions::cache_bytes
/// allows stays for the next product.
class Plan {
 public:
  struct State;  // src/plan/plan_state.hpp
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
  /// out (n x p) = (P o l r^T) v, o the product entry by entry, l (n x k), r (m x k), v (m x p). One pass.
  /// FlashSinkhorn, Algorithm 5.
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

  /// out (n x m) = P. One pass, and the memory of the caller.
  void dense(MutableMatrixView out) const;

  // Derivatives of the dual value (derivatives.hpp). Those by points throw unsupported where the costs have none.

  /// Derivatives of the report's dual value at the potentials of this plan, by the points and the weights:
  ///   by x_i   sum_j P_ij dc(x_i, y_j)/dx_i,       by a_i   phi_a(f_i) - eps ((P 1)_i / a_i - sum b),
  /// defined at a_i = 0 too. At the optimum they are those of OT_eps; for potentials that were stopped earlier they are
  /// what finite differences of the dual value at fixed f and g give, with the marginals that P has. By costs C_ij it
  /// is P_ij: dense(). A product by the points of the other side for each of x and y, the first time; the estimate of
  /// the distance takes a step of conjugate gradients at a time, of two passes (CPU: one), and some four products.
  GradientReport gradients(GradientViews const& out, GradientOptions const& options = {}) const;

  /// out = H v, H the Hessian of OT_eps in the points at fixed weights: x and y of `v` and `out` are any of its four
  /// blocks. For potentials that are not optimal it is the same formula with the marginals that P has. Points of no
  /// weight have rows of 0. Linear in v, whatever its size in float64. A product by v and one with an inner width of d
  /// (2 d with v.y and out.x) beside the steps of conjugate gradients. FlashSinkhorn, Theorem 5.
  LinearReport hessian_product(PointViews const& v, MutablePointViews const& out,
                               LinearOptions const& options = {}) const;

  /// out (n x d) solves (H + shift) out = v for the Hessian in x, by conjugate gradients on hessian_product(): steps of
  /// Newton's method. v (n x d); shift, in units of C over those of x squared, is what makes H positive where it is
  /// not, else the status is negative_curvature. `options` are for this system; products by H are solved a tenth as
  /// far.
  LinearReport inverse_hessian_product(MatrixView v, MutableMatrixView out, double shift = 0,
                                       LinearOptions const& options = {}) const;

  /// The derivatives of a function L(f, g) of the optimal potentials by the points and the weights, given dL/df (n) and
  /// dL/dg (m), one of which may be empty: implicit differentiation, one system. Where both marginals are constraints L
  /// must not change with (f + t, g - t): sum dL/df = sum dL/dg, else this throws invalid_argument.
  LinearReport potential_gradients(VectorView of_f, VectorView of_g, GradientViews const& out,
                                   LinearOptions const& options = {}) const;

  // Entries one by one, made in the precision of products (the report's, after tf32 float32), never n x m of them in
  // memory. They are logarithms at first, which rank and compare where P_ij itself underflows to 0. Pairs of no weight
  // or of infinite cost have P_ij = 0 and come after all others, by index.

  /// The k largest P_ij of each row, largest first and equal ones by j: j to indices, P_ij to values, both n x k with
  /// 1 <= k <= m. A row of no weight has 0 at j = 0 .. k - 1. One pass; k above 64 takes longer to select.
  void top_k(MutableIndexView indices, MutableMatrixView values) const;
  /// The same of each column, by i: m x k, 1 <= k <= n.
  void top_k_transpose(MutableIndexView indices, MutableMatrixView values) const;
  /// How many P_ij > threshold there are, in float64; threshold >= 0. row_begin (n + 1): the number of those in the
  /// rows before each, the row pointers of a CSR matrix. Returns their total. One pass; waits.
  std::int64_t count_above(double threshold, MutableIndexView row_begin) const;
  /// Those entries, given row_begin of count_above() for the same threshold: j to columns and P_ij to values, row by
  /// row and j ascending, each as many as count_above() returned. Throws invalid_argument, with the outputs partly
  /// written, where row_begin says otherwise. One pass; waits.
  void entries_above(double threshold, MutableIndexView row_begin, MutableIndexView columns,
                     MutableVectorView values) const;
  /// pairs (K x 2): K pairs (i, j) drawn independently from P / sum P. Pair number k depends on seed and k alone, by
  /// Philox 4x32-10 (Salmon et al., 2011), so a larger K goes on with the same sequence. CPU and CUDA draw the same
  /// pairs, but where a draw falls within rounding of the boundary of two. One pass; waits.
  void sample(std::uint64_t seed, MutableIndexView pairs) const;

  /// out (n x d): barycentric projection of each x_i, sum_j P_ij y_j / sum_j P_ij; defined for a_i = 0 too. Throws
  /// unsupported for a cost matrix, as map() and potential() do.
  void barycentric_projection(MutableMatrixView out) const;
  /// out (n x p): the same of values of the columns, sum_j P_ij v_jk / sum_j P_ij, v (m x p).
  void barycentric_projection(MatrixView v, MutableMatrixView out) const;
  /// The same map at new points (k x d): the entropic map of the target cloud's potential g.
  void map(MatrixView points, MutableMatrixView out) const;
  /// The potential f at new points: -eps log sum_j b_j exp((g_j - C(z, y_j)) / eps). out has k entries.
  void potential(MatrixView points, MutableVectorView out) const;

 private:
  friend struct Divergence;
  std::unique_ptr<State> state_;
};

}  // namespace monge
