// How many threads a pass over pairs is worth.
#pragma once
#include <algorithm>
#include <cstdint>

namespace monge::cpu {

/// Below this many pairs (some 40 us) a thread has not much more to do than starting and joining a team costs.
inline constexpr double kPairsPerThread = 1 << 17;

/// Of `threads`, those that n x m pairs keep busy.
inline int useful_threads(int threads, std::int64_t n, std::int64_t m) {
  double const pairs = static_cast<double>(n) * static_cast<double>(m);
  return static_cast<int>(std::clamp(pairs / kPairsPerThread, 1.0, static_cast<double>(threads)));
}

}  // namespace monge::cpu
