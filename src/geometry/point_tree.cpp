#include "geometry/point_tree.hpp"

#include <algorithm>
#include <limits>
#include <numeric>

#include "core/numbers.hpp"
#include "core/parallel.hpp"
#include "core/strided.hpp"

namespace monge {
namespace {

struct Key {
  double coordinate;
  std::int64_t point;

  bool operator<(Key const& other) const {
    return coordinate != other.coordinate ? coordinate < other.coordinate : point < other.point;
  }
};

template <class T>
class Splitter {
 public:
  Splitter(T const* data, std::int64_t stride, std::int64_t dimension, std::int64_t size)
      : data_(data), stride_(stride), dimension_(dimension), keys_(to_size(size)) {
    for (std::size_t k = 0; k < keys_.size(); ++k) keys_[k].point = static_cast<std::int64_t>(k);
  }

  /// Puts the points of the left child of places [begin, end) before those of the right one.
  void split(std::int64_t begin, std::int64_t middle, std::int64_t end) {
    std::int64_t widest = 0;
    T width = -1;
    for (std::int64_t k = 0; k < dimension_; ++k) {
      T least = std::numeric_limits<T>::max(), most = std::numeric_limits<T>::lowest();
      for (std::int64_t place = begin; place < end; ++place) {
        T const value = at(place, k);
        least = std::min(least, value);
        most = std::max(most, value);
      }
      T const side = most / 2 - least / 2;  // The difference of the largest numbers overflows.
      if (side > width) {
        width = side;
        widest = k;
      }
    }
    for (std::int64_t place = begin; place < end; ++place)
      keys_[to_size(place)].coordinate = static_cast<double>(at(place, widest));
    auto const first = keys_.begin();
    std::nth_element(first + begin, first + middle, first + end);
  }
  std::vector<Key> const& keys() const { return keys_; }

 private:
  T at(std::int64_t place, std::int64_t k) const { return data_[keys_[to_size(place)].point * stride_ + k]; }

  T const* data_;
  std::int64_t stride_, dimension_;
  std::vector<Key> keys_;
};

}  // namespace

TileTree::TileTree(std::int64_t size, std::int64_t leaf) : size_(size), leaf_(leaf), first_{0} {
  std::int64_t nodes = (size + leaf - 1) / leaf;
  for (;; nodes = (nodes + 1) / 2) {
    first_.push_back(first_.back() + nodes);
    if (nodes <= 1) return;
  }
}

PointOrder tree_order(MatrixView points, int threads) {
  TileTree const tree(points.rows(), 1);
  PointOrder order;
  order.point.resize(to_size(points.rows()));
  order.place.resize(to_size(points.rows()));
  with_data(points, [&](auto const* data) {
    Splitter splitter(data, points.row_stride(), points.columns(), points.rows());
    for (int height = tree.heights() - 1; height > 0; --height) {
      parallel_for(threads, tree.nodes(height), [&](std::int64_t q) {
        std::int64_t const middle = tree.first_point(height - 1, 2 * q + 1), end = tree.first_point(height, q + 1);
        if (middle < end) splitter.split(tree.first_point(height, q), middle, end);
      });
    }
    for (std::int64_t place = 0; place < points.rows(); ++place) {
      std::int64_t const point = splitter.keys()[to_size(place)].point;
      order.point[to_size(place)] = point;
      order.place[to_size(point)] = place;
    }
  });
  return order;
}

std::vector<double> in_order(MatrixView points, PointOrder const& order) {
  std::vector<double> result;
  result.reserve(to_size(points.rows() * points.columns()));
  with_data(points, [&](auto const* data) {
    for (std::int64_t const point : order.point) {
      auto const* const row = data + point * points.row_stride();
      result.insert(result.end(), row, row + points.columns());
    }
  });
  return result;
}

}  // namespace monge
