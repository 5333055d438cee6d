// Numbers of the caller whose values matter on the host.
#pragma once
#include <cstdint>
#include <vector>

#include <monge/array.hpp>
#include <monge/options.hpp>

#include "seam/backend.hpp"

namespace monge {

/// The values of `view` as float64. Throws unless the view is valid and has `size` entries, each within the bounds.
/// `must` begins the requirement in messages: "weights must be". Waits for the device if the vector lies there.
std::vector<double> read_values(char const* field, Backend const& backend, VectorView view, std::int64_t size,
                                Bounds const& bounds, char const* must);

/// Labels as they are given. Waits for the device if they lie there.
std::vector<std::int64_t> read_labels(Backend const& backend, IndexView labels);

/// The matrix in host memory. A matrix on a device is copied, after a wait; `copies` keeps the copy and must outlive
/// the view.
MatrixView on_host(Backend const& backend, MatrixView view, std::vector<std::vector<double>>& copies);
/// The same for the points or the costs of a geometry; labels stay where they lie.
Geometry on_host(Backend const& backend, Geometry geometry, std::vector<std::vector<double>>& copies);

}  // namespace monge
