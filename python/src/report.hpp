// Reports of the library as classes of Python.
#pragma once
#include <nanobind/nanobind.h>

namespace monge::python {

void bind_reports(nanobind::module_& module);

}  // namespace monge::python
