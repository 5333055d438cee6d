// Sums over expanded blocks of pairs. With m and m' the middles of a block's boxes, D = m - m', u = x - m, v = y - m'
// and c = -s log2(e) / eps, as in listed_pass.cu,
//
//   h_j + c |x_i - y_j|^2 = (h_j + c |m - y_j|^2) + c <u_i, u_i + 2 D> - 2 c <u_i, v_j>
//
// The first term depends on the column alone, the second on the row alone. The power of two of the third, exp(z) with
// z = <u'_i, v'_j>, u' = u sqrt(2 s / eps) and v' = v sqrt(2 s / eps), is expanded in monomials up to degree kOrder:
//
//   sum_j w_j exp(z_ij) = sum_alpha u'_i^alpha / alpha! M_alpha,   M_alpha = sum_j w_j v'_j^alpha
//
// Costs need sum_j w_j |x_i - y_j|^2 exp(z_ij), where |x_i - y_j|^2 = |m - y_j|^2 + <u_i, u_i + 2 D> - 2 <u_i, v_j>.
// The first part is a sum as above, with w_j |m - y_j|^2 in place of w_j. The last part needs the series of z exp(z):
// each term of the series of exp(z) times its degree.
//
// Error: the terms of exp(z) above degree k are at most |z|^(k + 1) / (k + 1)! exp(|z|) of exp(z).
//
// Tiling: a warp takes a row of blocks, each lane one row of each of its tiles, and walks over the blocks. Columns are
//   read in turn, a tile at a time: once for the largest logit, which is the reference of their weights, and once for
//   each set of moments. A butterfly of shuffles leaves some of the moments to each lane.
//
// Per pair in three dimensions: 2 x 84 operations for a column over 128 rows, 84 for a row over 1024 columns.
#include "cuda/tiles/expanded_sums.hpp"

#include <cmath>

#include "core/numbers.hpp"
#include "cuda/device/numerics.cuh"
#include "cuda/launch/queue.hpp"
#include "cuda/launch/sizes.hpp"
#include "cuda/tiles/listed_tiles.cuh"

namespace monge::cuda {
namespace {

constexpr int kWarps = 4, kThreads = 32 * kWarps, kTile = static_cast<int>(kTilePoints), kWordTiles = 32;
constexpr int kRows = Expansion::kBlockTiles;  // Rows of a lane.
constexpr unsigned kAllLanes = 0xffffffffu;

/// The monomials of kDimension coordinates up to degree kOrder. A monomial is followed by its products with its last
/// coordinate and with each later one, each of these by its own.
template <int kDimension>
struct Monomials {
  static constexpr int kOrder = Expansion::kOrder;
  /// The monomials of some coordinates up to a degree.
  static constexpr int count(int coordinates, int degree) {
    int result = 1;
    for (int k = 1; k <= coordinates; ++k) result = result * (degree + k) / k;
    return result;
  }
  static constexpr int kCount = count(kDimension, kOrder), kOfLane = (kCount - 1) / 32 + 1, kPadded = 32 * kOfLane;

  /// Calls visit(number, value, degree) for each monomial from number kAt on that `value`, a monomial of a degree,
  /// divides. times(value, k, power) is the product with coordinate k, which then has the given power.
  template <int kAt = 0, int kDegree = 0, int kLast = 0, int kPower = 0, class Value, class Times, class Visit>
  static __device__ __forceinline__ void walk(Value const& value, Times const& times, Visit const& visit) {
    visit(std::integral_constant<int, kAt>(), value, std::integral_constant<int, kDegree>());
    if constexpr (kDegree < kOrder) walk_from<kAt + 1, kDegree, kLast, kPower>(value, times, visit);
  }
  template <int kAt, int kDegree, int kNext, int kPower, class Value, class Times, class Visit>
  static __device__ __forceinline__ void walk_from(Value const& value, Times const& times, Visit const& visit) {
    if constexpr (kNext < kDimension) {
      walk<kAt, kDegree + 1, kNext, kPower + 1>(times(value, kNext, kPower + 1), times, visit);
      walk_from<kAt + count(kDimension - kNext, kOrder - kDegree - 1), kDegree, kNext + 1, 0>(value, times, visit);
    }
  }

  /// values[r] = sum over monomials of moments[number] x[r]^alpha, by Horner's rule.
  template <int kAt = 0, int kDegree = 0, int kLast = 0, class T>
  static __device__ __forceinline__ void evaluate(T const* moments, T const (&x)[kRows][kDimension],
                                                  T (&values)[kRows]) {
    T const moment = moments[kAt];
#pragma unroll
    for (int r = 0; r < kRows; ++r) values[r] = moment;
    if constexpr (kDegree < kOrder) add_from<kAt + 1, kDegree, kLast>(moments, x, values);
  }
  template <int kAt, int kDegree, int kNext, class T>
  static __device__ __forceinline__ void add_from(T const* moments, T const (&x)[kRows][kDimension],
                                                  T (&values)[kRows]) {
    if constexpr (kNext < kDimension) {
      T inner[kRows];
      evaluate<kAt, kDegree + 1, kNext>(moments, x, inner);
#pragma unroll
      for (int r = 0; r < kRows; ++r) values[r] = fused(x[r][kNext], inner[r], values[r]);
      add_from<kAt + count(kDimension - kNext, kOrder - kDegree - 1), kDegree, kNext + 1>(moments, x, values);
    }
  }
};

/// Leaves to lane l the sums over all lanes of the numbers from kPadded / 32 l on, in the first places.
template <int kMask = 16, int kPadded, class T>
__device__ __forceinline__ void sum_over_lanes(T (&numbers)[kPadded], int lane) {
  constexpr int kHalf = kPadded / 32 * kMask;
  bool const upper = (lane & kMask) != 0;
#pragma unroll
  for (int k = 0; k < kHalf; ++k) {
    T const sent = upper ? numbers[k] : numbers[k + kHalf];
    numbers[k] = (upper ? numbers[k + kHalf] : numbers[k]) + __shfl_xor_sync(kAllLanes, sent, kMask);
  }
  if constexpr (kMask > 1) sum_over_lanes<kMask / 2>(numbers, lane);
}

/// The blocks of a row of blocks that are expanded: each `parts`-th from number `part` on. All lanes together.
class ExpandedBlocks {
 public:
  __device__ ExpandedBlocks(ListedTiles const& tiles, int row, int part, float reach)
      : tiles_(tiles), reach_(reach), row_(row), skip_(part) {}
  /// The word of the next one, or -1.
  __device__ __forceinline__ int next() {
    for (;;) {
      while (open_ == 0) {
        if (loads_ == tiles_.bits.mark_words) return -1;
        load();
      }
      int const lane = __ffs(static_cast<int>(open_)) - 1;
      open_ &= open_ - 1;
      if (skip_ > 0) {
        --skip_;
        continue;
      }
      skip_ = tiles_.parts - 1;
      return (loads_ - 1) * 32 + lane;
    }
  }

 private:
  __device__ __forceinline__ void load() {
    constexpr int kRowsOfSquare = 32 / Expansion::kBlockTiles;
    int const word = loads_ * 32 + static_cast<int>(threadIdx.x) % 32, row_of_squares = row_ / kRowsOfSquare;
    TileBits const& bits = tiles_.bits;
    std::uint32_t const marks = bits.marks[static_cast<std::int64_t>(row_of_squares) * bits.mark_words + loads_];
    bool const found = (marks >> word % 32 & 1u) != 0 &&
                       is_expanded(tiles_, row_, word, square_at(bits, row_of_squares, word, marks), reach_);
    open_ = __ballot_sync(kAllLanes, found);
    ++loads_;
  }

  ListedTiles const& tiles_;
  float reach_;
  int row_, skip_, loads_ = 0;
  std::uint32_t open_ = 0;  // The lanes of the last load whose blocks are expanded.
};

/// T: the arithmetic; TPoint: the type of the points. In double the factors of a softmin are 1.
template <class T, class TPoint, int kDimension, bool kEvaluates>
__global__ void __launch_bounds__(kThreads) expanded_kernel(ListedArguments const arguments) {
  using Terms = Monomials<kDimension>;
  constexpr int kStride = kStrideOf<kDimension>;
  constexpr bool kFactors = !kEvaluates && sizeof(T) == 4;
  __shared__ T shared_moments[kWarps][kEvaluates ? 2 : 1][Terms::kPadded];
  __shared__ typename Powers<T>::Table table;
  ListedTiles const& tiles = arguments.tiles;
  int const warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  int const index = static_cast<int>(blockIdx.x) * kWarps + warp;
  int const block_row = index / tiles.parts, part = index % tiles.parts;
  start_next_kernel();
  wait_for_previous_kernel();
  Powers<T> const powers(table);
  __syncthreads();
  int const first_row = block_row * kRows * kTile;
  if (first_row >= tiles.rows.size) return;
  auto const* const row_points = static_cast<TPoint const*>(tiles.rows.points);
  auto const* const column_points = static_cast<TPoint const*>(tiles.columns.points);
  auto const* const logits = static_cast<T const*>(tiles.logits);
  auto const* const factors = static_cast<T const*>(tiles.factors);
  SweepParameters const& parameters = *arguments.parameters;
  double const constant = (parameters.constant[0] + parameters.constant[1]) * parameters.log2e_over_eps;
  T const c = static_cast<T>(arguments.factor * parameters.log2e_over_eps);
  double const lambda = -2 * arguments.factor / parameters.eps;
  T const root = static_cast<T>(sqrt(lambda)), of_square = static_cast<T>(2 / lambda);
  double const lower = 1 - tiles.expansion.error / 3;

  // Rows relative to the middle; the lane's part of the factors 1 / alpha! of moments, and of the degrees.
  T middle[kDimension], x[kRows][kDimension], inverse[Terms::kOfLane] = {}, degree[Terms::kOfLane] = {};
  double const* const row_box = tiles.expansion.row_boxes + box_size(tiles.rows.dimension) * block_row;
#pragma unroll
  for (int k = 0; k < kDimension; ++k) middle[k] = static_cast<T>(row_box[k]);
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    int const place = min(first_row + r * kTile + lane, tiles.rows.size - 1);
#pragma unroll
    for (int k = 0; k < kDimension; ++k)
      x[r][k] = static_cast<T>(row_points[static_cast<std::int64_t>(place) * kStride + k]) - middle[k];
  }
  Terms::walk(
      T(1), [](T value, int, int power) { return value / static_cast<T>(power); },
      [&](auto number, T value, auto of_degree) {
        if (number / Terms::kOfLane != lane) return;
        inverse[number % Terms::kOfLane] = value;
        degree[number % Terms::kOfLane] = T(of_degree());
      });

  T reference[kRows], total[kRows], compensation[kRows];
  double sum[kRows], cost[kRows];
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    reference[r] = kLowestReference<T>;
    total[r] = compensation[r] = 0;
    sum[r] = cost[r] = 0;
  }
  ExpandedBlocks blocks(tiles, block_row, part, reach_of(arguments));
  for (int word = blocks.next(); word >= 0; word = blocks.next()) {
    int const column_tiles = min(kWordTiles, tiles.columns.padded_size / kTile - word * kWordTiles);
    std::int64_t const first_column = static_cast<std::int64_t>(word) * kWordTiles * kTile + lane;
    double const* const column_box = tiles.expansion.column_boxes + box_size(tiles.rows.dimension) * word;
    T other_middle[kDimension], apart[kDimension];
#pragma unroll
    for (int k = 0; k < kDimension; ++k) {
      other_middle[k] = static_cast<T>(column_box[k]);
      apart[k] = middle[k] - other_middle[k];
    }
    // h_j + c |m - y_j|^2 and |m - y_j|^2, and v'_j.
    auto const read = [&](int tile, T(&v)[kDimension], T& square) {
      std::int64_t const column = first_column + tile * kTile;
      square = 0;
#pragma unroll
      for (int k = 0; k < kDimension; ++k) {
        T const y = static_cast<T>(column_points[column * kStride + k]), difference = middle[k] - y;
        square = fused(difference, difference, square);
        v[k] = root * (y - other_middle[k]);
      }
      return fused(c, square, logits[column]);
    };
    T largest = kEmptyLogit<T>;
#pragma unroll 4
    for (int tile = 0; tile < column_tiles; ++tile) {
      T v[kDimension], square;
      T const logit = read(tile, v, square);
      if (logit > largest || isnan(logit)) largest = logit;
    }
    if (!__any_sync(kAllLanes, !(largest <= kEmptyLogit<T> / 2))) continue;
    largest = warp_max(largest);

    T own[Terms::kOfLane];
    int const sets = kEvaluates && arguments.costs ? 2 : 1;
#pragma unroll 1
    for (int set = 0; set < sets; ++set) {
      T moments[Terms::kPadded] = {};
#pragma unroll 1
      for (int tile = 0; tile < column_tiles; ++tile) {
        T v[kDimension], square;
        T weight = powers(read(tile, v, square) - largest);
        if constexpr (kFactors) weight *= factors[first_column + tile * kTile];
        if (set == 1) weight *= square;
        Terms::walk(
            weight, [&](T value, int k, int) { return value * v[k]; },
            [&](auto number, T value, auto) { moments[number] += value; });
      }
      sum_over_lanes(moments, lane);
#pragma unroll
      for (int k = 0; k < Terms::kOfLane; ++k) {
        T moment = moments[k] * inverse[k];
        if (set == 0) own[k] = moment;
        if (set == 1) moment -= of_square * degree[k] * own[k];
        shared_moments[warp][set][lane * Terms::kOfLane + k] = moment;
      }
    }
    __syncwarp();
    T scaled[kRows][kDimension], shift[kRows], value[kRows];
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      shift[r] = 0;
#pragma unroll
      for (int k = 0; k < kDimension; ++k) {
        scaled[r][k] = root * x[r][k];
        shift[r] = fused(x[r][k], x[r][k] + 2 * apart[k], shift[r]);
      }
    }
    Terms::evaluate(shared_moments[warp][0], scaled, value);
    if constexpr (kEvaluates) {
      T of_costs[kRows] = {};
      if (sets == 2) Terms::evaluate(shared_moments[warp][1], scaled, of_costs);
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        int const place = first_row + r * kTile + lane;
        int const point = tiles.rows.point[min(place, tiles.rows.size - 1)];
        T const power = powers(fused(c, shift[r], arguments.row_logits[point] + constant + largest));
        sum[r] = fused(power, value[r], sum[r]);
        cost[r] = fused(power, fused(shift[r], value[r], of_costs[r]), cost[r]);
      }
    } else {
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        T const logit = fused(c, shift[r], largest), next = logit > reference[r] ? logit : reference[r];
        T const shrink = powers(reference[r] - next), added = value[r] * powers(logit - next);
        reference[r] = next;
        total[r] *= shrink;
        if constexpr (sizeof(T) == 4) {
          compensation[r] *= shrink;
          compensated_add(total[r], compensation[r], added);
        } else {
          total[r] += added;
        }
      }
    }
    __syncwarp();
  }
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    int const place = first_row + r * kTile + lane;
    if (place >= tiles.rows.size) return;
    std::int64_t const at =
        static_cast<std::int64_t>(tiles.parts + part) * tiles.rows.padded_size + tiles.rows.point[place];
    if constexpr (kEvaluates) {
      arguments.sums[at] = lower * sum[r];
      if (arguments.costs) arguments.costs[at] = lower * -arguments.factor * cost[r];
    } else {
      static_cast<PartialSum<T>*>(arguments.partials)[at] = {reference[r], static_cast<T>(lower) * total[r]};
    }
  }
}

template <class T, class TPoint, bool kEvaluates>
void launch(ListedArguments const& arguments, cudaStream_t stream) {
  int const rows = divided_up(arguments.tiles.rows.tiles(), Expansion::kBlockTiles);
  with_dimension(arguments.tiles.rows.dimension, [&]<int kDimension>() {
    if constexpr (kDimension <= Expansion::kMostDimensions)
      launch_chained(expanded_kernel<T, TPoint, kDimension, kEvaluates>,
                     divided_up(rows * arguments.tiles.parts, kWarps), kThreads, 0, stream, arguments);
  });
}

}  // namespace

Expansion Expansion::of(double const* row_boxes, double const* column_boxes, double error) {
  // Sums of the series, within error / 4, are multiplied by 1 - error / 3: (1 + error / 4) (1 - error / 3) < 1, and
  // (1 - error / 4) (1 - error / 3) (1 + error) > 1.
  double const goal = error / 4;
  double least = 0, most = 1;
  for (int halvings = 0; halvings < 40; ++halvings) {
    double const z = (least + most) / 2;
    (std::pow(z, kOrder + 1) / std::tgamma(kOrder + 2.0) * std::exp(z) <= goal ? least : most) = z;
  }
  return {.row_boxes = row_boxes, .column_boxes = column_boxes, .largest = least, .error = error};
}

void launch_expanded_sums(ListedArguments const& arguments, cudaStream_t stream) {
  bool const in_double = arguments.tiles.rows.scalar == DataType::float64;
  if (arguments.sums) {
    in_double ? launch<double, double, true>(arguments, stream) : launch<double, float, true>(arguments, stream);
  } else {
    in_double ? launch<double, double, false>(arguments, stream) : launch<float, float, false>(arguments, stream);
  }
}

}  // namespace monge::cuda
