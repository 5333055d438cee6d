// The pass of a splitting iteration over all entries (regularized/splitting_rule.hpp), on the CPU.
//
//   V_ij = [Z_ij + phi_i + psi_j]_+,  Z = X - s S;   X_ij <- prox(factor_gj V_ij),  factor: of a group g of rows
//
// Layout    Column by column, the rows of a group next to each other; columns begin at cache lines of different sets.
// Tiling    kPassColumns columns at once share the reads of phi and the row sums. With groups, a first step finds their
//           norms and stores a factor for each row. The second step computes the entries again, from L1 or L2, so it
//           works on whole vectors for any groups. With hypentropy too, the first step finds the entries themselves.
// Traffic   One iteration reads X and S and leaves X - s S; the next reads this and leaves X: 12 and 8 bytes (float).
//           Hypentropy: hypentropy-inl.hpp.
// Numerics  Z is rounded once, in memory or not, so any split of a number of iterations has the same bits. Column sums
//           go to float64 every kRowsOfSum rows, row sums every kColumnsOfRowSum columns: for entries of equal size, a
//           float32 sum has a relative error of about 1e-7. A forbidden pair has S = infinity, Z = -infinity and X = 0.
#pragma once
#include <cstdint>
#include <span>

#include "regularized/splitting_rule.hpp"

namespace monge::cpu {

inline constexpr std::int64_t kPassColumns = 4;
/// Room for whole vectors, of at most 64 bytes, in arrays of rows and in columns of X. Costs are infinite in the
/// padding, so X is 0 there.
template <class T>
constexpr std::int64_t padded_to_vectors(std::int64_t rows) {
  constexpr std::int64_t kLanes = 64 / sizeof(T);
  return (rows + kLanes - 1) / kLanes * kLanes;
}
/// Columns whose row sums stay in T.
inline constexpr std::int64_t kColumnsOfRowSum = 32;
/// Rows whose column sums stay in T.
inline constexpr std::int64_t kRowsOfSum = 1024;

/// Input and output of a pass, beside X.
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
  std::int64_t stride;  // Elements between columns of x and costs.
  std::int64_t rows;
  T step;
  T const* phi;
  T const* psi;  // Not padded.
  EntryProx<T> prox;
  // The first row of each group with `rows` at the end, and the thresholds s lambda w_g of the group norms, padded like
  // rows; empty without group lasso.
  std::span<std::int64_t const> group_begin;
  std::span<T const> thresholds;

  /// Values of T for scratch memory: for each column, a factor or an entry for each row and one for each group.
  std::int64_t scratch_size() const { return thresholds.empty() ? 0 : kPassColumns * 2 * scratch_stride(); }
  std::int64_t scratch_stride() const { return padded_to_vectors<T>(rows) + padded_to_vectors<T>(1); }
};

/// Updates `columns` columns from `first` on. Writes their row sums, padded, and the sum of each column. Each thread
/// has its own `scratch`.
template <class T>
void pass_over_columns(SplittingPass<T> const& pass, std::int64_t first, std::int64_t columns, T* row_sums,
                       double* column_sums, T* scratch);

}  // namespace monge::cpu
