// Sizes of arrays and of launches.
#pragma once
#include <cstdint>
#include <string>

#include <monge/error.hpp>

namespace monge::cuda {

/// count / each, rounded up; count >= 1.
inline int divided_up(std::int64_t count, std::int64_t each) {
  return static_cast<int>((count - 1) / each + 1);
}

/// Kernels on points have one thread for each point, in blocks of this size.
inline constexpr int kVectorThreads = 128;
inline int vector_blocks(int size) {
  return divided_up(size, kVectorThreads);
}

inline std::int64_t round_up(std::int64_t value, std::int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

/// The most pairs of a small problem: it leaves a part of the device idle.
inline constexpr std::int64_t kMostPairsOfLane = std::int64_t{1} << 22;

/// The most coordinates of ScoreKernel::difference.
inline constexpr int kLargestDifferenceDimension = 8;

/// Elements between fp16 parts of vectors with `dimension` coordinates: whole chunks of the tensor-core kernels.
inline int half_stride_of(int dimension) {
  return dimension <= 16 ? 16 : static_cast<int>(round_up(dimension, 32));
}

/// `size` as int; throws unsupported, naming `field`, if it is too large.
inline int checked_size(char const* field, std::int64_t size) {
  // Loops over points have an int as index, which they advance by less than this.
  constexpr std::int64_t kStep = std::int64_t{1} << 20;
  if (size > (std::int64_t{1} << 31) - kStep)
    throw Error(ErrorCode::unsupported, std::string(field) + ": is " + std::to_string(size) +
                                            "; CUDA supports at most 2^31 - 2^20 points, dimensions and columns");
  return static_cast<int>(size);
}

}  // namespace monge::cuda
