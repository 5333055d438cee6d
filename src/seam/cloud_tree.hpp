// Coarse clouds for the first potentials of a problem with many points.
#pragma once
#include <cstdint>
#include <vector>

namespace monge {

/// Points with masses on the host, and with labels if the problem has them.
struct Cloud {
  std::vector<double> points, mass;  // [size][dimension] and [size].
  std::vector<std::int64_t> labels;

  std::int64_t size() const { return static_cast<std::int64_t>(mass.size()); }
};

/// The nodes of the tree of one side's points (geometry/point_tree.hpp), down to single points, with their masses,
/// their centres and the moments of inertia about these.
class CloudTree {
 public:
  virtual ~CloudTree() = default;
  /// Cuts the tree at the nodes nearest to the root whose points have one label and at most this root mean square
  /// distance from their centre. Returns the number of these nodes that have mass. Waits.
  virtual std::int64_t cut(double radius) = 0;
  /// The nodes of the last cut, each as a point at its centre. Waits.
  virtual Cloud cloud() const = 0;
};

}  // namespace monge
