#include "cpu/geometry/cloud_tree.hpp"

#include <algorithm>
#include <utility>

#include "core/numbers.hpp"
#include "core/parallel.hpp"
#include "core/strided.hpp"

namespace monge::cpu {
namespace {

/// The parts in which threads cut a tree, and the pairs of a pass in the time to join, cut or copy a node.
constexpr std::int64_t kPartsOfCut = 64, kPairsOfNode = 64;

class HostCloudTree final : public CloudTree {
 public:
  HostCloudTree(MatrixView points, IndexView labels, std::vector<double> const& weights, PointOrder const& order,
                int threads)
      : tree_(points.rows(), 1),
        dimension_(points.columns()),
        threads_(threads),
        labels_(in_order(labels, order)),
        centre_(to_size(tree_.nodes() * dimension_)),
        mass_(to_size(tree_.nodes())),
        inertia_(to_size(tree_.nodes())) {
    with_data(points, [&](auto const* data) {
      parallel_for(useful_threads(threads, points.rows(), kPairsOfNode), points.rows(), [&](std::int64_t place) {
        std::int64_t const point = order.point[to_size(place)];
        mass_[to_size(place)] = weights[to_size(point)];
        std::copy_n(data + point * points.row_stride(), dimension_, centre_.begin() + place * dimension_);
      });
    });
    for (int height = 1; height < tree_.heights(); ++height) {
      parallel_for(useful_threads(threads, tree_.nodes(height), kPairsOfNode), tree_.nodes(height),
                   [&](std::int64_t q) { join(height, q); });
    }
  }

  std::int64_t cut(double radius) override {
    double const square = radius * radius;
    int least_height = tree_.heights() - 1;
    while (least_height > 0 && tree_.nodes(least_height) < kPartsOfCut) --least_height;
    std::vector<Node> roots;
    split({tree_.heights() - 1, 0}, square, least_height, roots);
    cut_.assign(roots.size(), {});
    parallel_for(useful_threads(threads_, tree_.nodes(0), kPairsOfNode), std::ssize(roots),
                 [&](std::int64_t k) { add(roots[to_size(k)], square, cut_[to_size(k)]); });
    std::int64_t size = 0;
    for (std::vector<Node> const& part : cut_) size += std::ssize(part);
    return size;
  }

  Cloud cloud() const override {
    Cloud cloud;
    for (std::vector<Node> const& part : cut_) {
      for (Node const& node : part) {
        std::int64_t const index = tree_.index(node.height, node.q);
        cloud.mass.push_back(mass_[to_size(index)]);
        if (!labels_.empty()) cloud.labels.push_back(label(node));
        auto const centre = centre_.begin() + index * dimension_;
        cloud.points.insert(cloud.points.end(), centre, centre + dimension_);
      }
    }
    return cloud;
  }

 private:
  struct Node {
    int height;
    std::int64_t q;
  };

  void join(int height, std::int64_t q) {
    std::size_t const node = to_size(tree_.index(height, q)), first = to_size(tree_.index(height - 1, 2 * q));
    std::size_t const second = first + 1, d = to_size(dimension_);
    bool const has_second = 2 * q + 1 < tree_.nodes(height - 1);
    double const other = has_second ? mass_[second] : 0;
    double const mass = mass_[node] = mass_[first] + other;
    double const share = mass > 0 ? other / mass : 0;
    double square = 0;
    for (std::size_t k = 0; k < d; ++k) {
      double const apart = has_second ? centre_[second * d + k] - centre_[first * d + k] : 0;
      centre_[node * d + k] = centre_[first * d + k] + share * apart;
      square += apart * apart;
    }
    inertia_[node] = inertia_[first] + (has_second ? inertia_[second] : 0) + mass_[first] * share * square;
  }

  /// The label of the first point of a node.
  std::int64_t label(Node const& node) const { return labels_[to_size(tree_.first_point(node.height, node.q))]; }
  bool is_small(Node const& node, double square) const {
    std::size_t const index = to_size(tree_.index(node.height, node.q));
    bool const has_one_label =
        labels_.empty() || label(node) == labels_[to_size(tree_.first_point(node.height, node.q + 1) - 1)];
    return node.height == 0 || (has_one_label && inertia_[index] <= square * mass_[index]);
  }
  template <class Visit>
  void for_each_child(Node const& node, Visit const& visit) const {
    visit(Node{node.height - 1, 2 * node.q});
    if (2 * node.q + 1 < tree_.nodes(node.height - 1)) visit(Node{node.height - 1, 2 * node.q + 1});
  }

  /// The nodes of a height in a cut of the tree below a node, or the members of the cut above them.
  void split(Node const& node, double square, int least_height, std::vector<Node>& out) const {
    if (node.height <= least_height || is_small(node, square)) return out.push_back(node);
    for_each_child(node, [&](Node const& child) { split(child, square, least_height, out); });
  }

  void add(Node const& node, double square, std::vector<Node>& out) const {
    if (mass_[to_size(tree_.index(node.height, node.q))] == 0) return;
    if (is_small(node, square)) return out.push_back(node);
    for_each_child(node, [&](Node const& child) { add(child, square, out); });
  }

  TileTree tree_;
  std::int64_t dimension_;
  int threads_;
  std::vector<std::int64_t> labels_;             // In the order of the points; empty without labels.
  std::vector<double> centre_, mass_, inertia_;  // Nodes in the order of TileTree::index().
  std::vector<std::vector<Node>> cut_;           // The last cut, in parts.
};

}  // namespace

std::unique_ptr<CloudTree> cloud_tree(MatrixView points, IndexView labels, std::vector<double> const& weights,
                                      PointOrder const& order, int threads) {
  return std::make_unique<HostCloudTree>(points, labels, weights, order, threads);
}

}  // namespace monge::cpu
