// Context: where work runs. One thread at a time may use a Context; different Contexts are independent.
#pragma once
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <monge/array.hpp>
#include <monge/export.hpp>

namespace monge {

class Backend;  // src/seam/backend.hpp

/// Allocates device memory in the order of a stream (cudaStream_t). Set both functions or neither. The library calls
/// them on the threads that use the context, its plans or its solvers, as long as any of these lives. Where Newton's
/// method solves a batch, several threads call them at once. The functions may destroy plans of the context, but must
/// not call the context.
struct DeviceAllocator {
  /// Returns the address, aligned to 256, of `bytes` > 0 bytes on the context's device, which is the current device.
  /// The memory is for work enqueued in `stream` after this call. Returns null if there is not enough memory. Its
  /// exceptions reach the caller of the library.
  std::function<void*(std::size_t bytes, void* stream)> allocate = {};
  /// Takes back memory of allocate() with the same bytes and stream. Work enqueued in the stream before this call may
  /// still use the memory. Another device may be current. Must not throw.
  std::function<void(void* memory, std::size_t bytes, void* stream)> release = {};
};

struct CudaOptions {
  int index = 0;  ///< Index of the CUDA device.
  /// The caller's cudaStream_t. If null, the context owns a stream that is ordered with the legacy default stream: it
  /// waits for earlier work there, and later work there waits for it. Data written on any other stream must be complete
  /// before a call reads it.
  void* stream = nullptr;
  DeviceAllocator allocator = {};  ///< For all device memory of the context; by default the context has its own pool.
};

/// The default of Communicator::limit, in seconds.
inline constexpr double kRankLimit = 60;

/// Processes that work together, the ranks: this one is `rank` of `size`. mpi.hpp makes a Communicator from an MPI
/// communicator.
struct Communicator {
  int rank = 0;
  int size = 1;
  /// Sends the bytes_of[rank] bytes at `mine` to all ranks. On return `all` has the bytes of all ranks, in the order of
  /// the ranks. All ranks call the function equally often, with equal bytes_of, on the threads that use the context.
  /// Exceptions of the function reach the caller of the library and leave the context unusable. The function should
  /// throw if some rank has not called it within `limit` seconds.
  std::function<void(void const* mine, void* all, std::span<std::size_t const> bytes_of)> all_gather = {};
  /// Seconds, > 0 and <= 1e6, that a rank waits for the others in a message. It must exceed the time by which ranks
  /// differ in their work between messages, and between calls. Where NCCL sends the messages, the library enforces the
  /// limit itself.
  double limit = kRankLimit;
};

/// The communicators of `size` ranks on this machine, in order: ranks are threads, or processes that fork() makes after
/// this call. A rank uses its own communicator and destroys its copies of the others. Messages go through sockets to
/// rank 0 and back. A rank that has ended, or destroyed its communicator, ends the call of the others at once. Throws
/// device_failure where the system has no sockets left.
MONGE_API std::vector<Communicator> local_communicators(int size, double limit = kRankLimit);

class MONGE_API Context {
 public:
  /// The CPU with up to `threads` threads, at most 4096; small problems take fewer. 0: OpenMP's choice (OMP_NUM_THREADS
  /// or all cores). A child made by fork() may use the contexts of its parent, with as many threads and the same bits,
  /// unless another thread of the parent was in a call at the time of the fork. Throws invalid_argument; calls throw
  /// out_of_memory where the system starts too few threads.
  static Context cpu(int threads = 0);
  /// The CPUs of all ranks, `threads` threads each as in cpu(). Every rank makes the context, and then the same calls
  /// with equal inputs and options, and gets the same results, with equal bits. A rank that has other inputs, is in
  /// another call or leaves a call by an exception ends this call on all ranks with one error. If a rank makes no call,
  /// the call of the other ranks ends at the time limit of the communicator. The answer of a callback on rank 0 counts
  /// on all ranks. If a cost matrix is larger than 16 MiB, only pieces of it are compared. docs/scale.md says which
  /// work is divided among the ranks. Throws invalid_argument where ranks differ in threads, version or instruction
  /// set.
  static Context distributed(Communicator communicator, int threads = 0);
  /// The same with a CUDA device for each rank; all devices are of one model. NCCL (libnccl.so.2, opened at run time)
  /// gathers the results if all ranks have it and each has a device of its own. Otherwise the results go through host
  /// memory, which is slow: see docs/scale.md. Inputs in device memory are compared by their shapes alone. Also throws
  /// as cuda() does.
  static Context distributed(Communicator communicator, CudaOptions const& options);
  /// One CUDA device. Throws unsupported if this build has no CUDA or the machine has no device of this index. If the
  /// allocator returns null, the call that needs memory throws out_of_memory.
  static Context cuda(CudaOptions const& options = {});

  Device device() const;

 private:
  friend Backend const& backend_of(Context const& context);
  explicit Context(std::shared_ptr<Backend const> backend) : backend_(std::move(backend)) {}
  std::shared_ptr<Backend const> backend_;
};

/// A device that this build can use.
struct DeviceInfo {
  Device device;
  std::string name;               ///< Processor or GPU name.
  std::string instruction_set;    ///< Chosen at run time: "AVX3", "AVX2", "sm_90", ...
  int units = 0;                  ///< Threads (CPU) or multiprocessors (CUDA).
  std::int64_t memory_bytes = 0;  ///< Physical memory.
};

/// The CPU first, then every CUDA device that a Context can be made for.
MONGE_API std::vector<DeviceInfo> devices();
/// Empty if CUDA is usable, otherwise the reason, a sentence without a full stop.
MONGE_API std::string cuda_unavailable_reason();
/// "0.1.0".
MONGE_API std::string version();

struct ComponentVersion {
  std::string name, version;
};
/// The components of this build and their versions: monge, compiler, highway, openmp and, with CUDA, cuda_runtime and
/// cuda_driver (the newest CUDA that the driver of this machine supports, "none" without a driver).
MONGE_API std::vector<ComponentVersion> component_versions();

}  // namespace monge
