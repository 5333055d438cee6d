// CloudTree on a CUDA device.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "cuda/geometry/costs.hpp"
#include "cuda/launch/transfer.hpp"
#include "cuda/tiles/listed_pass.hpp"
#include "seam/cloud_tree.hpp"

namespace monge::cuda {

/// `points` lie in the order of their tree, and may have coordinates of labels after those of `features`, whose centre
/// they are relative to. They outlive the tree, as `weights` do, which are in the caller's order. `labels`: those of
/// the points, in the caller's order; empty without labels.
std::unique_ptr<CloudTree> cloud_tree(SharedRuntime const& runtime, OrderedPoints const& points,
                                      PointValues const& features, double const* weights,
                                      std::vector<std::int64_t> labels);

}  // namespace monge::cuda
