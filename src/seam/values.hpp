// Numbers of the caller whose values matter on the host.
#pragma once
#include <vector>

#include <monge/array.hpp>
#include <monge/options.hpp>

#include "seam/backend.hpp"

namespace monge {

/// The values of `view` as float64. Throws unless the view is valid and has `size` entries, each within the bounds.
/// `must` begins the requirement in messages: "weights must be". Waits for the device if the vector lies there.
std::vector<double> read_values(char const* field, Backend const& backend, VectorView view, std::int64_t size,
                                Bounds const& bounds, char const* must);

/// The same numbers in host memory: where they lie, or in `copies`, which keeps those of a device. Waits for the
/// device.
MatrixView on_host(Backend const& backend, MatrixView view, std::vector<std::vector<double>>& copies);
/// The same points or costs, without labels.
Geometry on_host(Backend const& backend, Geometry geometry, std::vector<std::vector<double>>& copies);

}  // namespace monge
