// solve(), solve_batch(), plans and solvers.
#pragma once
#include <nanobind/nanobind.h>

#include <monge/entropic.hpp>
#include <monge/plan.hpp>

#include "options.hpp"
#include "session.hpp"
#include "watch.hpp"

namespace monge::python {

using HeldPlan = OnSession<Plan>;

/// The options of a dictionary, with the callback of `watch`.
SolveOptions solve_options(OptionDict const& given, Watch& watch);

void bind_entropic(nb::module_& module);
void bind_plan(nb::module_& module);
void bind_solver(nb::module_& module);

}  // namespace monge::python
