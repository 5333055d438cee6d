// Selecting entries of a plan from rows of logarithms of shares, which Pass::logits wrote (cuda/plan/select.cuh).
#pragma once
#include "cuda/launch/arguments.hpp"

namespace monge::cuda {

/// Where indices go, in elements.
struct StridedIndices {
  std::int64_t* data = nullptr;
  std::int64_t stride = 1;
};

/// log2 beta_j of a side's points, minus infinity for padding and where there is no weight; beta null for ones.
void log_factors(PackedSide const& points, float const* beta, void* out, cudaStream_t stream);

/// Rows `first` to `first + count - 1` of log2 w_ij in memory, and what makes entries of them: P_ij = factor_i w_ij.
struct LogRows {
  DataType scalar = DataType::float32;
  void const* values = nullptr;
  void const* largest = nullptr;  // Of each kLogitGroup columns.
  std::int64_t stride = 0;        // Columns and padding, which is minus infinity: whole tiles of 128.
  int first = 0;
  int count = 0;
  double const* factor = nullptr;  // Of all rows, as the weights.
  double const* weight = nullptr;
};

/// out_ij = P_ij for all `columns` of each row.
void all_entries(LogRows const& rows, int columns, StridedView const& out, cudaStream_t stream);

/// Room that top_k() needs beside its output, in bytes for each row; 0 where a block's own memory suffices.
std::int64_t top_k_scratch(DataType scalar, int k);
struct TopKArguments {
  LogRows rows;
  int k = 0;
  StridedIndices indices;  // k of each of all rows, side by side.
  StridedView values;      // The same.
  void* scratch = nullptr;
};
void top_k(TopKArguments const& arguments, cudaStream_t stream);

struct AboveArguments {
  LogRows rows;
  double threshold = 0;
  std::int64_t* counts = nullptr;  // Of each of all rows; or null, and the entries are written:
  StridedIndices row_begin;        // of all rows and their end
  StridedIndices columns;
  StridedView values;
  std::int64_t size = 0;                // Of columns and values.
  std::int64_t* first_wrong = nullptr;  // The lowest row that does not have as many as row_begin says.
};
void entries_above(AboveArguments const& arguments, cudaStream_t stream);

/// out_0 = 0, out_{i + 1} = out_i + in_i, i < size.
void running_sums(std::int64_t const* in, std::int64_t size, StridedIndices const& out, cudaStream_t stream);
/// sums_i = sums_{i - 1} + values_i, values_i >= 0. They ascend in spite of rounding, and where values_i = 0 they stay.
void running_sums(double const* values, std::int64_t size, double* sums, cudaStream_t stream);

/// Draws and, for each row, which of them are its own.
struct SampleArguments {
  std::uint64_t seed = 0;
  std::int64_t count = 0;
  int rows = 0;
  double const* row_sums = nullptr;    // Running sums of the marginals.
  double* lost_rows = nullptr;         // How many rows have draws and no shares; 0 at first.
  std::int64_t* row_draws = nullptr;   // How many each row has; 0 at first.
  std::int64_t* draw_begin = nullptr;  // rows + 1: their running sums.
  std::int64_t* order = nullptr;       // The draws, row by row.
  StridedIndices pairs;
};
/// The rows of all draws: the first of each pair, draw_begin and order. The second of each pair is scratch. Nothing is
/// drawn if the marginals have no sum to draw from.
void draw_rows(SampleArguments const& arguments, cudaStream_t stream);
/// The columns of the draws of some rows. `tiles`: room for a number for each kSampleTile columns of each of the rows.
void draw_columns(SampleArguments const& arguments, LogRows const& rows, double* tiles, cudaStream_t stream);

}  // namespace monge::cuda
