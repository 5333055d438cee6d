// How far a result may be from the oracle: an analysis of a plain computation in the arithmetic of the operator.
//
// Gauge. Let mu and nu be the weighted means of the clouds, x = mu + x', y = nu + y', w = mu - nu. Then with s the cost
// scale
//   C_ij = C'_ij + shift_i + shift_j,   C'_ij = s |x'_i - y'_j|^2,  shift_i = 2 s <x'_i, w> + s |w|^2 / 2,
//   shift_j = -2 s <y'_j, w> + s |w|^2 / 2,
// and f' = f - shift_i, g' = g - shift_j give the same plan. A good operator works with primed quantities, so its
// errors scale with them and not with the distance of the clouds from the origin or from each other.
//
// The shifts themselves are float64 whatever the arithmetic: 2^-53 of |shift| and of |f|, |g| reach f' and g'. In a
// cloud 1000 away with eps = 1 that is 1e-10 in the logits, and no implementation that is handed float64 potentials can
// avoid it.
//
// A cost matrix has C' = C - c0, c0 its smallest finite cost: shift_i = shift_j = c0 / 2. The oracle itself takes costs
// as they are: in long double that is 2^-64 of c0.
//
// Other costs of points (docs/math.md, section 12) are C'_ij = q (|x'_i|^2 + |y'_j|^2) + phi <x'_i, y'_j>. The cosine
// has the points divided by their lengths, q = s / 2 and phi = -s; each is off by 2^-53 of its length, 1, so C by 2 s
// 2^-53 |x - y|. The dot product has q = 0, phi = -s and shifts phi (<x'_i, nu> + <mu, nu> / 2) and phi (<mu, y'_j> +
// <mu, nu> / 2). Labels add their W'_ij, its weighted means taken from it. On CUDA it is a further part of the product:
// with any factors whose product is W' and which are of one size, |u_i| |v_j| is at most the range of W times sqrt(2
// classes). The CPU adds it as it is, at most twice the range.
//
// Distances have no shifts, and both clouds are centred at the mean of x. Rounding the coordinates moves one by at most
// u (|x'_i| + |y'_j|), which also bounds it. A sum of d powers and its root add (sqrt(d) + 8) u of it.
//
// Logits. A half-step over j evaluates t_ij = (g'_j - C'_ij) / eps + log b_j, in nats, as h_j + 2 s <x'_i, y'_j> / eps
// with h_j = (g'_j - s |y'_j|^2) / eps + log b_j, or from exact differences. With u the unit roundoff,
//   - storing h_j and adding to it: u (|g'_j| + s |y'_j|^2) / eps + u |log b_j|, a few times;
//   - the product: its relative error v times 2 s |x'_i| |y'_j| / eps. v is u sqrt(d) up to a constant for a running
//   sum of d
//     terms (rounding errors of either sign; d u is the worst case), plus u for rounding x' and y'. Split fp16 products
//     keep 22 bits of each factor, tf32 products 11;
//   - from exact differences there is no product, and the second line with the first bounds |x'_i - y'_j|^2, unless
//     |x'_i| is more than 2 |y'_j|: then s |x'_i|^2 stands in the place of the product;
//   - of a cost matrix: |x'|^2 and |y'|^2 are 0, and C'_ij / eps stands in the place of the product, with v = 2 u: one
//     rounding of the difference and one of what multiplies it.
// Called logit(i), the largest over j. An entry of P adds the rounding of f_i: u (|f'_i| + s |x'_i|^2) / eps.
//
// Results.
//   softmin      f+_i = -eps log sum_j exp(t_ij): a weighted mean of the logit errors, so at most eps logit(i); the sum
//                adds eps sum(m); storing adds u |f+_i - s |x'_i|^2|. sum(m) = u (c + sqrt(min(m, 1024))) for exp and a
//                sum: errors of either sign, and sums longer than that are expected in blocks, added in float64.
//   P_ij, row sums    relative error expm1(logit(i)) + sum(m), with u |log a_i| in the logit.
//   sums of P_ij z_j  that, times sum_j P_ij |z_j|; twice that when divided by a sum.
//   sums of P_ij <l_i, r_j> z_j   the product is off by v |l_i| |r_j| (v with k for d), and by 2 u of them for rounding
//   l
//                and r; so that plus 2 u plus the above, times |l_i| sum_j P_ij |r_j| |z_j|.
//   P^T diag(w) P z   the product of both relative errors, times P^T diag(|w|) P |z|.
//   k sweeps     the softmin is non-expansive in the largest norm, so errors of 2 k half-steps add up.
//                with a penalty, softmins are damped, which shrinks errors, and a translation by t, a difference of
//                means of f and g, leaves the oscillation of their errors, in which softmins are non-expansive too,
//                and moves the constant by no more than they are off: with oscillation at most twice the largest
//                error, 4 times the above. Totals of weights that agree to 1e-12 count as equal, so t may be off by
//                that times rho_a rho_b / (rho_a + rho_b).
//   a exp(-f / rho)  relative error that of f over rho.
//   rho KL(r | q)  first order: rho |log(r / q)| times the errors of r, and |r - q| times those of f for
//                q = a exp(-f / rho); second order: rho times the relative error of r squared, times r.
//   <C, P>       C'_ij is known to u C'_ij or, from t_ij, to eps logit(i); the shifts multiply the marginals.
//
// The constants below were set so that the largest error of a single operator over the whole suite is between 0.1 and
// 0.7 of its tolerance: a bit of precision lost in a kernel shows. Sequences of sweeps are bounded far more loosely.
#pragma once
#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "oracle/dense.hpp"

namespace monge::oracle {

/// Errors of one operation, relative.
struct Arithmetic {
  double unit;     ///< Unit roundoff of sums and stored values.
  double product;  ///< Error of <x', y'>, relative to |x'| |y'|; of C', relative to it.
};

/// d = 0 stands for a cost matrix. Labels of `classes` classes are as many coordinates on CUDA, one term on the CPU.
Arithmetic arithmetic(Device device, Precision precision, std::int64_t d, Costs costs = Costs::points,
                      std::int64_t classes = std::min(kClasses[0], kClasses[1]));
Arithmetic arithmetic(Device device, Precision precision, Problem const& problem);

/// The centred problem: what magnitudes an operator meets.
class Magnitudes {
 public:
  explicit Magnitudes(Problem const& problem);

  std::vector<double> const& shift(Side side) const { return side == Side::rows ? row_.shift : column_.shift; }
  /// s |x'_i|^2.
  std::vector<double> const& square(Side side) const { return side == Side::rows ? row_.square : column_.square; }
  /// What the arithmetic of a score multiplies: phi |x'_i| max_j |y'_j|, or max_j C'_ij of a matrix, or |x'_i| + max_j
  /// |y'_j| of distances.
  std::vector<double> const& score(Side side) const { return side == Side::rows ? row_.score : column_.score; }
  /// The largest C'_ij is at most this.
  double spread() const { return spread_; }
  double largest_square(Side side) const;
  double offset() const { return offset_; }                ///< s |w|^2.
  double origin() const { return origin_; }                ///< |c0| of a matrix; s of the cosine.
  double feature_error() const { return feature_error_; }  ///< Error of a cost, from directions rounded to float64.
  double radius(Side side) const;                          ///< Largest |z_i| less their mean, of points that have mass.
  double largest_log_weight(Side side) const;

 private:
  struct Half {
    std::vector<double> shift, square, score;
    std::vector<double> length;     // |x'_i|, of features; the p-norm of distances
    double largest_square = 0;      // over points that have mass
    double longest = 0;             // the same
    double radius = 0;              // the same
    double largest_log_weight = 0;  // the same
  };
  void measure_points(Problem const& problem);
  void measure_labels(Problem const& problem, double& score);
  void measure_matrix(Problem const& problem);

  double offset_ = 0, origin_ = 0, spread_ = 0, feature_error_ = 0;
  Half row_, column_;
};

struct EvaluationTolerance {
  double mass, row_error, column_error, transport_cost, primal, dual, gap;
};

class Tolerance {
 public:
  Tolerance(Problem const& problem, double eps, Arithmetic arithmetic);

  /// Error of the logits of a half-step of `side` at point i, in nats, when the other side has `potential`.
  Vector logits(Side side, Vector const& potential_of_other_side) const;
  /// Absolute error of a softmin with the result `result`.
  Vector softmin(Side side, Vector const& potential_of_other_side, Vector const& result) const;
  /// Relative error of P_ij for each i of `side`, and of its sums.
  Vector plan(Side side, Potentials const& potentials) const;
  /// Relative error of shares P_ij / sum_j P_ij.
  Vector shares(Side side, Vector const& potential_of_other_side) const;
  /// Float64 rounding of potential minus shift.
  Real gauge_error(Side side, Vector const& potential) const;
  /// Absolute error of a potential after it was stored.
  Vector stored(Side side, Vector const& potential) const;
  /// Absolute error of the potentials after `count` sweeps, for both sides.
  Real sweeps(Sweep const& kind, int count, SweepResult const& result, Penalties const& penalties = {}) const;
  /// Absolute error of SweepErrors, given that: of what they are the norms of, in L1, which bounds that of each.
  Real sweep_errors(SweepResult const& result, Real potential_error, Penalties const& penalties = {}) const;
  EvaluationTolerance evaluation(Dense const& dense, Potentials const& potentials,
                                 Penalties const& penalties = {}) const;

  /// Absolute error of P V or of shares of it, V (size(other) x p).
  Vector product(Dense const& dense, Side side, Potentials const& potentials, std::span<double const> v, std::int64_t p,
                 bool normalized) const;
  /// Absolute error of (P o L R^T) V, `factors` being the arithmetic of <l_i, r_j>.
  Vector hadamard(Dense const& dense, Side side, Potentials const& potentials, std::span<double const> l,
                  std::span<double const> r, std::int64_t k, std::span<double const> v, std::int64_t p,
                  Arithmetic factors) const;
  /// Absolute error of P (w o (P^T v)), v of `side`.
  Vector gram(Dense const& dense, Side side, Potentials const& potentials, std::span<double const> w,
              std::span<double const> v) const;

  Magnitudes const& magnitudes() const { return magnitudes_; }
  double sum_error(Side side) const;

 private:
  Real gauged_maximum(Side side, Vector const& potential) const;

  Magnitudes magnitudes_;
  double eps_;
  Arithmetic arithmetic_;
  std::int64_t n_, m_, d_;
};

}  // namespace monge::oracle
