// Models of nodes, one lane for each; and the search for tiles, one warp for each tile of rows.
//
// A word of bits is a node five levels above the tiles, and a square of bits is a pair of them. Squares whose bound is
// too large to be left out are marked first. Then the warp of a tile bounds 32 marked words at a time, and the 32 tiles
// of each word that is left. It does so twice: the first time it counts bounds in a histogram, from which follows the
// bound below which all may be left out; the second time it adds bits to the lists of both sides, by atomics, whose
// order does not matter. About 30 d operations in double for a bound.
#include "cuda/tiles/tile_search.hpp"

#include <algorithm>
#include <cmath>

#include "core/numbers.hpp"
#include "cuda/device/numerics.cuh"
#include "cuda/device/points.cuh"
#include "cuda/device/scan.cuh"
#include "cuda/launch/sizes.hpp"
#include "geometry/tile_model.hpp"

namespace monge::cuda {
namespace {

constexpr int kMostDimensions = kLargestDifferenceDimension;
constexpr int kSearchWarps = 4, kSearchThreads = 32 * kSearchWarps;
constexpr unsigned kAllLanes = 0xffffffffu;

template <class T>
void boxes_of_tiles(OrderedPoints const& points, double* boxes, cudaStream_t stream) {
  auto const* const data = static_cast<T const*>(points.points);
  for_each_point(points.tiles(), stream, [=] __device__(int tile) {
    std::int64_t const begin = static_cast<std::int64_t>(tile) * kTilePoints;
    std::int64_t const end = min(begin + kTilePoints, static_cast<std::int64_t>(points.size));
    for (int k = 0; k < points.dimension; ++k) {
      double least = static_cast<double>(data[begin * points.stride + k]), most = least;
      for (std::int64_t place = begin + 1; place < end; ++place) {
        double const value = static_cast<double>(data[place * points.stride + k]);
        least = fmin(least, value);
        most = fmax(most, value);
      }
      set_box(boxes + box_size(points.dimension) * tile, points.dimension, k, least, most);
    }
  });
}

void boxes_above(TreeLevels const& levels, int dimension, double* boxes, cudaStream_t stream) {
  for (int height = 1; height < levels.heights; ++height) {
    int const first = levels.first[height], below = levels.first[height - 1], count = levels.nodes[height - 1];
    std::int64_t const size = box_size(dimension);
    for_each_point(levels.nodes[height], stream, [=] __device__(int q) {
      double const* const child = boxes + size * (below + 2 * q);
      join_boxes(boxes + size * (first + q), child, 2 * q + 1 < count ? child + size : child, dimension);
    });
  }
}

/// A block of one warp finds the models of the tiles of a word, one a lane, and of the nodes above them. kDimension:
/// the coordinates, or 0 for any number of them, in slower memory.
template <class T, int kDimension>
__global__ void __launch_bounds__(32) models_kernel(ModelArguments const of) {
  constexpr int kTile = static_cast<int>(kTilePoints), kPoints = 32 * kTile;
  constexpr int kPitch = kTile + 1;  // Lanes read the same point of their tiles, from different banks.
  __shared__ double values[32 * kPitch], weights[32 * kPitch];
  start_next_kernel();
  wait_for_previous_kernel();
  int const lane = static_cast<int>(threadIdx.x), word = static_cast<int>(blockIdx.x);
  int const d = kDimension > 0 ? kDimension : of.points.dimension;
  std::int64_t const first = static_cast<std::int64_t>(word) * kPoints, rest = of.points.size - first;
  for (int p = lane; p < kPoints && p < rest; p += 32) {
    int const point = of.points.point[first + p];
    values[p / kTile * kPitch + p % kTile] = (of.potential[point] - of.norm[point]) * of.log_unit;
    weights[p / kTile * kPitch + p % kTile] = of.weight ? of.weight[point] : 1.0;
  }
  __syncwarp();
  auto const model_of = [&](int height, int q) { return of.models + model_size(d) * (of.levels.first[height] + q); };
  auto const box_of = [&](int height, int q) { return of.boxes + box_size(d) * (of.levels.first[height] + q); };
  int const tile = word * 32 + lane;
  if (tile < of.levels.nodes[0]) {
    double scratch[fit_scratch(kDimension > 0 ? kDimension : kMostDimensions)];
    double const* const box = box_of(0, tile);
    double* const model = model_of(0, tile);
    auto const* const points = static_cast<T const*>(of.points.points) + (first + lane * kTile) * of.points.stride;
    set_model_box(model, box, d, of.unit);
    auto const read = [&](std::int64_t p, double* coordinates) -> ModelPoint {
#pragma unroll
      for (int k = 0; k < (kDimension > 0 ? kDimension : d); ++k)
        coordinates[k] = of.unit * (static_cast<double>(points[p * of.points.stride + k]) - box[k]);
      return {values[lane * kPitch + p], weights[lane * kPitch + p]};
    };
    fit_model(model, d, min(kTilePoints, rest - lane * kTile), read, scratch);
  }
  for (int height = 1; height < of.levels.heights; ++height) {
    __syncwarp();
    int const q = (word * 32 >> height) + lane;
    if (lane >= 32 >> height || q >= of.levels.nodes[height]) continue;
    double* const model = model_of(height, q);
    set_model_box(model, box_of(height, q), d, of.unit);
    join_models(model, model_of(height - 1, 2 * q),
                2 * q + 1 < of.levels.nodes[height - 1] ? model_of(height - 1, 2 * q + 1) : nullptr, d);
  }
}

template <class T>
void find_models_of(ModelArguments const& arguments, cudaStream_t stream) {
  auto const launch = [&]<int kDimension>() {
    launch_chained(models_kernel<T, kDimension>, divided_up(arguments.levels.nodes[0], 32), 32, 0, stream, arguments);
  };
  switch (arguments.points.dimension) {
    case 1:
      return launch.template operator()<1>();
    case 2:
      return launch.template operator()<2>();
    case 3:
      return launch.template operator()<3>();
    default:
      return launch.template operator()<0>();
  }
}

/// The bounds of a node of the rows with nodes of the columns.
struct RowOfSearch {
  SearchArguments const& of;
  int lane;
  double const* model;
  double least;  // Words up to this bound are left out.

  __device__ RowOfSearch(SearchArguments const& arguments, int node)
      : of(arguments),
        lane(static_cast<int>(threadIdx.x) % 32),
        model(of.rows.models + model_size(of.dimension) * node),
        least(log2(kNodeFraction * of.share / of.total)) {}

  /// An upper bound of the logits of a node of the columns; minus infinity without mass.
  __device__ double bound(int node, double& log_mass) const {
    double const* const column = of.columns.models + model_size(of.dimension) * node;
    log_mass = column[1];
    return log_mass == -kInfinity ? -kInfinity : largest_logit(model, column, of.dimension);
  }
  __device__ double bound_of_word(int word, double& log_mass) const {
    log_mass = -kInfinity;
    TreeLevels const& levels = of.columns.levels;
    return word < levels.words() ? bound(levels.first[levels.heights - 1] + word, log_mass) : -kInfinity;
  }
  /// The bound of the sum over the lane's tile of a word, as a logarithm; minus infinity for no tile.
  __device__ double size_of_tile(int word) const {
    int const tile = word * 32 + lane;
    double log_mass = -kInfinity;
    double const found = tile < of.columns.levels.nodes[0] ? bound(tile, log_mass) : -kInfinity;
    return found + log_mass;
  }
  /// Whether a word is left out, by its bound and mass. If so, adds what this takes to `lost`.
  __device__ bool leaves_out(double found, double log_mass, double& lost) const {
    if (log_mass == -kInfinity) return true;
    if (!(found <= least)) return false;
    lost += exp2(found + log_mass);
    return true;
  }
};

/// The number of this warp in the grid.
__device__ __forceinline__ std::int64_t search_warp() {
  return static_cast<std::int64_t>(blockIdx.x) * kSearchWarps + threadIdx.x / 32;
}

/// Keeps tiles of kNearWords words whose bound is at least 2^-kNearRange of the largest.
constexpr double kNearRange = 10;
__global__ void __launch_bounds__(kSearchThreads) near_kernel(SearchArguments const arguments) {
  start_next_kernel();
  wait_for_previous_kernel();
  std::int64_t const tile = search_warp();
  if (tile >= arguments.rows.levels.nodes[0]) return;
  RowOfSearch const row(arguments, static_cast<int>(tile));
  // The largest bound of the words of each lane. Neighbours have other lanes.
  double best = -kInfinity;
  int word = 0;
  for (int w = row.lane; w < arguments.columns.levels.words(); w += 32) {
    double log_mass;
    double const found = row.bound_of_word(w, log_mass) + log_mass;
    if (!(found <= best)) best = found, word = w;
  }
  int chosen[kNearWords];
  bool exists[kNearWords];
  double largest = -kInfinity;
#pragma unroll
  for (int k = 0; k < kNearWords; ++k) {
    double const most = warp_max(best);
    unsigned const owners = __ballot_sync(kAllLanes, best == most || isnan(best));
    int const owner = owners == 0 ? 0 : __ffs(static_cast<int>(owners)) - 1;
    chosen[k] = __shfl_sync(kAllLanes, word, owner);
    exists[k] = __shfl_sync(kAllLanes, best, owner) != -kInfinity;
    if (row.lane == owner) best = -kInfinity;
    largest = fmax(largest, warp_max(row.size_of_tile(chosen[k])));
  }
#pragma unroll
  for (int k = 0; k < kNearWords; ++k) {
    double const size = row.size_of_tile(chosen[k]);
    unsigned const kept = __ballot_sync(kAllLanes, exists[k] && !(size < largest - kNearRange) && size > -kInfinity);
    if (row.lane == 0) arguments.near[tile * kNearWords + k] = {chosen[k], kept};
  }
}

/// A warp takes 32 squares of a row of squares.
__global__ void __launch_bounds__(kSearchThreads) mark_kernel(SearchArguments const arguments) {
  start_next_kernel();
  wait_for_previous_kernel();
  TileBits const &bits = arguments.bits, &across = arguments.across;
  std::int64_t const at = search_warp();
  int const row_word = static_cast<int>(at / bits.mark_words), marks = static_cast<int>(at % bits.mark_words);
  TreeLevels const& levels = arguments.rows.levels;
  if (row_word >= levels.words()) return;
  RowOfSearch const row(arguments, levels.first[levels.heights - 1] + row_word);
  int const word = marks * 32 + row.lane;
  double log_mass, lost = 0;
  double const found = row.bound_of_word(word, log_mass);
  bool const is_marked = !row.leaves_out(found, log_mass, lost);
  unsigned const marked = __ballot_sync(kAllLanes, is_marked);
  lost = warp_sum(lost);
  if (row.lane == 0) {
    arguments.far[at] = lost;
    if (marked != 0) atomicOr(bits.marks + at, marked);
  }
  if (is_marked)
    atomicOr(across.marks + static_cast<std::int64_t>(word) * across.mark_words + row_word / 32, 1u << row_word % 32);
}

struct MarkCounts {
  std::uint32_t const* marks;
  __device__ std::int64_t operator[](std::int64_t k) const { return __popc(marks[k]); }
};

constexpr int kCountThreads = 1024;
__global__ void __launch_bounds__(kCountThreads)
    count_squares_kernel(__grid_constant__ CountArguments const arguments) {
  start_next_kernel();
  wait_for_previous_kernel();
  TileBits const& bits = arguments.bits[blockIdx.x];
  if (threadIdx.x == 0) bits.first[0] = 0;
  scan_block<kCountThreads>(MarkCounts{bits.marks}, arguments.size[blockIdx.x],
                            [&](std::int64_t k, std::int64_t sum) { bits.first[k + 1] = sum; });
}

/// The number of the marked square of a word of rows and a word of columns.
__device__ __forceinline__ std::int64_t square_of(TileBits const& bits, int row_word, int column_word) {
  std::int64_t const at = static_cast<std::int64_t>(row_word) * bits.mark_words + column_word / 32;
  return bits.first[at] + __popc(bits.marks[at] & ((1u << column_word % 32) - 1));
}

__global__ void __launch_bounds__(kSearchThreads) reach_kernel(SearchArguments const arguments) {
  __shared__ unsigned histograms[kSearchWarps][kBoundBins];
  start_next_kernel();
  wait_for_previous_kernel();
  TileBits const &bits = arguments.bits, &across = arguments.across;
  if (search_warp() >= arguments.rows.levels.nodes[0]) return;
  int const tile = static_cast<int>(search_warp()), row_word = tile / 32;
  RowOfSearch const row(arguments, tile);
  unsigned* const histogram = histograms[threadIdx.x / 32];
  for (int k = row.lane; k < kBoundBins; k += 32) histogram[k] = 0;
  __syncwarp();
  double const top = log2(arguments.share);
  // Calls start(word of the lane) for words that are not left out, then visit(word, size of the lane's tile) for each
  // of them; the bound of the others.
  auto const for_words = [&](auto&& start, auto&& visit) {
    double lost = 0;
    for (int k = 0; k < bits.mark_words; ++k) {
      std::int64_t const at = static_cast<std::int64_t>(row_word) * bits.mark_words + k;
      std::uint32_t const marks = bits.marks[at];
      if (row.lane == 0) lost += arguments.far[at];
      if (marks == 0) continue;
      double log_mass = -kInfinity;
      double const found = marks >> row.lane & 1u ? row.bound_of_word(k * 32 + row.lane, log_mass) : -kInfinity;
      bool const is_open = !row.leaves_out(found, log_mass, lost);
      if (is_open) start(k * 32 + row.lane);
      for (unsigned open = __ballot_sync(kAllLanes, is_open); open != 0; open &= open - 1) {
        int const word = k * 32 + __ffs(static_cast<int>(open)) - 1;
        visit(word, row.size_of_tile(word));
      }
    }
    return warp_sum(lost);
  };
  double lost = for_words([](int) {},
                          [&](int, double size) {
                            if (size <= top && size > -kInfinity) atomicAdd(histogram + bin_of_bound(size, top), 1u);
                          });
  __syncwarp();
  int const first_out = first_bin_out(histogram, top, arguments.share - lost);
  double lost_tiles = 0;
  std::int64_t own = 0, other = 0;  // The squares of the lane's word in both lists, found for all words at once.
  auto const start = [&](int word) {
    own = square_of(bits, row_word, word);
    other = square_of(across, word, row_word);
  };
  (void)for_words(start, [&](int word, double size) {
    bool const is_out = size <= top && (size == -kInfinity || bin_of_bound(size, top) >= first_out);
    if (is_out) lost_tiles += exp2(size);
    unsigned const kept = __ballot_sync(kAllLanes, !is_out);
    std::int64_t const square = __shfl_sync(kAllLanes, own, word % 32);
    std::int64_t const square_across = __shfl_sync(kAllLanes, other, word % 32);
    if (row.lane == 0 && kept != 0) atomicOr(bits.squares + square * 32 + tile % 32, kept);
    if (!is_out) atomicOr(across.squares + square_across * 32 + row.lane, 1u << tile % 32);
  });
  lost += warp_sum(lost_tiles);
  if (row.lane == 0) arguments.left_out[tile] = lost * (1 + kModelRounding);
}

__global__ void __launch_bounds__(kSearchThreads) thin_kernel(__grid_constant__ ThinArguments const arguments) {
  __shared__ unsigned histograms[kSearchWarps][kBoundBins];
  start_next_kernel();
  wait_for_previous_kernel();
  TileBits const &bits = arguments.bits, &across = arguments.across;
  if (search_warp() * kTilePoints >= arguments.rows.size) return;
  int const tile = static_cast<int>(search_warp()), row_word = tile / 32, lane = static_cast<int>(threadIdx.x) % 32;
  // The least sum of a row, as parts are relative to it. Rows without a number have all their tiles.
  int const place = tile * static_cast<int>(kTilePoints) + lane;
  double sum = kInfinity;
  if (place < arguments.rows.size) {
    int const point = arguments.rows.point[place];
    sum = exp((arguments.measure.plus[point] - arguments.softmin[point]) / arguments.eps);
    if (!(sum >= 0)) sum = 0;
  }
  double const least = -warp_max(-sum);
  unsigned* const histogram = histograms[threadIdx.x / 32];
  for (int k = lane; k < kBoundBins; k += 32) histogram[k] = 0;
  __syncwarp();
  // Calls visit(word, number of the square, whether the lane's tile is listed, its bin) for the squares of the tile.
  auto const for_squares = [&](auto&& visit) {
    for (int k = 0; k < bits.mark_words; ++k) {
      std::int64_t square = bits.first[static_cast<std::int64_t>(row_word) * bits.mark_words + k];
      for (std::uint32_t marks = bits.marks[static_cast<std::int64_t>(row_word) * bits.mark_words + k]; marks != 0;
           marks &= marks - 1, ++square) {
        std::int64_t const row = square * 32 + tile % 32;
        bool const is_listed = bits.squares[row] >> lane & 1u;
        visit(k * 32 + __ffs(static_cast<int>(marks)) - 1, square, is_listed, arguments.measure.bins[row * 32 + lane]);
      }
    }
  };
  for_squares([&](int, std::int64_t, bool is_listed, unsigned char bin) {
    if (is_listed && bin != kAboveBins) atomicAdd(histogram + bin, 1u);
  });
  __syncwarp();
  int const first_out = first_bin_out(histogram, arguments.measure.top, arguments.share * least);
  for_squares([&](int word, std::int64_t square, bool is_listed, unsigned char bin) {
    bool const is_kept = is_listed && (bin == kAboveBins || bin < first_out);
    unsigned const kept = __ballot_sync(kAllLanes, is_kept);
    if (kept == 0) return;
    if (lane == 0) atomicOr(arguments.kept + square * 32 + tile % 32, kept);
    std::int64_t const square_across = square_of(across, word, row_word);
    if (is_kept) atomicOr(arguments.kept_across + square_across * 32 + lane, 1u << tile % 32);
  });
}

void launch(void (*kernel)(SearchArguments), std::int64_t warps, SearchArguments const& arguments,
            cudaStream_t stream) {
  launch_chained(kernel, divided_up(warps, kSearchWarps), kSearchThreads, 0, stream, arguments);
}

/// Block (k, side) sums the k-th part of each kMovementParts of the points.
__global__ void __launch_bounds__(kVectorThreads) movement_kernel(__grid_constant__ MovementArguments const arguments) {
  start_next_kernel();
  wait_for_previous_kernel();
  int const side = static_cast<int>(blockIdx.x) / kMovementParts, part = static_cast<int>(blockIdx.x) % kMovementParts;
  MovementArguments::OfSide const& of = arguments.side[side];
  double sum = 0;
  for (int i = part * kVectorThreads + static_cast<int>(threadIdx.x); i < of.size;
       i += kMovementParts * kVectorThreads) {
    if (of.weight[i] > 0)
      sum += of.weight[i] * std::min(expm1(fabs(of.now[i] - of.then[i]) / arguments.eps), arguments.most);
  }
  sum = block_sum<kVectorThreads>(sum);
  if (threadIdx.x == 0) arguments.out[blockIdx.x] = sum;
}

}  // namespace

TreeLevels::TreeLevels(std::int64_t tiles) {
  nodes[0] = static_cast<int>(tiles);
  for (; heights <= kWordHeight && nodes[heights - 1] > 1; ++heights) {
    first[heights] = first[heights - 1] + nodes[heights - 1];
    nodes[heights] = (nodes[heights - 1] + 1) / 2;
  }
}

void find_boxes(OrderedPoints const& points, TreeLevels const& levels, double* boxes, cudaStream_t stream) {
  points.scalar == DataType::float64 ? boxes_of_tiles<double>(points, boxes, stream)
                                     : boxes_of_tiles<float>(points, boxes, stream);
  boxes_above(levels, points.dimension, boxes, stream);
}

void find_models(ModelArguments const& arguments, cudaStream_t stream) {
  arguments.points.scalar == DataType::float64 ? find_models_of<double>(arguments, stream)
                                               : find_models_of<float>(arguments, stream);
}

void find_near_tiles(SearchArguments const& arguments, cudaStream_t stream) {
  launch(near_kernel, arguments.rows.levels.nodes[0], arguments, stream);
}

void mark_squares(SearchArguments const& arguments, cudaStream_t stream) {
  launch(mark_kernel, std::int64_t{arguments.rows.levels.words()} * arguments.bits.mark_words, arguments, stream);
}

void count_squares(CountArguments const& arguments, int lists, cudaStream_t stream) {
  launch_chained(count_squares_kernel, lists, kCountThreads, 0, stream, arguments);
}

void find_reached_tiles(SearchArguments const& arguments, cudaStream_t stream) {
  launch(reach_kernel, arguments.rows.levels.nodes[0], arguments, stream);
}

void thin_tiles(ThinArguments const& arguments, cudaStream_t stream) {
  launch_chained(thin_kernel, divided_up(arguments.rows.tiles(), kSearchWarps), kSearchThreads, 0, stream, arguments);
}

void find_lack(LackArguments const& arguments, cudaStream_t stream) {
  for_each_point(arguments.points.size, stream, [=] __device__(int place) {
    int const point = arguments.points.point[place];
    double const weight = arguments.weight[point];
    double const rise = (arguments.potential[point] - arguments.plus[point]) / arguments.eps;
    arguments.out[point] = weight > 0 ? weight * arguments.of_tiles[place / kTilePoints] * exp(rise) : 0;
  });
}

void find_next(NextArguments const& arguments, cudaStream_t stream) {
  for_each_point(arguments.points.size, stream, [=] __device__(int i) {
    bool const counts = arguments.points.weight[i] > 0;
    double const old = arguments.old[i];
    arguments.out[i] = counts ? arguments.rule.next(old, arguments.plus[i], arguments.points.shift[i]) : old;
  });
}

void find_movement(MovementArguments const& arguments, cudaStream_t stream) {
  launch_chained(movement_kernel, 2 * kMovementParts, kVectorThreads, 0, stream, arguments);
}

}  // namespace monge::cuda
