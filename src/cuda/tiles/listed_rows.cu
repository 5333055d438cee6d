// Rows of log2 of shares over the columns of listed tiles.
//
//   columns   A block finds the columns of a tile of rows. It marks them among all columns, so that they come out in
//             ascending order, and numbers the marks by running sums.
//   logits    A warp takes 32 columns of the rows of a tile, one a lane. About 4 d + 20 instructions for 32 pairs.
//
// Numerics: as Pass::logits in pass_tile.cuh.
#include "cuda/tiles/listed_rows.hpp"

#include "cuda/device/numerics.cuh"
#include "cuda/device/ptx.cuh"
#include "cuda/device/scan.cuh"
#include "cuda/launch/queue.hpp"
#include "cuda/launch/sizes.hpp"
#include "cuda/tiles/listed_tiles.cuh"

namespace monge::cuda {
namespace {

constexpr int kTile = static_cast<int>(kTilePoints), kWarps = 4, kThreads = 32 * kWarps;
static_assert(kTile == kLogitGroup);
constexpr int kColumnWarps = 32, kColumnThreads = 32 * kColumnWarps;
/// Groups of columns of a warp.
constexpr int kGroups = 8;

__global__ void __launch_bounds__(kThreads) count_listed_kernel(ListedTiles const tiles, int* counts) {
  start_next_kernel();
  wait_for_previous_kernel();
  int const row = (static_cast<int>(blockIdx.x) * kThreads + static_cast<int>(threadIdx.x)) / 32;
  if (row * kTile >= tiles.rows.size) return;
  int count = 0;
  for (SetBits<> bits(tiles, row, 0); bits.next() >= 0;) ++count;
  if (threadIdx.x % 32 == 0) counts[row] = count;
}

/// A bit for each column, 32 in a word: 1 for listed columns and for columns that fill rows.
struct ColumnMarks {
  std::uint32_t const* listed;
  int fill;

  __device__ std::uint32_t of(std::int64_t word) const {
    std::int64_t const filled = fill - 32 * word;
    return listed[word] | (filled >= 32 ? ~0u : filled > 0 ? (1u << filled) - 1 : 0u);
  }
  __device__ int operator[](std::int64_t word) const { return __popc(of(word)); }
};

struct RowsArguments {
  ListedTiles tiles;
  ListedRows rows;
  PassArguments pass;
};

/// `tiles.parts` is the number of warps.
__global__ void __launch_bounds__(kColumnThreads) columns_kernel(__grid_constant__ RowsArguments const arguments) {
  __shared__ int count;
  ListedTiles const& tiles = arguments.tiles;
  ListedRows const& rows = arguments.rows;
  OrderedPoints const& points = tiles.columns;
  int const thread = static_cast<int>(threadIdx.x), index = static_cast<int>(blockIdx.x);
  int const words = (points.size - 1) / 32 + 1;
  std::uint32_t* const listed = rows.listed + static_cast<std::int64_t>(index) * words;
  int* const columns = rows.columns + index * arguments.pass.entries.stride;
  start_next_kernel();
  wait_for_previous_kernel();
  for (int word = thread; word < words; word += kColumnThreads) listed[word] = 0;
  __syncthreads();
  SetBits<> bits(tiles, rows.first + index, thread / 32);
  for (int tile = bits.next(); tile >= 0; tile = bits.next()) {
    int const place = tile * kTile + thread % 32;
    if (place >= points.size) continue;
    int const point = points.point[place];
    atomicOr(listed + point / 32, 1u << point % 32);
  }
  __syncthreads();
  ColumnMarks const marks{listed, rows.fill};
  scan_block<kColumnThreads>(marks, words, [&](std::int64_t word, int sum) {
    std::uint32_t left = marks.of(word);
    if (word == words - 1) count = sum;
    for (int at = sum - __popc(left); left != 0; left &= left - 1, ++at) {
      int const bit = __ffs(static_cast<int>(left)) - 1, column = static_cast<int>(word) * 32 + bit;
      columns[at] = listed[word] >> bit & 1u ? column : ~column;
    }
  });
  __syncthreads();
  for (std::int64_t at = count + thread; at < arguments.pass.entries.stride; at += kColumnThreads)
    columns[at] = kNoColumn;
}

/// Several blocks in a row share a tile of rows.
template <class T, int kDimension>
__global__ void __launch_bounds__(kThreads)
    logits_kernel(__grid_constant__ RowsArguments const arguments, int const blocks_of_tile) {
  __shared__ T x[kTile][kDimension], reference[kTile];
  OrderedPoints const& rows = arguments.tiles.rows;
  PassArguments const& pass = arguments.pass;
  int const lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  int const index = static_cast<int>(blockIdx.x) / blocks_of_tile,
            block = static_cast<int>(blockIdx.x) % blocks_of_tile;
  std::int64_t const stride = pass.entries.stride, first_row = static_cast<std::int64_t>(index) * kTile;
  start_next_kernel();
  wait_for_previous_kernel();
  if (warp == 0) {
    int const place = (arguments.rows.first + index) * kTile + lane;
    bool const exists = place < rows.size;
#pragma unroll
    for (int k = 0; k < kDimension; ++k)
      x[lane][k] = static_cast<T const*>(rows.points)[static_cast<std::int64_t>(place) * rows.stride + k];
    reference[lane] = exists ? static_cast<T const*>(pass.references)[rows.point[place]] : -kEmptyLogit<T>;
  }
  __syncthreads();
  T const factor = static_cast<T>(pass.factor * pass.parameters->log2e_over_eps);
  int const groups = static_cast<int>(stride / kLogitGroup);
  for (int group = block * kWarps + warp; group < groups; group += blocks_of_tile * kWarps) {
    int const place = group * kLogitGroup + lane;
    int const column = arguments.rows.columns[index * stride + place];
    T y[kDimension] = {}, logit = kEmptyLogit<T>, log_factor = 0, largest = 0;
    if (column >= 0 && column != kNoColumn) {
      T const* const point = static_cast<T const*>(pass.columns.points) + std::int64_t{column} * pass.columns.stride;
#pragma unroll
      for (int k = 0; k < kDimension; ++k) y[k] = point[k];
      logit = static_cast<T const*>(pass.logits)[column];
      log_factor = static_cast<T const*>(pass.factors)[column];
    }
    T* const values = static_cast<T*>(pass.entries.high) + first_row * stride + logit_position(place);
#pragma unroll 4
    for (int r = 0; r < kTile; ++r) {
      T const square = square_distance<kDimension>(x[r], y);
      T const share = log_share(fused(factor, square, logit), reference[r], log_factor);
      values[r * stride] = share;
      T const most = warp_max(share);
      if (lane == r) largest = most;
    }
    static_cast<T*>(pass.entries.low)[(first_row + lane) * groups + group] = largest;
  }
}

template <class T>
void launch_logits(RowsArguments const& arguments, cudaStream_t stream) {
  int const blocks = divided_up(arguments.pass.entries.stride, kLogitGroup * kGroups * kWarps);
  with_dimension(arguments.tiles.rows.dimension, [&]<int kDimension>() {
    launch_chained(logits_kernel<T, kDimension>, arguments.rows.count * blocks, kThreads, 0, stream, arguments, blocks);
  });
}

}  // namespace

void count_listed(ListedTiles const& tiles, int* counts, cudaStream_t stream) {
  ListedTiles whole = tiles;
  whole.parts = 1;
  launch_chained(count_listed_kernel, divided_up(tiles.rows.tiles(), kWarps), kThreads, 0, stream, whole, counts);
}

void launch_listed_logits(ListedTiles const& tiles, ListedRows const& rows, PassArguments const& arguments,
                          cudaStream_t stream) {
  RowsArguments of{tiles, rows, arguments};
  of.tiles.parts = kColumnWarps;
  launch_chained(columns_kernel, rows.count, kColumnThreads, 0, stream, of);
  tiles.rows.scalar == DataType::float64 ? launch_logits<double>(of, stream) : launch_logits<float>(of, stream);
}

}  // namespace monge::cuda
