#include "geometry/point_tree.hpp"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "core/numbers.hpp"
#include "core/parallel.hpp"
#include "core/strided.hpp"

namespace monge {
namespace {

struct Key {
  double coordinate;
  std::uint32_t point, place;  // The place before the split. Clouds have fewer than 2^32 points.

  bool operator<(Key const& other) const {
    return coordinate != other.coordinate ? coordinate < other.coordinate : point < other.point;
  }
};

/// Splits nodes. The coordinates lie in the order of the places, so those of a small node stay in a cache.
template <class T>
class Splitter {
 public:
  Splitter(T const* data, std::int64_t stride, std::int64_t dimension, IndexView labels, TileTree const& tree)
      : tree_(tree), dimension_(to_size(dimension)), keys_(to_size(tree.size())) {
    for (std::size_t k = 0; k < keys_.size(); ++k) keys_[k].point = static_cast<std::uint32_t>(k);
    if (!labels.empty()) {
      auto const label = [&](Key const& key) { return labels.data[key.point * labels.stride]; };
      std::ranges::stable_sort(keys_, {}, label);
      for (std::size_t k = 1; k < keys_.size(); ++k) {
        if (label(keys_[k]) != label(keys_[k - 1])) edges_.push_back(k);
      }
    }
    for (std::vector<T>& points : points_) points.resize(keys_.size() * dimension_);
    T* const first = points_[top() % 2].data();
    for (std::size_t k = 0; k < keys_.size(); ++k)
      std::copy_n(data + static_cast<std::int64_t>(keys_[k].point) * stride, dimension_, first + k * dimension_);
  }

  void split_all(int threads) {
    constexpr std::int64_t kPairsOfPoint = 512;  // Pairs of a pass in the time to sort a point.
    threads = useful_threads(threads, std::ssize(keys_), kPairsOfPoint);
    int height = top();
    for (; height > 0 && tree_.nodes(height) < 4 * std::int64_t{threads}; --height)
      parallel_for(threads, tree_.nodes(height), [&](std::int64_t q) { split(height, q); });
    parallel_for(threads, tree_.nodes(height), [&](std::int64_t q) { split_below(height, q); });
  }
  std::vector<Key> const& keys() const { return keys_; }

 private:
  int top() const { return tree_.heights() - 1; }

  void split_below(int height, std::int64_t q) {
    if (height == 0) return;
    split(height, q);
    split_below(height - 1, 2 * q);
    if (2 * q + 1 < tree_.nodes(height - 1)) split_below(height - 1, 2 * q + 1);
  }

  /// Moves the points of the left child of a node before the points of the right child. The points are already sorted
  /// by label, so only points with the label of the middle point move. The two arrays of points alternate: nodes of
  /// even height have theirs in the first array, nodes of odd height in the second.
  void split(int height, std::int64_t q) {
    std::size_t const begin = to_size(tree_.first_point(height, q)), end = to_size(tree_.first_point(height, q + 1));
    std::size_t const middle = to_size(tree_.first_point(height - 1, 2 * q + 1));
    T const* const from = points_[height % 2].data();
    T* const to = points_[(height - 1) % 2].data();
    for (std::size_t place = begin; place < end; ++place) keys_[place].place = static_cast<std::uint32_t>(place);
    if (middle < end) {
      auto const edge = std::ranges::upper_bound(edges_, middle);
      std::size_t const first = edge == edges_.begin() ? begin : std::max(begin, edge[-1]);
      std::size_t const last = edge == edges_.end() ? end : std::min(end, *edge);
      std::size_t const widest = widest_side(from, first, last);
      for (std::size_t place = first; place < last; ++place)
        keys_[place].coordinate = static_cast<double>(from[place * dimension_ + widest]);
      auto const at = [&](std::size_t place) { return keys_.begin() + static_cast<std::ptrdiff_t>(place); };
      std::nth_element(at(first), at(middle), at(last));
    }
    for (std::size_t place = begin; place < end; ++place) {
      std::size_t const before = keys_[place].place;
      std::copy_n(from + before * dimension_, dimension_, to + place * dimension_);
    }
  }

  std::size_t widest_side(T const* points, std::size_t begin, std::size_t end) const {
    std::size_t widest = 0;
    T width = -1;
    for (std::size_t k = 0; k < dimension_; ++k) {
      T least = std::numeric_limits<T>::max(), most = std::numeric_limits<T>::lowest();
      for (std::size_t place = begin; place < end; ++place) {
        T const value = points[place * dimension_ + k];
        least = std::min(least, value);
        most = std::max(most, value);
      }
      T const side = most / 2 - least / 2;  // The difference of the largest numbers overflows.
      if (side > width) {
        width = side;
        widest = k;
      }
    }
    return widest;
  }

  TileTree const& tree_;
  std::size_t dimension_;
  std::vector<Key> keys_;
  std::vector<std::size_t> edges_;  // Places where another label begins.
  std::vector<T> points_[2];
};

}  // namespace

TileTree::TileTree(std::int64_t size, std::int64_t leaf) : size_(size), leaf_(leaf), first_{0} {
  std::int64_t nodes = (size + leaf - 1) / leaf;
  for (;; nodes = (nodes + 1) / 2) {
    first_.push_back(first_.back() + nodes);
    if (nodes <= 1) return;
  }
}

PointOrder order_with(std::vector<std::int64_t> point) {
  PointOrder order{std::move(point), {}};
  order.place.resize(order.point.size());
  for (std::size_t place = 0; place < order.point.size(); ++place)
    order.place[to_size(order.point[place])] = static_cast<std::int64_t>(place);
  return order;
}

PointOrder tree_order(MatrixView points, IndexView labels, int threads) {
  TileTree const tree(points.rows(), 1);
  std::vector<std::int64_t> point;
  point.reserve(to_size(points.rows()));
  with_data(points, [&](auto const* data) {
    Splitter splitter(data, points.row_stride(), points.columns(), labels, tree);
    splitter.split_all(threads);
    for (Key const& key : splitter.keys()) point.push_back(key.point);
  });
  return order_with(std::move(point));
}

std::vector<double> in_order(MatrixView points, PointOrder const& order, int threads) {
  std::vector<double> result(to_size(points.rows() * points.columns()));
  with_data(points, [&](auto const* data) {
    constexpr std::int64_t kPairsOfCopy = 16;  // Pairs of a pass in the time to copy a point.
    parallel_for(useful_threads(threads, points.rows(), kPairsOfCopy), points.rows(), [&](std::int64_t place) {
      auto const* const row = data + order.point[to_size(place)] * points.row_stride();
      std::copy_n(row, points.columns(), result.begin() + place * points.columns());
    });
  });
  return result;
}

std::vector<std::int64_t> in_order(IndexView labels, PointOrder const& order) {
  std::vector<std::int64_t> result;
  for (std::size_t place = 0; place < to_size(labels.size); ++place)
    result.push_back(labels.data[order.point[place] * labels.stride]);
  return result;
}

}  // namespace monge
