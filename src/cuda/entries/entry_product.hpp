// Products of entries of a plan with values (cuda/entries/entry_product.cuh), with the kernels before and after them
// (cuda/entries/values.cuh).
#pragma once
#include "cuda/launch/arguments.hpp"

namespace monge::cuda {

/// Values V (points x width) as the products read them: transposed, so each column of V is a row.
struct PackedValues {
  int width = 0;
  Operand operand;                // padded_size: padded width; stride or half_stride: padded points.
  double const* scale = nullptr;  // width; V is the operand times this. Null in double.
};

/// Columns of the values in one tile of a block. The width is padded to a multiple of it.
int value_tile(int width, DataType scalar);

struct PackValuesArguments {
  StridedView from;       // count x width; stride between rows.
  double const* weight;   // count; row j of V does not count where weight[j] is 0.
  double const* divisor;  // count; row j of V is divided by divisor[j]. Null for ones.
  int count;
  int padded_count;
  int width;
  int padded_width;
  DataType scalar;
  unsigned long long* largest;  // width of scratch; float only.
  double* scale;                // width; float only.
  void* high;                   // padded_width x padded_count, fp16 in the order of entry_position(), or double.
  void* low;                    // The low parts; float only.
};
void pack_values(PackValuesArguments const& arguments, cudaStream_t stream);

struct EntryProductPlan {
  bool wgmma = false;
  int tile = 64;         // Columns of the values in one tile of a block.
  int column_tiles = 1;  // Tiles of the values.
  WorkPlan work;         // Its row blocks are (row block, column tile) pairs, its tiles chunks of points.
  std::int64_t partial_size() const { return static_cast<std::int64_t>(work.slots) * work.row_blocks * 128 * tile; }
};
EntryProductPlan plan_entry_product(int padded_rows, int padded_count, int padded_width, int multiprocessors);

struct EntryProductArguments {
  Operand rows;     // The entries.
  Operand columns;  // The values.
  int column_tiles;
  WorkPlan work;
  float* partials;  // [slots][row blocks x column tiles][128][tile]
};
void launch_entry_product(EntryProductPlan const& plan, EntryProductArguments const& arguments, cudaStream_t stream);

/// The same in double: `parts` matrices of sums, rows x padded width, each of a part of the points.
struct DoubleProductArguments {
  Operand rows;     // The entries.
  Operand columns;  // The values.
  int parts;
  double* sums;
  int first_row_tile = 0;
};
/// As many parts as keep the device busy: few rows and columns alone are few blocks.
int double_product_parts(Operand const& rows, Operand const& columns, int multiprocessors);
void launch_double_product(DoubleProductArguments const& arguments, cudaStream_t stream);

/// out_ip = row_factor_i (value_factor scale_p sum_ip / (entry_sum_i row_divisor_i) + origin_p). entry_sum_i is the sum
/// of the rounded entries of row i, so rounding errors that all of them share cancel.
struct StoreValuesArguments {
  int rows;
  int width;
  DataType scalar;
  // Sums in float, from launch_entry_product:
  float const* partials;
  int tile;
  int column_tiles;
  WorkPlan work;
  // Sums in double, from launch_double_product(): matrices of sum_size numbers.
  double const* sums;
  int sum_stride;
  std::int64_t sum_size;
  int parts;
  double const* entry_sum;    // rows
  double const* row_divisor;  // rows; null for ones.
  double const* row_factor;   // rows; null for ones.
  double value_factor;
  double const* scale;   // Null for ones.
  double const* origin;  // Null for zeros.
  StridedView out;       // rows x width; stride between rows.
};
void store_values(StoreValuesArguments const& arguments, cudaStream_t stream);

/// Splits rows of the caller's matrix into fp16 parts: divisor_i x_i = high + low, divisor_i a power of two.
struct SplitRowsArguments {
  StridedView from;  // rows x columns; stride between rows.
  int rows;
  int padded_rows;
  int columns;
  int half_stride;
  void* high;
  void* low;
  double* divisor;  // rows
};
void split_rows(SplitRowsArguments const& arguments, cudaStream_t stream);

}  // namespace monge::cuda
