// The number of threads for a pass over pairs.
#pragma once
#include <algorithm>
#include <cstdint>

namespace monge::cpu {

/// A thread with fewer pairs (about 40 us) works hardly longer than it takes to start and join a team.
inline constexpr double kPairsPerThread = 1 << 17;

/// The number of threads, of `threads` available, that n x m pairs keep busy.
inline int useful_threads(int threads, std::int64_t n, std::int64_t m) {
  double const pairs = static_cast<double>(n) * static_cast<double>(m);
  return static_cast<int>(std::clamp(pairs / kPairsPerThread, 1.0, static_cast<double>(threads)));
}

}  // namespace monge::cpu
