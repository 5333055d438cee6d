// CloudTree on a CUDA device.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "cuda/launch/transfer.hpp"
#include "cuda/tiles/listed_pass.hpp"
#include "seam/cloud_tree.hpp"

namespace monge::cuda {

/// `points` are in the order of a k-d tree, relative to `centre`. Their first `dimension` coordinates are positions;
/// the others stand for labels. `weights` and `labels` are in the caller's order; `labels` is empty where the problem
/// has none. The caller keeps the memory of the points, the centre and the weights as long as the tree lives.
std::unique_ptr<CloudTree> cloud_tree(SharedRuntime const& runtime, OrderedPoints const& points, int dimension,
                                      double const* centre, double const* weights, std::vector<std::int64_t> labels);

}  // namespace monge::cuda
