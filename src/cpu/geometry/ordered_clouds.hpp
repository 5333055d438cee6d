// Clouds in the order of their trees.
#pragma once
#include <memory>
#include <vector>

#include <monge/geometry.hpp>

#include "cpu/geometry/point_costs.hpp"
#include "cpu/pass/plan_tiles.hpp"

namespace monge::cpu {

/// The order of a cloud's tree. Throws invalid_argument for a coordinate that is not finite, by the caller's index.
std::shared_ptr<PointOrder const> order_of(char const* field, MatrixView points, IndexView labels, int threads);

/// A copy of two clouds, the points of each in the order of its tree.
class OrderedClouds {
 public:
  /// Throws invalid_argument for a coordinate that is not finite and for a label without a class.
  OrderedClouds(PointCloud const& given, int threads);
  /// In the same order as before.
  OrderedClouds(PointCloud const& given, Ordering const& like);
  /// A cloud with itself, in the order of `like`.
  OrderedClouds(PointCloud const& given, OrderedSide const& like);

  PointCloud const& clouds() const { return clouds_; }
  std::vector<double> in_order(Side side, std::vector<double> const& values) const;
  template <class T>
  std::shared_ptr<Ordering const> ordering(PointCosts<T> const& costs, double share) const;

 private:
  OrderedClouds(PointCloud const& given, std::shared_ptr<PointOrder const> x, std::shared_ptr<PointOrder const> y);

  std::shared_ptr<PointOrder const> order_[2];
  std::vector<double> x_, y_;
  std::vector<std::int64_t> labels_x_, labels_y_;
  PointCloud clouds_;
};

}  // namespace monge::cpu
