// The CPU kernels. All of them work on a stripe: a few rows of the n x m matrix of logits, kept in a thread's L2 cache.
//
//   t_rj = h_j + multiplier * score_rj          base-2 logits; score: one of ScoreForm
//   E_rj = 2^(t_rj - M_rb)                      in the stripe; M_rb bounds block b of the row's logits
//   sum_r = sum_j beta_j 2^(M_rb - max_b M_rb) E_rj    the row's softmax denominator
//   columns_j += sum_r w_r 2^(...) E_rj         the other marginal, from the same exponentials
//   out_r = sum_j 2^(...) E_rj V_j              averages of V under the row's softmax
//   E_rj <- E_rj <l_r, r_j>                     for averages weighted by a product entry by entry
//
// So one product and one exponential per pair give a whole alternating, overrelaxed or symmetric sweep: the new f_r is
// known once sum_r is, and the weights w_r carry it into the columns. With beta_j v_j in the place of beta_j the sum of
// a row is an average of v, and the exponentials need not be stored.
//
// Bounds    Between sweeps the caller knows an M_r without looking (`bound`): a logit never exceeded its row's sum, and
//           moves with h_j; for a plan at rest the row's sum itself bounds them. Then a pair goes from score to
//           exponential in registers. Elsewhere M_rb is found first, a block of kColumnBlock columns at a time, and
//           logits and exponentials meet in L1.
// Layout    The stripe holds panel after panel, kPanel columns of all its rows each: written, read and, for kept
//           scores, streamed in order.
// Tiling    Scores are a register tile of 8 rows x 128 bytes (AVX-512).
// Cost      per pair: d FMAs (2 d operations with differences) + 13 operations (15 without bounds); 4 bytes written to
//           and read from L2 (float). The panels of y stream by once a stripe: 4 d / rows bytes a pair.
// Numerics  h_j is the float64 bias rounded to T; beta_j = 2^(remainder) puts back what the rounding took, so a
//           column's rounding does not end up in its marginal. Columns of no weight have h = kNoWeight (finite: no
//           infinity ever meets another) and beta = 0. Sums run in T within a block, then in float64.
//           A forbidden pair has the score infinity, the logit -infinity (stored: the lowest number, so that no two
//           infinities meet) and E = 0.
//           E is else at least 2^-125 (float) or 2^-1021 (double) where it should be 0, and sums start from half of
//           that: they cannot see it, and no number is denormal.
#pragma once
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>

#include "cpu/geometry/costs.hpp"

namespace monge::cpu {

/// The logit of a forbidden pair, as it is stored.
template <class T>
inline constexpr T kForbidden = std::numeric_limits<T>::lowest();

template <class T>
inline constexpr T kNoWeight = sizeof(T) == 4 ? T(-1e30) : T(-1e300);

/// What the logits of a stripe are made of. All arrays of columns are padded to whole panels.
template <class T>
struct StripeArgs {
  ScoreSource<T> source;
  std::int64_t column_count;
  std::int64_t first_column = 0;  // A multiple of kPanel: those before it take no part.
  T const* h;
  T const* beta;
  T const* log2_weight;  // Of the columns; read only when `row_moment` is wanted.
  T multiplier;
  std::int64_t first_row;  // A multiple of kRowGroup.
  std::int64_t row_count;  // Rows beyond the last point are padding: computed, never read.
  double const* bound;     // Null, or per row an upper bound of t, to a few powers of two, below kLargestBound.
  T* scores;               // Null, or the kept scores of these rows.
  bool scores_ready;       // Read `scores` instead of computing them (else they are written there).
  T* stripe;               // Out: E; row_count x padded columns in panels, as the scores.
  bool store;              // With a bound only: false leaves the stripe alone, and the sums are all there is.
  bool logits;             // Without a bound only: the stripe is left with t, and no sums are made.
  double* block_scale;     // Out: row_count x blocks, 2^(M_rb - row_max).
  T* row_scratch;          // ScoreSource::scratch() values a row, of the source or of what multiplies E.
};

/// Bounds below this share a constant with the rounding of the exponential: magic - bound is exact.
template <class T>
inline constexpr T kLargestBound = sizeof(T) == 4 ? T(2097152.0) : T(1125899906842624.0);

/// What exponentials are made relative to where no logit is above x. It is even: with an odd one halves would round the
/// other way, and a pass with bounds would differ in last digits from one without.
inline double reference_above(double x) {
  return 2 * std::ceil(x / 2);
}

/// Rows are handled in groups of this many; a stripe holds a multiple of it.
inline constexpr std::int64_t kRowGroup = 8;
inline constexpr std::int64_t kMaxStripeRows = 64;
/// Columns between two returns to float64.
inline constexpr std::int64_t kColumnBlock = 1024;

template <class T>
constexpr std::int64_t column_blocks(std::int64_t columns) {
  return (padded_to_panel<T>(columns) + kColumnBlock - 1) / kColumnBlock;
}

/// Leaves E (or t) in the stripe with its block_scale, and per row row_max = max_b M_rb, row_sum and, unless null,
/// row_moment_r = sum_j beta_j 2^(t_rj - row_max) (t_rj - log2_weight_j).
template <class T>
void exponentiate_rows(StripeArgs<T> const& args, double* row_max, double* row_sum, double* row_moment);

/// column_sums_j += unit sum_r weight_r 2^(t_rj - row_max_r) over the first `count` rows; the products are of type T.
template <class T>
void add_to_columns(StripeArgs<T> const& args, std::int64_t count, double const* weight, double unit,
                    double* column_sums);

/// How average_rows() reads V (columns x width), and what it writes. Up to half a panel of columns it runs along the
/// rows of the stripe, and V lies in panels as points do; beyond, the columns of V fill the vectors, and its rows are
/// padded to whole panels. Padding is zero.
template <class T>
struct ValueLayout {
  std::int64_t width;

  bool is_narrow() const { return width <= kPanel<T> / 2; }
  std::int64_t size(std::int64_t columns) const { return padded_to_panel<T>(columns) * stride(); }
  std::int64_t index(std::int64_t j, std::int64_t p) const {
    return is_narrow() ? (j / kPanel<T> * width + p) * kPanel<T> + j % kPanel<T> : j * stride() + p;
  }
  /// From one row of the result to the next.
  std::int64_t stride() const { return is_narrow() ? width : padded_to_panel<T>(width); }
};

/// out_rp = sum_j 2^(t_rj - row_max_r) V_jp.
template <class T>
void average_rows(StripeArgs<T> const& args, ValueLayout<T> layout, T const* values, double* out);

/// E_rj <- E_rj <left_r, right_j>, `left` a point for each row of all stripes, `right` one for each column.
template <class T>
void multiply_by_products(StripeArgs<T> const& args, PackedPoints<T> const& left, PackedPoints<T> const& right);

/// The instruction set that the kernels were dispatched to: "AVX3", "AVX2", "NEON", ...
std::string instruction_set();

}  // namespace monge::cpu
