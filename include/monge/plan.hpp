// Plan, the result of solve(): potentials, report, and the plan P as an operator.
#pragma once
#include <memory>
#include <vector>

#include <monge/array.hpp>
#include <monge/derivatives.hpp>
#include <monge/export.hpp>
#include <monge/report.hpp>

namespace monge {

/// The plan P_ij = a_i b_j exp((f_i + g_j - C_ij) / eps). It keeps packed copies, so the caller may free x, y, a and b.
/// Move-only. Outputs may be float32 or float64, on the host or on the plan's device. If all arguments lie on the
/// device, a call does not wait for it, except to pack new points, to select entries and where the method left out
/// pairs. Products run in Report::precision; after tf32 they run in float32.
///
/// The comments below count passes over all pairs. The first product onto a side, P 1 and P^T 1 included, takes one
/// more pass; later ones allocate nothing. Memory is O((n + m) d) plus the arguments. On CUDA, single entries and
/// products with several columns write blocks of rows of P to memory (256 MiB each, or less if P is smaller). In
/// float32 the error of an entry in such a product is 2^-22 of the entry or 2^-40 of the row's sum, whichever is
/// larger. Entries within SolveOptions::cache_bytes are kept for the next product.
class MONGE_API Plan {
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

  /// Potentials in units of C: f (n), g (m). Potentials of a balanced problem are unique up to (f + t, g - t). solve()
  /// with a certificate and a tolerance above 0 returns the pair with <a, f> = <b, g>, which does not depend on the
  /// order of the sides.
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
  /// out (m) = P^T diag(w) P v, w (n), v (m). With w = 1 / (P 1) it is the product of conjugate gradients on the Schur
  /// complement of the dual's Hessian. At most two passes. FlashSinkhorn, eq. 15-16.
  void apply_gram(VectorView w, VectorView v, MutableVectorView out) const;
  /// out (n) = P diag(w) P^T u, w (m), u (n).
  void apply_gram_transpose(VectorView w, VectorView u, MutableVectorView out) const;
  /// <C, P>: the value of the report, or one pass over all pairs where the certificate was skipped.
  double transport_cost() const;

  /// out (n x m) = P, in the caller's memory. One pass.
  void dense(MutableMatrixView out) const;

  // Derivatives of the dual value (derivatives.hpp). Those by points throw unsupported for a cost matrix.

  /// Derivatives of the report's dual value at the potentials of this plan, by the points and the weights:
  ///   by x_i   sum_j P_ij dc(x_i, y_j)/dx_i,       by a_i   phi_a(f_i) - eps ((P 1)_i / a_i - sum b),
  /// defined at a_i = 0 too. At the optimum they are the derivatives of OT_eps. At other potentials they are the
  /// derivatives of the dual value at fixed f and g, and contain the marginals of P. The derivative by C_ij is P_ij:
  /// dense(). For each of x and y the first call takes a product with the points of the other side, or a pass that sums
  /// the derivatives of distances. The estimate of the distance takes about four products, and two passes (CPU: one)
  /// for each step of conjugate gradients.
  GradientReport gradients(GradientViews const& out, GradientOptions const& options = {}) const;

  /// Derivatives by the points of sum_ij P_ij <l_i, r_j> C_ij at fixed P, l (n x k), r (m x k):
  ///   out.x_i (n x d) = sum_j P_ij <l_i, r_j> dC_ij/dx_i,   out.y_j (m x d) = sum_i P_ij <l_i, r_j> dC_ij/dy_j.
  /// Two passes for each of x and y; one where the cost has no inner products.
  void cost_gradients(MatrixView l, MatrixView r, MutablePointViews const& out) const;

  /// out = H v, with H the Hessian of OT_eps in the points at fixed weights; x and y of `v` and `out` select any of its
  /// four blocks. At potentials that are not optimal the formula uses the marginals of P. Points of no weight have rows
  /// of 0. Linear in v at any scale of float64. Takes the steps of conjugate gradients beside a product by v and a
  /// Hadamard product with k = d (2 d with v.y and out.x), or, for distances, two passes for each of x and y.
  /// FlashSinkhorn, Theorem 5.
  LinearReport hessian_product(PointViews const& v, MutablePointViews const& out,
                               LinearOptions const& options = {}) const;

  /// out (n x d) solves (H + shift) out = v for the Hessian in x, by conjugate gradients on hessian_product(): a step
  /// of Newton's method. v (n x d). shift has the units of C over x squared. It must make H + shift positive, otherwise
  /// the status is negative_curvature. `options` are for this system; each product by H is solved to a tenth of its
  /// tolerance.
  LinearReport inverse_hessian_product(MatrixView v, MutableMatrixView out, double shift = 0,
                                       LinearOptions const& options = {}) const;

  /// The derivatives of a function L(f, g) of the optimal potentials by the points and the weights, given dL/df (n) and
  /// dL/dg (m); one of them may be empty. Implicit differentiation, by one linear system. If both marginals are
  /// constraints, L must not change with (f + t, g - t): sum dL/df = sum dL/dg. dL/df and dL/dg must be 0 at points
  /// without mass: of weight 0, or with a marginal below 2.2e-308. Otherwise throws invalid_argument.
  LinearReport potential_gradients(VectorView of_f, VectorView of_g, GradientViews const& out,
                                   LinearOptions const& options = {}) const;

  /// The derivatives of <u, P v> by the points and the weights, u (n x p), v (m x p). They equal the derivatives of any
  /// function L of P v with dL/d(P v) = u. The derivative by v is P^T u: apply_transpose(). Implicit differentiation,
  /// by one linear system; the derivative by points takes a Hadamard product with k = p + 2. For L of P^T v exchange u
  /// and v.
  LinearReport product_gradients(MatrixView u, MatrixView v, GradientViews const& out,
                                 LinearOptions const& options = {}) const;

  // Single entries, in the precision of products, without an n x m array. Logarithms of entries are compared, so the
  // order is right even where P_ij underflows to 0. Pairs of no weight or of infinite cost have P_ij = 0 and come after
  // all others, by index.

  /// The k largest P_ij of each row, largest first, equal ones in the order of j. Writes j to indices and P_ij to
  /// values, both n x k, 1 <= k <= m. A row of no weight has 0 at j = 0 .. k - 1, a row whose marginal is NaN has NaN
  /// there. One pass; selection is slower for k above 64.
  void top_k(MutableIndexView indices, MutableMatrixView values) const;
  /// The k largest P_ij of each column, likewise: m x k, 1 <= k <= n.
  void top_k_transpose(MutableIndexView indices, MutableMatrixView values) const;
  /// Counts the P_ij > threshold, compared in float64; threshold >= 0. Writes the row pointers of a CSR matrix to
  /// row_begin (n + 1): the number of such entries in the rows before each. Returns the number of all such entries. One
  /// pass; waits for the device.
  std::int64_t count_above(double threshold, MutableIndexView row_begin) const;
  /// Writes the entries P_ij > threshold, given row_begin of count_above() for the same threshold: j to columns and
  /// P_ij to values, row by row with ascending j. columns and values have the size that count_above() returned. If
  /// row_begin does not fit, throws invalid_argument with the outputs partly written. One pass; waits for the device.
  void entries_above(double threshold, MutableIndexView row_begin, MutableIndexView columns,
                     MutableVectorView values) const;
  /// pairs (K x 2): K pairs (i, j) drawn independently from P / sum P. Pair number k depends on seed and k alone, by
  /// Philox 4x32-10 (Salmon et al., 2011), so a larger K extends the same sequence. CPU and CUDA draw the same pairs,
  /// unless a draw is within rounding of the boundary between two pairs. One pass; waits for the device.
  void sample(std::uint64_t seed, MutableIndexView pairs) const;

  /// out (n x d): barycentric projection of each x_i, sum_j P_ij y_j / sum_j P_ij; defined for a_i = 0 too. Throws
  /// unsupported for a cost matrix, as map() and potential() do.
  void barycentric_projection(MutableMatrixView out) const;
  /// out (n x p): the same average of v (m x p), sum_j P_ij v_jk / sum_j P_ij.
  void barycentric_projection(MatrixView v, MutableMatrixView out) const;
  /// out (k x d): the barycentric projection of new points (k x d), which is the entropic map of the potential g.
  void map(MatrixView points, MutableMatrixView out) const;
  /// The potential f at new points: -eps log sum_j b_j exp((g_j - C(z, y_j)) / eps). out has k entries.
  void potential(MatrixView points, MutableVectorView out) const;

 private:
  friend struct Divergence;
  std::unique_ptr<State> state_;
};

}  // namespace monge
