// Averages of the derivatives of distances by points, from entries of a plan in memory (cuda/entries/point_slopes.cuh).
#pragma once
#include "cuda/launch/arguments.hpp"

namespace monge::cuda {

/// The points of the rows move along `own`, those of the columns along `far`: rows of `dimension` numbers. Null: no
/// motion.
struct PointMotion {
  double const* own = nullptr;
  double const* far = nullptr;
  int rows = 0, columns = 0;  // Points; padding has no motion.
  double rate = 0;            // The factor of the distances over eps.

  /// The motion of the rows from `first` on.
  PointMotion from(int first, int dimension) const {
    PointMotion result = *this;
    if (own != nullptr) result.own += static_cast<std::int64_t>(first) * dimension;
    result.rows -= first;
    return result;
  }
};

/// S_ik = factor sum_j E_ij v_j g_ijk, g_ijk = d|x_i - y_j|_p / dx_ik, for entries E of the points x. With a motion the
/// changes d of distances and of their derivatives take the place of g:
///   S_ik = factor sum_j E_ij v_j (d g_ijk - rate d|x_i - y_j|_p g_ijk),   S_i,dimension = factor sum_j E_ij v_j d|x_i
///   - y_j|_p.
struct PointSlopesArguments {
  Operand rows;     // x
  Operand columns;  // y
  double p = 2;     // >= 1 or infinity.
  double factor = 1;
  Entries entries;
  void const* value_high = nullptr;     // v, a column of PackedValues.
  void const* value_low = nullptr;      // float only.
  double const* value_scale = nullptr;  // float only.
  PointMotion motion;
  int parts = 1;
  double* sums = nullptr;  // `parts` matrices of rows.padded_size rows, each of a part of the points y.
};
/// As many parts as keep the device busy.
int point_slopes_parts(PointSlopesArguments const& arguments, int multiprocessors);
void launch_point_slopes(PointSlopesArguments const& arguments, cudaStream_t stream);

}  // namespace monge::cuda
