// The order of a cloud by a k-d tree: points that are close together lie side by side, in tiles.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include <monge/array.hpp>

#include "core/numbers.hpp"
#include "core/side.hpp"

namespace monge {

/// Points of a tile. The last tile of a cloud may have fewer.
inline constexpr std::int64_t kTilePoints = 32;

/// The nodes of a tree over `size` points. Nodes of height 0 are the leaves, which are tiles unless `leaf` says
/// otherwise. Node q of height h has the leaves from q 2^h to (q + 1) 2^h, as far as they exist; its children are the
/// nodes 2 q and 2 q + 1 of height h - 1. The largest height has one node.
class TileTree {
 public:
  /// `leaf`: points of a leaf.
  explicit TileTree(std::int64_t size, std::int64_t leaf = kTilePoints);

  std::int64_t size() const { return size_; }
  std::int64_t tiles() const { return nodes(0); }
  int heights() const { return static_cast<int>(first_.size()) - 1; }
  std::int64_t nodes(int height) const { return first_[at(height) + 1] - first_[at(height)]; }
  std::int64_t nodes() const { return first_.back(); }
  /// The number of a node among all, from height 0 up.
  std::int64_t index(int height, std::int64_t q) const { return first_[at(height)] + q; }
  /// The points of a node, in tree order, begin at first_point() and end before first_point() of the next.
  std::int64_t first_point(int height, std::int64_t q) const {
    std::int64_t const point = (q << height) * leaf_;
    return point < size_ ? point : size_;
  }

 private:
  static std::size_t at(int height) { return static_cast<std::size_t>(height); }

  std::int64_t size_, leaf_;
  std::vector<std::int64_t> first_;  // Nodes below a height.
};

/// A permutation of points.
struct PointOrder {
  std::vector<std::int64_t> point;  // The point at each place.
  std::vector<std::int64_t> place;  // The place of each point.
};

/// The permutation with this point at each place.
PointOrder order_with(std::vector<std::int64_t> point);

/// The order of the points of each side inside an operator; null where it is the caller's.
struct PointOrders {
  std::shared_ptr<PointOrder const> of[2];

  /// The place inside of a point of the caller, and the reverse.
  std::int64_t place(Side side, std::int64_t point) const {
    PointOrder const* const order = of[static_cast<int>(side)].get();
    return order == nullptr ? point : order->place[to_size(point)];
  }
  std::int64_t point(Side side, std::int64_t place) const {
    PointOrder const* const order = of[static_cast<int>(side)].get();
    return order == nullptr ? place : order->point[to_size(place)];
  }
};

/// The order of finite points by a k-d tree. Each node is split across the widest side of the box of its points; of
/// equal coordinates the first point comes first. The first part of a split has the largest power of two of points that
/// leaves some to the other, so tiles are nodes, and single points are leaves. Points with labels have the order of
/// their labels first, and a split goes through the points of one label. The order depends on points and labels alone.
/// `labels`: in host memory; empty where there are none. `threads` work on it.
PointOrder tree_order(MatrixView points, IndexView labels, int threads);

/// The points in the order.
std::vector<double> in_order(MatrixView points, PointOrder const& order, int threads = 1);
/// Their labels in the order.
std::vector<std::int64_t> in_order(IndexView labels, PointOrder const& order);

}  // namespace monge
