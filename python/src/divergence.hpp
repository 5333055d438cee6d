// The Sinkhorn divergence, and the hard c-transform of a potential.
#pragma once
#include <nanobind/nanobind.h>

namespace monge::python {

void bind_divergence(nanobind::module_& module);
void bind_c_transform(nanobind::module_& module);

}  // namespace monge::python
