#include "session.hpp"

#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <monge/error.hpp>
#include <string>
#include <vector>

namespace monge::python {

void bind_session(nb::module_& module) {
  nb::class_<Session>(module, "Session", "A context of the library: a device and, on CUDA, a stream.")
      .def_prop_ro("device", [](Session const& session) { return to_string(session.device()); });
  module.def(
      "cpu_session", [](int threads) { return std::make_shared<Session>(Context::cpu(threads)); }, nb::arg("threads"));
  module.def(
      "cuda_session",
      [](int index, std::uintptr_t stream) {
        return std::make_shared<Session>(Context::cuda({.index = index, .stream = reinterpret_cast<void*>(stream)}));
      },
      nb::arg("index"), nb::arg("stream"));

  nb::class_<DeviceInfo>(module, "DeviceInfo", "One device that a solve can run on.")
      .def_prop_ro("device", [](DeviceInfo const& info) { return to_string(info.device); })
      .def_ro("name", &DeviceInfo::name)
      .def_ro("instruction_set", &DeviceInfo::instruction_set)
      .def_ro("units", &DeviceInfo::units)
      .def_ro("memory_bytes", &DeviceInfo::memory_bytes)
      .def("__repr__", [](DeviceInfo const& info) {
        return "<" + to_string(info.device) + ": " + info.name + ", " + info.instruction_set + ">";
      });
  module.def("devices", &devices, "The CPU first, then every CUDA device that can be used.");
  module.def("cuda_unavailable_reason", &cuda_unavailable_reason, "Empty where CUDA is usable; otherwise why not.");
  module.def("version", &version);
  module.def(
      "component_versions",
      [] {
        std::vector<std::pair<std::string, std::string>> versions;
        for (auto const& part : component_versions()) versions.emplace_back(part.name, part.version);
        return versions;
      },
      "What this build of the library is made of.");
}

}  // namespace monge::python
