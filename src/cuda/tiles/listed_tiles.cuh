// What kernels over listed tiles share: a walk over the tiles of a tile of rows, the choice of expanded blocks, squared
// distances, and the choice of the dimension.
#pragma once
#include "cuda/device/numerics.cuh"
#include "cuda/tiles/expanded_sums.hpp"
#include "geometry/tile_model.hpp"

namespace monge::cuda {

/// Elements between packed points.
template <int kDimension>
inline constexpr int kStrideOf = kDimension <= 2   ? kDimension
                                 : kDimension <= 4 ? 4
                                                   : 8;

/// The number of the marked square of a row of squares at `word`; `marks` is the word of its mark.
__device__ __forceinline__ std::int64_t square_at(TileBits const& bits, int row_of_squares, int word,
                                                  std::uint32_t marks) {
  std::int64_t const at = static_cast<std::int64_t>(row_of_squares) * bits.mark_words + word / 32;
  return bits.first[at] + __popc(marks & ((1u << word % 32) - 1));
}

/// The bound of <x - m, y - m'> for the points of a block that is expanded; 0: no block is expanded.
__device__ __forceinline__ float reach_of(ListedArguments const& arguments) {
  Expansion const& expansion = arguments.tiles.expansion;
  if (!expansion.is_on) return 0;
  return __double2float_rd(expansion.largest * arguments.parameters->eps / (2 * fabs(arguments.factor)));
}
/// Whether a block is expanded: enough of its pairs of tiles are listed, and sum_k (the product of the half sides of
/// its boxes) is below `reach`, so that <x - m, y - m'> is. No half side is above 2^16 sqrt(eps / 2 s), so the sixth
/// power of a coordinate in these units stays in the range of float32. An expanded block takes all its pairs.
__device__ __forceinline__ bool is_expanded(ListedTiles const& tiles, int block_row, int word, std::int64_t square,
                                            float reach) {
  constexpr int kFewestPairs = 32;
  static_assert(Expansion::kBlockTiles == 4);
  uint4 const rows = reinterpret_cast<uint4 const*>(tiles.bits.squares + square * 32)[block_row % 8];
  if (__popc(rows.x) + __popc(rows.y) + __popc(rows.z) + __popc(rows.w) < kFewestPairs) return false;
  int const d = tiles.rows.dimension;
  double const* const own = tiles.expansion.row_boxes + box_size(d) * block_row + d;
  double const* const others = tiles.expansion.column_boxes + box_size(d) * word + d;
  double most = 0, widest = 0;  // `widest`: the largest square of a half side.
  for (int k = 0; k < d; ++k) {
    most = fused(own[k], others[k], most);  // The same bits in all kernels.
    widest = fmax(widest, fmax(own[k] * own[k], others[k] * others[k]));
  }
  return most < reach && widest * tiles.expansion.largest < 0x1p32 * reach;
}

/// Goes over the set bits of the row of a tile: each `parts`-th from number `part` on. With kSkipsBlocks it leaves out
/// the bits of blocks that are expanded at `reach`. All lanes of a warp call it together. It keeps little in registers,
/// which passes need.
template <bool kSkipsBlocks = false>
class SetBits {
 public:
  __device__ SetBits(ListedTiles const& tiles, int row, int part, float reach = 0)
      : tiles_(tiles), reach_(reach), row_(row), skip_(part) {}
  /// The next bit, or -1.
  __device__ __forceinline__ int next() {
    for (;;) {
      while (bits_ == 0) {
        if (open_ == 0) {
          if (loads_ == (tiles_.near ? 1 : tiles_.bits.mark_words)) return -1;
          load();
          continue;
        }
        int const lane = __ffs(static_cast<int>(open_)) - 1;
        open_ &= open_ - 1;
        bits_ = __shfl_sync(kAllLanes, own_, lane);
        word_ = tiles_.near ? near_word(lane).word : (loads_ - 1) * 32 + lane;
      }
      int const count = __popc(bits_);
      if (skip_ >= count) {
        skip_ -= count;
        bits_ = 0;
        continue;
      }
      for (; skip_ > 0; --skip_) bits_ &= bits_ - 1;
      int const bit = __ffs(static_cast<int>(bits_)) - 1;
      bits_ &= bits_ - 1;
      skip_ = tiles_.parts - 1;
      return word_ * 32 + bit;
    }
  }

 private:
  static constexpr unsigned kAllLanes = 0xffffffffu;

  __device__ __forceinline__ NearWord near_word(int lane) const {
    return tiles_.near[static_cast<std::int64_t>(row_) * kNearWords + lane];
  }
  /// Each lane reads a word of bits: of the list of near tiles, or of one of the next 32 squares.
  __device__ __forceinline__ void load() {
    int const lane = static_cast<int>(threadIdx.x) % 32;
    if (tiles_.near) {
      own_ = lane < kNearWords ? near_word(lane).bits : 0u;
    } else {
      TileBits const& bits = tiles_.bits;
      std::int64_t const at = static_cast<std::int64_t>(row_ / 32) * bits.mark_words + loads_;
      std::uint32_t const marks = bits.marks[at];
      int const word = loads_ * 32 + lane;
      std::int64_t const square = square_at(bits, row_ / 32, word, marks);
      own_ = marks >> lane & 1u ? bits.squares[square * 32 + row_ % 32] : 0u;
      if constexpr (kSkipsBlocks) {
        if (reach_ > 0 && own_ != 0 && is_expanded(tiles_, row_ / Expansion::kBlockTiles, word, square, reach_))
          own_ = 0;
      }
    }
    open_ = __ballot_sync(kAllLanes, own_ != 0);
    ++loads_;
  }

  ListedTiles const& tiles_;
  float reach_;
  int row_, skip_, loads_ = 0, word_ = 0;        // The bits to skip, the loads so far, the number of the present word.
  std::uint32_t own_ = 0, open_ = 0, bits_ = 0;  // The word of the lane, the lanes with bits, the rest of the word.
};

/// |x - y|^2. The points of a side may be in float where the arithmetic is in double.
template <int kDimension, class T, class TPoint>
__device__ __forceinline__ T square_distance(T const* x, TPoint const* y) {
  T square = 0;
#pragma unroll
  for (int k = 0; k < kDimension; ++k) {
    T const difference = x[k] - static_cast<T>(y[k]);
    square = fused(difference, difference, square);
  }
  return square;
}

/// Calls launch.operator()<kDimension>() for the least number of coordinates that kernels have and that suffices. The
/// coordinates of points from their own dimension on are zero.
template <class Launch>
void with_dimension(int dimension, Launch const& launch) {
  if (dimension <= 1) return launch.template operator()<1>();
  if (dimension <= 2) return launch.template operator()<2>();
  if (dimension <= 3) return launch.template operator()<3>();
  if (dimension <= 4) return launch.template operator()<4>();
  if (dimension <= 6) return launch.template operator()<6>();
  launch.template operator()<8>();
}

}  // namespace monge::cuda
