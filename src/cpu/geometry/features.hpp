// The features of points (geometry/point_cost.hpp) for the CPU.
#pragma once
#include <vector>

#include "geometry/point_cost.hpp"

namespace monge::cpu {

/// The features of points as a matrix: the caller's memory if they are the coordinates, else a copy.
class Features {
 public:
  /// Error messages call the points `field`. Throws invalid_argument for a point of directions that has none, or a
  /// coordinate that is not finite.
  Features(PointCost const& cost, char const* field, MatrixView points);
  Features(Features const&) = delete;
  Features& operator=(Features const&) = delete;

  MatrixView view() const { return view_; }

 private:
  std::vector<double> copy_;
  MatrixView view_;
};

}  // namespace monge::cpu
