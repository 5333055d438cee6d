// Bounds of the mass in the tiles of a plan, and lists of the tiles whose mass counts (docs/math.md, section 20).
// All numbers are logits (geometry/tile_model.hpp).
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "core/numbers.hpp"
#include "geometry/point_tree.hpp"
#include "geometry/tile_model.hpp"

namespace monge {

/// The least and the largest label in a node.
struct LabelRange {
  std::int64_t first = 0, last = 0;
};

/// The boxes of the nodes of a tree, and their labels.
class TileBoxes {
 public:
  /// Coordinate k of the point at a place.
  using Coordinate = std::function<double(std::int64_t place, std::int64_t k)>;
  /// Keeps `coordinate`. `labels`: of the points at the places, ascending; empty where there are none.
  TileBoxes(std::int64_t size, std::int64_t dimension, Coordinate coordinate,
            std::span<std::int64_t const> labels = {});

  TileTree const& tree() const { return tree_; }
  std::int64_t dimension() const { return dimension_; }
  /// The numbers of a node's box (box_size()).
  double const* of(std::int64_t node) const { return values_.data() + box_size(dimension_) * node; }
  LabelRange labels(std::int64_t node) const { return labels_[to_size(node)]; }
  /// Coordinate k of the point at a place.
  double coordinate(std::int64_t place, std::int64_t k) const { return coordinate_(place, k); }

 private:
  double* at(std::int64_t node) { return values_.data() + box_size(dimension_) * node; }

  TileTree tree_;
  std::int64_t dimension_;
  Coordinate coordinate_;
  std::vector<double> values_;
  std::vector<LabelRange> labels_;  // Empty without labels.
};

/// Affine models that lie above a potential, one for each node.
class TileModels {
 public:
  TileModels() = default;
  /// `values`: F of each place. `unit`: the factor that gives coordinates their unit. Points without weight are left
  /// out; an empty `weights` leaves none out, and the masses are then numbers of points.
  TileModels(TileBoxes const& boxes, std::span<double const> values, std::span<double const> weights, double unit,
             int threads);

  TileBoxes const& boxes() const { return *boxes_; }
  TileTree const& tree() const { return boxes_->tree(); }
  std::int64_t dimension() const { return boxes_->dimension(); }
  /// The numbers of a node's model (model_size()).
  double const* of(std::int64_t node) const { return nodes_.data() + size_ * node; }
  /// Base-2 logarithm of the mass of a node.
  double log_mass(std::int64_t node) const { return of(node)[1]; }
  double total() const { return std::exp2(log_mass(tree().nodes() - 1)); }

 private:
  double* at(std::int64_t node) { return nodes_.data() + size_ * node; }

  TileBoxes const* boxes_ = nullptr;
  std::int64_t size_ = 0;
  std::vector<double> nodes_;
};

/// What the labels of two points add to a logit: a row for each label of the rows. Empty where there are none.
struct LabelLogits {
  std::int64_t columns = 0;
  double largest = -kInfinity;
  std::vector<double> logit = {};

  void add(double value) {
    logit.push_back(value);
    largest = std::max(largest, value);
  }
};

/// The logits of the pairs of two sides.
struct TileLogits {
  TileModels const &rows, &columns;
  LabelLogits labels = {};

  /// An upper bound of t_ij over the points i of a node of the rows and j of a node of the columns.
  double largest(std::int64_t row, std::int64_t column) const;
};

/// For each tile of one side some tiles of the other, ascending.
struct TileList {
  std::vector<std::int64_t> begin{0};
  std::vector<std::int32_t> tile;

  std::int64_t tiles() const { return static_cast<std::int64_t>(begin.size()) - 1; }
  std::span<std::int32_t const> of(std::int64_t row) const {
    std::size_t const k = to_size(row);
    return std::span(tile).subspan(to_size(begin[k]), to_size(begin[k + 1] - begin[k]));
  }
};

/// The tiles of columns that the rows of each tile may need, if sum_j b_j 2^t_ij >= 1 for each row i. The columns that
/// are left out add at most `share` to this sum.
struct TileReach {
  TileList list;
  std::vector<double> left_out;  // An upper bound of sum_j b_j 2^t_ij over the columns j left out, for each tile.
};
TileReach reach(TileLogits const& logits, double share, int threads);

/// For each tile of rows up to `count` tiles of columns in which large terms b_j 2^t_ij may lie.
TileList nearest(TileLogits const& logits, std::int64_t count, int threads);

/// The list of the other side, of `tiles` tiles.
TileList transposed(TileList const& list, std::int64_t tiles);
/// What the tiles of a list hold of a plan, as bins (bin_of_bound()): the largest part of the sum of a row that lies in
/// the tile, and of the sum of a column.
struct TileParts {
  std::vector<unsigned char> of_rows, of_columns;
};
/// The list without the tiles that hold least. For each tile I of rows, the parts of rows in the tiles that are left
/// out sum to at most `share`. For each tile J of columns, the parts of columns sum to at most column_room[J].
TileList thinned(TileList const& list, TileParts const& parts, double share, std::span<double const> column_room);
/// The tiles that are in either list.
TileList joined(TileList const& first, TileList const& second);

}  // namespace monge
