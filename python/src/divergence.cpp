#include "divergence.hpp"

#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>

#include <array>
#include <memory>
#include <monge/divergence.hpp>
#include <string>

#include "arrays.hpp"
#include "entropic.hpp"
#include "geometry.hpp"

namespace monge::python {
namespace {

using HeldDivergence = OnSession<Divergence>;
using SessionPointer = std::shared_ptr<Session>;
using GeometryPointer = std::shared_ptr<HeldGeometry>;

CostMatrix matrix_of(char const* field, GeometryPointer const& geometry) {
  auto const* const matrix = geometry ? std::get_if<CostMatrix>(&geometry->geometry()) : nullptr;
  if (matrix == nullptr)
    throw Error(ErrorCode::invalid_argument, std::string(field) + ": is no cost matrix; must be one, as xy is");
  return *matrix;
}

/// The divergence of points, both clouds in `xy`, or of three cost matrices.
std::shared_ptr<HeldDivergence> divergence(SessionPointer const& session, GeometryPointer const& xy,
                                           GeometryPointer const& xx, GeometryPointer const& yy, nb::handle a,
                                           nb::handle b, OptionDict const& given, nb::object progress) {
  Watch watch(std::move(progress));
  SolveOptions const options = solve_options(given, watch);
  Array const row("a", a), column("b", b);
  VectorView const weights_a = row.vector(), weights_b = column.vector();
  auto const* const clouds = std::get_if<PointCloud>(&xy->geometry());
  DivergenceCosts const costs =
      clouds ? DivergenceCosts{} : DivergenceCosts{matrix_of("xy", xy), matrix_of("xx", xx), matrix_of("yy", yy)};
  auto made = session->run([&](Context const& context) {
    return std::make_shared<Divergence>(clouds ? sinkhorn_divergence(context, *clouds, weights_a, weights_b, options)
                                               : sinkhorn_divergence(context, costs, weights_a, weights_b, options));
  });
  using Geometries = std::array<GeometryPointer, 3>;
  auto held =
      std::make_shared<HeldDivergence>(session, std::move(made), std::make_shared<Geometries>(Geometries{xy, xx, yy}));
  watch.rethrow();
  return held;
}

/// One of the three plans, which lives as long as the divergence.
std::shared_ptr<HeldPlan> part(HeldDivergence const& divergence, Plan Divergence::*member) {
  auto const& made = divergence.made();
  return std::make_shared<HeldPlan>(divergence.session(), std::shared_ptr<Plan>(made, &((*made).*member)),
                                    divergence.memory());
}

DivergenceGradient gradients(HeldDivergence const& divergence, nb::handle x, nb::handle y, nb::handle a, nb::handle b) {
  Array const by_x = out("x", x), by_y = out("y", y), by_a = out("a", a), by_b = out("b", b);
  GradientViews const views{by_x.out_matrix(), by_y.out_matrix(), by_a.out_vector(), by_b.out_vector()};
  return divergence.run([&](Divergence const& d) { return d.gradients(views); });
}

}  // namespace

void bind_divergence(nb::module_& module) {
  nb::class_<HeldDivergence>(module, "Divergence", "A Sinkhorn divergence and the three solves behind it.")
      .def_prop_ro("value", [](HeldDivergence const& d) { return d.made()->value; })
      .def_prop_ro("gap", [](HeldDivergence const& d) { return d.made()->gap; })
      .def_prop_ro("status", [](HeldDivergence const& d) { return std::string(name(d.made()->status())); })
      .def_prop_ro("ab", [](HeldDivergence const& d) { return part(d, &Divergence::ab); })
      .def_prop_ro("aa", [](HeldDivergence const& d) { return part(d, &Divergence::aa); })
      .def_prop_ro("bb", [](HeldDivergence const& d) { return part(d, &Divergence::bb); })
      .def("gradients", &gradients, nb::arg("x").none(), nb::arg("y").none(), nb::arg("a").none(), nb::arg("b").none());
  module.def("sinkhorn_divergence", &divergence, nb::arg("session"), nb::arg("xy"), nb::arg("xx").none(),
             nb::arg("yy").none(), nb::arg("a").none(), nb::arg("b").none(), nb::arg("options"),
             nb::arg("progress").none());
}

}  // namespace monge::python
