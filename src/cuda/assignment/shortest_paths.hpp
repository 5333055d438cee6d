// Launches of the linear sum assignment. Pointers are to device memory.
#pragma once
#include <cstdint>
#include <span>

#include <driver_types.h>

#include <monge/array.hpp>

namespace monge::cuda {

/// The most rows and columns of a matrix.
inline constexpr int kLargestAssignment = 2048;

struct AssignmentMatrix {
  void const* data = nullptr;
  std::int64_t row_stride = 0;
  int rows = 0, columns = 0;
};

/// The sizes in use of the matrices of a batch; null: all of a matrix.
struct AssignmentSizes {
  std::int64_t const* data = nullptr;
  std::int64_t stride = 1;
};

/// Matrix t lies t * batch_stride elements after the first.
struct AssignmentBatch {
  AssignmentMatrix first;
  std::int64_t batch_stride = 0;
  AssignmentSizes rows, columns;
};

/// Matrices of a launch. Kernel parameters have 32,764 bytes.
struct AssignmentList {
  static constexpr std::int64_t kMost = 1024;
  AssignmentMatrix matrices[kMost];
};

/// The outputs of problem t: its pairs and its status.
struct AssignmentResults {
  std::int64_t *rows = nullptr, *columns = nullptr, *status = nullptr;
  std::int64_t row_stride = 0, column_stride = 0, status_stride = 0;
  std::int64_t pairs = 0;  // Entries of a row of `rows` and `columns`.

  /// The outputs of problem t and later ones.
  AssignmentResults from(std::int64_t t) const {
    AssignmentResults later = *this;
    later.rows += t * row_stride;
    later.columns += t * column_stride;
    later.status += t * status_stride;
    return later;
  }
};

/// Fewer than 2^31 problems.
void assign_batch(AssignmentBatch const& batch, std::int64_t problems, DataType type, bool maximize,
                  AssignmentResults const& results, cudaStream_t stream);
void assign_list(std::span<AssignmentMatrix const> matrices, DataType type, bool maximize,
                 AssignmentResults const& results, cudaStream_t stream);

}  // namespace monge::cuda
