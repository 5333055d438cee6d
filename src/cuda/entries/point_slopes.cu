#include "cuda/entries/point_slopes.hpp"

#include <algorithm>

#include "cuda/entries/point_slopes.cuh"
#include "cuda/launch/generation.hpp"
#include "cuda/launch/occupancy.hpp"
#include "cuda/launch/sizes.hpp"
#include "cuda/runtime/check.hpp"

namespace monge::cuda {
namespace {

static_assert(slope_shared_bytes<float, true>(4 * kTileChunk) <= kLeastSharedBytes);
static_assert(slope_shared_bytes<double, true>(4 * kTileChunk) <= kLeastSharedBytes);

/// Calls function.operator()<T, whether points move>(groups of coordinates, bytes of shared memory).
template <class Function>
void with_kernel(PointSlopesArguments const& given, Function&& function) {
  int const dimension = given.rows.dimension;
  auto const call = [&]<class T, bool kMoves>() {
    function.template operator()<T, kMoves>(divided_up(dimension, kSlopeGroup<T>),
                                            slope_shared_bytes<T, kMoves>(dimension));
  };
  auto const of_type = [&]<class T>() {
    given.motion.own ? call.template operator()<T, true>() : call.template operator()<T, false>();
  };
  given.rows.scalar == DataType::float32 ? of_type.template operator()<float>() : of_type.template operator()<double>();
}

}  // namespace

int point_slopes_parts(PointSlopesArguments const& given, int multiprocessors) {
  int parts = 1;
  with_kernel(given, [&]<class T, bool kMoves>(int groups, int shared_bytes) {
    constexpr int kLeastTiles = 8;  // The store of a tile of sums then takes a small part of the time.
    int const blocks =
        multiprocessors * occupancy_of(point_slopes_kernel<T, kMoves>, kTileThreads, shared_bytes).resident_blocks;
    int const tiles = std::max(given.rows.padded_size / kTileRows, 1);
    parts = std::clamp(blocks / tiles / groups, 1, std::max(given.columns.padded_size / kTileColumns / kLeastTiles, 1));
  });
  return parts;
}

void launch_point_slopes(PointSlopesArguments const& given, cudaStream_t stream) {
  with_kernel(given, [&]<class T, bool kMoves>(int groups, int shared_bytes) {
    dim3 const grid(static_cast<unsigned>(given.rows.padded_size / kTileRows), static_cast<unsigned>(groups),
                    static_cast<unsigned>(given.parts));
    point_slopes_kernel<T, kMoves><<<grid, kTileThreads, shared_bytes, stream>>>(given);
    MONGE_CUDA_TRY(cudaGetLastError());
  });
}

}  // namespace monge::cuda
