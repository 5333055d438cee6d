// The pairs of a plan's largest entries, as a sparse matrix by rows and by columns
// (cuda/second_order/chosen_entries.cu).
#pragma once
#include <cstdint>

#include "cuda/launch/transfer.hpp"
#include "cuda/runtime/runtime.hpp"

namespace monge::cuda {

/// The k largest entries of each of n rows, side by side; NaN counts as 0. Their numbers count them row by row.
struct RowEntries {
  int rows = 0, columns = 0, k = 0;
  std::int64_t const* index = nullptr;
  double* value = nullptr;  // Overwritten.
};

/// `count` pairs, sorted by row and then from the largest down, and their indices in the order of columns and then
/// rows.
struct ChosenEntries {
  DeviceArray<std::int64_t> rows, columns;
  DeviceArray<int> row_begin, row_index;        // The columns of each row.
  DeviceArray<int> column_begin, column_index;  // The rows of each column.
  DeviceArray<int> order;                       // The index by rows of each pair by columns.
};

/// The `count` largest entries. Equal entries are taken in the order of their numbers. 0 <= count <= rows * k.
ChosenEntries choose_entries(SharedRuntime const& runtime, RowEntries const& entries, std::int64_t count);

}  // namespace monge::cuda
