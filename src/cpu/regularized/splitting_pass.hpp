// The pass of a splitting iteration over all entries (regularized/splitting_rule.hpp), on the CPU.
//
//   V_ij = [Z_ij + phi_i + psi_j]_+,  Z = X - s S;   X_ij <- prox(factor_gj V_ij),  factor: of a group g of rows
//
// Layout    Column by column, the rows of a group next to each other; columns begin at cache lines of different sets.
// Tiling    kPassColumns columns at once, so that phi and the row sums are read once for all of them. With groups, a
//           first look finds their norms, and the pass makes the entries again, from L1 or L2, with a factor for each
//           that waits in memory: so the pass goes over whole vectors whatever the groups are.
// Traffic   An iteration reads X and S and leaves X - s S, the next reads that and leaves X: 12 and 8 bytes (float).
//           Hypentropy: hypentropy-inl.hpp.
// Numerics  Z is rounded once whether or not it goes through memory, so any split of a number of iterations has the
//           same bits. Column sums go to float64 every kRowsOfSum rows, row sums every kColumnsOfRowSum columns: with
//           entries of one size a sum of float32 is off by some 1e-7 of itself. A forbidden pair has S = infinity,
//           Z = -infinity and X = 0.
#pragma once
#include <cstdint>
#include <span>

#include "regularized/splitting_rule.hpp"

namespace monge::cpu {

inline constexpr std::int64_t kPassColumns = 4;
/// Arrays of rows, columns of X among them, have room for whole vectors, of 64 bytes at most. There costs are infinite,
/// so X is 0.
template <class T>
constexpr std::int64_t padded_to_vectors(std::int64_t rows) {
  constexpr std::int64_t kLanes = 64 / sizeof(T);
  return (rows + kLanes - 1) / kLanes * kLanes;
}
/// Columns whose row sums stay in T.
inline constexpr std::int64_t kColumnsOfRowSum = 32;
/// Rows whose column sums stay in T.
inline constexpr std::int64_t kRowsOfSum = 1024;

/// What one pass reads, beside X, and how it leaves it.
enum class PassKind {
  keep_difference,  // Reads S, leaves X - s S.
  from_difference,  // Reads X - s S, leaves X.
  plain,            // Reads S, leaves X.
};

template <class T>
struct SplittingPass {
  PassKind kind;
  T* x;  // X or X - s S
  T const* costs;
  std::int64_t stride;  // From column to column of both.
  std::int64_t rows;
  T step;
  T const* phi;
  T const* psi;  // Not padded.
  EntryProx<T> prox;
  // Where groups of rows begin, with `rows` at the end, and the thresholds s lambda w_g of their norms, padded as rows
  // are; empty without the term.
  std::span<std::int64_t const> group_begin;
  std::span<T const> thresholds;

  /// Values of T that a call needs besides: a factor a row and one a group, of each column.
  std::int64_t scratch_size() const { return thresholds.empty() ? 0 : kPassColumns * 2 * scratch_stride(); }
  std::int64_t scratch_stride() const { return padded_to_vectors<T>(rows) + padded_to_vectors<T>(1); }
};

/// Passes over `columns` columns from `first` on; writes their sums of the rows, padded, and each one's sum.
/// `scratch` is the thread's own.
template <class T>
void pass_over_columns(SplittingPass<T> const& pass, std::int64_t first, std::int64_t columns, T* row_sums,
                       double* column_sums, T* scratch);

}  // namespace monge::cpu
