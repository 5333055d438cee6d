// The order of a cloud by a k-d tree (geometry/point_tree.hpp), found on the device.
#pragma once
#include "cuda/launch/transfer.hpp"

namespace monge::cuda {

/// The caller's number of the point at each place. As tree_order() on the host, but the coordinates are compared in
/// float32, and of equal ones any may come first. The same points always get the same order.
DeviceArray<int> tree_order(SharedRuntime const& runtime, Operand const& points, int size);

}  // namespace monge::cuda
