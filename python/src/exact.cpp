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

template <class T>
using Host = nb::ndarray<nb::numpy, T const, nb::ndim<1>, nb::c_contig>;

template <class T>
std::vector<T> copy(Host<T> const& array) {
  return {array.data(), array.data() + array.size()};
}

constexpr auto kOptions = [](auto& options, auto&& visit) { visit_exact_options(options, visit); };

/// A sparse matrix that keeps its arrays.
struct HeldSparse {
  std::int64_t columns;
  Host<std::int64_t> row_begin, column_indices;
  Host<double> values;

  SparseCost geometry() const {
    return {columns,
            {row_begin.data(), static_cast<std::int64_t>(row_begin.size())},
            {column_indices.data(), static_cast<std::int64_t>(column_indices.size())},
            {values.data(), static_cast<std::int64_t>(values.size())}};
  }
};

template <class Held>
std::shared_ptr<ExactPlan> solve(std::shared_ptr<Session> const& session, std::shared_ptr<Held> const& geometry,
                                 nb::handle a, nb::handle b, nb::handle f, nb::handle g, ExactPlan const* start,
                                 OptionDict const& given, nb::object progress) {
  Watch watch(std::move(progress));
  ExactOptions options;
  set_options(options, given, kOptions);
  options.progress = watch.callback<ExactProgress>();
  Array const row("a", a), column("b", b), start_f("f", f), start_g("g", g);
  VectorView const weights_a = row.vector(), weights_b = column.vector();
  options.f = start_f.vector();
  options.g = start_g.vector();
  options.start = start;
  auto plan = session->run([&](Context const& context) {
    return std::make_shared<ExactPlan>(solve_exact(context, geometry->geometry(), weights_a, weights_b, options));
  });
  watch.rethrow(nb::cast(plan));
  return plan;
}

}  // namespace

void bind_exact(nb::module_& module) {
  nb::class_<ExactPlan> plan(module, "ExactPlan", "A plan as a CSR matrix, and its potentials, in host memory.");
  plan.def(
      "__init__",
      [](ExactPlan* made, ExactReport const& report, Host<std::int64_t> const& row_begin,
         Host<std::int64_t> const& column_indices, Host<double> const& values, Host<double> const& f,
         Host<double> const& g) {
        new (made) ExactPlan{report, copy(row_begin), copy(column_indices), copy(values), copy(f), copy(g)};
      },
      nb::arg("report"), nb::arg("row_begin"), nb::arg("column_indices"), nb::arg("values"), nb::arg("f"),
      nb::arg("g"));
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
  nb::class_<HeldSparse>(module, "SparseCost", "The costs of some pairs, as a CSR matrix in host memory.")
      .def(nb::new_([](std::int64_t columns, Host<std::int64_t> row_begin, Host<std::int64_t> column_indices,
                       Host<double> values) {
             return std::make_shared<HeldSparse>(
                 HeldSparse{columns, std::move(row_begin), std::move(column_indices), std::move(values)});
           }),
           nb::arg("columns"), nb::arg("row_begin"), nb::arg("column_indices"), nb::arg("values"))
      .def_prop_ro("rows", [](HeldSparse const& held) { return held.geometry().rows(); })
      .def_ro("columns", &HeldSparse::columns);
  auto const bind_solve = [&](auto const& solve_it) {
    module.def("solve_exact", solve_it, nb::arg("session"), nb::arg("geometry"), nb::arg("a").none(),
               nb::arg("b").none(), nb::arg("f").none(), nb::arg("g").none(), nb::arg("start").none(),
               nb::arg("options"), nb::arg("progress").none());
  };
  bind_solve(&solve<HeldGeometry>);
  bind_solve(&solve<HeldSparse>);
}

}  // namespace monge::python
