#include "cuda/tiles/cloud_tree.hpp"

#include <thrust/iterator/counting_iterator.h>
#include <cub/device/device_select.cuh>

#include <utility>

#include "core/numbers.hpp"
#include "cuda/device/points.cuh"
#include "cuda/device/strided.cuh"
#include "cuda/runtime/check.hpp"

namespace monge::cuda {
namespace {

constexpr int kMostHeights = 32;

/// The nodes of points that lie in the order of their tree. Height 0 has the points. Node q of height h has the places
/// from q 2^h to (q + 1) 2^h.
struct TreeNodes {
  OrderedPoints points;
  double const* weight;       // By the caller's numbers;
  std::int64_t const* label;  // the same; null without labels.
  int dimension;              // Coordinates of a centre. Those of labels follow them in a point.
  int heights = 1;
  int first[kMostHeights] = {};                                   // The number of the first node of a height >= 1.
  double *centre = nullptr, *mass = nullptr, *inertia = nullptr;  // Of nodes of heights >= 1.

  __host__ __device__ int nodes(int height) const { return ((points.size - 1) >> height) + 1; }

  __device__ double coordinate(int place, int k) const {
    return load_element({const_cast<void*>(points.points), points.stride, points.scalar},
                        static_cast<std::int64_t>(place) * points.stride + k);
  }
  __device__ double centre_of(int height, int q, int k) const {
    return height == 0 ? coordinate(q, k) : centre[static_cast<std::int64_t>(first[height] + q) * dimension + k];
  }
  __device__ double mass_of(int height, int q) const {
    return height == 0 ? weight[points.point[q]] : mass[first[height] + q];
  }
  __device__ double inertia_of(int height, int q) const { return height == 0 ? 0 : inertia[first[height] + q]; }

  __device__ void join(int height, int q) const {
    int const node = first[height] + q, left = 2 * q, right = left + 1;
    bool const has_right = right < nodes(height - 1);
    double const of_left = mass_of(height - 1, left), of_right = has_right ? mass_of(height - 1, right) : 0;
    double const share = of_left + of_right > 0 ? of_right / (of_left + of_right) : 0;
    double square = 0;
    for (int k = 0; k < dimension; ++k) {
      double const at = centre_of(height - 1, left, k);
      double const apart = has_right ? centre_of(height - 1, right, k) - at : 0;
      centre[static_cast<std::int64_t>(node) * dimension + k] = at + share * apart;
      square += apart * apart;
    }
    mass[node] = of_left + of_right;
    inertia[node] =
        inertia_of(height - 1, left) + (has_right ? inertia_of(height - 1, right) : 0) + of_left * share * square;
  }

  /// Points are in the order of their labels first.
  __device__ bool has_one_label(int height, int q) const {
    if (label == nullptr) return true;
    int const end = q + 1 < nodes(height) ? (q + 1) << height : points.size;
    return label[points.point[q << height]] == label[points.point[end - 1]];
  }
  /// The height of the node of a cut that begins at this place; -1 if none does, or if it has no mass.
  __device__ int height_in_cut(int place, double square) const {
    int height = heights - 1;
    while (height > 0) {
      int const q = place >> height;
      if (inertia_of(height, q) <= square * mass_of(height, q) && has_one_label(height, q)) break;
      --height;
    }
    int const q = place >> height;
    return q << height == place && mass_of(height, q) > 0 ? height : -1;
  }
};

void join_nodes(TreeNodes const& nodes, int height, cudaStream_t stream) {
  for_each_point(nodes.nodes(height), stream, [nodes, height] __device__(int q) { nodes.join(height, q); });
}

/// Whether a node of the last cut begins at a place.
struct BeginsNode {
  int const* height;
  __device__ bool operator()(int place) const { return height[place] >= 0; }
};

class DeviceCloudTree final : public CloudTree {
 public:
  DeviceCloudTree(SharedRuntime const& runtime, OrderedPoints const& points, int dimension, double const* centre,
                  double const* weights, std::vector<std::int64_t> labels)
      : runtime_(runtime),
        centre_(centre),
        labels_(std::move(labels)),
        label_(uploaded(runtime, labels_)),
        height_(runtime, points.size),
        chosen_(runtime, points.size),
        count_(runtime, 1) {
    nodes_ = {.points = points, .weight = weights, .label = label_.data(), .dimension = dimension};
    std::int64_t all = 0;
    for (int& height = nodes_.heights; nodes_.nodes(height - 1) > 1; ++height) {
      nodes_.first[height] = static_cast<int>(all);
      all += nodes_.nodes(height);
    }
    memory_ = allocate_parts(runtime, Part{nodes_.centre, all * nodes_.dimension}, Part{nodes_.mass, all},
                             Part{nodes_.inertia, all});
    for (int height = 1; height < nodes_.heights; ++height) join_nodes(nodes_, height, runtime->stream());
  }

  std::int64_t cut(double radius) override {
    DeviceGuard const guard(runtime_->index());
    cudaStream_t const stream = runtime_->stream();
    int const size = nodes_.points.size;
    for_each_point(size, stream, [nodes = nodes_, square = radius * radius, to = height_.data()] __device__(int place) {
      to[place] = nodes.height_in_cut(place, square);
    });
    auto const select = [&](void* memory, std::size_t& bytes) {
      return cub::DeviceSelect::If(memory, bytes, thrust::counting_iterator<int>(0), chosen_.data(), count_.data(),
                                   size, BeginsNode{height_.data()}, stream);
    };
    std::size_t bytes = 0;
    MONGE_CUDA_TRY(select(nullptr, bytes));
    DeviceArray<unsigned char> const memory(runtime_, static_cast<std::int64_t>(bytes));
    MONGE_CUDA_TRY(select(memory.data(), bytes));
    return size_of_cut_ = download(*runtime_, count_.data(), 1)[0];
  }

  Cloud cloud() const override {
    DeviceGuard const guard(runtime_->index());
    int const d = nodes_.dimension, width = d + 1 + (labels_.empty() ? 0 : 1);
    Cloud cloud;
    if (size_of_cut_ == 0) return cloud;
    DeviceArray<double> const rows(runtime_, std::int64_t{size_of_cut_} * width);
    for_each_point(size_of_cut_, runtime_->stream(),
                   [nodes = nodes_, centre = centre_, place_of = chosen_.data(), height_of = height_.data(), d, width,
                    out = rows.data()] __device__(int k) {
                     int const place = place_of[k], height = height_of[place], q = place >> height;
                     double* const row = out + static_cast<std::int64_t>(k) * width;
                     for (int c = 0; c < d; ++c) row[c] = nodes.centre_of(height, q, c) + centre[c];
                     row[d] = nodes.mass_of(height, q);
                     if (width > d + 1) row[d + 1] = nodes.points.point[place];
                   });
    std::vector<double> const found = download(*runtime_, rows.data(), rows.size());
    cloud.points.reserve(to_size(std::int64_t{size_of_cut_} * d));
    cloud.mass.reserve(to_size(size_of_cut_));
    for (auto row = found.begin(); row != found.end(); row += width) {
      cloud.points.insert(cloud.points.end(), row, row + d);
      cloud.mass.push_back(row[d]);
      if (width > d + 1) cloud.labels.push_back(labels_[static_cast<std::size_t>(row[d + 1])]);
    }
    return cloud;
  }

 private:
  SharedRuntime runtime_;
  TreeNodes nodes_;
  double const* centre_;  // Of the cloud.
  std::vector<std::int64_t> labels_;
  DeviceArray<std::int64_t> label_;
  DeviceArray<unsigned char> memory_;
  DeviceArray<int> height_, chosen_, count_;  // The last cut: the height at each place, and the places of its nodes.
  int size_of_cut_ = 0;
};

}  // namespace

std::unique_ptr<CloudTree> cloud_tree(SharedRuntime const& runtime, OrderedPoints const& points, int dimension,
                                      double const* centre, double const* weights, std::vector<std::int64_t> labels) {
  return std::make_unique<DeviceCloudTree>(runtime, points, dimension, centre, weights, std::move(labels));
}

}  // namespace monge::cuda
