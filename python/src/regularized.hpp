// solve_regularized(), solve_regularized_batch() and their plans.
#pragma once
#include <nanobind/nanobind.h>

namespace monge::python {

void bind_regularized(nanobind::module_& module);

}  // namespace monge::python
