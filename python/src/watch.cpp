#include "watch.hpp"

#include <nanobind/stl/string.h>

#include <string>

namespace monge::python {
namespace {

/// Whether the answer of a progress function is False: Python's, or that of an array without dimensions.
bool is_false(nb::object const& answer) {
  if (answer.is(nb::bool_(false))) return true;
  if (answer.is_none() || !nb::hasattr(answer, "dtype")) return false;
  if (!nb::cast<std::string>(nb::str(nb::handle(answer.attr("dtype")))).ends_with("bool")) return false;
  int const truth = PyObject_IsTrue(answer.ptr());
  if (truth >= 0) return truth == 0;
  nb::python_error error;
  nb::raise_from(error, PyExc_TypeError, "progress: returned an array of bools; must return one bool or None");
  throw nb::python_error();
}

}  // namespace

bool Watch::goes_on(std::function<nb::object()> const& answer) {
  if (error_) return false;  // The other problems of a batch stop, too.
  Clock::time_point const now = Clock::now();
  if (progress_.is_none() && now < next_) return true;
  next_ = now + kBetweenSignals;
  nb::gil_scoped_acquire const lock;
  try {
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
    return progress_.is_none() || !is_false(answer());
  } catch (...) {
    error_ = std::current_exception();
    return false;
  }
}

void Watch::rethrow(nb::object const& result) {
  if (!error_) return;
  try {
    std::rethrow_exception(std::exchange(error_, nullptr));
  } catch (nb::python_error& error) {
    if (result.is_valid() && error.matches(PyExc_KeyboardInterrupt)) error.value().attr("result") = result;
    throw;
  }
}

}  // namespace monge::python
