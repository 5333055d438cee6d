// How many threads a pass over pairs is worth, and problems side by side.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <vector>

namespace monge::cpu {

/// Below this many pairs (some 40 us) a thread has not much more to do than starting and joining a team costs.
inline constexpr double kPairsPerThread = 1 << 17;

/// Of `threads`, those that n x m pairs keep busy.
inline int useful_threads(int threads, std::int64_t n, std::int64_t m) {
  double const pairs = static_cast<double>(n) * static_cast<double>(m);
  return static_cast<int>(std::clamp(pairs / kPairsPerThread, 1.0, static_cast<double>(threads)));
}

/// Calls work(i) for each i < count, on up to `threads` threads; then throws what the first that failed threw.
template <class Work>
void side_by_side(int threads, std::size_t count, Work&& work) {
  std::vector<std::exception_ptr> failures(count);
#pragma omp parallel for schedule(dynamic) num_threads(threads)
  for (std::size_t i = 0; i < count; ++i) {
    try {
      work(i);
    } catch (...) {
      failures[i] = std::current_exception();
    }
  }
  for (std::exception_ptr const& failure : failures) {
    if (failure) std::rethrow_exception(failure);
  }
}

}  // namespace monge::cpu
