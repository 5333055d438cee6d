// The batched projection and the mappings of mHC layers.
#pragma once
#include <nanobind/nanobind.h>

namespace monge::python {

void bind_projection(nanobind::module_& module);

}  // namespace monge::python
