// Bounds of the mass in the tiles of a plan, and lists of the tiles whose mass counts (docs/math.md, section 20).
//
// All numbers are logits: base-2 logarithms. With x and y in units in which a cost of 1 is a logit of 1,
//   t_ij = F_i + G_j - |x_i - y_j|^2,   F = f log2(e) / eps,   G alike.
// On a box with the middle m a model F_i <= top + <slope, x_i - m> makes t concave, separable and linear along
// u = v for u = x - m, v = y - m', so its maximum over two boxes has a closed form in each coordinate.
#pragma once
#include <cmath>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "geometry/point_tree.hpp"

namespace monge {

/// The boxes of the nodes of a tree.
class TileBoxes {
 public:
  /// Coordinate k of the point at a place.
  using Coordinate = std::function<double(std::int64_t place, std::int64_t k)>;
  TileBoxes(std::int64_t size, std::int64_t dimension, Coordinate const& coordinate);

  TileTree const& tree() const { return tree_; }
  std::int64_t dimension() const { return dimension_; }
  double const* middle(std::int64_t node) const { return values_.data() + 2 * node * dimension_; }
  double const* half(std::int64_t node) const { return middle(node) + dimension_; }
  /// Coordinates of a point less the middle of its tile.
  double const* within(std::int64_t place) const { return within_.data() + place * dimension_; }

 private:
  TileTree tree_;
  std::int64_t dimension_;
  std::vector<double> values_, within_;
};

/// Affine models that lie above a potential, one for each node.
class TileModels {
 public:
  TileModels() = default;
  /// `values`: F of each place. `unit`: the factor that gives coordinates their unit. Points without weight are left
  /// out; an empty `weights` leaves none out, and the masses are then numbers of points.
  TileModels(TileBoxes const& boxes, std::span<double const> values, std::span<double const> weights, double unit,
             int threads);

  TileTree const& tree() const { return boxes_->tree(); }
  /// Base-2 logarithm of the mass of a node.
  double log_mass(std::int64_t node) const { return nodes_[at(node) + 1]; }
  double total() const { return std::exp2(nodes_[at(tree().nodes() - 1) + 1]); }
  /// An upper bound of t_ij over the points i of a node of `rows` and j of a node of `columns`.
  friend double largest_logit(TileModels const& rows, std::int64_t row, TileModels const& columns, std::int64_t column);

 private:
  /// top, log_mass; then middle, half and slope of each coordinate.
  static constexpr std::int64_t kOwn = 2, kOfCoordinate = 3;
  std::size_t at(std::int64_t node) const { return static_cast<std::size_t>(node * stride_); }
  void fit(std::int64_t tile, std::span<double const> values, std::span<double const> weights, double unit,
           std::vector<double>& scratch);
  void join(int height, std::int64_t q);

  TileBoxes const* boxes_ = nullptr;
  std::int64_t stride_ = 0;
  std::vector<double> nodes_;
};
double largest_logit(TileModels const& rows, std::int64_t row, TileModels const& columns, std::int64_t column);

/// For each tile of one side some tiles of the other, ascending.
struct TileList {
  std::vector<std::int64_t> begin{0};
  std::vector<std::int32_t> tile;

  std::int64_t tiles() const { return static_cast<std::int64_t>(begin.size()) - 1; }
  std::span<std::int32_t const> of(std::int64_t row) const {
    std::size_t const k = static_cast<std::size_t>(row);
    return std::span(tile).subspan(static_cast<std::size_t>(begin[k]),
                                   static_cast<std::size_t>(begin[k + 1] - begin[k]));
  }
};

/// The tiles of `columns` that the rows of each tile may need, if sum_j b_j 2^t_ij >= 1 for each row: what is left out
/// carries at most `share` in each row.
struct TileReach {
  TileList list;
  std::vector<double> left_out;  // For each tile an upper bound of sum_j b_j 2^t_ij over the columns j left out.
};
TileReach reach(TileModels const& rows, TileModels const& columns, double share, int threads);

/// For each tile of `rows` up to `count` tiles of `columns` in which large terms b_j 2^t_ij may lie.
TileList nearest(TileModels const& rows, TileModels const& columns, std::int64_t count, int threads);

/// The list of the other side, of `tiles` tiles.
TileList transposed(TileList const& list, std::int64_t tiles);
/// The tiles that are in either list.
TileList joined(TileList const& first, TileList const& second);

}  // namespace monge
