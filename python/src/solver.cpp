#include <monge/solver.hpp>

#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>

#include <memory>
#include <utility>

#include "arrays.hpp"
#include "entropic.hpp"
#include "geometry.hpp"

namespace monge::python {
namespace {

using SessionPointer = std::shared_ptr<Session>;
using GeometryPointer = std::shared_ptr<HeldGeometry>;

/// A Solver with the memory of its geometry, which each solve may read.
class HeldSolver {
 public:
  HeldSolver(SessionPointer const& session, GeometryPointer geometry, nb::handle a, nb::handle b,
             OptionDict const& given) {
    Watch watch{nb::none()};
    SolveOptions options = solve_options(given, watch);
    options.progress = {};
    Array const row("a", a), column("b", b);
    VectorView const weights_a = row.vector(), weights_b = column.vector();
    auto made = session->run([&](Context const& context) {
      return std::make_shared<Solver>(context, geometry->geometry(), weights_a, weights_b, options);
    });
    held_ = std::make_unique<OnSession<Solver>>(session, std::move(made), nullptr);
    geometry_ = std::move(geometry);
  }

  void set(GeometryPointer geometry, nb::handle a, nb::handle b) {
    Array const row("a", a), column("b", b);
    VectorView const weights_a = row.vector(), weights_b = column.vector();
    held_->run([&](Solver& solver) { solver.set_geometry(geometry->geometry()); });
    geometry_ = std::move(geometry);  // With the interpreter's lock: the arrays of the last one may end here.
    held_->run([&](Solver& solver) { solver.set_weights(weights_a, weights_b); });
  }

  std::shared_ptr<HeldPlan> solve(nb::handle f, nb::handle g, OptionDict const& given, nb::object progress) {
    Watch watch(std::move(progress));
    SolveOptions options = solve_options(given, watch);
    Array const start_f("f", f), start_g("g", g);
    options.f = start_f.vector();
    options.g = start_g.vector();
    Plan solved = held_->run([&](Solver& solver) { return solver.solve(options); });
    auto plan = std::make_shared<HeldPlan>(held_->session(), std::make_shared<Plan>(std::move(solved)), geometry_);
    watch.rethrow();
    return plan;
  }

 private:
  GeometryPointer geometry_;  // Outlives the solver.
  std::unique_ptr<OnSession<Solver>> held_;
};

}  // namespace

void bind_solver(nb::module_& module) {
  nb::class_<HeldSolver>(module, "Solver", "A problem that is solved again with other inputs of the same shape.")
      .def(nb::init<SessionPointer const&, GeometryPointer, nb::handle, nb::handle, OptionDict const&>(),
           nb::arg("session"), nb::arg("geometry"), nb::arg("a").none(), nb::arg("b").none(), nb::arg("options"))
      .def("set", &HeldSolver::set, nb::arg("geometry"), nb::arg("a").none(), nb::arg("b").none())
      .def("solve", &HeldSolver::solve, nb::arg("f").none(), nb::arg("g").none(), nb::arg("options"),
           nb::arg("progress") = nb::none());
}

}  // namespace monge::python
