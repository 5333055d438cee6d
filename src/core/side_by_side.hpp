// Calls on several host threads.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "core/parallel.hpp"

namespace monge {

/// Calls work(i) for each i < count on up to `threads` threads, also after an exception; then rethrows the first one in
/// order of i.
template <class Work>
void side_by_side(int threads, std::size_t count, Work&& work) {
  Failures failures;
  std::atomic<std::size_t> next = 0;
  on_team(threads, [&](int, int) {
    for (std::size_t i = next++; i < count; i = next++) failures.guard(static_cast<std::int64_t>(i), [&] { work(i); });
  });
  failures.rethrow();
}

}  // namespace monge
