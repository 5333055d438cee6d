// Point clouds on the host: finding the first value that is not finite, and the centre of a cloud.
#pragma once
#include <span>
#include <vector>

#include <monge/array.hpp>
#include <monge/geometry.hpp>

#include "core/side.hpp"

namespace monge {

/// Throws invalid_argument "x: row 3, column 1 is nan; coordinates must be finite".
[[noreturn]] void throw_not_finite(char const* field, std::int64_t row, std::int64_t column, double value,
                                   char const* entries = "coordinates");

/// The mean of the points under `weights` (all positive where empty), float64, of a cloud in host memory. Throws if a
/// coordinate is not finite. Rows of weight zero do not move the centre, so far outliers of no mass cost no digits.
std::vector<double> centre_of(char const* field, MatrixView points, std::span<double const> weights);

/// The mean of |x_i - centre|^2 under `weights`, in float64 from the caller's coordinates.
double mean_squared_distance(MatrixView points, std::span<double const> centre, std::span<double const> weights);

/// Whether no point of a cloud in host memory is far from the others: no side of the box of all points is longer than
/// 11 standard deviations. Coarse clouds tell little about the potential of a far point (bench/notes/multiscale.md).
bool is_compact(MatrixView points, int threads);

/// <x_i - centre, w> for each point, in float64 from the caller's coordinates: rounded coordinates would add |w| times
/// their rounding to the potentials.
std::vector<double> centred_products(MatrixView points, std::span<double const> centre, std::span<double const> w);

/// The clouds with every stride-th point of one side, from the first on, and its label.
PointCloud every(PointCloud const& clouds, Side side, std::int64_t stride);

/// Whether x and y are the same points with the same labels. Host memory is compared element by element; in device
/// memory both must be the same memory, since a comparison would wait for the device. False for a cost matrix.
bool is_cloud_with_itself(Geometry const& geometry);

}  // namespace monge
