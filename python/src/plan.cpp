#include <nanobind/nanobind.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>

#include <cstdint>
#include <monge/derivatives.hpp>
#include <monge/plan.hpp>

#include "arrays.hpp"
#include "entropic.hpp"

// Methods of a plan; the caller makes the outputs. Messages name fields as Python's arguments.
namespace monge::python {
namespace {

using Held = HeldPlan const&;

void potentials(Held plan, nb::handle f, nb::handle g) {
  Array const to_f = out("f", f), to_g = out("g", g);
  MutableVectorView const rows = to_f.out_vector(), columns = to_g.out_vector();
  plan.run([&](Plan const& p) { p.potentials(rows, columns); });
}

void marginals(Held plan, nb::handle row, nb::handle column) {
  Array const to_row = out("row", row), to_column = out("column", column);
  MutableVectorView const rows = to_row.out_vector(), columns = to_column.out_vector();
  plan.run([&](Plan const& p) { p.marginals(rows, columns); });
}

/// A method that takes a matrix to a matrix.
template <auto method>
void apply(Held plan, nb::handle v, nb::handle to) {
  Array const from("v", v), result = out("out", to);
  MatrixView const in = from.matrix();
  MutableMatrixView const view = result.out_matrix();
  plan.run([&](Plan const& p) { (p.*method)(in, view); });
}

template <auto method>
void apply_hadamard(Held plan, nb::handle l, nb::handle r, nb::handle v, nb::handle to) {
  Array const left("l", l), right("r", r), from("v", v), result = out("out", to);
  MatrixView const rows = left.matrix(), columns = right.matrix(), in = from.matrix();
  MutableMatrixView const view = result.out_matrix();
  plan.run([&](Plan const& p) { (p.*method)(rows, columns, in, view); });
}

template <auto method>
void apply_gram(Held plan, nb::handle w, nb::handle v, nb::handle to) {
  Array const middle("w", w), from("v", v), result = out("out", to);
  VectorView const weights = middle.vector(), in = from.vector();
  MutableVectorView const view = result.out_vector();
  plan.run([&](Plan const& p) { (p.*method)(weights, in, view); });
}

void potential(Held plan, nb::handle points, nb::handle to) {
  Array const from("points", points), result = out("out", to);
  MatrixView const in = from.matrix();
  MutableVectorView const view = result.out_vector();
  plan.run([&](Plan const& p) { p.potential(in, view); });
}

void dense(Held plan, nb::handle to) {
  Array const result = out("out", to);
  MutableMatrixView const view = result.out_matrix();
  plan.run([&](Plan const& p) { p.dense(view); });
}

template <auto method>
void top_k(Held plan, nb::handle indices, nb::handle values) {
  Array const to_indices = out("indices", indices), to_values = out("values", values);
  MutableIndexView const where = to_indices.out_indices();
  MutableMatrixView const what = to_values.out_matrix();
  plan.run([&](Plan const& p) { (p.*method)(where, what); });
}

std::int64_t count_above(Held plan, double threshold, nb::handle row_begin) {
  Array const to = out("row_begin", row_begin);
  MutableIndexView const view = to.out_indices();
  return plan.run([&](Plan const& p) { return p.count_above(threshold, view); });
}

void entries_above(Held plan, double threshold, nb::handle row_begin, nb::handle columns, nb::handle values) {
  Array const begin = out("row_begin", row_begin), to_columns = out("columns", columns),
              to_values = out("values", values);
  MutableIndexView const rows = begin.out_indices(), where = to_columns.out_indices();
  MutableVectorView const what = to_values.out_vector();
  plan.run([&](Plan const& p) { p.entries_above(threshold, rows, where, what); });
}

void sample(Held plan, std::uint64_t seed, nb::handle pairs) {
  Array const to = out("pairs", pairs);
  MutableIndexView const view = to.out_indices();
  plan.run([&](Plan const& p) { p.sample(seed, view); });
}

GradientReport gradients(Held plan, nb::handle x, nb::handle y, nb::handle a, nb::handle b, int error_iterations,
                         bool scale) {
  Array const by_x = out("x", x), by_y = out("y", y), by_a = out("a", a), by_b = out("b", b);
  GradientViews const views{by_x.out_matrix(), by_y.out_matrix(), by_a.out_vector(), by_b.out_vector()};
  GradientOptions const options{.error_iterations = error_iterations, .scale = scale};
  return plan.run([&](Plan const& p) { return p.gradients(views, options); });
}

void cost_gradients(Held plan, nb::handle l, nb::handle r, nb::handle x, nb::handle y) {
  Array const left("l", l), right("r", r), by_x = out("x", x), by_y = out("y", y);
  MatrixView const of_rows = left.matrix(), of_columns = right.matrix();
  MutablePointViews const views{by_x.out_matrix(), by_y.out_matrix()};
  plan.run([&](Plan const& p) { p.cost_gradients(of_rows, of_columns, views); });
}

LinearReport hessian_product(Held plan, nb::handle x, nb::handle y, nb::handle to_x, nb::handle to_y, double damping,
                             double tolerance, int iterations) {
  Array const v_x("x", x), v_y("y", y), out_x = out("out_x", to_x), out_y = out("out_y", to_y);
  PointViews const v{v_x.matrix(), v_y.matrix()};
  MutablePointViews const views{out_x.out_matrix(), out_y.out_matrix()};
  LinearOptions const options{.damping = damping, .tolerance = tolerance, .iterations = iterations};
  return plan.run([&](Plan const& p) { return p.hessian_product(v, views, options); });
}

LinearReport inverse_hessian_product(Held plan, nb::handle v, nb::handle to, double shift, double damping,
                                     double tolerance, int iterations) {
  Array const from("v", v), result = out("out", to);
  MatrixView const in = from.matrix();
  MutableMatrixView const view = result.out_matrix();
  LinearOptions const options{.damping = damping, .tolerance = tolerance, .iterations = iterations};
  return plan.run([&](Plan const& p) { return p.inverse_hessian_product(in, view, shift, options); });
}

LinearReport potential_gradients(Held plan, nb::handle of_f, nb::handle of_g, nb::handle x, nb::handle y, nb::handle a,
                                 nb::handle b, double damping, double tolerance, int iterations) {
  Array const from_f("of_f", of_f), from_g("of_g", of_g);
  Array const by_x = out("x", x), by_y = out("y", y), by_a = out("a", a), by_b = out("b", b);
  VectorView const f = from_f.vector(), g = from_g.vector();
  GradientViews const views{by_x.out_matrix(), by_y.out_matrix(), by_a.out_vector(), by_b.out_vector()};
  LinearOptions const options{.damping = damping, .tolerance = tolerance, .iterations = iterations};
  return plan.run([&](Plan const& p) { return p.potential_gradients(f, g, views, options); });
}

}  // namespace

void bind_plan(nb::module_& module) {
  using Multiply = void (Plan::*)(MatrixView, MutableMatrixView) const;
  LinearOptions const linear;
  nb::class_<HeldPlan>(module, "Plan", "A plan as an operator; results go to arrays that the caller has made.")
      .def_prop_ro("session", [](Held plan) { return plan.session(); })
      .def_prop_ro("rows", [](Held plan) { return plan.made()->rows(); })
      .def_prop_ro("columns", [](Held plan) { return plan.made()->columns(); })
      .def_prop_ro("report", [](Held plan) { return plan.made()->report(); })
      .def("potentials", &potentials, nb::arg("f"), nb::arg("g"))
      .def("marginals", &marginals, nb::arg("row"), nb::arg("column"))
      .def("apply", &apply<&Plan::apply>, nb::arg("v"), nb::arg("out"))
      .def("apply_transpose", &apply<&Plan::apply_transpose>, nb::arg("v"), nb::arg("out"))
      .def("apply_hadamard", &apply_hadamard<&Plan::apply_hadamard>, nb::arg("l"), nb::arg("r"), nb::arg("v"),
           nb::arg("out"))
      .def("apply_hadamard_transpose", &apply_hadamard<&Plan::apply_hadamard_transpose>, nb::arg("l"), nb::arg("r"),
           nb::arg("v"), nb::arg("out"))
      .def("apply_gram", &apply_gram<&Plan::apply_gram>, nb::arg("w"), nb::arg("v"), nb::arg("out"))
      .def("apply_gram_transpose", &apply_gram<&Plan::apply_gram_transpose>, nb::arg("w"), nb::arg("u"), nb::arg("out"))
      .def("average", &apply<static_cast<Multiply>(&Plan::barycentric_projection)>, nb::arg("v"), nb::arg("out"))
      .def("map", &apply<&Plan::map>, nb::arg("points"), nb::arg("out"))
      .def("potential", &potential, nb::arg("points"), nb::arg("out"))
      .def("transport_cost", [](Held plan) { return plan.run([](Plan const& p) { return p.transport_cost(); }); })
      .def("dense", &dense, nb::arg("out"))
      .def("top_k", &top_k<&Plan::top_k>, nb::arg("indices"), nb::arg("values"))
      .def("top_k_transpose", &top_k<&Plan::top_k_transpose>, nb::arg("indices"), nb::arg("values"))
      .def("count_above", &count_above, nb::arg("threshold"), nb::arg("row_begin"))
      .def("entries_above", &entries_above, nb::arg("threshold"), nb::arg("row_begin"), nb::arg("columns"),
           nb::arg("values"))
      .def("sample", &sample, nb::arg("seed"), nb::arg("pairs"))
      .def("gradients", &gradients, nb::arg("x").none(), nb::arg("y").none(), nb::arg("a").none(), nb::arg("b").none(),
           nb::arg("error_iterations") = 0, nb::arg("scale") = true)
      .def("cost_gradients", &cost_gradients, nb::arg("l"), nb::arg("r"), nb::arg("x").none(), nb::arg("y").none())
      .def("hessian_product", &hessian_product, nb::arg("x").none(), nb::arg("y").none(), nb::arg("out_x").none(),
           nb::arg("out_y").none(), nb::arg("damping") = linear.damping, nb::arg("tolerance") = linear.tolerance,
           nb::arg("iterations") = linear.iterations)
      .def("inverse_hessian_product", &inverse_hessian_product, nb::arg("v"), nb::arg("out"), nb::arg("shift") = 0.0,
           nb::arg("damping") = linear.damping, nb::arg("tolerance") = linear.tolerance,
           nb::arg("iterations") = linear.iterations)
      .def("potential_gradients", &potential_gradients, nb::arg("of_f").none(), nb::arg("of_g").none(),
           nb::arg("x").none(), nb::arg("y").none(), nb::arg("a").none(), nb::arg("b").none(),
           nb::arg("damping") = linear.damping, nb::arg("tolerance") = linear.tolerance,
           nb::arg("iterations") = linear.iterations);
}

}  // namespace monge::python
