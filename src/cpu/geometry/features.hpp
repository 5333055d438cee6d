// The features of points (geometry/point_cost.hpp) for the CPU.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "geometry/point_cost.hpp"

namespace monge::cpu {

/// The features of points as a matrix: the caller's memory if they are plain coordinates, else a copy.
class Features {
 public:
  /// `classes` has the coordinates of the labels; empty if the cost has none. Error messages call the points `field`
  /// and the labels labels_`field`. Throws invalid_argument for a coordinate that is not finite, a point without a
  /// direction or a label without a class.
  Features(PointCost const& cost, std::string const& field, MatrixView points, IndexView labels,
           std::span<double const> classes);
  Features(Features const&) = delete;
  Features& operator=(Features const&) = delete;

  MatrixView view() const { return view_; }

 private:
  std::vector<double> copy_;
  MatrixView view_;
};

}  // namespace monge::cpu
