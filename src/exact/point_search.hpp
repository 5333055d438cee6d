// Points of least squared distance less a potential, by branch and bound on a tree (docs/math.md, section 19). In few
// dimensions a point meets few of the others.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include <monge/array.hpp>

#include "geometry/tile_bounds.hpp"

namespace monge {

/// The points of one side.
class PointSearch {
 public:
  /// `points` are finite and lie in host memory; `origin` is a point near them. Costs are scale |x - y|^2.
  PointSearch(MatrixView points, std::span<double const> origin, double scale, int threads);

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
  double scale_;
  int threads_;
  TileBoxes boxes_;
};

}  // namespace monge
