// Group lasso over any pairs: the groups, and its part in an iteration of splitting.
//
//   X_ij <- shrink (1 - s lambda w_g / |V_g|)_+ V_ij,  g: the group of (i, j),  |V_g|: over its pairs in all columns
//
// The pairs of a group in one column are a part. Rows of a column are sorted by part, and parts by group, so a group's
// norm is the root of a sum over its parts, in an order that no number of threads changes.
//
// Traffic   An iteration reads S and X and leaves V; a second pass makes X from V: 16 bytes an entry (float), and twice
//           the 4 bytes of `rows`.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include <monge/array.hpp>

#include "core/numbers.hpp"
#include "cpu/regularized/splitting_pass.hpp"

namespace monge::cpu {

class PairGroups {
 public:
  struct Part {
    std::int64_t begin, end;  // Places in rows_of() of its column.
    std::int64_t group;
  };

  /// `labels` are valid: from -1 to the number of `weights` less one. Pairs of label -1 are a last group of weight 0.
  PairGroups(IndexMatrixView labels, std::vector<double> weights, int threads);

  std::int64_t groups() const { return std::ssize(weights_); }
  /// lambda w_g, in the units of the weights given.
  double weight(std::int64_t group) const { return weights_[to_size(group)]; }
  std::int64_t parts() const { return std::ssize(parts_); }
  /// The number of the first part of a column.
  std::int64_t first_part(std::int64_t column) const { return column_begin_[to_size(column)]; }
  std::span<Part const> parts_of(std::int64_t column) const {
    return std::span(parts_).subspan(to_size(first_part(column)), to_size(first_part(column + 1) - first_part(column)));
  }
  /// The rows of a column, sorted by part.
  std::int32_t const* rows_of(std::int64_t column) const { return rows_.data() + column * n_; }
  /// The sum of a number of each part over a group.
  double total(std::int64_t group, std::span<double const> of_parts) const;

 private:
  std::int64_t n_;
  std::vector<double> weights_;
  std::vector<std::int32_t> rows_;          // [m][n]
  std::vector<std::int64_t> column_begin_;  // (m + 1)
  std::vector<Part> parts_;
  std::vector<std::int64_t> group_begin_, by_group_;  // The numbers of the parts of each group.
};

/// Leaves V in place of X in `columns` columns from `first` on, and |V|^2 of each of their parts in `squares`, which
/// has room for all parts.
template <class T>
void leave_parts(SplittingPass<T> const& pass, PairGroups const& groups, std::int64_t first, std::int64_t columns,
                 std::span<double> squares);

/// Makes X from V by a factor for each group. Writes sums as pass_over_columns() does.
template <class T>
void shrink_parts(SplittingPass<T> const& pass, PairGroups const& groups, std::span<double const> factors,
                  std::int64_t first, std::int64_t columns, T* row_sums, double* column_sums);

}  // namespace monge::cpu
