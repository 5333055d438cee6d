#include "cpu/geometry/ordered_clouds.hpp"

#include <utility>

#include "core/numbers.hpp"
#include "geometry/points.hpp"

namespace monge::cpu {

std::shared_ptr<PointOrder const> order_of(char const* field, MatrixView points, int threads) {
  centre_of(field, points, {});  // Refuses points that are not finite.
  return std::make_shared<PointOrder const>(tree_order(points, threads));
}

OrderedClouds::OrderedClouds(PointCloud const& given, int threads)
    : OrderedClouds(given, order_of("x", given.x, threads), order_of("y", given.y, threads)) {}

OrderedClouds::OrderedClouds(PointCloud const& given, Ordering const& like)
    : OrderedClouds(given, like.of(Side::rows).order, like.of(Side::columns).order) {}

OrderedClouds::OrderedClouds(PointCloud const& given, OrderedSide const& like)
    : OrderedClouds(given, like.order, like.order) {}

OrderedClouds::OrderedClouds(PointCloud const& given, std::shared_ptr<PointOrder const> x,
                             std::shared_ptr<PointOrder const> y)
    : order_{std::move(x), std::move(y)},
      x_(monge::in_order(given.x, *order_[0])),
      y_(monge::in_order(given.y, *order_[1])),
      clouds_(given) {
  clouds_.x = MatrixView(x_.data(), given.x.rows(), given.x.columns());
  clouds_.y = MatrixView(y_.data(), given.y.rows(), given.y.columns());
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
    result->side[s] = is_same
                          ? result->side[0]
                          : std::make_shared<OrderedSide const>(ordered_side(order_[s], *costs.features(side).packed));
  }
  return result;
}

template std::shared_ptr<Ordering const> OrderedClouds::ordering(PointCosts<float> const&, double) const;
template std::shared_ptr<Ordering const> OrderedClouds::ordering(PointCosts<double> const&, double) const;

}  // namespace monge::cpu
