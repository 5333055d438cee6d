// The iteration that solves a system with the largest entries of a plan (cuda/second_order/chebyshev.cu).
#pragma once
#include <cuda_runtime_api.h>

namespace monge::cuda {

/// A sparse matrix, stored by its lines: rows or columns.
struct SparseLines {
  int count = 0;
  int const* begin = nullptr;  // count + 1
  int const* index = nullptr;
  double* value = nullptr;
};

/// Computes rows = diag(1/a) E, columns = diag(1/c) E^T, shares = rows 1 and sums = columns shares; 1/0 counts as 1.
/// `entries` holds E row by row; value k of `columns` comes from entries[order[k]].
struct EntryScaling {
  SparseLines rows, columns;
  int const* order = nullptr;
  double const* entries = nullptr;
  double const* a = nullptr;
  double const* c = nullptr;
  double* inverse_a = nullptr;
  double* inverse_c = nullptr;
  double* shares = nullptr;
  double* sums = nullptr;
};
void scale_entries(EntryScaling const& scaling, cudaStream_t stream);

/// `steps` steps of the iteration for the right side `in`, or in - E^T diag(1/a) of_rows, from 0; of_rows then becomes
/// diag(1/a) (of_rows - E out). Eigenvalues lie in [least, 1]. `rows`, `columns` and the inverses come from
/// EntryScaling; `between` has room for a number each row, `right` and `direction` for one each column.
struct EntryIteration {
  SparseLines rows, columns;
  double const* inverse_a = nullptr;
  double const* inverse_c = nullptr;
  double* of_rows = nullptr;  // Null for zeros that stay.
  double const* in = nullptr;
  double* between = nullptr;
  double* right = nullptr;
  double* direction = nullptr;
  double* out = nullptr;
  double least = 1;
  int steps = 0;
  unsigned* arrived = nullptr;  // The counter of grid_barrier().
};
void iterate_entries(EntryIteration const& iteration, int multiprocessors, cudaStream_t stream);

}  // namespace monge::cuda
