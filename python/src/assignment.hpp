#pragma once
#include <nanobind/nanobind.h>

namespace monge::python {

/// Linear sum assignments.
void bind_assignment(nanobind::module_& module);

}  // namespace monge::python
