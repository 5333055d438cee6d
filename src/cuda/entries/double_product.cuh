// A product of entries in memory with values, in double:
//
//   S_ip = sum_j E_ij V_jp   over a part of the points j
//
// Tiling: a block of 128 threads has a tile of 64 x 64 sums (device/score_tile.cuh) and walks over the points of its
//   part. Grid (column tiles, row tiles, parts), from row tile `first_row_tile` on.
// Traffic: a row of E once for each 64 columns; the sums once for each part, which store_values() adds in order.
#pragma once
#include "cuda/device/score_tile.cuh"
#include "cuda/entries/entry_product.hpp"

namespace monge::cuda {

using DoubleScores = TileScores<double, ScoreForm::products>;

/// Bytes of shared memory: the most that a part takes. A last part of up to four chunks keeps its rows there.
inline constexpr int kDoubleProductBytes = DoubleScores::shared_bytes(4 * kTileChunk);
static_assert(kDoubleProductBytes >= DoubleScores::shared_bytes(4 * kTileChunk + 1));

__global__ void __launch_bounds__(kTileThreads, 3) double_product_kernel(DoubleProductArguments const given) {
  extern __shared__ __align__(16) unsigned char shared[];
  int const part = static_cast<int>(blockIdx.z), chunks = given.rows.dimension / kTileChunk;
  int const size = (chunks + given.parts - 1) / given.parts * kTileChunk, first = part * size;
  PassArguments factors;
  factors.rows = given.rows;
  factors.columns = given.columns;
  for (Operand* operand : {&factors.rows, &factors.columns}) {
    operand->points = static_cast<double const*>(operand->points) + first;
    operand->dimension = min(size, operand->dimension - first);
  }
  Segment const segment{
      (given.first_row_tile + static_cast<int>(blockIdx.y)) * kTileRows, static_cast<int>(blockIdx.x), 1, 0, 0, 0};
  DoubleScores products(shared, factors, segment);
  ThreadScores<double> sum;
  products.next(sum);
  std::int64_t const stride = given.columns.padded_size;
  double* const to = given.sums +
                     (part * std::int64_t{given.rows.padded_size} + segment.first_row + thread_row()) * stride +
                     segment.first_tile * kTileColumns + thread_column();
#pragma unroll
  for (int r = 0; r < kThreadRows; ++r) {
#pragma unroll
    for (int c = 0; c < kThreadColumns; c += 2)
      store_vector_2(to + row_offset(r) * stride + column_offset(c), sum[r][c], sum[r][c + 1]);
  }
}

}  // namespace monge::cuda
