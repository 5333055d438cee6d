#include "gromov.hpp"

#include <nanobind/ndarray.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/tuple.h>

#include <memory>
#include <monge/gromov.hpp>
#include <tuple>
#include <utility>
#include <vector>

#include "arrays.hpp"
#include "entropic.hpp"
#include "options.hpp"
#include "session.hpp"
#include "watch.hpp"

namespace monge::python {
namespace {

constexpr Field kLoss{"loss", OneOf<GromovLoss>(), "of two entries"};
constexpr auto kOptions = [](auto& options, auto&& visit) { visit_gromov_options(options, visit); };

using HeldGromov = OnSession<Gromov>;
using Plans = std::tuple<std::shared_ptr<HeldPlan>, std::shared_ptr<ExactPlan>>;

nb::ndarray<nb::numpy, double> matrix(std::vector<double> values, std::int64_t rows) {
  auto* const kept = new std::vector<double>(std::move(values));
  nb::capsule const owner(kept, [](void* memory) noexcept { delete static_cast<std::vector<double>*>(memory); });
  std::size_t const count = static_cast<std::size_t>(rows);
  return {kept->data(), {count, kept->size() / count}, owner};
}

/// `problem` is GromovClouds or GromovMatrices.
std::shared_ptr<HeldGromov> solve_problem(std::shared_ptr<Session> const& session, auto const& problem, nb::handle a,
                                          nb::handle b, nb::handle cross_moment, OptionDict const& given,
                                          nb::object progress) {
  Watch watch(std::move(progress));
  GromovOptions options;
  set_options(options, given, kOptions);
  options.progress = watch.callback<GromovProgress>();
  Array const row("a", a), column("b", b), start("cross_moment", cross_moment);
  VectorView const weights_a = row.vector(), weights_b = column.vector();
  options.cross_moment = start.matrix();
  auto made = session->run([&](Context const& context) {
    return std::make_shared<Gromov>(solve_gromov(context, problem, weights_a, weights_b, options));
  });
  auto result = std::make_shared<HeldGromov>(session, std::move(made), nullptr);
  watch.rethrow(nb::cast(result));
  return result;
}

std::shared_ptr<HeldGromov> solve(std::shared_ptr<Session> const& session, nb::handle x, nb::handle y, nb::handle s,
                                  nb::handle t, nb::handle a, nb::handle b, nb::handle cross_moment,
                                  OptionDict const& given, nb::object progress) {
  Array const of_x("x", x), of_y("y", y), of_s("s", s), of_t("t", t);
  GromovClouds const clouds{of_x.matrix(), of_y.matrix(), of_s.matrix(), of_t.matrix()};
  return solve_problem(session, clouds, a, b, cross_moment, given, std::move(progress));
}

std::shared_ptr<HeldGromov> solve_matrices(std::shared_ptr<Session> const& session, nb::handle source,
                                           nb::handle target, nb::handle cost, nb::handle s, nb::handle t, nb::handle a,
                                           nb::handle b, nb::handle cross_moment, nb::handle loss,
                                           OptionDict const& given, nb::object progress) {
  Array const of_source("source", source), of_target("target", target), of_cost("cost", cost), of_s("s", s),
      of_t("t", t);
  GromovMatrices matrices{of_source.matrix(), of_target.matrix(), of_cost.matrix(), of_s.matrix(), of_t.matrix()};
  set_option(kLoss, loss, matrices.loss);
  return solve_problem(session, matrices, a, b, cross_moment, given, std::move(progress));
}

void gradients(HeldGromov const& held, nb::handle x, nb::handle y, nb::handle s, nb::handle t, nb::handle a,
               nb::handle b) {
  Array const to_x = out("x", x), to_y = out("y", y), to_s = out("s", s), to_t = out("t", t), to_a = out("a", a),
              to_b = out("b", b);
  GromovGradients const views{to_x.out_matrix(), to_y.out_matrix(), to_s.out_matrix(),
                              to_t.out_matrix(), to_a.out_vector(), to_b.out_vector()};
  held.run([&](Gromov const& result) { result.gradients(views); });
}

void source_features(HeldGromov const& held, nb::handle points, nb::handle features, nb::handle to) {
  Array const from("points", points), with("features", features), result = out("out", to);
  MatrixView const in = from.matrix(), given = with.matrix();
  MutableMatrixView const view = result.out_matrix();
  held.run([&](Gromov const& found) { found.source_features(in, given, view); });
}

Plans plans(HeldGromov const& held) {
  Gromov& made = *held.made();
  Plans result;
  if (made.plan)
    std::get<0>(result) =
        std::make_shared<HeldPlan>(held.session(), std::shared_ptr<Plan>(held.made(), &*made.plan), nullptr);
  if (made.exact) std::get<1>(result) = std::make_shared<ExactPlan>(*made.exact);
  return result;
}

}  // namespace

void bind_gromov(nb::module_& module) {
  nb::class_<HeldGromov>(module, "Gromov", "A plan between different spaces, and how it was found.")
      .def_prop_ro("report", [](HeldGromov const& held) { return held.made()->report; })
      .def_prop_ro("plans", &plans, "The entropic and the exact plan; one of them is None.")
      .def("features",
           [](HeldGromov const& held) {
             Gromov const& made = *held.made();
             std::int64_t const n = made.plan ? made.plan->rows() : made.exact->rows();
             std::int64_t const m = made.plan ? made.plan->columns() : made.exact->columns();
             return std::tuple(matrix(made.u, n), matrix(made.v, m));
           })
      .def(
          "cross_moment",
          [](HeldGromov const& held, std::int64_t rows) { return matrix(held.made()->cross_moment, rows); },
          nb::arg("rows"))
      .def("gradients", &gradients, nb::arg("x").none(), nb::arg("y").none(), nb::arg("s").none(), nb::arg("t").none(),
           nb::arg("a").none(), nb::arg("b").none())
      .def("source_features", &source_features, nb::arg("points"), nb::arg("features").none(), nb::arg("out"));
  module.def("gromov_option_list", [] { return option_list<GromovOptions>(kOptions); });
  module.def("solve_gromov", &solve, nb::arg("session"), nb::arg("x"), nb::arg("y"), nb::arg("s").none(),
             nb::arg("t").none(), nb::arg("a").none(), nb::arg("b").none(), nb::arg("cross_moment").none(),
             nb::arg("options"), nb::arg("progress").none());
  module.def("solve_gromov_matrices", &solve_matrices, nb::arg("session"), nb::arg("source"), nb::arg("target"),
             nb::arg("cost").none(), nb::arg("s").none(), nb::arg("t").none(), nb::arg("a").none(), nb::arg("b").none(),
             nb::arg("cross_moment").none(), nb::arg("loss"), nb::arg("options"), nb::arg("progress").none());
}

}  // namespace monge::python
