// Sums over the listed tiles of pairs, for points of few coordinates, on the FMA pipes. Softmins and evaluations leave
// the tiles of expanded blocks to expanded_sums.cu.
//
//   softmin     for each row i: (reference, sum) with sum = sum_j beta_j 2^(t_ij - reference),
//               t_ij = h_j + c |x'_i - y'_j|^2, c = -s log2(e) / eps, over the columns of the listed tiles
//   product     the same for given references, with beta_j v_j in place of beta_j
//   evaluation  sum_j P_ij and sum_j P_ij s |x'_i - y'_j|^2 with P_ij = 2^(h_i + t_ij), in double
//
// Tiling: a warp takes a tile of 32 rows, one for each lane, and walks over the bits of its row of tiles. Columns of a
//   tile lie in shared memory (two buffers of the warp), which all lanes read at the same address. With several parts
//   each of as many warps takes every so many listed tiles, so that the warps of a row have equal work.
//
// Per pair: d FADD, d FFMA, then FFMA, FADD, MUFU, FFMA and two loads from shared memory; in double about 2 d + 13.
//
// Numerics: as in pass_difference.cuh: no maximum is taken first. Sums of a tile in T, then compensated.
#include "cuda/tiles/listed_pass.hpp"

#include <algorithm>

#include "core/numbers.hpp"
#include "cuda/device/numerics.cuh"
#include "cuda/device/points.cuh"
#include "cuda/launch/queue.hpp"
#include "cuda/launch/sizes.hpp"
#include "cuda/tiles/expanded_sums.hpp"
#include "cuda/tiles/listed_tiles.cuh"

namespace monge::cuda {
namespace {

constexpr int kWarps = 4, kThreads = 32 * kWarps, kTile = static_cast<int>(kTilePoints);

enum class Sums { softmin, product, evaluation };

/// In double the factors of a softmin are 1.
template <class T, Sums kSums>
inline constexpr bool kHasFactors = kSums == Sums::product || (sizeof(T) == 4 && kSums == Sums::softmin);

template <class T, bool kHasFactor>
struct ColumnLogit {
  T logit;
};
template <class T>
struct ColumnLogit<T, true> {
  T logit, factor;
};

/// T: the arithmetic; TPoint: the type of the points.
template <class T, class TPoint, int kDimension, Sums kSums>
__global__ void __launch_bounds__(kThreads) listed_kernel(ListedArguments const arguments) {
  constexpr int kStride = kStrideOf<kDimension>;
  constexpr bool kEvaluates = kSums == Sums::evaluation, kFactors = kHasFactors<T, kSums>;
  using Column = ColumnLogit<T, kFactors>;
  __shared__ __align__(16) TPoint shared_points[kWarps][2][kTile * kStride];
  __shared__ __align__(16) Column shared_logits[kWarps][2][kTile];
  __shared__ typename Powers<T>::Table table;
  ListedTiles const& tiles = arguments.tiles;
  int const warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  int const index = static_cast<int>(blockIdx.x) * kWarps + warp;
  int const row_tile = index / tiles.parts, part = index % tiles.parts;
  start_next_kernel();
  wait_for_previous_kernel();
  Powers<T> const powers(table);
  __syncthreads();
  if (row_tile * kTile >= tiles.rows.size) return;
  SweepParameters const& parameters = *arguments.parameters;
  T const factor = static_cast<T>(arguments.factor * parameters.log2e_over_eps);
  int const place = row_tile * kTile + lane;
  bool const stores = place < tiles.rows.size;
  int const point = stores ? tiles.rows.point[place] : 0;
  auto const* const row_points = static_cast<TPoint const*>(tiles.rows.points);
  auto const* const column_points = static_cast<TPoint const*>(tiles.columns.points);
  auto const* const logits = static_cast<T const*>(tiles.logits);
  T x[kDimension];
#pragma unroll
  for (int k = 0; k < kDimension; ++k)
    x[k] = static_cast<T>(row_points[static_cast<std::int64_t>(place) * kStride + k]);
  T row_logit = 0;
  if constexpr (kEvaluates) {
    double const constant = (parameters.constant[0] + parameters.constant[1]) * parameters.log2e_over_eps;
    row_logit = stores ? arguments.row_logits[point] + constant : kEmptyLogit<double>;
  }
  // Parts of the row are relative to 2^row_lse.
  [[maybe_unused]] double row_lse = kInfinity;
  Measure const& measure = tiles.measure;
  if constexpr (kSums == Sums::softmin) {
    if (measure.bins && stores)
      row_lse = (measure.norm[point] - parameters.constant[measure.columns] - measure.plus[point]) / parameters.eps_ln2;
  }

  TPoint next_point[kStride];
  Column next_logit;
  auto const fetch = [&](int tile) {
    std::int64_t const column = static_cast<std::int64_t>(tile) * kTile + lane;
#pragma unroll
    for (int k = 0; k < kStride; ++k) next_point[k] = column_points[column * kStride + k];
    next_logit.logit = logits[column];
    if constexpr (kFactors) next_logit.factor = static_cast<T const*>(tiles.factors)[column];
  };
  constexpr bool kSkipsBlocks = kSums != Sums::product && kDimension <= Expansion::kMostDimensions;
  SetBits<kSkipsBlocks> bits(tiles, row_tile, part, kSkipsBlocks ? reach_of(arguments) : 0.0f);
  T reference[1] = {kLowestReference<T>};
  if constexpr (kSums == Sums::product) reference[0] = static_cast<T const*>(arguments.references)[point];
  T total = 0, compensation = 0;
  double sum = 0, cost = 0;
  int tile = bits.next();
  if (tile >= 0) fetch(tile);
  for (int buffer = 0; tile >= 0; buffer ^= 1) {
    [[maybe_unused]] int const present = tile;
    TPoint* const points = shared_points[warp][buffer];
    Column* const tile_logits = shared_logits[warp][buffer];
#pragma unroll
    for (int k = 0; k < kStride; ++k) points[lane * kStride + k] = next_point[k];
    tile_logits[lane] = next_logit;
    // Other lanes may still read the other buffer. This one has been free since the last barrier.
    __syncwarp();
    tile = bits.next();
    if (tile >= 0) fetch(tile);
    auto const for_pairs = [&](auto&& visit) {
#pragma unroll 8
      for (int c = 0; c < kTile; ++c) visit(tile_logits[c], square_distance<kDimension>(x, points + c * kStride));
    };
    if constexpr (kEvaluates) {
      for_pairs([&](Column const& column, T square) {
        T const entry = powers(fused(factor, square, row_logit + column.logit));
        sum += entry;
        cost = fused(entry, square, cost);
      });
    } else {
      T tile_sum[1];
      auto const make = [&] {
        tile_sum[0] = 0;
        for_pairs([&](Column const& column, T square) {
          T const power = powers(fused(factor, square, column.logit) - reference[0]);
          if constexpr (kFactors) {
            tile_sum[0] = fused(column.factor, power, tile_sum[0]);
          } else {
            tile_sum[0] += power;
          }
        });
      };
      auto const raise = [&] {
        T largest = reference[0];
        for_pairs([&](Column const& column, T square) {
          T const t = fused(factor, square, column.logit);
          largest = t > largest ? t : largest;
        });
        T const shrink = powers(reference[0] - largest);
        total *= shrink;
        compensation *= shrink;
        reference[0] = largest;
      };
      sum_and_raise<kSums == Sums::product>(tile_sum, make, raise);
      if constexpr (kSums == Sums::softmin) {
        if (measure.bins) {
          double const part = static_cast<double>(log2(tile_sum[0])) + (static_cast<double>(reference[0]) - row_lse);
          double const largest = warp_max(part);
          std::uint32_t const marks =
              tiles.bits.marks[static_cast<std::int64_t>(row_tile / 32) * tiles.bits.mark_words + present / 1024];
          std::int64_t const square = square_at(tiles.bits, row_tile / 32, present / 32, marks);
          if (lane == 0)
            measure.bins[square * 1024 + row_tile % 32 * 32 + present % 32] =
                static_cast<unsigned char>(bin_of_bound(largest, measure.top));
        }
      }
      if constexpr (sizeof(T) == 4) {
        compensated_add(total, compensation, tile_sum[0]);
      } else {
        total += tile_sum[0];
      }
    }
  }
  if (!stores) return;
  std::int64_t const at = static_cast<std::int64_t>(part) * tiles.rows.padded_size + point;
  if constexpr (kEvaluates) {
    arguments.sums[at] = sum;
    if (arguments.costs) arguments.costs[at] = -arguments.factor * cost;
  } else {
    static_cast<PartialSum<T>*>(arguments.partials)[at] = {reference[0], total};
  }
}

template <class T, class TPoint, Sums kSums>
void launch(ListedArguments const& arguments, cudaStream_t stream) {
  with_dimension(arguments.tiles.rows.dimension, [&]<int kDimension>() {
    int const warps = arguments.tiles.rows.tiles() * arguments.tiles.parts;
    launch_chained(listed_kernel<T, TPoint, kDimension, kSums>, divided_up(warps, kWarps), kThreads, 0, stream,
                   arguments);
  });
  if (kSums != Sums::product && arguments.tiles.expansion.exists()) launch_expanded_sums(arguments, stream);
}

/// Writes logits, and factors if given, in the order of the points; padding has empty ones.
template <class T>
void order_logits(ListedTiles const& tiles, void const* from, void const* factors_from, cudaStream_t stream) {
  OrderedPoints const points = tiles.columns;
  auto const *const logits = static_cast<T const*>(from), *const factors = static_cast<T const*>(factors_from);
  auto *const to = static_cast<T*>(tiles.logits), *const factors_to = static_cast<T*>(tiles.factors);
  for_each_point(points.padded_size, stream, [=] __device__(int place) {
    int const point = place < points.size ? points.point[place] : -1;
    to[place] = point < 0 ? kEmptyLogit<T> : logits[point];
    if (factors) factors_to[place] = point < 0 ? T(0) : factors[point];
  });
}

template <class T>
void order_points(Operand const& from, OrderedPoints const& to, cudaStream_t stream) {
  auto const* const points = static_cast<T const*>(from.points);
  T* const out = static_cast<T*>(const_cast<void*>(to.points));
  for_each_point(to.padded_size, stream, [=] __device__(int place) {
    std::int64_t const point = place < to.size ? to.point[place] : -1;
    for (int k = 0; k < to.stride; ++k)
      out[static_cast<std::int64_t>(place) * to.stride + k] = point < 0 ? T(0) : points[point * to.stride + k];
  });
}

}  // namespace

WorkPlan ListedTiles::work(int slots) const {
  WorkPlan plan;
  plan.row_blocks = divided_up(rows.padded_size, kRowPadding);
  plan.column_tiles = plan.slots = slots;
  plan.grid = plan.row_blocks * slots;
  plan.tiles = plan.grid;
  return plan;
}

int parts_of(int row_tiles, int multiprocessors) {
  constexpr int kWarpsOfMultiprocessor = 64, kMostParts = 32;
  return std::clamp(divided_up(std::int64_t{multiprocessors} * kWarpsOfMultiprocessor, row_tiles), 1, kMostParts);
}

void order_points(Operand const& from, OrderedPoints const& to, cudaStream_t stream) {
  from.scalar == DataType::float64 ? order_points<double>(from, to, stream) : order_points<float>(from, to, stream);
}

void launch_listed_pass(Pass pass, ListedTiles const& tiles, PassArguments const& arguments, cudaStream_t stream) {
  ListedArguments const listed{.tiles = tiles,
                               .factor = arguments.factor,
                               .parameters = arguments.parameters,
                               .references = arguments.references,
                               .partials = arguments.partials};
  auto const launch_in = [&]<class T>(T) {
    order_logits<T>(tiles, arguments.logits, arguments.factors, stream);
    pass == Pass::product ? launch<T, T, Sums::product>(listed, stream) : launch<T, T, Sums::softmin>(listed, stream);
  };
  tiles.rows.scalar == DataType::float64 ? launch_in(double()) : launch_in(float());
}

void launch_listed_evaluation(ListedTiles const& tiles, ListedEvaluation const& arguments, cudaStream_t stream) {
  ListedArguments const listed{.tiles = tiles,
                               .factor = arguments.factor,
                               .parameters = arguments.parameters,
                               .row_logits = arguments.row_logits,
                               .sums = arguments.sums,
                               .costs = arguments.costs};
  order_logits<double>(tiles, arguments.column_logits, nullptr, stream);
  tiles.rows.scalar == DataType::float64 ? launch<double, double, Sums::evaluation>(listed, stream)
                                         : launch<double, float, Sums::evaluation>(listed, stream);
}

}  // namespace monge::cuda
