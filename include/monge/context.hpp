// Context: where work runs. One thread at a time may use a Context; different Contexts are independent.
#pragma once
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <monge/array.hpp>

namespace monge {

class Backend;  // src/backend/backend.hpp

/// A pool of device memory in the order of streams (cudaStream_t): both functions, or neither. They are called on the
/// threads that use the context and what it made, and as long as any of that lives.
struct DeviceAllocator {
  /// `bytes` > 0 bytes on the context's device, aligned to 256, for work that is enqueued in `stream` from now on.
  /// Null: there are not so many. What it throws passes through.
  std::function<void*(std::size_t bytes, void* stream)> allocate = {};
  /// Takes back what allocate gave for this stream and so many bytes; work enqueued there before may still use it.
  /// Another device may be current. Must not throw.
  std::function<void(void* memory, std::size_t bytes, void* stream)> release = {};
};

struct CudaOptions {
  int index = 0;  ///< Of the device.
  /// A cudaStream_t of the caller's; null makes the context own one, which keeps the order of the legacy default
  /// stream: it waits for what was started there before, and is waited for by what comes after. Data written on any
  /// other stream must be complete before a call reads it.
  void* stream = nullptr;
  DeviceAllocator allocator = {};  ///< Of all device memory of the context; by default from a pool of its own.
};

class Context {
 public:
  /// The CPU with up to `threads` threads (small problems take fewer); 0: OpenMP's choice (OMP_NUM_THREADS or all
  /// cores).
  static Context cpu(int threads = 0);
  /// Throws unsupported when this build has no CUDA or the machine no such device. Where the allocator returns null,
  /// the call that needs memory throws out_of_memory.
  static Context cuda(CudaOptions const& options = {});

  Device device() const;

 private:
  friend Backend const& backend_of(Context const& context);
  explicit Context(std::shared_ptr<Backend const> backend) : backend_(std::move(backend)) {}
  std::shared_ptr<Backend const> backend_;
};

/// One device that this build could use or that it explains why it cannot.
struct DeviceInfo {
  Device device;
  std::string name;               ///< Processor or GPU name.
  std::string instruction_set;    ///< Chosen at run time: "AVX3", "AVX2", "sm_90", ...
  int units = 0;                  ///< Threads (CPU) or multiprocessors (CUDA).
  std::int64_t memory_bytes = 0;  ///< Physical memory.
};

/// The CPU first, then every CUDA device that a Context can be made for.
std::vector<DeviceInfo> devices();
/// Empty where CUDA is usable; otherwise why not ("built without CUDA", "no CUDA device: ...").
std::string cuda_unavailable_reason();
/// "0.1.0".
std::string version();

struct ComponentVersion {
  std::string name, version;
};
/// What this build of the library is made of: monge, compiler, highway, openmp and, with CUDA, cuda_runtime and
/// cuda_driver (the newest CUDA that the driver of this machine supports, "none" without a driver).
std::vector<ComponentVersion> component_versions();

}  // namespace monge
