// A k-d tree's order, from the root down: at each height the points of each node are sorted by the coordinate in which
// the box of the node is widest. Node q of height h has the places from q 2^h to (q + 1) 2^h, so all nodes of a height
// are sorted together, by node and coordinate. Nodes of up to 1024 points are sorted in shared memory down to the
// single points, one block for each: a bitonic network of at most 55 steps for a height.
#include "cuda/tiles/tree_order.hpp"

#include <bit>
#include <limits>
#include <utility>

#include <cub/device/device_radix_sort.cuh>

#include "cuda/device/points.cuh"
#include "cuda/launch/sizes.hpp"
#include "cuda/runtime/check.hpp"

namespace monge::cuda {
namespace {

constexpr int kMostDimensions = kLargestDifferenceDimension;
constexpr int kBlockHeight = 10, kBlockPoints = 1 << kBlockHeight;
constexpr unsigned kAllLanes = 0xffffffffu;
using Key = unsigned long long;

/// An integer that is ordered as the number.
__device__ __forceinline__ int ordered(float x) {
  int const bits = __float_as_int(x);
  return bits ^ ((bits >> 31) & 0x7fffffff);
}
__device__ __forceinline__ float number_of(int ordered) {
  return __int_as_float(ordered ^ ((ordered >> 31) & 0x7fffffff));
}
/// Half of the side of a box: the difference of the largest numbers overflows.
__device__ __forceinline__ float half_side(int least, int most) {
  return number_of(most) / 2 - number_of(least) / 2;
}
__device__ __forceinline__ Key key_of(int ordered, unsigned rest) {
  return static_cast<Key>(static_cast<unsigned>(ordered) ^ 0x80000000u) << 32 | rest;
}

template <class T>
struct Coordinates {
  T const* points;
  int stride;
  __device__ float operator()(int point, int k) const {
    return static_cast<float>(points[static_cast<std::int64_t>(point) * stride + k]);
  }
};

/// The boxes of nodes of at least kBlockPoints places, as ordered numbers: least and most, node by node. A block reads
/// kBlockPoints places.
template <class T>
__global__ void __launch_bounds__(kBlockPoints) node_boxes_kernel(Coordinates<T> const coordinate, int const* point,
                                                                  int size, int dimension, int height, int* boxes) {
  start_next_kernel();
  wait_for_previous_kernel();
  int const place = static_cast<int>(blockIdx.x) * kBlockPoints + static_cast<int>(threadIdx.x);
  int const node = static_cast<int>(blockIdx.x) >> (height - kBlockHeight);
  for (int k = 0; k < dimension; ++k) {
    int const value = place < size ? ordered(coordinate(point[place], k)) : 0;
    int const least = __reduce_min_sync(kAllLanes, place < size ? value : std::numeric_limits<int>::max());
    int const most = __reduce_max_sync(kAllLanes, place < size ? value : std::numeric_limits<int>::min());
    if (threadIdx.x % 32 > 0) continue;
    atomicMin(boxes + (node * dimension + k) * 2, least);
    atomicMax(boxes + (node * dimension + k) * 2 + 1, most);
  }
}

/// Orders the points of nodes of kBlockPoints places down to single points.
template <class T>
__global__ void __launch_bounds__(kBlockPoints)
    small_nodes_kernel(Coordinates<T> const coordinate, int size, int dimension, int* point) {
  __shared__ float coordinates[kMostDimensions][kBlockPoints];
  __shared__ Key exchange[kBlockPoints];
  __shared__ int least_of[32], most_of[32];
  start_next_kernel();
  wait_for_previous_kernel();
  int const thread = static_cast<int>(threadIdx.x), place = static_cast<int>(blockIdx.x) * kBlockPoints + thread;
  bool const exists = place < size;
  int const own = exists ? point[place] : 0;
  for (int k = 0; k < dimension; ++k) coordinates[k][thread] = exists ? coordinate(own, k) : 0.0f;
  int const count = min(size - static_cast<int>(blockIdx.x) * kBlockPoints, kBlockPoints);
  int slot = thread;  // Where the coordinates of the point at this place are. Slots from `count` on have no point.
  for (int height = kBlockHeight; height > 0; --height) {
    int const nodes = 1 << height;
    __syncthreads();
    int widest = 0;
    float width = -1;
    for (int k = 0; k < dimension; ++k) {
      int least = slot < count ? ordered(coordinates[k][slot]) : std::numeric_limits<int>::max();
      int most = slot < count ? ordered(coordinates[k][slot]) : std::numeric_limits<int>::min();
      for (int mask = min(nodes, 32) / 2; mask > 0; mask /= 2) {
        least = min(least, __shfl_xor_sync(kAllLanes, least, mask));
        most = max(most, __shfl_xor_sync(kAllLanes, most, mask));
      }
      if (nodes > 32) {
        if (thread < 32) {
          least_of[thread] = std::numeric_limits<int>::max();
          most_of[thread] = std::numeric_limits<int>::min();
        }
        __syncthreads();
        if (thread % 32 == 0) {
          atomicMin(least_of + (thread >> height), least);
          atomicMax(most_of + (thread >> height), most);
        }
        __syncthreads();
        least = least_of[thread >> height];
        most = most_of[thread >> height];
        __syncthreads();
      }
      float const side = half_side(least, most);
      if (side > width) width = side, widest = k;
    }
    Key key = slot < count ? key_of(ordered(coordinates[widest][slot]), static_cast<unsigned>(slot))
                           : ~Key{0} << 32 | static_cast<unsigned>(slot);
    for (int group = 2; group <= nodes; group *= 2) {
      bool const ascends = (thread & (nodes - 1) & group) == 0;
      for (int distance = group / 2; distance > 0; distance /= 2) {
        Key other;
        if (distance < 32) {
          other = __shfl_xor_sync(kAllLanes, key, distance);
        } else {
          __syncthreads();
          exchange[thread] = key;
          __syncthreads();
          other = exchange[thread ^ distance];
        }
        bool const is_first = (thread & distance) == 0;
        key = is_first == ascends ? min(key, other) : max(key, other);
      }
    }
    slot = static_cast<int>(key & (kBlockPoints - 1));
  }
  // The numbers of the points by slot, in the memory of the exchange.
  __syncthreads();
  auto* const points = reinterpret_cast<int*>(exchange);
  points[thread] = own;
  __syncthreads();
  if (exists) point[place] = points[slot];
}

template <class T>
DeviceArray<int> tree_order_of(SharedRuntime const& runtime, Operand const& points, int size) {
  cudaStream_t const stream = runtime->stream();
  int const d = points.dimension;
  Coordinates<T> const coordinate{static_cast<T const*>(points.points), points.stride};
  DeviceArray<int> order(runtime, size);
  for_each_point(size, stream, [to = order.data()] __device__(int place) { to[place] = place; });
  int const blocks = divided_up(size, kBlockPoints), top = std::bit_width(static_cast<unsigned>(size - 1));
  if (top > kBlockHeight) {
    int const most_nodes = divided_up(size, 2 * kBlockPoints);
    DeviceArray<int> const boxes(runtime, std::int64_t{most_nodes} * d * 2);
    DeviceArray<Key> const keys(runtime, size), sorted(runtime, size);
    DeviceArray<int> spare(runtime, size);
    auto const sort = [&](void* memory, std::size_t& bytes, int bits) {
      return cub::DeviceRadixSort::SortPairs(memory, bytes, keys.data(), sorted.data(), order.data(), spare.data(),
                                             size, 0, bits, stream);
    };
    std::size_t bytes = 0;
    MONGE_CUDA_TRY(sort(nullptr, bytes, 64));
    DeviceArray<unsigned char> const memory(runtime, static_cast<std::int64_t>(bytes));
    for (int height = top; height > kBlockHeight; --height) {
      int const nodes = static_cast<int>((std::int64_t{size} - 1 >> height) + 1);
      for_each_point(nodes * d, stream, [to = boxes.data()] __device__(int k) {
        to[2 * k] = std::numeric_limits<int>::max();
        to[2 * k + 1] = std::numeric_limits<int>::min();
      });
      launch_chained(node_boxes_kernel<T>, blocks, kBlockPoints, 0, stream, coordinate, order.data(), size, d, height,
                     boxes.data());
      for_each_point(
          size, stream,
          [coordinate, d, height, from = order.data(), box = boxes.data(), key = keys.data()] __device__(int place) {
            int const node = place >> height;
            int widest = 0;
            float width = -1;
            for (int k = 0; k < d; ++k) {
              int const* const side = box + (node * d + k) * 2;
              float const half = half_side(side[0], side[1]);
              if (half > width) width = half, widest = k;
            }
            Key const value = key_of(ordered(coordinate(from[place], widest)), 0) >> 32;
            key[place] = static_cast<Key>(node) << 32 | value;
          });
      MONGE_CUDA_TRY(sort(memory.data(), bytes, 32 + std::bit_width(static_cast<unsigned>(nodes - 1))));
      std::swap(order, spare);
    }
  }
  launch_chained(small_nodes_kernel<T>, blocks, kBlockPoints, 0, stream, coordinate, size, d, order.data());
  return order;
}

}  // namespace

DeviceArray<int> tree_order(SharedRuntime const& runtime, Operand const& points, int size) {
  return points.scalar == DataType::float64 ? tree_order_of<double>(runtime, points, size)
                                            : tree_order_of<float>(runtime, points, size);
}

}  // namespace monge::cuda
