// The pair of each row with the least C_ij - g_j, which is the c-transform, and its nearest neighbours, in float64: by
// one pass over all pairs or, for many points in few dimensions, by a tree.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "core/numbers.hpp"
#include "exact/point_search.hpp"
#include "seam/backend.hpp"

namespace monge {

inline std::vector<double> filled(std::int64_t size, double value) {
  return std::vector<double>(to_size(size), value);
}

class HardTransform {
 public:
  /// A point takes part if its weight is positive, whatever the weight. `may_search`: nearest() may search trees, on
  /// the host. Its indices then lie in host memory. Throws Error as c_transform() does.
  HardTransform(Backend const& backend, Geometry const& geometry, Marginals const& weights, bool may_search = true);

  /// For each i of `side` the j with the least C_ij - potential_j, in this order: size(side) x k, k = indices.columns.
  /// Forbidden pairs come last. Returns the least values. Where i has no weight, j is 0 .. k - 1 and the value is
  /// undefined.
  std::vector<double> nearest(Side side, std::vector<double> potential, MutableIndexView indices);

  /// The rounding of a C_ij - potential_j in the last pass. It decides which j are taken, and in which order.
  double rounding() const { return rounding_; }

  VectorOperations const& vectors() const { return entropic_->vectors(); }

 private:
  std::vector<double> nearest_by_pass(Side side, std::vector<double> potential, MutableIndexView indices);
  std::vector<double> nearest_by_tree(Side side, std::vector<double> const& potential, MutableIndexView indices);

  std::unique_ptr<EntropicOperator> entropic_;
  std::optional<PointSearch> points_[2];  // The trees of each side, where they serve.
  double largest_cost_ = kInfinity;       // With trees a bound of all costs.
  Marginals weights_;
  std::vector<double> shift_of_rows_, shift_of_columns_;
  double rounding_ = 0;
};

}  // namespace monge
