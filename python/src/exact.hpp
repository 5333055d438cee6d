#pragma once
#include <nanobind/nanobind.h>

namespace monge::python {

/// Exact plans.
void bind_exact(nanobind::module_& module);

}  // namespace monge::python
