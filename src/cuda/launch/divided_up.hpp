// The number of pieces that cover a count.
#pragma once
#include <cstdint>

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

}  // namespace monge::cuda
