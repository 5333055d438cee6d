#include "exact.hpp"

#include <nanobind/ndarray.h>
#include <nanobind/stl/shared_ptr.h>

#include <memory>
#include <monge/exact.hpp>
#include <utility>
#include <vector>

#include "arrays.hpp"
#include "geometry.hpp"
#include "options.hpp"
#include "session.hpp"
#include "watch.hpp"

namespace monge::python {
namespace {

constexpr auto kOptions = [](auto& options, auto&& visit) { visit_exact_options(options, visit); };

std::shared_ptr<ExactPlan> solve(std::shared_ptr<Session> const& session, std::shared_ptr<HeldGeometry> const& geometry,
                                 nb::handle a, nb::handle b, nb::handle f, nb::handle g, OptionDict const& given,
                                 nb::object progress) {
  Watch watch(std::move(progress));
  ExactOptions options;
  set_options(options, given, kOptions);
  options.progress = watch.callback<ExactProgress>();
  Array const row("a", a), column("b", b), start_f("f", f), start_g("g", g);
  VectorView const weights_a = row.vector(), weights_b = column.vector();
  options.f = start_f.vector();
  options.g = start_g.vector();
  auto plan = session->run([&](Context const& context) {
    return std::make_shared<ExactPlan>(solve_exact(context, geometry->geometry(), weights_a, weights_b, options));
  });
  watch.rethrow();
  return plan;
}

}  // namespace

void bind_exact(nb::module_& module) {
  nb::class_<ExactPlan> plan(module, "ExactPlan", "A plan as a CSR matrix, and its potentials, in host memory.");
  plan.def_prop_ro("report", [](ExactPlan const& made) { return made.report; });
  auto const bind = [&]<class T>(char const* name, std::vector<T> ExactPlan::*member) {
    plan.def_prop_ro(
        name,
        [member](ExactPlan const& made) {
          std::vector<T> const& values = made.*member;
          return nb::ndarray<nb::numpy, T const, nb::ndim<1>>(values.data(), {values.size()});
        },
        nb::rv_policy::reference_internal);
  };
  bind("row_begin", &ExactPlan::row_begin);
  bind("column_indices", &ExactPlan::column_indices);
  bind("values", &ExactPlan::values);
  bind("f", &ExactPlan::f);
  bind("g", &ExactPlan::g);
  module.def("exact_option_list", [] { return option_list<ExactOptions>(kOptions); });
  module.def("solve_exact", &solve, nb::arg("session"), nb::arg("geometry"), nb::arg("a").none(), nb::arg("b").none(),
             nb::arg("f").none(), nb::arg("g").none(), nb::arg("options"), nb::arg("progress").none());
}

}  // namespace monge::python
