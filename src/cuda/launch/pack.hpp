// Packing of clouds and matrices (kernels/pack.cuh).
#pragma once
#include "cuda/launch/arguments.hpp"

namespace monge::cuda {

struct SurveyArguments {
  StridedView input;  // size x dimension; stride between rows.
  int size, dimension, rows_per_block;
  double const* weight;                  // size
  double* means;                         // For each block and coordinate.
  double* totals;                        // The weight of each block.
  unsigned long long* first_not_finite;  // Becomes min(row dimension + column) if there is one.
};
void survey_points(SurveyArguments const& arguments, int blocks, cudaStream_t stream);

struct PackArguments {
  StridedView input;  // size x dimension; stride between rows.
  int size, padded_size, dimension, stride;
  DataType scalar;
  double const* centre;  // dimension
  double const* offset;  // w; dimension
  double norm_factor;    // s in product form, 0 in difference form
  double shift_slope, shift_constant;
  void* points;
  double* squared;
  double* largest;  // max_k |x'_ik|
  double* norm;
  double* shift;
};
void pack_points(PackArguments const& arguments, cudaStream_t stream);

struct SplitArguments {
  float const* points;
  int size, padded_size, stride, half_stride;
  double half_scale;
  double norm_factor;
  void* high;
  void* low;
  double* norm;
};
void split_points(SplitArguments const& arguments, cudaStream_t stream);

/// shift_out = shift_in + slope <x', offset> + constant: the shift after the other side's centre has moved.
struct GaugeArguments {
  Operand points;
  int size;
  double const* offset;  // dimension
  double shift_slope, shift_constant;
  double const* shift_in;
  double* shift_out;
};
void move_gauge(GaugeArguments const& arguments, cudaStream_t stream);

/// A caller's matrix as float64, with zeros up to padded_rows x stride.
void convert_matrix(StridedView const& from, int rows, int columns, double* out, int padded_rows, int stride,
                    cudaStream_t stream);

}  // namespace monge::cuda
