// Geometries, with the Python arrays that hold their costs.
#pragma once
#include <nanobind/nanobind.h>

#include <monge/geometry.hpp>
#include <vector>

#include "arrays.hpp"

namespace monge::python {

/// A Geometry whose memory stays as long as it does.
class HeldGeometry {
 public:
  HeldGeometry(Geometry geometry, std::vector<Array> arrays)
      : geometry_(std::move(geometry)), arrays_(std::move(arrays)) {}

  Geometry const& geometry() const { return geometry_; }
  std::int64_t rows() const;
  std::int64_t columns() const;

 private:
  Geometry geometry_;
  std::vector<Array> arrays_;
};

void bind_geometry(nb::module_& module);

}  // namespace monge::python
