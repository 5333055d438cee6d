#include "geometry.hpp"

#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>

#include <memory>
#include <utility>
#include <variant>

#include "options.hpp"

namespace monge::python {
namespace {

// Named as on the command line.
constexpr Field kCostFunction{"cost_function", OneOf<CostFunction>(), "of two points"};

std::shared_ptr<HeldGeometry> point_cloud(nb::handle x, nb::handle y, nb::handle cost_function, double scale,
                                          double norm_p, nb::handle labels_x, nb::handle labels_y,
                                          nb::handle label_cost, double label_weight) {
  std::vector<Array> arrays;
  arrays.reserve(5);
  auto const add = [&](char const* field, nb::handle value) -> Array const& {
    return arrays.emplace_back(field, value);
  };
  PointCloud clouds{.x = add("x", x).matrix(), .y = add("y", y).matrix(), .scale = scale, .p = norm_p};
  set_option(kCostFunction, cost_function, clouds.cost_function);
  clouds.labels = {.x = add("labels_x", labels_x).indices(),
                   .y = add("labels_y", labels_y).indices(),
                   .cost = add("label_cost", label_cost).matrix(),
                   .weight = label_weight};
  return std::make_shared<HeldGeometry>(clouds, std::move(arrays));
}

std::shared_ptr<HeldGeometry> cost_matrix(nb::handle cost) {
  std::vector<Array> arrays;
  Array const& given = arrays.emplace_back("cost", cost);
  CostMatrix const matrix =
      given.is_column_major() ? CostMatrix{given.transposed_matrix(), true} : CostMatrix{given.matrix()};
  return std::make_shared<HeldGeometry>(matrix, std::move(arrays));
}

/// The sizes n and m of a problem of points or of a cost matrix.
std::pair<std::int64_t, std::int64_t> sides(Geometry const& geometry) {
  if (auto const* const clouds = std::get_if<PointCloud>(&geometry)) return {clouds->x.rows(), clouds->y.rows()};
  CostMatrix const& matrix = std::get<CostMatrix>(geometry);
  auto const [rows, columns] = std::pair(matrix.cost.rows(), matrix.cost.columns());
  return matrix.transposed ? std::pair(columns, rows) : std::pair(rows, columns);
}

}  // namespace

std::int64_t HeldGeometry::rows() const {
  return sides(geometry_).first;
}

std::int64_t HeldGeometry::columns() const {
  return sides(geometry_).second;
}

void bind_geometry(nb::module_& module) {
  nb::class_<HeldGeometry>(module, "Geometry", "Where the costs of a problem come from; shows the caller's memory.")
      .def_prop_ro("rows", &HeldGeometry::rows)
      .def_prop_ro("columns", &HeldGeometry::columns);
  module.def("point_cloud", &point_cloud, nb::arg("x"), nb::arg("y"), nb::arg("cost_function") = "sqeuclidean",
             nb::arg("scale") = 1.0, nb::arg("norm_p") = 2.0, nb::arg("labels_x") = nb::none(),
             nb::arg("labels_y") = nb::none(), nb::arg("label_cost") = nb::none(), nb::arg("label_weight") = 1.0);
  module.def("cost_matrix", &cost_matrix, nb::arg("cost"));
}

}  // namespace monge::python
