// Selects entries of a plan from rows of logarithms of shares, which Pass::logits writes (cuda/plan/select.cuh).
#pragma once
#include "cuda/launch/arguments.hpp"

namespace monge::cuda {

/// An array of indices; the stride is in elements.
struct StridedIndices {
  std::int64_t* data = nullptr;
  std::int64_t stride = 1;
};

/// log2 beta_j of the points of a side; minus infinity for padding and zero weight. A null `beta` means ones.
void log_factors(PackedSide const& points, float const* beta, void* out, cudaStream_t stream);

/// Rows `first` to `first + count - 1` of log2 w_ij in memory, and the factors that give entries: P_ij = factor_i w_ij.
struct LogRows {
  DataType scalar = DataType::float32;
  void const* values = nullptr;
  void const* largest = nullptr;  // Largest number of each kLogitGroup columns of a row.
  std::int64_t stride = 0;        // Columns with padding to whole tiles of 128, which is minus infinity.
  int first = 0;
  int count = 0;
  double const* factor = nullptr;  // Factors and weights are those of all rows.
  double const* weight = nullptr;
  // With listed tiles: the caller's numbers of all rows, and the columns of each kTilePoints rows
  // (tiles/listed_rows.hpp). `columns` begins with row number first - begin. Null: rows and columns are in the
  // caller's order.
  int const* point = nullptr;
  int const* columns = nullptr;
  int begin = 0;
};

/// out_ij = P_ij for all `columns` of each row.
void all_entries(LogRows const& rows, int columns, StridedView const& out, cudaStream_t stream);

/// Bytes for each row that top_k() needs besides its output; 0 if shared memory suffices.
std::int64_t top_k_scratch(DataType scalar, int k);
struct TopKArguments {
  LogRows rows;
  int k = 0;
  StridedIndices indices;  // k for each of all rows, side by side.
  StridedView values;      // Entries in the order of indices.
  void* scratch = nullptr;
};
void top_k(TopKArguments const& arguments, cudaStream_t stream);

struct AboveArguments {
  LogRows rows;
  double threshold = 0;
  std::int64_t* counts = nullptr;  // Entries of each row, to be counted. Null: the entries are written.
  StridedIndices row_begin;        // One number for each row, and the end.
  StridedIndices columns;
  StridedView values;
  std::int64_t size = 0;                // Length of columns and values.
  std::int64_t* first_wrong = nullptr;  // The lowest row whose count differs from row_begin.
};
void entries_above(AboveArguments const& arguments, cudaStream_t stream);

/// out_0 = 0, out_{i + 1} = out_i + in_i, i < size.
void running_sums(std::int64_t const* in, std::int64_t size, StridedIndices const& out, cudaStream_t stream);
/// sums_i = sums_{i - 1} + values_i, values_i >= 0. The sums never decrease, in spite of rounding, and values_i = 0
/// leaves them unchanged.
void running_sums(double const* values, std::int64_t size, double* sums, cudaStream_t stream);

/// Draws, and a list of the draws of each row.
struct SampleArguments {
  std::uint64_t seed = 0;
  std::int64_t count = 0;
  int rows = 0;
  double const* row_sums = nullptr;    // Running sums of the marginals.
  double* lost_rows = nullptr;         // The number of rows with draws but no shares; 0 at first.
  std::int64_t* row_draws = nullptr;   // The number of draws of each row; 0 at first.
  std::int64_t* draw_begin = nullptr;  // Running sums of row_draws, rows + 1.
  std::int64_t* order = nullptr;       // The draws, sorted by row.
  StridedIndices pairs;
};
/// Finds the rows of all draws: the first of each pair, draw_begin and order. The second of each pair is scratch. Draws
/// nothing if the sum of the marginals is not positive and finite.
void draw_rows(SampleArguments const& arguments, cudaStream_t stream);
/// Finds the columns of the draws of `rows`. `tiles`: one number for each row and each kSampleTile columns.
void draw_columns(SampleArguments const& arguments, LogRows const& rows, double* tiles, cudaStream_t stream);

}  // namespace monge::cuda
