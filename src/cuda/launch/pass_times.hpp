// Times of passes on a CUDA device, by its rates. Without CUDA headers: the choices of any device can be tested
// anywhere.
#pragma once
#include <algorithm>

#include "cuda/launch/sizes.hpp"
#include "geometry/point_cost.hpp"
#include "geometry/validation.hpp"
#include "seam/backend.hpp"

namespace monge::cuda {

struct DeviceRates {
  int multiprocessors = 132;
  int float64_ratio = 2;  // Float32 operations in the time of one in float64: 2 on an H200, 64 on most graphics cards.
};

/// From microseconds on an H200 for a launch of each half-step and for a million pairs.
inline PassTimes pass_times(Geometry const& geometry, DeviceRates const& device) {
  auto const [rows, columns, dimension] = shape_of(geometry);  // A matrix has dimension 0.
  bool const is_distance = terms_of(geometry).is_distance();
  constexpr DeviceRates kH200;
  double const millions =
      1e-6 * static_cast<double>(rows) * static_cast<double>(columns) * kH200.multiprocessors / device.multiprocessors;
  double const d = static_cast<double>(dimension), slower = device.float64_ratio / double{kH200.float64_ratio};
  double const of_million =
      is_distance && dimension > kLargestDifferenceDimension ? 1.5 + 0.1 * d : std::max(d > 0 ? 1.1 : 2.0, 0.025 * d);
  double const in_float32 = 18 + millions * of_million;
  double const in_float64 = 20 + millions * slower * std::max(4.7, (is_distance ? 0.24 : 0.12) * d);
  constexpr double kMixing = 35;
  // A thread of a CPU takes 3 ns for each pair in a pass of Newton's method; a device mostly waits for its host.
  constexpr std::int64_t kMostPairsOnHost = 1 << 17;
  return {.float64 = in_float64 / in_float32,
          .newton = (200 + 0.65 * in_float64) / in_float32,
          .check = 60 / in_float32,
          .newton_on_host = rows * columns <= kMostPairsOnHost && !terms_of(geometry).has_labels(),
          .mixes = kMixing < 1.6 * in_float32,
          .mixing = kMixing / in_float32};
}

}  // namespace monge::cuda
