// Ordered problems: the points of each side lie in the order of a tree, and passes are over the tiles that carry mass.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "cpu/pass/stripes.hpp"
#include "cpu/runtime/memory.hpp"
#include "geometry/tile_bounds.hpp"

namespace monge::cpu {

/// One side of an ordered problem. The boxes are those of the packed points.
struct OrderedSide {
  std::shared_ptr<PointOrder const> order;
  TileBoxes boxes;
};
/// `points` outlives the result. `labels`: in the order; empty where there are none.
template <class T>
OrderedSide ordered_side(std::shared_ptr<PointOrder const> order, PackedPoints<T> const& points,
                         std::span<std::int64_t const> labels);

/// Squared distances, times `scale`, of the points of ordered sides, and costs of their labels.
struct Ordering {
  std::shared_ptr<OrderedSide const> side[2];
  double scale;
  double truncation;  // OperatorOptions::truncation.

  OrderedSide const& of(Side side_of) const { return *side[static_cast<int>(side_of)]; }
};
inline PointOrders orders_of(std::shared_ptr<Ordering const> const& ordering) {
  if (!ordering) return {};
  return {{ordering->side[0]->order, ordering->side[1]->order}};
}

/// A list of tiles whose bytes count.
class CountedList {
 public:
  CountedList() = default;
  explicit CountedList(TileList list)
      : list_(std::move(list)), bytes_(memory(), std::ssize(list_.tile) * std::int64_t{sizeof(std::int32_t)}) {}
  TileList const& operator*() const { return list_; }

 private:
  TileList list_;
  CountedBytes bytes_;
};

/// The tiles that passes over a plan at (f', g') and eps take.
struct PlanTiles {
  CountedList rows;                 // Tiles of the columns for each tile of the rows.
  std::vector<double> left_out[2];  // For each point an upper bound of sum_j b_j exp((f'_i + g'_j - C'_ij) / eps) of
                                    // the pairs that are left out.
};

/// The potential f'_i that a sweep makes of f'_i and its transform f'+_i.
using NextPotential = std::function<double(std::int64_t i, double old, double plus)>;

/// The pairs left out carry at most Ordering::truncation of each row and of each column, whatever the potentials are.
template <class T>
PlanTiles plan_tiles(PlanData<T> const& data, double eps, Workers const& workers);
/// The same for a sweep that begins with the rows, without left_out.
template <class T>
PlanTiles sweep_tiles(PlanData<T> const& data, double eps, Workers const& workers, NextPotential const& next);
/// For each tile of one side the tiles of the other that its transform needs: the potential of this side is not known.
template <class T>
CountedList transform_tiles(PlanData<T> const& data, Side side, double eps, Workers const& workers);

/// What the tiles of a list hold of a plan, found in a sweep over them.
template <class T>
class PassParts {
 public:
  /// `logits`: of the columns in this sweep.
  PassParts(PlanData<T> const& data, TileList const& tiles, Logits<T> const& logits);
  /// Calls cpu::add_to_columns() for a stripe, and measures its tiles.
  void add_to_columns(Workspace<T> const& work, std::int64_t first, std::int64_t count, double const* column_weight,
                      double* sums);
  /// The tiles without those that together hold at most Ordering::truncation of each row and of each column.
  /// `column_sums`: of add_to_columns().
  TileList thinned(double const* column_sums) const;

 private:
  TileList const& tiles_;
  std::vector<double> const &row_weight_, &column_weight_;
  std::vector<double> factor_;  // From the sums of add_to_columns() to P_ij / b_j, padded to whole panels.
  double share_;
  TileParts parts_;
  CountedBytes bytes_;
};

/// The tiles of a self problem on the diagonal and above.
TileList upper_tiles(TileList const& tiles);

}  // namespace monge::cpu
