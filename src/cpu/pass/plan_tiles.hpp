// Ordered problems: the points of each side lie in the order of a tree, and passes are over the tiles that carry mass.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "cpu/pass/plan_data.hpp"
#include "cpu/runtime/threads.hpp"
#include "geometry/tile_bounds.hpp"

namespace monge::cpu {

/// One side of an ordered problem. The boxes are those of the packed points.
struct OrderedSide {
  std::shared_ptr<PointOrder const> order;
  TileBoxes boxes;
};
template <class T>
OrderedSide ordered_side(std::shared_ptr<PointOrder const> order, PackedPoints<T> const& points);

/// Squared distances, times `scale`, of the points of ordered sides.
struct Ordering {
  std::shared_ptr<OrderedSide const> side[2];
  double scale;
  double share;  // OperatorOptions::truncation.

  OrderedSide const& of(Side side_of) const { return *side[static_cast<int>(side_of)]; }
};
inline PointOrders orders_of(std::shared_ptr<Ordering const> const& ordering) {
  if (!ordering) return {};
  return {{ordering->side[0]->order, ordering->side[1]->order}};
}

/// The tiles that passes over a plan at (f', g') and eps take.
struct PlanTiles {
  TileList panels[2];               // Panels of the other side, for stripes whose rows are points of the side.
  std::vector<double> left_out[2];  // For each point an upper bound of sum_j b_j exp((f'_i + g'_j - C'_ij) / eps) of
                                    // the pairs that are left out.
};

/// The potential f'_i that a sweep makes of f'_i and its transform f'+_i.
using NextPotential = std::function<double(std::int64_t i, double old, double plus)>;

/// The pairs left out carry at most Ordering::share of each row and of each column, whatever the potentials are.
template <class T>
PlanTiles plan_tiles(PlanData<T> const& data, double eps, Workers const& workers);
/// The same for a sweep that begins with the rows, without left_out.
template <class T>
PlanTiles sweep_tiles(PlanData<T> const& data, double eps, Workers const& workers, NextPotential const& next);
/// The same for the rows of one side alone: the potential of this side is not known.
template <class T>
PlanTiles transform_tiles(PlanData<T> const& data, Side side, double eps, Workers const& workers);

/// The panels of a self problem on the diagonal and above.
template <class T>
TileList upper_panels(TileList const& panels);

}  // namespace monge::cpu
