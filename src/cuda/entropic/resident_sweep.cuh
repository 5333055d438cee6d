// Many sweeps of a small problem in one launch, with the scores of all pairs in shared memory throughout.
//
// The kernel has the formulas of passes and updates (cuda/pass/pass_tile.cuh, cuda/sweep/update.cu):
//   half-step  f+_i = norm_i - eps ln2 (M_i + log2 sum_j beta_j 2^(t_ij - M_i)),   t_ij = h_j + c score_ij
//   update     f_i from f+_i, and the logit h_i that follows
//
// Tiling: the scores of a problem are divided in tiles, one for each block of 128 threads. The grid is on the device at
//   once; in a launch for many problems a block takes tiles of several problems one after the other. A block computes
//   the scores of a tile once. For a half-step a thread takes a row of the tile, or half of one (for the other
//   side a column), first for the largest logit and then for the sum. A half-step ends at a barrier of the problem's
//   blocks. Before it a block leaves the sums of its points. After it a block joins the sums of its own points from all
//   blocks and updates them itself, so potentials need no second barrier: blocks with the same points compute the same
//   bits. A symmetric sweep, and one of a self problem, has one barrier. Two sets of sums take turns in memory, since a
//   block may still read one while another writes the next.
// Traffic: the points once a launch; two numbers for each point and tile, from and to the L2 cache, a half-step.
// Numerics: 16 terms are added in T, all others in double, in a fixed order. Potentials are double.
//
// From Generation::sm_90 on; the kernel is empty before.
#pragma once
#include "cuda/device/grid.cuh"
#include "cuda/device/score_tile.cuh"
#include "cuda/device/source.cuh"
#include "cuda/device/sums.cuh"
#include "cuda/entropic/resident_sweep.hpp"
#include "cuda/sweep/potential.cuh"

namespace monge::cuda {

/// Whether the coordinates of a tile lie where its scores will be. Threads hold the scores of the smallest tile until
/// all coordinates are read.
MONGE_HOST_DEVICE inline bool has_overlaid_coordinates(int rows, int columns) {
  return rows == kTileRows && columns == kTileColumns;
}

/// The arrays of a tile in shared memory: the scores, and behind them first the coordinates, then logits and sums.
template <class T>
struct ResidentSweepTile {
  unsigned char* memory;
  T* scores;  // [rows][columns + 1]: neither rows nor columns meet in a bank.
  unsigned char* rest;
  T* logits[2];  // Logits of the rows and of the columns.
  float* factors[2];
  double* sums;   // Sums of the second halves of rows or columns,
  T* references;  // and their references.

  MONGE_HOST_DEVICE static int score_bytes(int rows, int columns) {
    return rows * (columns + 1) * static_cast<int>(sizeof(T));
  }
  MONGE_HOST_DEVICE static int rest_bytes(int rows, int columns) {
    return (rows + columns) * static_cast<int>(sizeof(T) + sizeof(float)) +
           kTileThreads * static_cast<int>(sizeof(double) + sizeof(T));
  }
  __device__ __forceinline__ ResidentSweepTile(unsigned char* shared, int rows, int columns) : memory(shared) {
    auto const take = [&]<class U>(U*& pointer, int count) {
      pointer = reinterpret_cast<U*>(shared);
      shared += count * sizeof(U);
    };
    take(scores, rows * (columns + 1));
    rest = shared;
    take(sums, kTileThreads);
    take(logits[0], rows);
    take(logits[1], columns);
    take(references, kTileThreads);
    take(factors[0], rows);
    take(factors[1], columns);
  }
};

/// A block's tile in the problem, and a thread's point of each side.
struct ResidentSweepPlace {
  int tile[2];   // Number of the tile.
  int first[2];  // First point.

  __device__ __forceinline__ ResidentSweepPlace(ResidentSweepArguments const& arguments, int block) {
    tile[0] = block / arguments.tiles[1];
    tile[1] = block % arguments.tiles[1];
    for (int s = 0; s < 2; ++s) first[s] = tile[s] * arguments.tile[s];
  }
};

template <class T, ScoreForm kForm>
__device__ __forceinline__ void make_scores(ResidentSweepArguments const& arguments, ResidentSweepPlace const& place,
                                            ResidentSweepTile<T> const& tile) {
  int const stride = arguments.tile[1] + 1;
  bool const overlaid = has_overlaid_coordinates(arguments.tile[0], arguments.tile[1]);
  for (int row = 0; row < arguments.tile[0]; row += kTileRows) {
    Segment const segment{
        place.first[0] + row, place.first[1] / kTileColumns, arguments.tile[1] / kTileColumns, 0, 0, 0};
    TileScores<T, kForm> scores(overlaid ? tile.memory : tile.rest, arguments.scores, segment);
    for (int t = 0; t < segment.tiles; ++t) {
      ThreadScores<T> score;
      scores.next(score);
      if (overlaid) __syncthreads();  // All threads have read the coordinates.
      T* const to = tile.scores + (row + thread_row()) * stride + t * kTileColumns + thread_column();
#pragma unroll
      for (int r = 0; r < kThreadRows; ++r) {
#pragma unroll
        for (int c = 0; c < kThreadColumns; ++c) to[row_offset(r) * stride + column_offset(c)] = score[r][c];
      }
    }
    __syncthreads();  // The next rows use the memory of these, as do logits.
  }
}

/// Leaves the sums of the tile's rows (kSide 0) or columns (1) in memory. Ends with no barrier.
template <int kSide, class T>
__device__ __forceinline__ void leave_sums(ResidentSweepArguments const& arguments, ResidentSweepPlace const& place,
                                           ResidentSweepTile<T> const& tile, T multiplier, int turn) {
  constexpr int kTerms = 16;
  int const points = arguments.tile[kSide], others = arguments.tile[1 - kSide], parts = kTileThreads / points;
  int const thread = static_cast<int>(threadIdx.x), point = thread % points, part = thread / points;
  int const stride = arguments.tile[1] + 1, step = kSide == 0 ? 1 : stride, count = others / parts;
  T const* const scores = tile.scores + point * (kSide == 0 ? stride : 1) + part * count * step;
  T const* const logits = tile.logits[1 - kSide] + part * count;
  float const* const factors = tile.factors[1 - kSide] + part * count;

  T reference = kLowestReference<T>;
  for (int first = 0; first < count; first += kTerms) {
#pragma unroll
    for (int k = first; k < first + kTerms; ++k) {
      T const t = fused(multiplier, scores[k * step], logits[k]);
      reference = t > reference ? t : reference;
    }
  }
  double sum = 0;
  for (int first = 0; first < count; first += kTerms) {
    T terms = 0;
#pragma unroll
    for (int k = first; k < first + kTerms; ++k) {
      T const power = power_of_two(fused(multiplier, scores[k * step], logits[k]) - reference);
      if constexpr (sizeof(T) == 4) {
        terms = fused(factors[k], power, terms);
      } else {
        terms += power;
      }
    }
    sum += static_cast<double>(terms);
  }
  if (parts == 2) {
    __syncthreads();  // An earlier call may still read.
    tile.references[thread] = reference;
    tile.sums[thread] = sum;
    __syncthreads();
    if (part > 0) return;
    T const other = tile.references[thread + points], next = other > reference ? other : reference;
    sum = sum * static_cast<double>(power_of_two(reference - next)) +
          tile.sums[thread + points] * static_cast<double>(power_of_two(other - next));
    reference = next;
  }
  ResidentSweepArguments::OfSide const& side = arguments.side[kSide];
  std::int64_t const slot = turn * arguments.tiles[1 - kSide] + place.tile[1 - kSide];
  static_cast<PartialSum<T>*>(side.partials)[slot * side.points.padded_size + place.first[kSide] + point] = {
      reference, static_cast<T>(sum)};
}

/// The thread's point of one side of the tile.
template <class T>
class ResidentPoint {
 public:
  /// `tile_side`: 0 for the rows of the tile, 1 for its columns. A self problem has the data of its rows for both.
  __device__ __forceinline__ ResidentPoint(ResidentSweepArguments const& arguments, ResidentSweepPlace const& at,
                                           ResidentSweepTile<T> const& tile, int tile_side)
      : arguments_(arguments),
        side_(arguments.is_self ? 0 : tile_side),
        number_(at.first[tile_side] + static_cast<int>(threadIdx.x)),
        logits_{tile.logits[tile_side], tile.factors[tile_side]},
        is_in_tile_(static_cast<int>(threadIdx.x) < arguments.tile[tile_side]),
        is_real_(is_in_tile_ && number_ < arguments.side[side_].points.size) {
    OfSide const& of = arguments.side[side_];
    if (is_real_) {
      PointConstants const constants(of.points, number_);
      norm_ = constants.norm;
      weight_ = constants.weight;
      log_weight_ = constants.log_weight;
      shift_ = constants.shift;
      potential_ = of.potential[number_];
    }
    make_logit();
  }

  /// Joins the sums of all blocks and moves the potential. Returns the error before.
  __device__ __forceinline__ ErrorSums update(int turn) {
    ErrorSums error;
    if (!is_real_) return error;
    SweepParameters const& parameters = arguments_.parameters;
    T reference;
    double sum;
    join(turn, reference, sum);
    double const plus = softmin_value(norm_, parameters, side_, reference, sum);
    UpdateRule const rule{parameters.eps, arguments_.side[side_].points.penalty, parameters.relaxation,
                          arguments_.symmetric};
    if (weight_ > 0) {
      error.add(weight_ * rule.error(potential_, plus, shift_));
      potential_ = rule.next(potential_, plus, shift_);
    }
    make_logit();
    return error;
  }

  __device__ __forceinline__ void store(double* potentials) const {
    if (is_real_) potentials[number_] = potential_;
  }

 private:
  using OfSide = ResidentSweepArguments::OfSide;

  __device__ __forceinline__ void make_logit() const {
    if (!is_in_tile_) return;
    SweepParameters const& parameters = arguments_.parameters;
    bool const counts = weight_ > 0;
    double const logit =
        counts ? log_weight_ + (potential_ - norm_ - parameters.constant[side_]) * parameters.log2e_over_eps : 0.0;
    store_logit<T>(logits_, static_cast<int>(threadIdx.x), counts, logit);
  }

  __device__ __forceinline__ void join(int turn, T& reference, double& sum) const {
    OfSide const& of = arguments_.side[side_];
    int const slots = arguments_.tiles[1 - side_];
    std::int64_t const stride = of.points.padded_size;
    auto const* const partials = static_cast<PartialSum<T> const*>(of.partials) + turn * slots * stride + number_;
    join_partials(
        slots, kLowestReference<T>, [&](int s) { return load_past_l1(partials + s * stride); }, reference, sum);
  }
  __device__ __forceinline__ static PartialSum<float> load_past_l1(PartialSum<float> const* from) {
    float2 const v = __ldcg(reinterpret_cast<float2 const*>(from));
    return {v.x, v.y};
  }
  __device__ __forceinline__ static PartialSum<double> load_past_l1(PartialSum<double> const* from) {
    double2 const v = __ldcg(reinterpret_cast<double2 const*>(from));
    return {v.x, v.y};
  }

  ResidentSweepArguments const& arguments_;
  int side_, number_;
  LogitArrays logits_;
  bool is_in_tile_, is_real_;
  double norm_ = 0, weight_ = 0, log_weight_ = 0, shift_ = 0, potential_ = 0;
};

/// All sweeps of one tile. All blocks of its problem are at work until each of them has ended.
template <class T, ScoreForm kForm>
__device__ __forceinline__ void sweep_tile(ResidentSweepArguments const& arguments, int block, unsigned char* shared) {
  ResidentSweepPlace const place(arguments, block);
  ResidentSweepTile<T> const tile(shared, arguments.tile[0], arguments.tile[1]);
  make_scores<T, kForm>(arguments, place, tile);
  T const multiplier = static_cast<T>(arguments.scores.factor * arguments.parameters.log2e_over_eps);
  ResidentPoint<T> rows(arguments, place, tile, 0), columns(arguments, place, tile, 1);
  __syncthreads();

  unsigned const blocks = static_cast<unsigned>(arguments.tiles[0] * arguments.tiles[1]);
  unsigned arrivals = arguments.arrivals;
  auto const barrier = [&] { barrier_of_blocks(arguments.arrived, arrivals += blocks); };
  // Blocks of the first tile of the other side have the results of a point; the others repeat them.
  bool const leaves[2] = {!arguments.is_self && place.tile[1] == 0, place.tile[0] == 0};
  auto const update = [&](ResidentPoint<T>& point, int side, int sweep) {
    ErrorSums const error = point.update(sweep % 2);
    __syncthreads();
    if (sweep + 1 < arguments.count || !leaves[side]) return;
    store_errors<kTileThreads>(error, arguments.side[arguments.is_self ? 0 : side].errors + 2 * place.tile[side]);
    __syncthreads();  // The next call uses the same memory.
  };
  for (int sweep = 0; sweep < arguments.count; ++sweep) {
    leave_sums<0>(arguments, place, tile, multiplier, sweep % 2);
    if (arguments.symmetric && !arguments.is_self) leave_sums<1>(arguments, place, tile, multiplier, sweep % 2);
    barrier();
    if (!arguments.is_self) update(rows, 0, sweep);
    if (!arguments.symmetric && !arguments.is_self) {
      leave_sums<1>(arguments, place, tile, multiplier, sweep % 2);
      barrier();
    }
    update(columns, 1, sweep);
  }
  if (leaves[0]) rows.store(arguments.side[0].potential);
  if (leaves[1]) columns.store(arguments.side[1].potential);
  if (leaves[1] && arguments.is_self) columns.store(arguments.side[0].potential);
}

/// Blocks on a multiprocessor for which registers must do: of many problems some wait at a barrier while others work.
/// Distances take too many registers for that.
template <class T, ScoreForm kForm, class Source>
inline constexpr int kResidentSweepBlocks = kForm == ScoreForm::distances ? 1 : (kOfMany<Source> ? 24 : 16) / sizeof(T);

/// A cooperative launch of kTileThreads threads. Tiles are 64 or 128 points high and wide. `tiles`: the number of
/// tiles of all problems, which stand problem after problem. A block takes every gridDim.x-th tile. No problem has
/// more tiles than the grid has blocks, so a block that waits for others waits for tiles that come before its own next
/// one.
template <class T, ScoreForm kForm, class Source>
__global__ void __launch_bounds__(kTileThreads, (kResidentSweepBlocks<T, kForm, Source>))
    resident_sweep_kernel(Source const source, unsigned const tiles) {
#if __CUDA_ARCH__ >= 900
  extern __shared__ __align__(16) unsigned char shared[];
  for (unsigned at = blockIdx.x; at < tiles; at += gridDim.x) {
    Slice<ResidentSweepArguments> const slice = slice_of(source, at);
    sweep_tile<T, kForm>(slice.arguments, slice.block, shared);
    __syncthreads();  // The next tile uses the same memory.
  }
#endif
}

}  // namespace monge::cuda
