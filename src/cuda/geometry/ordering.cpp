#include "cuda/geometry/ordering.hpp"

#include <utility>
#include <vector>

#include "cuda/tiles/tree_order.hpp"
#include "geometry/tile_model.hpp"

namespace monge::cuda {
namespace {

std::shared_ptr<DeviceArray<int> const> on_device(SharedRuntime const& runtime, PointOrder const* order) {
  if (order == nullptr) return nullptr;
  return std::make_shared<DeviceArray<int> const>(
      uploaded(runtime, std::vector<int>(order->point.begin(), order->point.end())));
}

/// `order`: null for that of a tree.
std::shared_ptr<OrderedSide const> side_of(SharedRuntime const& runtime, Costs const& costs, Side side,
                                           std::shared_ptr<DeviceArray<int> const> order) {
  if (!order)
    order = std::make_shared<DeviceArray<int> const>(tree_order(runtime, costs.scores(side).rows, costs.size(side)));
  return std::make_shared<OrderedSide const>(runtime, std::move(order), costs.size(side), costs.scores(side).rows);
}

}  // namespace

OrderedSide::OrderedSide(SharedRuntime const& runtime, std::shared_ptr<DeviceArray<int> const> point, int size,
                         Operand const& packed)
    : order_(std::move(point)),
      levels_(divided_up(size, kTilePoints)),
      memory_(runtime, std::int64_t{packed.padded_size} * packed.stride * size_of(packed.scalar)),
      boxes_(runtime, levels_.all() * box_size(packed.dimension)) {
  points_ = {size, packed.padded_size, packed.dimension, packed.stride, packed.scalar, memory_.data(), order_->data()};
  order_points(packed, points_, runtime->stream());
  find_boxes(points_, levels_, boxes_.data(), runtime->stream());
}

std::shared_ptr<Ordering const> make_ordering(SharedRuntime const& runtime, Costs const& costs, double truncation,
                                              PointOrders const& given) {
  auto result = std::make_shared<Ordering>();
  result->truncation = truncation;
  for (Side const side : kSides) {
    int const s = side_index(side);
    result->side[s] = side_of(runtime, costs, side, on_device(runtime, given.of[s].get()));
  }
  return result;
}

std::shared_ptr<Ordering const> ordering_at(SharedRuntime const& runtime, Ordering const& ordering, Costs const& costs,
                                            Side side, OrderedSide const* like) {
  auto result = std::make_shared<Ordering>(ordering);
  result->side[side_index(side)] = side_of(runtime, costs, side, like ? like->order() : nullptr);
  return result;
}

std::shared_ptr<Ordering const> twin_ordering(SharedRuntime const& runtime, Ordering const& ordering,
                                              Costs const& costs) {
  auto result = std::make_shared<Ordering>(ordering);
  result->side[0] = side_of(runtime, costs, Side::rows, ordering.side[0]->order());
  bool const is_same = costs.scores(Side::rows).rows.points == costs.scores(Side::columns).rows.points;
  result->side[1] = is_same ? result->side[0] : side_of(runtime, costs, Side::columns, ordering.side[1]->order());
  return result;
}

std::shared_ptr<Ordering const> self_ordering(Ordering const& ordering, Side side) {
  auto result = std::make_shared<Ordering>(ordering);
  result->side[0] = result->side[1] = ordering.side[side_index(side)];
  return result;
}

}  // namespace monge::cuda
