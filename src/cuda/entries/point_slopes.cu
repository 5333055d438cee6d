#include "cuda/entries/point_slopes.hpp"

#include <algorithm>

#include "cuda/device/points.cuh"
#include "cuda/device/strided.cuh"
#include "cuda/entries/point_slopes.cuh"
#include "cuda/launch/generation.hpp"
#include "cuda/launch/occupancy.hpp"
#include "cuda/launch/sizes.hpp"
#include "cuda/runtime/check.hpp"

namespace monge::cuda {
namespace {

static_assert(slope_shared_bytes<float>(4 * kTileChunk) <= kLeastSharedBytes);
static_assert(slope_shared_bytes<double>(4 * kTileChunk) <= kLeastSharedBytes);

/// Calls function.operator()<T>(groups of coordinates, bytes of shared memory).
template <class Function>
void with_scalar(Operand const& rows, Function&& function) {
  auto const call = [&]<class T>() {
    function.template operator()<T>(divided_up(rows.dimension, kSlopeGroup<T>), slope_shared_bytes<T>(rows.dimension));
  };
  rows.scalar == DataType::float32 ? call.template operator()<float>() : call.template operator()<double>();
}

}  // namespace

int point_slopes_parts(Operand const& rows, Operand const& columns, int multiprocessors) {
  int parts = 1;
  with_scalar(rows, [&]<class T>(int groups, int shared_bytes) {
    constexpr int kLeastTiles = 8;  // The store of a tile of sums then takes a small part of the time.
    int const blocks =
        multiprocessors * occupancy_of(point_slopes_kernel<T>, kTileThreads, shared_bytes).resident_blocks;
    int const tiles = std::max(rows.padded_size / kTileRows, 1);
    parts = std::clamp(blocks / tiles / groups, 1, std::max(columns.padded_size / kTileColumns / kLeastTiles, 1));
  });
  return parts;
}

void launch_point_slopes(PointSlopesArguments const& arguments, cudaStream_t stream) {
  with_scalar(arguments.rows, [&]<class T>(int groups, int shared_bytes) {
    dim3 const grid(static_cast<unsigned>(arguments.rows.padded_size / kTileRows), static_cast<unsigned>(groups),
                    static_cast<unsigned>(arguments.parts));
    point_slopes_kernel<T><<<grid, kTileThreads, shared_bytes, stream>>>(arguments);
    MONGE_CUDA_TRY(cudaGetLastError());
  });
}

void direction_slopes(DirectionSlopesArguments const& arguments, cudaStream_t stream) {
  for_each_point(arguments.size, stream, [arguments] __device__(int i) {
    double const* const sums = arguments.sums + static_cast<std::int64_t>(i) * (1 + arguments.dimension);
    double* const out = arguments.out + static_cast<std::int64_t>(i) * arguments.dimension;
    auto const direction = [&](int k) {
      return arguments.own_centre[k] + load_element(arguments.directions, i * arguments.directions.stride + k);
    };
    double square = 0, along = 0;
    for (int k = 0; k < arguments.dimension; ++k) {
      double const coordinate = arguments.centre[k] + load_element(arguments.points, i * arguments.points.stride + k);
      double const apart = load_element(arguments.directions, i * arguments.directions.stride + k);
      // The difference of the centres first: directions that are all alike then cost no digits.
      out[k] = sums[1 + k] + sums[0] * (arguments.far_centre[k] - arguments.own_centre[k] - apart);
      square += coordinate * coordinate;
      along += out[k] * direction(k);
    }
    for (int k = 0; k < arguments.dimension; ++k)
      out[k] = arguments.factor * (out[k] - along * direction(k)) / sqrt(square);
  });
}

}  // namespace monge::cuda
