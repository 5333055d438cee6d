// monge._core: the library as Python calls it. Small and strict; the package in python/monge makes it pleasant.
#include <nanobind/nanobind.h>

#include <exception>
#include <monge/error.hpp>

#include "assignment.hpp"
#include "divergence.hpp"
#include "entropic.hpp"
#include "exact.hpp"
#include "geometry.hpp"
#include "gromov.hpp"
#include "projection.hpp"
#include "regularized.hpp"
#include "report.hpp"
#include "session.hpp"

namespace {

/// The Python exception for an ErrorCode.
PyObject* exception_for(monge::ErrorCode code) {
  switch (code) {
    case monge::ErrorCode::invalid_argument:
      return PyExc_ValueError;
    case monge::ErrorCode::unsupported:
      return PyExc_NotImplementedError;
    case monge::ErrorCode::out_of_memory:
      return PyExc_MemoryError;
    case monge::ErrorCode::device_failure:
      return PyExc_RuntimeError;
    case monge::ErrorCode::input_output:
      return PyExc_OSError;
  }
  return PyExc_RuntimeError;
}

}  // namespace

NB_MODULE(_core, module) {
  nanobind::set_leak_warnings(false);  // Objects that caches hold at exit are no leaks of the user's.
  nanobind::register_exception_translator([](std::exception_ptr const& thrown, void*) {
    try {
      std::rethrow_exception(thrown);
    } catch (monge::Error const& error) {
      PyErr_SetString(exception_for(error.code()), error.what());
    }
  });
  monge::python::bind_session(module);
  monge::python::bind_geometry(module);
  monge::python::bind_reports(module);
  monge::python::bind_plan(module);
  monge::python::bind_solver(module);
  monge::python::bind_entropic(module);
  monge::python::bind_regularized(module);
  monge::python::bind_exact(module);
  monge::python::bind_gromov(module);
  monge::python::bind_divergence(module);
  monge::python::bind_c_transform(module);
  monge::python::bind_projection(module);
  monge::python::bind_assignment(module);
}
