// Averages of the derivatives of distances by points, from entries of a plan in memory (cuda/entries/point_slopes.cuh).
#pragma once
#include "cuda/launch/arguments.hpp"

namespace monge::cuda {

/// S_ik = factor sum_j E_ij v_j d|x_i - y_j|_p / dx_ik, for entries E of the points x.
struct PointSlopesArguments {
  Operand rows;     // x
  Operand columns;  // y
  double p = 2;     // >= 1 or infinity.
  double factor = 1;
  Entries entries;
  void const* value_high = nullptr;     // v, a column of PackedValues.
  void const* value_low = nullptr;      // float only.
  double const* value_scale = nullptr;  // float only.
  int parts = 1;
  double* sums = nullptr;  // `parts` matrices of rows.padded_size x dimension, each of a part of the points y.
};
/// As many parts as keep the device busy.
int point_slopes_parts(Operand const& rows, Operand const& columns, int multiprocessors);
void launch_point_slopes(PointSlopesArguments const& arguments, cudaStream_t stream);

/// out_i = factor (s_i - <s_i, u_i> u_i) / |p_i| for the direction u_i of a point p_i, with
/// s_i = S_i - (sum of the entries of row i) u_i, the sum of the differences of directions. It has the same part across
/// u_i as S_i, and loses no digits where all directions are alike.
struct DirectionSlopesArguments {
  int size = 0, dimension = 0;
  double factor = 1;
  StridedView points;  // p less `centre`.
  double const* centre = nullptr;
  StridedView directions;  // u less `own_centre`.
  double const* own_centre = nullptr;
  double const* far_centre = nullptr;
  double const* sums = nullptr;  // Rows of 1 + dimension numbers: the sum of the entries, then S_i less far_centre.
  double* out = nullptr;
};
void direction_slopes(DirectionSlopesArguments const& arguments, cudaStream_t stream);

}  // namespace monge::cuda
