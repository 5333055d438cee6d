// out_i = sum_j P_ij <l_i, r_j> v_j over listed tiles.
//
// Tiling: a block takes a tile of 32 rows, one a lane, and kWidth columns of V. Each of its warps takes every kWarps-th
//   listed tile of columns, whose data it puts in shared memory. More than kInner columns of L and R take more walks.
//
// Per pair: d FADD, d FFMA and the exponential in T, then kInner + kWidth DFMA.
//
// Numerics: shares in T, all else in double, where neither <l, r> v nor its parts need scales. Sums of warps are added
//   in order.
#include "cuda/tiles/listed_hadamard.hpp"

#include "cuda/device/numerics.cuh"
#include "cuda/device/ptx.cuh"
#include "cuda/device/strided.cuh"
#include "cuda/launch/queue.hpp"
#include "cuda/launch/sizes.hpp"
#include "cuda/tiles/listed_tiles.cuh"

namespace monge::cuda {
namespace {

constexpr int kTile = static_cast<int>(kTilePoints), kWarps = 4, kThreads = 32 * kWarps;
constexpr int kInner = 8, kWidth = 4;

struct HadamardArguments {
  ListedTiles tiles;  // With kWarps parts.
  HadamardProduct product;
  PassArguments pass;
};

/// A column of a pass.
template <class T, int kDimension>
struct HadamardColumn {
  double right[kInner], value[kWidth];
  T point[kDimension], logit, factor;
};

template <class T, int kDimension>
__global__ void __launch_bounds__(kThreads) hadamard_kernel(__grid_constant__ HadamardArguments const arguments) {
  using Column = HadamardColumn<T, kDimension>;
  __shared__ Column columns[kWarps][kTile];
  __shared__ double sums[kWarps][kWidth][kTile];
  __shared__ typename Powers<T>::Table table;
  ListedTiles const& tiles = arguments.tiles;
  HadamardProduct const& product = arguments.product;
  PassArguments const& pass = arguments.pass;
  int const warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  int const row_tiles = (tiles.rows.size - 1) / kTile + 1, row_tile = static_cast<int>(blockIdx.x) % row_tiles;
  int const first_value = static_cast<int>(blockIdx.x) / row_tiles * kWidth;
  start_next_kernel();
  wait_for_previous_kernel();
  Powers<T> const powers(table);
  __syncthreads();
  int const place = row_tile * kTile + lane;
  bool const stores = place < tiles.rows.size;
  std::int64_t const row = stores ? tiles.rows.point[place] : 0;
  T const factor = static_cast<T>(pass.factor * pass.parameters->log2e_over_eps);
  T const reference = static_cast<T const*>(pass.references)[row];
  T x[kDimension];
#pragma unroll
  for (int k = 0; k < kDimension; ++k)
    x[k] = static_cast<T const*>(tiles.rows.points)[static_cast<std::int64_t>(place) * tiles.rows.stride + k];

  double sum[kWidth] = {};
  for (int first_inner = 0; first_inner < product.inner; first_inner += kInner) {
    double left[kInner];
#pragma unroll
    for (int k = 0; k < kInner; ++k)
      left[k] = first_inner + k < product.inner
                    ? load_element(product.left, row * product.left.stride + first_inner + k)
                    : 0.0;
    SetBits<> bits(tiles, row_tile, warp);
    for (int tile = bits.next(); tile >= 0; tile = bits.next()) {
      Column& own = columns[warp][lane];
      std::int64_t const at = static_cast<std::int64_t>(tile) * kTile + lane;
      std::int64_t const column = at < tiles.columns.size ? tiles.columns.point[at] : 0;
      bool const exists = at < tiles.columns.size && product.weight[column] > 0;
#pragma unroll
      for (int k = 0; k < kDimension; ++k)
        own.point[k] = static_cast<T const*>(tiles.columns.points)[at * tiles.columns.stride + k];
      own.logit = exists ? static_cast<T const*>(pass.logits)[column] : kEmptyLogit<T>;
      own.factor = exists && pass.factors ? static_cast<T const*>(pass.factors)[column] : T(1);
      for (int k = 0; k < kInner; ++k)
        own.right[k] = exists && first_inner + k < product.inner
                           ? load_element(product.right, column * product.right.stride + first_inner + k)
                           : 0.0;
      for (int p = 0; p < kWidth; ++p)
        own.value[p] = exists && first_value + p < product.width
                           ? load_element(product.values, column * product.values.stride + first_value + p)
                           : 0.0;
      __syncwarp();
#pragma unroll 2
      for (int c = 0; c < kTile; ++c) {
        Column const& of = columns[warp][c];
        T const square = square_distance<kDimension>(x, of.point);
        T const share = of.factor * powers(fused(factor, square, of.logit) - reference);
        double weight = 0;
#pragma unroll
        for (int k = 0; k < kInner; ++k) weight = fused(left[k], of.right[k], weight);
#pragma unroll
        for (int p = 0; p < kWidth; ++p) sum[p] = fused(static_cast<double>(share), weight * of.value[p], sum[p]);
      }
      __syncwarp();
    }
  }
#pragma unroll
  for (int p = 0; p < kWidth; ++p) sums[warp][p][lane] = sum[p];
  __syncthreads();
  // Each warp stores a column.
  static_assert(kWarps == kWidth);
  int const p = first_value + warp;
  if (!stores || p >= product.width) return;
  double total = 0;
  for (int w = 0; w < kWarps; ++w) total += sums[w][warp][lane];
  store_element(product.out, row * product.out.stride + p, product.row_factor[row] * total);
}

template <class T>
void launch(HadamardArguments const& arguments, cudaStream_t stream) {
  int const blocks = arguments.tiles.rows.tiles() * divided_up(arguments.product.width, kWidth);
  with_dimension(arguments.tiles.rows.dimension, [&]<int kDimension>() {
    launch_chained(hadamard_kernel<T, kDimension>, blocks, kThreads, 0, stream, arguments);
  });
}

}  // namespace

void launch_listed_hadamard(ListedTiles const& tiles, HadamardProduct const& product, PassArguments const& arguments,
                            cudaStream_t stream) {
  HadamardArguments of{tiles, product, arguments};
  of.tiles.parts = kWarps;
  tiles.rows.scalar == DataType::float64 ? launch<double>(of, stream) : launch<float>(of, stream);
}

}  // namespace monge::cuda
