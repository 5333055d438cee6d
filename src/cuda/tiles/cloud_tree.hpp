// CloudTree on a CUDA device.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "cuda/launch/transfer.hpp"
#include "cuda/tiles/listed_pass.hpp"
#include "seam/cloud_tree.hpp"

namespace monge::cuda {

/// `points` lie in the order of their tree, relative to `centre`. From number `dimension` on their coordinates are
/// those of labels. They outlive the tree, as the centre and `weights` do, which are in the caller's order. `labels`:
/// those of the points, in the caller's order; empty without labels.
std::unique_ptr<CloudTree> cloud_tree(SharedRuntime const& runtime, OrderedPoints const& points, int dimension,
                                      double const* centre, double const* weights, std::vector<std::int64_t> labels);

}  // namespace monge::cuda
