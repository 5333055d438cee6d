#include "entropic.hpp"

#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <tuple>
#include <vector>

#include <monge/batch.hpp>

#include "arrays.hpp"
#include "geometry.hpp"
#include "options.hpp"

namespace monge::python {
namespace {

using SessionPointer = std::shared_ptr<Session>;
using GeometryPointer = std::shared_ptr<HeldGeometry>;
using Problem = std::tuple<GeometryPointer, nb::object, nb::object, nb::object, nb::object>;

constexpr auto kSolveOptions = [](auto& options, auto&& visit) { visit_solve_options(options, visit); };

std::shared_ptr<HeldPlan> hold(SessionPointer const& session, Plan&& plan, GeometryPointer const& geometry) {
  return std::make_shared<HeldPlan>(session, std::make_shared<Plan>(std::move(plan)), geometry);
}

/// The work of solve() and plan_of().
template <auto make>
std::shared_ptr<HeldPlan> one(SessionPointer const& session, GeometryPointer const& geometry, nb::handle a,
                              nb::handle b, nb::handle f, nb::handle g, OptionDict const& given, nb::object progress) {
  Watch watch(std::move(progress));
  SolveOptions options = solve_options(given, watch);
  Array const row("a", a), column("b", b), start_f("f", f), start_g("g", g);
  VectorView const weights_a = row.vector(), weights_b = column.vector();
  options.f = start_f.vector();
  options.g = start_g.vector();
  Plan made = session->run(
      [&](Context const& context) { return make(context, geometry->geometry(), weights_a, weights_b, options); });
  auto plan = hold(session, std::move(made), geometry);
  watch.rethrow();
  return plan;
}

/// The work of solve_batch() and plans_of().
template <auto make>
std::vector<std::shared_ptr<HeldPlan>> many(SessionPointer const& session, std::vector<Problem> const& given_problems,
                                            OptionDict const& given, nb::object progress) {
  Watch watch(std::move(progress));
  SolveOptions const options = solve_options(given, watch);
  std::vector<Array> arrays;
  arrays.reserve(4 * given_problems.size());
  std::vector<BatchProblem> problems;
  auto const vector = [&](std::size_t k, char const* field, nb::handle value) {
    return arrays.emplace_back("problem " + std::to_string(k) + ": " + field, value).vector();
  };
  for (auto const& [geometry, a, b, f, g] : given_problems) {
    std::size_t const k = problems.size();
    problems.push_back(
        {geometry->geometry(), vector(k, "a", a), vector(k, "b", b), vector(k, "f", f), vector(k, "g", g)});
  }
  auto made = session->run([&](Context const& context) { return make(context, problems, options); });
  std::vector<std::shared_ptr<HeldPlan>> plans;
  for (std::size_t k = 0; k < made.size(); ++k)
    plans.push_back(hold(session, std::move(made[k]), std::get<0>(given_problems[k])));
  watch.rethrow();
  return plans;
}

}  // namespace

SolveOptions solve_options(OptionDict const& given, Watch& watch) {
  SolveOptions options;
  set_options(options, given, kSolveOptions);
  options.progress = watch.callback<Progress>();
  return options;
}

void bind_entropic(nb::module_& module) {
  module.def("solve_option_list", [] { return option_list<SolveOptions>(kSolveOptions); });
  module.def(
      "check_solve_options",
      [](OptionDict const& given) {
        SolveOptions options;
        set_options(options, given, kSolveOptions);
        validate(options);
      },
      nb::arg("options"),
      "Raises the errors of a solve about its options: TypeError for a name that is no option or a value of a wrong "
      "kind, ValueError for a value that is not allowed, NotImplementedError for a penalty that the method lacks.");
  using Solve = Plan(Context const&, Geometry const&, VectorView, VectorView, SolveOptions const&);
  auto const def_one = [&](char const* name, auto const& function) {
    module.def(name, function, nb::arg("session"), nb::arg("geometry"), nb::arg("a").none(), nb::arg("b").none(),
               nb::arg("f").none(), nb::arg("g").none(), nb::arg("options"), nb::arg("progress") = nb::none());
  };
  auto const def_many = [&](char const* name, auto const& function) {
    module.def(name, function, nb::arg("session"), nb::arg("problems"), nb::arg("options"),
               nb::arg("progress") = nb::none());
  };
  def_one("solve", &one<static_cast<Solve*>(&solve)>);
  def_one("plan_of", &one<&plan_of>);
  def_many("solve_batch", &many<&solve_batch>);
  def_many("plans_of", &many<&plans_of>);
}

}  // namespace monge::python
