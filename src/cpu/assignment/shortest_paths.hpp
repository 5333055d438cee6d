// Successive shortest augmenting paths for one assignment problem with at most as many rows as columns.
#pragma once
#include <cstdint>
#include <vector>

#include "cpu/runtime/memory.hpp"

namespace monge::cpu {

/// Rows are padded with infinite costs to whole vectors.
struct AssignmentMatrix {
  AssignmentMatrix(std::int64_t rows, std::int64_t columns)
      : rows(rows),
        columns(columns),
        stride((columns + kPadding - 1) / kPadding * kPadding),
        costs(aligned_array<double>(rows * stride)) {}

  static constexpr std::int64_t kPadding = 8;  ///< Numbers in the widest vector.
  std::int64_t rows, columns, stride;
  AlignedArray<double> costs;
};

/// column_of[i] is the column of row i in the optimal assignment. Returns false if there is none of finite cost. No
/// cost is NaN or -inf.
bool shortest_paths(AssignmentMatrix const& matrix, std::vector<std::int64_t>& column_of);

}  // namespace monge::cpu
