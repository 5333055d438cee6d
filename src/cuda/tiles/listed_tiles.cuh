// What kernels over listed tiles share: a walk over the tiles of a tile of rows, squared distances, and the choice of
// the dimension.
#pragma once
#include "cuda/device/numerics.cuh"
#include "cuda/tiles/listed_pass.hpp"

namespace monge::cuda {

/// The set bits of the row of a tile in turn: each `parts`-th from number `part` on. All lanes of a warp together.
/// Little is kept in registers, which passes need.
class SetBits {
 public:
  __device__ SetBits(ListedTiles const& tiles, int row, int part) : tiles_(tiles), row_(row), skip_(part) {}
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
      std::int64_t const square = bits.first[at] + __popc(marks & ((1u << lane) - 1));
      own_ = marks >> lane & 1u ? bits.squares[square * 32 + row_ % 32] : 0u;
    }
    open_ = __ballot_sync(kAllLanes, own_ != 0);
    ++loads_;
  }

  ListedTiles const& tiles_;
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
