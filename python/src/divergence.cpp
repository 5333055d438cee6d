#include "divergence.hpp"

#include <nanobind/stl/array.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <array>
#include <memory>
#include <monge/divergence.hpp>
#include <string>
#include <tuple>
#include <vector>

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

/// xy, and xx and yy of cost matrices; a and b; f, g, f_aa, g_aa, f_bb and g_bb; and the precisions of plans.
using Problem = std::tuple<std::array<GeometryPointer, 3>, std::array<nb::object, 2>, std::array<nb::object, 6>,
                           std::array<std::string, 3>>;

Precision precision_named(std::string const& name) {
  return from_name<Precision>(name).value_or(Precision::automatic);
}

/// The work of sinkhorn_divergence_batch() and divergences_of(); one problem has no number in messages.
template <auto make, auto make_batch>
std::vector<std::shared_ptr<HeldDivergence>> divergences(SessionPointer const& session,
                                                         std::vector<Problem> const& given_problems,
                                                         OptionDict const& given, nb::object progress) {
  Watch watch(std::move(progress));
  SolveOptions const options = solve_options(given, watch);
  std::vector<Array> arrays;
  arrays.reserve(8 * given_problems.size());
  std::vector<DivergenceProblem> problems;
  for (auto const& [costs, weights, potentials, precisions] : given_problems) {
    std::string const number = given_problems.size() == 1 ? "" : "problem " + std::to_string(problems.size()) + ": ";
    auto const vector = [&](char const* field, nb::handle value) {
      return arrays.emplace_back(number + field, value).vector();
    };
    auto const& [xy, xx, yy] = costs;
    DivergenceProblem& problem = problems.emplace_back();
    if (auto const* const clouds = std::get_if<PointCloud>(&xy->geometry()))
      problem.costs = *clouds;
    else
      problem.costs = DivergenceCosts{matrix_of("xy", xy), matrix_of("xx", xx), matrix_of("yy", yy)};
    problem.a = vector("a", weights[0]);
    problem.b = vector("b", weights[1]);
    problem.ab = {vector("f", potentials[0]), vector("g", potentials[1]), precision_named(precisions[0])};
    problem.aa = {vector("f_aa", potentials[2]), vector("g_aa", potentials[3]), precision_named(precisions[1])};
    problem.bb = {vector("f_bb", potentials[4]), vector("g_bb", potentials[5]), precision_named(precisions[2])};
  }
  auto made = session->run([&](Context const& context) {
    std::vector<std::shared_ptr<Divergence>> held;
    if (problems.size() == 1) {
      held.push_back(std::make_shared<Divergence>(make(context, problems[0], options)));
    } else {
      for (Divergence& one : make_batch(context, problems, options))
        held.push_back(std::make_shared<Divergence>(std::move(one)));
    }
    return held;
  });
  std::vector<std::shared_ptr<HeldDivergence>> results;
  for (std::size_t k = 0; k < made.size(); ++k) {
    auto memory = std::make_shared<std::array<GeometryPointer, 3>>(std::get<0>(given_problems[k]));
    results.push_back(std::make_shared<HeldDivergence>(session, std::move(made[k]), std::move(memory)));
  }
  watch.rethrow();
  return results;
}

/// One of the three plans, which lives as long as the divergence.
std::shared_ptr<HeldPlan> part(HeldDivergence const& divergence, Plan Divergence::*member) {
  auto const& made = divergence.made();
  return std::make_shared<HeldPlan>(divergence.session(), std::shared_ptr<Plan>(made, &((*made).*member)),
                                    divergence.memory());
}

DivergenceGradient gradients(HeldDivergence const& divergence, nb::handle x, nb::handle y, nb::handle a, nb::handle b,
                             bool scale) {
  Array const by_x = out("x", x), by_y = out("y", y), by_a = out("a", a), by_b = out("b", b);
  GradientViews const views{by_x.out_matrix(), by_y.out_matrix(), by_a.out_vector(), by_b.out_vector()};
  return divergence.run([&](Divergence const& d) { return d.gradients(views, scale); });
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
      .def("gradients", &gradients, nb::arg("x").none(), nb::arg("y").none(), nb::arg("a").none(), nb::arg("b").none(),
           nb::arg("scale") = true);
  using Make = Divergence(Context const&, DivergenceProblem const&, SolveOptions const&);
  auto const def = [&](char const* name, auto const& function) {
    module.def(name, function, nb::arg("session"), nb::arg("problems"), nb::arg("options"),
               nb::arg("progress") = nb::none());
  };
  def("sinkhorn_divergences", &divergences<static_cast<Make*>(&sinkhorn_divergence), &sinkhorn_divergence_batch>);
  def("divergences_of", &divergences<&divergence_of, &divergences_of>);
}

}  // namespace monge::python
