// Averages under the softmax of each row (kernels/average.cuh).
#pragma once
#include "cuda/launch/arguments.hpp"

namespace monge::cuda {

/// `values` are padded with zeros to columns.padded_size rows and a stride that is a multiple of this.
inline constexpr int kValuePadding = 64;

struct AverageArguments {
  int side;  // Of the rows: 0 or 1, as in LogitArguments.
  PackedCloud rows;
  PackedCloud columns;
  void const* logits;  // Of the columns, as for launch_softmin.
  double const* plus;  // f+ of the rows, by the same logits.
  SweepParameters const* parameters;
  double scale;
  void const* values;  // Of the clouds' type.
  int width;
  int value_stride;
  double const* mean;        // width, added to the averages; null for zeros.
  double const* row_weight;  // Null for ones.
  StridedView out;           // rows.size x width; stride between rows.
};
void average(AverageArguments const& arguments, cudaStream_t stream);

}  // namespace monge::cuda
