// The CPU kernels. All work on a stripe: a few rows of the n x m matrix of logits, kept in a thread's L2 cache.
//
//   t_rj = h_j + multiplier * score_rj          base-2 logits; score: one of ScoreForm
//   E_rj = 2^(t_rj - M_rb)                      in the stripe; M_rb bounds block b of the row's logits
//   sum_r = sum_j beta_j 2^(M_rb - max_b M_rb) E_rj    the row's softmax denominator
//   columns_j += sum_r w_r 2^(...) E_rj         the other marginal, from the same exponentials
//   out_r = sum_j 2^(...) E_rj V_j              averages of V under the row's softmax
//   out_rk = sum_j 2^(...) E_rj v_j d score_rj / d x_rk    averages of the derivatives of distances
//   E_rj <- E_rj <l_r, r_j>                     for averages weighted by a product entry by entry
//
// One product and one exponential for each pair therefore give a whole alternating, overrelaxed or symmetric sweep:
// sum_r gives the new f_r, and the weights w_r carry it into the columns. If beta_j v_j replaces beta_j, the sum of a
// row is an average of v, and the exponentials need not be stored.
//
// Bounds    M_r (`bound`) is often known before the pass. In sweeps a logit never exceeds the sum of its row, and it
//           changes with h_j; for frozen potentials the sum is a bound. Scores then become exponentials in registers.
//           Without bounds M_rb is found first, a block of kColumnBlock columns at a time, with the logits in L1.
// Layout    The stripe holds panel after panel, kPanel columns of all its rows each, and is read and written in order.
//           A list may leave panels out, which then take no place in the stripe.
// Tiling    A register tile of scores is 8 rows x 128 bytes (AVX-512).
// Cost      per pair: d FMAs (2 d operations with differences) + 13 operations (15 without bounds); 4 bytes written to
//           and read from L2 (float). Each stripe reads the panels of y once: 4 d / rows bytes a pair.
// Numerics  h_j is the float64 bias rounded to T. beta_j = 2^(remainder) undoes the rounding, so it does not affect the
//           marginal of the column. Columns of zero weight have beta = 0 and h = kNoWeight, which is finite so that
//           infinities never meet. Sums run in T within a block, then in float64.
//           A forbidden pair has the score infinity, the logit -infinity (stored as the lowest finite number, so that
//           no two infinities meet) and E = 0. Every other E is at least 2^-125 (float) or 2^-1021 (double), and sums
//           start from half of that. Such numbers do not change a sum, and no number is denormal.
#pragma once
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>

#include "cpu/pass/costs.hpp"
#include "geometry/point_tree.hpp"

namespace monge::cpu {

/// The stored logit of a forbidden pair.
template <class T>
inline constexpr T kForbidden = std::numeric_limits<T>::lowest();

template <class T>
inline constexpr T kNoWeight = sizeof(T) == 4 ? T(-1e30) : T(-1e300);

/// The data that determine the logits of a stripe. All arrays of columns are padded to whole panels.
template <class T>
struct StripeArgs {
  ScoreSource<T> source;
  /// Null, or the panels of columns that the pass is over, ascending. The stripe holds these side by side: its column
  /// j is the column column(j) of the other arrays.
  std::int32_t const* panels = nullptr;
  std::int64_t column_count;      // Columns of the stripe.
  std::int64_t first_column = 0;  // A multiple of kPanel; columns of the stripe before it are left out.
  T const* h;
  T const* beta;
  T multiplier;
  std::int64_t first_row;  // A multiple of kRowGroup.
  std::int64_t row_count;  // Rows beyond the last point are padding: computed, never read.
  double const* bound;     // Null, or for each row an upper bound of t within a few powers of two, below kLargestBound.
  T* scores;               // Null, or the kept scores of these rows.
  bool scores_ready;       // Read `scores` instead of computing and storing them.
  T* stripe;               // Out: E; row_count x padded columns in panels, like the scores.
  bool store;              // Whether the stripe is written, besides the sums; false only with a bound.
  bool logits;             // Whether the stripe receives t, and there are no sums; true only without a bound.
  double* block_scale;     // Out: row_count x blocks, 2^(M_rb - row_max).
  T* row_scratch;          // ScoreSource::scratch() values for each row, of the source or of the factors of E.

  /// The column of the first one of a panel of the stripe.
  std::int64_t column(std::int64_t j) const { return panels == nullptr ? j : panels[j / kPanel<T>] * kPanel<T>; }
};

/// For bounds below this, magic - bound is exact, so bound and rounding of the exponential share a constant.
template <class T>
inline constexpr T kLargestBound = sizeof(T) == 4 ? T(2097152.0) : T(1125899906842624.0);

/// A reference for exponentials whose logits are at most x. It is even: an odd one would round halves the other way,
/// and a pass with bounds would differ in the last digits from one without.
inline double reference_above(double x) {
  return 2 * std::ceil(x / 2);
}

/// A stripe holds a multiple of this many rows.
inline constexpr std::int64_t kRowGroup = 8;
inline constexpr std::int64_t kMaxStripeRows = 64;
/// Columns that are summed in T before sums go to float64.
inline constexpr std::int64_t kColumnBlock = 1024;

template <class T>
constexpr std::int64_t column_blocks(std::int64_t columns) {
  return (padded_to_panel<T>(columns) + kColumnBlock - 1) / kColumnBlock;
}

/// Writes E (or t) to the stripe and its block_scale. For each row writes row_max = max_b M_rb, row_sum and, unless
/// null, row_moment_r = sum_j beta_j 2^(t_rj - row_max) multiplier score_rj.
template <class T>
void exponentiate_rows(StripeArgs<T> const& args, double* row_max, double* row_sum, double* row_moment);

/// Two numbers for each tile J of columns of a stripe over listed tiles, exact but for rounding in T:
///   of_rows      max_r row_factor_r sum_{j in J} beta_j 2^(t_rj - row_max_r)
///   of_columns   max_{j in J} column_factor_c sum_r weight_r 2^(t_rj - row_max_r), c = column(j)
/// In double a tile has two panels, and of_rows is the sum of the maxima of both, an upper bound. Both arrays are 0
/// before the call.
struct TileMeasure {
  double const *row_factor, *column_factor;
  double *of_rows, *of_columns;
};
/// column_sums_c += unit sum_r weight_r 2^(t_rj - row_max_r) over the first `count` rows for c = column(j);
/// products are in T. Also measures the tiles, unless `measure` is null.
template <class T>
void add_to_columns(StripeArgs<T> const& args, std::int64_t count, double const* weight, double unit,
                    double* column_sums, TileMeasure const* measure = nullptr);

/// row_j = t_rj + log_beta_c for c = column(j) and whole panels, minus infinity at forbidden pairs; largest_g is the
/// largest of each kLogitGroup of them. For passes with `logits`.
template <class T>
void read_logits(StripeArgs<T> const& args, std::int64_t r, T const* log_beta, T* row, T* largest);
inline constexpr std::int64_t kLogitGroup = 32;

/// The layout of V (columns x width) for average_rows(), and of its result. Up to half a panel of columns, sums run
/// along the rows of the stripe, and V lies in panels like points. For wider V, vectors hold columns of V, and rows of
/// V are padded to whole panels. Padding is zero.
template <class T>
struct ValueLayout {
  std::int64_t width;

  bool is_narrow() const { return width <= kPanel<T> / 2; }
  std::int64_t size(std::int64_t columns) const { return padded_to_panel<T>(columns) * stride(); }
  std::int64_t index(std::int64_t j, std::int64_t p) const {
    return is_narrow() ? (j / kPanel<T> * width + p) * kPanel<T> + j % kPanel<T> : j * stride() + p;
  }
  /// Numbers from one row of the result to the next.
  std::int64_t stride() const { return is_narrow() ? width : padded_to_panel<T>(width); }
};

/// out_rp = sum_j 2^(t_rj - row_max_r) V_jp.
template <class T>
void average_rows(StripeArgs<T> const& args, ValueLayout<T> layout, T const* values, double* out);

/// out_rk = sum_j 2^(t_rj - row_max_r) v_j d score_rj / d x_rk, for scores that are distances; out has `dimension`
/// columns. The derivative of a distance 0 is 0. For p = infinity, coordinates that tie for the largest difference have
/// equal parts of the derivative. v is padded to whole panels, with zeros. `scratch`, aligned as a panel, has
/// kSlopeScratch numbers for each coordinate.
template <class T>
void average_slopes(StripeArgs<T> const& args, T const* v, T* scratch, double* out);
template <class T>
inline constexpr std::int64_t kSlopeScratch = 16 * kPanel<T>;

/// The same for the change of a score, and of its derivative g, where the points of the rows move along `own` and those
/// of the columns along `far`:
///   out_rk = sum_j 2^(t_rj - row_max_r) v_j (d g_rjk - rate d score_rj g_rjk),
/// and the sums of d score_rj in a last column. `own` has a point for each row of all stripes, `far` one for each
/// column. The second derivative of a distance 0 is 0, as is that by a coordinate whose difference is 0 for p < 2.
template <class T>
void average_slope_changes(StripeArgs<T> const& args, T const* v, PackedPoints<T> const& own,
                           PackedPoints<T> const& far, double rate, T* scratch, double* out);

/// E_rj <- E_rj <left_r, right_j>; `left` has a point for each row of all stripes, `right` one for each column.
template <class T>
void multiply_by_products(StripeArgs<T> const& args, PackedPoints<T> const& left, PackedPoints<T> const& right);

/// The instruction set that the kernels were dispatched to: "AVX3", "AVX2", "NEON", ...
std::string instruction_set();

}  // namespace monge::cpu
