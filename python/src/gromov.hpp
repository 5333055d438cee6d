#pragma once
#include <nanobind/nanobind.h>

namespace monge::python {

/// Gromov-Wasserstein transport.
void bind_gromov(nanobind::module_& module);

}  // namespace monge::python
