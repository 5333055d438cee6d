// The order of the points of a problem whose passes leave out pairs, on the device.
#pragma once
#include <memory>

#include "cuda/geometry/costs.hpp"
#include "cuda/tiles/tile_search.hpp"

namespace monge::cuda {

/// One side: its points in the order of their tree, and the boxes of the nodes.
class OrderedSide {
 public:
  /// `point`: the caller's number of the point at each place. `packed`: the points in the caller's order.
  OrderedSide(SharedRuntime const& runtime, std::shared_ptr<DeviceArray<int> const> point, int size,
              Operand const& packed);

  OrderedPoints const& points() const { return points_; }
  TreeLevels const& levels() const { return levels_; }
  double const* boxes() const { return boxes_.data(); }
  std::shared_ptr<DeviceArray<int> const> const& order() const { return order_; }

 private:
  std::shared_ptr<DeviceArray<int> const> order_;
  OrderedPoints points_;
  TreeLevels levels_;
  DeviceArray<unsigned char> memory_;
  DeviceArray<double> boxes_;
};

/// Both sides. Costs are squared distances of at most kLargestDifferenceDimension coordinates.
struct Ordering {
  std::shared_ptr<OrderedSide const> side[2];
  double truncation;  // OperatorOptions::truncation

  OrderedSide const& of(Side which) const { return *side[side_index(which)]; }
};

/// Orders the points, which are finite. Points whose side has no order in `given` get that of their tree.
std::shared_ptr<Ordering const> make_ordering(SharedRuntime const& runtime, Costs const& costs, double truncation,
                                              PointOrders const& given);
/// A copy of `ordering` for costs with new points on one side. The new points get the order of `like`; if `like` is
/// null, they get the order of a k-d tree of their own.
std::shared_ptr<Ordering const> ordering_at(SharedRuntime const& runtime, Ordering const& ordering, Costs const& costs,
                                            Side side, OrderedSide const* like);
/// The same order for costs that pack the same points in another precision or with other coordinates of labels.
std::shared_ptr<Ordering const> twin_ordering(SharedRuntime const& runtime, Ordering const& ordering,
                                              Costs const& costs);
/// The ordering of the problem that transports one side to itself.
std::shared_ptr<Ordering const> self_ordering(Ordering const& ordering, Side side);

}  // namespace monge::cuda
