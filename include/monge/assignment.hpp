// Linear sum assignment: min(n, m) pairs of a row and a column of a cost matrix, with each row and each column in at
// most one pair, and the least sum of costs. One matrix, or many of any shapes.
//
// The pairs equal those of SciPy's linear_sum_assignment, even where several assignments are optimal. The algorithm,
// its float64 arithmetic and its order of ties are the same. Source: D. F. Crouse, On implementing 2D rectangular
// assignment algorithms, 2016, doi 10.1109/TAES.2016.140952.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include <monge/context.hpp>
#include <monge/export.hpp>
#include <monge/projection.hpp>

namespace monge {

/// The outcome of one problem. AssignmentOutput::status holds these values.
enum class AssignmentStatus : std::int64_t {
  optimal = 0,
  infeasible = 1,  ///< Too few finite costs: each way to pair rows and columns has a forbidden pair.
  invalid = 2,     ///< A cost is NaN or -inf (with maximize: inf), or a size of AssignmentOptions is out of range.
};
constexpr auto names_of(AssignmentStatus) {
  using enum AssignmentStatus;
  return std::to_array<Named<AssignmentStatus>>(
      {{optimal, "optimal"}, {infeasible, "infeasible"}, {invalid, "invalid"}});
}

struct AssignmentOptions {
  bool maximize = false;  ///< Finds the largest sum; forbidden pairs then have cost -inf instead of inf.
  /// Sizes of the problems of a batch (B each): problem t is the first rows[t] rows and columns[t] columns of matrix t.
  /// Empty: whole matrices.
  IndexView rows = {};
  IndexView columns = {};
};

/// Outputs for B problems. Row t of row_indices and column_indices (B x K) has the pairs of problem t, sorted by row;
/// -1 fills the rest. K is at least min(n, m) of each problem. If a problem is not optimal, all its indices are -1.
struct AssignmentOutput {
  MutableIndexView row_indices;
  MutableIndexView column_indices;
  MutableIndexView status;  ///< B x 1, as AssignmentStatus.
};

/// Solves each matrix of `costs` (B, n, m), float32 or float64. The pairs of a matrix depend neither on the rest of the
/// batch nor on the device. inf forbids a pair. Problems run side by side: one thread each on the CPU, one block each
/// on CUDA, where a matrix has at most 2048 rows and columns. A CUDA context waits only for results in host memory. A
/// CUDA graph can record the call if all arrays lie in device memory; sizes may lie in host memory. A size in device
/// memory that is out of range makes its problem invalid. Throws Error (invalid_argument: shapes, types, sizes in host
/// memory; unsupported: a matrix too large for CUDA).
MONGE_API void linear_sum_assignment(Context const& context, BatchView costs, AssignmentOutput const& out,
                                     AssignmentOptions const& options = {});
/// The same for matrices of any shapes and one type, on one device. The sizes in the options must be empty.
MONGE_API void linear_sum_assignment(Context const& context, std::span<MatrixView const> costs,
                                     AssignmentOutput const& out, AssignmentOptions const& options = {});

/// Pairs (row_indices[k], column_indices[k]), sorted by row.
struct Assignment {
  std::vector<std::int64_t> row_indices, column_indices;
};
/// One matrix. Throws invalid_argument where SciPy raises: "matrix contains invalid numeric entries", "cost matrix is
/// infeasible".
MONGE_API Assignment linear_sum_assignment(Context const& context, MatrixView cost,
                                           AssignmentOptions const& options = {});

}  // namespace monge
