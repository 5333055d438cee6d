#include "cpu/geometry/ordered_clouds.hpp"

#include <utility>

#include "core/numbers.hpp"
#include "geometry/points.hpp"

namespace monge::cpu {

std::shared_ptr<PointOrder const> order_of(char const* field, MatrixView points, IndexView labels, int threads) {
  centre_of(field, points, {});  // Refuses points that are not finite.
  return std::make_shared<PointOrder const>(tree_order(points, labels, threads));
}

namespace {

/// Throws invalid_argument for a label without a class, too.
std::shared_ptr<PointOrder const> order_of_side(PointCloud const& given, Side side, int threads) {
  bool const of_x = side == Side::rows;
  IndexView const labels = of_x ? given.labels.x : given.labels.y;
  require_classes(of_x ? "labels_x" : "labels_y", labels,
                  of_x ? given.labels.cost.rows() : given.labels.cost.columns());
  return order_of(of_x ? "x" : "y", of_x ? given.x : given.y, labels, threads);
}

}  // namespace

OrderedClouds::OrderedClouds(PointCloud const& given, int threads)
    : OrderedClouds(given, order_of_side(given, Side::rows, threads), order_of_side(given, Side::columns, threads)) {}

OrderedClouds::OrderedClouds(PointCloud const& given, Ordering const& like)
    : OrderedClouds(given, like.of(Side::rows).order, like.of(Side::columns).order) {}

OrderedClouds::OrderedClouds(PointCloud const& given, OrderedSide const& like)
    : OrderedClouds(given, like.order, like.order) {}

OrderedClouds::OrderedClouds(PointCloud const& given, std::shared_ptr<PointOrder const> x,
                             std::shared_ptr<PointOrder const> y)
    : order_{std::move(x), std::move(y)},
      x_(monge::in_order(given.x, *order_[0])),
      y_(monge::in_order(given.y, *order_[1])),
      labels_x_(monge::in_order(given.labels.x, *order_[0])),
      labels_y_(monge::in_order(given.labels.y, *order_[1])),
      clouds_(given) {
  clouds_.x = MatrixView(x_.data(), given.x.rows(), given.x.columns());
  clouds_.y = MatrixView(y_.data(), given.y.rows(), given.y.columns());
  clouds_.labels.x = {labels_x_.data(), std::ssize(labels_x_)};
  clouds_.labels.y = {labels_y_.data(), std::ssize(labels_y_)};
}

std::vector<double> OrderedClouds::in_order(Side side, std::vector<double> const& values) const {
  std::vector<double> result;
  for (std::int64_t const point : order_[static_cast<int>(side)]->point) result.push_back(values[to_size(point)]);
  return result;
}

template <class T>
std::shared_ptr<Ordering const> OrderedClouds::ordering(PointCosts<T> const& costs, double share) const {
  auto result = std::make_shared<Ordering>(Ordering{{}, clouds_.scale, share});
  for (Side const side : kSides) {
    int const s = static_cast<int>(side);
    bool const is_same = s == 1 && order_[0] == order_[1];
    result->side[s] = is_same ? result->side[0]
                              : std::make_shared<OrderedSide const>(
                                    ordered_side(order_[s], *costs.features(side).packed, costs.labels(side)));
  }
  return result;
}

template std::shared_ptr<Ordering const> OrderedClouds::ordering(PointCosts<float> const&, double) const;
template std::shared_ptr<Ordering const> OrderedClouds::ordering(PointCosts<double> const&, double) const;

}  // namespace monge::cpu
