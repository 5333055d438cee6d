// Rules by which every backend draws pairs (i, j) from a plan.
//
//   Draw number k is made of the k-th block of a counter-based generator: it depends on seed and k alone.
//   i: the first row whose marginals, summed from row 0 on in float64, exceed u sum P.
//   j: the first column whose shares of row i, summed over tiles of columns in float64, exceed v times their sum.
//
// Two backends differ by the rounding of marginals and shares: their pairs differ where u or v falls between the two
// values of a boundary.
#pragma once
#include <cmath>
#include <cstdint>
#include <limits>

#include "core/host_device.hpp"

namespace monge {

/// Four words of 32 bits.
struct PhiloxBlock {
  std::uint32_t word[4];
};

/// Philox 4x32-10 of Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3" (2011).
MONGE_HOST_DEVICE inline PhiloxBlock philox(PhiloxBlock counter, std::uint32_t key0, std::uint32_t key1) {
  for (int round = 0; round < 10; ++round) {
    std::uint64_t const first = std::uint64_t{0xD2511F53u} * counter.word[0];
    std::uint64_t const second = std::uint64_t{0xCD9E8D57u} * counter.word[2];
    counter = {{static_cast<std::uint32_t>(second >> 32) ^ counter.word[1] ^ key0, static_cast<std::uint32_t>(second),
                static_cast<std::uint32_t>(first >> 32) ^ counter.word[3] ^ key1, static_cast<std::uint32_t>(first)}};
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  return counter;
}

/// Odd multiples of 2^-53: never 0 or 1, and exact in float64.
struct Draw {
  double row, column;
};
MONGE_HOST_DEVICE inline Draw draw(std::uint64_t seed, std::uint64_t number) {
  PhiloxBlock const counter{{static_cast<std::uint32_t>(number), static_cast<std::uint32_t>(number >> 32), 0, 0}};
  PhiloxBlock const block = philox(counter, static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32));
  auto const uniform = [](std::uint32_t high, std::uint32_t low) {
    std::uint64_t const bits = (std::uint64_t{high} << 32 | low) >> 12;
    return (static_cast<double>(bits) + 0.5) * 0x1p-52;
  };
  return {uniform(block.word[0], block.word[1]), uniform(block.word[2], block.word[3])};
}

/// Columns of a tile. A search goes through the sums of tiles first, then through the columns of one tile.
inline constexpr int kSampleTile = 32;

/// Whether a sum of weights is finite and > 0.
MONGE_HOST_DEVICE inline bool can_be_drawn_from(double total) {
  return total > 0 && total <= std::numeric_limits<double>::max();
}

/// Throws unless pairs can be drawn. `total` is sum P.
void require_mass(double total);
/// Throws unless lost_rows is 0. A lost row has mass and draws, but no shares in the precision of the plan.
void require_shares(double lost_rows);

/// share * total, but below `total` even after rounding.
MONGE_HOST_DEVICE inline double sample_target(double share, double total) {
  return std::fmin(share * total, std::nextafter(total, 0.0));
}

/// The first i with sums_i > target; `count` if there is none.
MONGE_HOST_DEVICE inline std::int64_t first_above(double const* sums, std::int64_t count, double target) {
  std::int64_t low = 0, high = count;
  while (low < high) {
    std::int64_t const middle = (low + high) / 2;
    if (sums[middle] > target) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low;
}

/// The first of `count` columns at which the sum, which starts from `before`, exceeds the target. If rounding keeps the
/// sum from it, the last column that has a share.
template <class Share>
MONGE_HOST_DEVICE int column_above(int count, double before, double target, Share const& share) {
  int last = 0;
  for (int j = 0; j < count; ++j) {
    double const term = share(j);
    if (term <= 0) continue;
    last = j;
    before += term;
    if (before > target) break;
  }
  return last;
}

}  // namespace monge
