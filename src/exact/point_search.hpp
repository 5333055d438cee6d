// Points of least cost less a potential, by branch and bound on a tree (docs/math.md, section 19). In few dimensions a
// point meets few of the others.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include <monge/array.hpp>

#include "core/numbers.hpp"
#include "geometry/p_norm.hpp"
#include "geometry/tile_bounds.hpp"

namespace monge {

/// The costs scale |x - y|^2 or, where p is given, scale |x - y|_p, 1 < p < infinity. With the other p a point has the
/// same distance to many others, and a search meets them all.
struct SearchCost {
  double scale;
  std::optional<double> p = {};

  /// The cost of a pair of points of d coordinates; difference(k) is that of coordinate k.
  template <class Difference>
  double operator()(std::int64_t d, Difference const& difference) const {
    if (p)
      return scale * p_norm(to_size(d), *p, [&](std::size_t k) { return difference(static_cast<std::int64_t>(k)); });
    double square = 0;
    for (std::int64_t k = 0; k < d; ++k) square += difference(k) * difference(k);
    return scale * square;
  }
};

/// The points of one side.
class PointSearch {
 public:
  /// `points` are finite and lie in host memory; `origin` is a point near them.
  PointSearch(MatrixView points, std::span<double const> origin, SearchCost cost, int threads);

  /// For each query of positive weight its k points with the least cost less potential, in this order, and among equals
  /// by their numbers; k = indices.columns. Points without weight come last. Writes the least values to `least`.
  void nearest(PointSearch const& queries, std::span<double const> weights_of_queries,
               std::span<double const> potential, std::span<double const> weights, MutableIndexView indices,
               std::span<double> least) const;

  /// The box of all points, relative to the origin (box_size()).
  double const* box() const { return boxes_.of(boxes_.tree().nodes() - 1); }

 private:
  class Query;

  PointOrder order_;
  std::int64_t dimension_;
  std::vector<double> points_;  // In tree order.
  std::vector<double> origin_;
  SearchCost cost_;
  double unit_;  // The unit of coordinates in bounds, whose squared distances or p-norms are costs.
  int threads_;
  TileBoxes boxes_;
};

}  // namespace monge
