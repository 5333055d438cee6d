#include "session.hpp"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <pthread.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <monge/error.hpp>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace monge::python {
namespace {

int forks = 0;  // The number of forks that led to this process.
[[maybe_unused]] int const kForkHandler = pthread_atfork(nullptr, nullptr, [] { ++forks; });

/// Two functions of Python as a DeviceAllocator. They are called with the interpreter's lock, which a thread that uses
/// a context may wait for.
class PythonAllocator {
 public:
  PythonAllocator(nb::object allocate, nb::object release)
      : allocate_(std::move(allocate)), release_(std::move(release)) {}
  PythonAllocator(PythonAllocator const&) = delete;
  ~PythonAllocator() {
    nb::gil_scoped_acquire const lock;
    allocate_.reset();
    release_.reset();
  }

  /// allocate(bytes, stream) returns an address, or 0 if there is not enough memory.
  void* allocate(std::size_t bytes, void* stream) const {
    nb::gil_scoped_acquire const lock;
    nb::object const address = allocate_(bytes, reinterpret_cast<std::uintptr_t>(stream));
    return reinterpret_cast<void*>(nb::cast<std::uintptr_t>(address));
  }
  void release(void* memory) const noexcept {
    nb::gil_scoped_acquire const lock;
    try {
      release_(reinterpret_cast<std::uintptr_t>(memory));
    } catch (nb::python_error& error) {
      error.discard_as_unraisable("release of device memory");
    }
  }

 private:
  nb::object allocate_, release_;
};

DeviceAllocator allocator_of(nb::object allocate, nb::object release) {
  if (allocate.is_none()) return {};
  auto const functions = std::make_shared<PythonAllocator>(std::move(allocate), std::move(release));
  return {[functions](std::size_t bytes, void* stream) { return functions->allocate(bytes, stream); },
          [functions](void* memory, std::size_t, void*) { functions->release(memory); }};
}

/// Communicator::all_gather by a Python function. The arguments of the function are the bytes of this rank, the memory
/// for the bytes of all ranks, and the number of bytes of each rank. The library runs without the interpreter's lock,
/// so the lock is taken here.
class PythonGather {
 public:
  explicit PythonGather(nb::object gather) : gather_(std::move(gather)) {}
  PythonGather(PythonGather const&) = delete;
  ~PythonGather() {
    nb::gil_scoped_acquire const lock;
    gather_.reset();
  }

  void operator()(int rank, void const* mine, void* all, std::span<std::size_t const> bytes_of) const {
    nb::gil_scoped_acquire const lock;
    nb::list sizes;
    std::size_t total = 0;
    for (std::size_t const bytes : bytes_of) {
      sizes.append(bytes);
      total += bytes;
    }
    auto const view = [](void* memory, std::size_t bytes, int access) {
      static char none;  // A view needs an address.
      return nb::steal(PyMemoryView_FromMemory(bytes > 0 ? static_cast<char*>(memory) : &none,
                                               static_cast<Py_ssize_t>(bytes), access));
    };
    gather_(view(const_cast<void*>(mine), bytes_of[static_cast<std::size_t>(rank)], PyBUF_READ),
            view(all, total, PyBUF_WRITE), sizes);
  }

 private:
  nb::object gather_;
};

/// The memory of a Python object.
class Buffer {
 public:
  Buffer(nb::handle object, int access) {
    if (PyObject_GetBuffer(object.ptr(), &view_, access) != 0) throw nb::python_error();
  }
  ~Buffer() { PyBuffer_Release(&view_); }
  Buffer(Buffer const&) = delete;
  void* data() const { return view_.buf; }

 private:
  Py_buffer view_{};
};

/// The communicator of a rank that is a thread of Python, with the methods that PythonGather calls.
class LocalCommunicator {
 public:
  explicit LocalCommunicator(Communicator communicator) : communicator_(std::move(communicator)) {}
  int rank() const { return communicator_.rank; }
  int size() const { return communicator_.size; }
  void all_gather(nb::handle mine, nb::handle every, std::vector<std::size_t> const& sizes) const {
    Buffer const from(mine, PyBUF_SIMPLE), to(every, PyBUF_WRITABLE);
    auto const gather = communicator_.all_gather;  // close() may come while the message goes on.
    nb::gil_scoped_release const released;
    gather(from.data(), to.data(), sizes);
  }
  /// Any thread may call it. The next message of this rank fails, and the other ranks learn that this one has ended.
  void close() {
    communicator_.all_gather = [](void const*, void*, std::span<std::size_t const>) {
      throw Error(ErrorCode::device_failure, "ranks: this rank has ended");
    };
  }

 private:
  Communicator communicator_;
};

/// On the CPU without `index`.
std::shared_ptr<Session> distributed_session(int rank, int size, nb::object all_gather, double limit, int threads,
                                             std::optional<int> index, std::uintptr_t stream, nb::object allocate,
                                             nb::object release) {
  auto const gather = std::make_shared<PythonGather>(std::move(all_gather));
  Communicator communicator{rank, size,
                            [gather, rank](void const* mine, void* all, std::span<std::size_t const> bytes_of) {
                              (*gather)(rank, mine, all, bytes_of);
                            },
                            limit};
  CudaOptions options{.index = index.value_or(0), .stream = reinterpret_cast<void*>(stream)};
  if (index) options.allocator = allocator_of(std::move(allocate), std::move(release));
  nb::gil_scoped_release const released;  // Context::distributed() waits for the other ranks.
  return std::make_shared<Session>(index ? Context::distributed(std::move(communicator), options)
                                         : Context::distributed(std::move(communicator), threads));
}

}  // namespace

std::shared_ptr<Session::Turns> Session::present_turns() {
  if (!turns_ || forks_ != forks) {
    // A locked mutex must not be destroyed.
    if (turns_) new std::shared_ptr<Turns>(std::move(turns_));
    turns_ = std::make_shared<Turns>();
    forks_ = forks;
  }
  return turns_;
}

void bind_session(nb::module_& module) {
  nb::class_<Session>(module, "Session", "A context of the library: a device and, on CUDA, a stream.")
      .def_prop_ro("device", [](Session const& session) { return to_string(session.device()); });
  module.def(
      "cpu_session", [](int threads) { return std::make_shared<Session>(Context::cpu(threads)); }, nb::arg("threads"));
  module.def("distributed_session", &distributed_session, nb::arg("rank"), nb::arg("size"), nb::arg("all_gather"),
             nb::arg("limit"), nb::arg("threads"), nb::arg("index").none() = nb::none(), nb::arg("stream") = 0,
             nb::arg("allocate") = nb::none(), nb::arg("release") = nb::none());
  nb::class_<LocalCommunicator>(module, "LocalCommunicator", "The communicator of a rank that is a thread.")
      .def_prop_ro("rank", &LocalCommunicator::rank)
      .def_prop_ro("size", &LocalCommunicator::size)
      .def("all_gather", &LocalCommunicator::all_gather, nb::arg("mine"), nb::arg("every"), nb::arg("sizes"))
      .def("close", &LocalCommunicator::close);
  module.def(
      "local_communicators",
      [](int size, double limit) {
        std::vector<LocalCommunicator> ranks;
        for (Communicator& communicator : local_communicators(size, limit)) ranks.emplace_back(std::move(communicator));
        return ranks;
      },
      nb::arg("size"), nb::arg("limit"));
  module.def(
      "cuda_session",
      [](int index, std::uintptr_t stream, nb::object allocate, nb::object release) {
        return std::make_shared<Session>(
            Context::cuda({.index = index,
                           .stream = reinterpret_cast<void*>(stream),
                           .allocator = allocator_of(std::move(allocate), std::move(release))}));
      },
      nb::arg("index"), nb::arg("stream"), nb::arg("allocate") = nb::none(), nb::arg("release") = nb::none());

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
