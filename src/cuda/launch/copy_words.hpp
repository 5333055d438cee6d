// Copies of words as launches of a queue, so that a batch may record them.
#pragma once
#include <cstdint>

#include "cuda/launch/queue.hpp"

namespace monge::cuda {

/// Copies within the device; `bytes` is a multiple of 8.
struct CopyArguments {
  std::uint64_t const* from;
  std::uint64_t* to;
  std::int64_t count;
};
void copy_words(void const* from, void* to, std::int64_t bytes, Queue const& queue);

}  // namespace monge::cuda
