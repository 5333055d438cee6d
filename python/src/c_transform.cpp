#include <nanobind/nanobind.h>
#include <nanobind/stl/shared_ptr.h>

#include <memory>
#include <monge/c_transform.hpp>

#include "arrays.hpp"
#include "divergence.hpp"
#include "geometry.hpp"
#include "session.hpp"

namespace monge::python {
namespace {

template <auto transform>
void call(std::shared_ptr<Session> const& session, std::shared_ptr<HeldGeometry> const& geometry, nb::handle potential,
          nb::handle to, nb::handle argmin) {
  Array const from("potential", potential), result = out("out", to), where = out("argmin", argmin);
  VectorView const in = from.vector();
  MutableVectorView const values = result.out_vector();
  MutableIndexView const indices = where.out_indices();
  session->run([&](Context const& context) { transform(context, geometry->geometry(), in, values, indices); });
}

double semi_dual(std::shared_ptr<Session> const& session, nb::handle a, nb::handle b, nb::handle f, nb::handle g) {
  Array const row("a", a), column("b", b), potential_f("f", f), potential_g("g", g);
  VectorView const weights_a = row.vector(), weights_b = column.vector();
  VectorView const values_f = potential_f.vector(), values_g = potential_g.vector();
  return session->run(
      [&](Context const& context) { return semi_dual_value(context, weights_a, weights_b, values_f, values_g); });
}

}  // namespace

void bind_c_transform(nb::module_& module) {
  auto const bind = [&](char const* name, auto function) {
    module.def(name, function, nb::arg("session"), nb::arg("geometry"), nb::arg("potential"), nb::arg("out"),
               nb::arg("argmin"));
  };
  bind("c_transform", &call<&c_transform>);
  bind("c_transform_transpose", &call<&c_transform_transpose>);
  module.def("semi_dual_value", &semi_dual, nb::arg("session"), nb::arg("a").none(), nb::arg("b").none(), nb::arg("f"),
             nb::arg("g"));
}

}  // namespace monge::python
