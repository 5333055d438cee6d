// CloudTree on the CPU.
#pragma once
#include <memory>
#include <vector>

#include <monge/array.hpp>

#include "geometry/point_tree.hpp"
#include "seam/cloud_tree.hpp"

namespace monge::cpu {

/// `weights`, `points` and `labels`, which are empty without labels, are in the caller's order.
std::unique_ptr<CloudTree> cloud_tree(MatrixView points, IndexView labels, std::vector<double> const& weights,
                                      PointOrder const& order, int threads);

}  // namespace monge::cpu
