// Steps of the iteration that solves a system with the largest entries of a plan (cuda/second_order/chebyshev.cu).
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
  double* inverse_diagonal = nullptr;  // 1/c
  double* shares = nullptr;
  double* sums = nullptr;
};
void scale_entries(EntryScaling const& scaling, cudaStream_t stream);

/// right = inverse_diagonal in, direction = factor right, out = direction.
struct FirstEntryStep {
  int size = 0;
  double const* inverse_diagonal = nullptr;
  double const* in = nullptr;
  double factor = 0;
  double* right = nullptr;
  double* direction = nullptr;
  double* out = nullptr;
};
void first_entry_step(FirstEntryStep const& step, cudaStream_t stream);

/// right -= (I - columns rows) direction; direction = kept direction + taken right; out += direction. `rows` and
/// `columns` come from EntryScaling; `between` has room for rows.count numbers.
struct EntryStep {
  SparseLines rows, columns;
  double* between = nullptr;
  double kept = 0, taken = 0;
  double* right = nullptr;
  double* direction = nullptr;
  double* out = nullptr;
};
void entry_step(EntryStep const& step, cudaStream_t stream);

}  // namespace monge::cuda
