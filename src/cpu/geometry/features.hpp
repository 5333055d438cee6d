// What the CPU reads of points: their features (geometry/point_cost.hpp).
#pragma once
#include <span>
#include <string>
#include <vector>

#include "geometry/point_cost.hpp"

namespace monge::cpu {

/// The features of some points as a matrix: the caller's own memory where there is nothing to add, else a copy.
class Features {
 public:
  /// `classes` has the coordinates of the labels; nothing, if the cost has none. Errors call the points `field`, and
  /// the labels labels_`field`. Throws invalid_argument naming a coordinate that is not finite, a point without a
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
