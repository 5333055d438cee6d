// Steps of the iteration that solves with a plan's largest entries (cuda/second_order/chebyshev.cuh).
#pragma once
#include <cuda_runtime_api.h>

namespace monge::cuda {

/// A sparse matrix by its lines.
struct SparseLines {
  int count = 0;
  int const* begin = nullptr;  // count + 1
  int const* index = nullptr;
  double const* value = nullptr;
};

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

/// right -= (I - columns rows) direction; direction = kept direction + taken right; out += direction. `rows` is
/// diag(1/a) E, `columns` diag(1/c) E^T; `between` has room for rows.count numbers.
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
