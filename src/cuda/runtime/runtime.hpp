// A CUDA device as a backend uses it: its stream, memory pool and properties, and classes that own memory and graphs.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <cuda_runtime_api.h>

#include <monge/context.hpp>

#include "core/memory_count.hpp"
#include "core/numbers.hpp"
#include "cuda/runtime/check.hpp"

namespace monge {
class Ranks;
}  // namespace monge

namespace monge::cuda {

/// Makes `index` the current device of this thread; the destructor restores the previous one.
class DeviceGuard {
 public:
  explicit DeviceGuard(int index);
  ~DeviceGuard();
  DeviceGuard(DeviceGuard const&) = delete;
  DeviceGuard& operator=(DeviceGuard const&) = delete;

 private:
  int previous_ = 0;
  bool changed_ = false;
};

class Stream {
 public:
  /// Creates a stream on the current device. `flags`: cudaStreamDefault, ordered after work of the application on the
  /// legacy default stream, or cudaStreamNonBlocking.
  explicit Stream(unsigned flags) { MONGE_CUDA_TRY(cudaStreamCreateWithFlags(&stream_, flags)); }
  explicit Stream(cudaStream_t borrowed) : stream_(borrowed), owned_(false) {}
  ~Stream();
  Stream(Stream&& other) noexcept : stream_(other.stream_), owned_(std::exchange(other.owned_, false)) {}
  Stream& operator=(Stream&&) = delete;
  cudaStream_t get() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
  bool owned_ = true;
};

class Event {
 public:
  /// Flags as of cudaEventCreateWithFlags().
  explicit Event(unsigned flags = cudaEventDisableTiming) { MONGE_CUDA_TRY(cudaEventCreateWithFlags(&event_, flags)); }
  ~Event() { cudaEventDestroy(event_); }
  Event(Event const&) = delete;
  Event& operator=(Event const&) = delete;
  cudaEvent_t get() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

/// Page-locked host memory: copies to and from the device need no intermediate buffer.
template <class T>
class PinnedArray {
 public:
  PinnedArray() = default;
  explicit PinnedArray(std::int64_t size) : size_(size) {
    void* pointer = nullptr;
    MONGE_CUDA_TRY(cudaMallocHost(&pointer, to_size(size > 0 ? size : 1) * sizeof(T)));
    data_ = static_cast<T*>(pointer);
  }
  ~PinnedArray() {
    if (data_) cudaFreeHost(data_);
  }
  PinnedArray(PinnedArray&& other) noexcept { swap(other); }
  PinnedArray& operator=(PinnedArray&& other) noexcept {
    swap(other);
    return *this;
  }
  T* data() const { return data_; }
  T& operator[](std::int64_t i) const { return data_[i]; }
  std::int64_t size() const { return size_; }

 private:
  void swap(PinnedArray& other) {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
  }
  T* data_ = nullptr;
  std::int64_t size_ = 0;
};

/// Requests to a runtime so far.
struct RuntimeCounters {
  std::int64_t allocations = 0, waits = 0;
  std::int64_t batch_launches = 0;  // Kernel launches for many problems.
};

class DeviceRanks;
class Staging;

/// A backend and its operators share a Runtime, so an operator may outlive its context. One thread works at a time.
class Runtime {
 public:
  /// The device must exist. With ranks, all make their runtimes within a call.
  explicit Runtime(CudaOptions const& options, std::shared_ptr<Ranks> ranks = nullptr);
  ~Runtime();
  Runtime(Runtime const&) = delete;
  Runtime& operator=(Runtime const&) = delete;

  int index() const { return index_; }
  std::string const& name() const { return name_; }
  int multiprocessors() const { return multiprocessors_; }
  /// Operations in float32 in the time of one in float64.
  int float64_ratio() const { return float64_ratio_; }
  std::string instruction_set() const;
  std::int64_t memory_bytes() const { return memory_bytes_; }
  cudaStream_t stream() const { return stream_->get(); }
  /// Only for recording graphs: a capture must not catch work that the caller puts on his own stream.
  cudaStream_t capture_stream() const { return capture_stream_->get(); }

  /// Memory that calls in stream() may use in turn. Its users own it.
  std::weak_ptr<void>& scratch() const { return scratch_; }

  void wait() const;
  void count_batch_launch() const { ++counters_.batch_launches; }
  /// Page-locked memory for one copy in the stream, at most kMostStaged bytes, aligned to 16. wait() takes all of it
  /// back; staging() calls wait() if too little is left.
  void* staging(std::int64_t bytes) const;
  static constexpr std::int64_t kMostStaged = std::int64_t{1} << 18;
  /// Device memory for work in `stream`, from the caller's allocator if there is one. Release it for the same stream.
  void* allocate(std::size_t bytes, cudaStream_t stream) const;
  void release(void* memory, std::size_t bytes, cudaStream_t stream) const noexcept;

  /// Page-locked memory of at least `bytes` for a batch. give_back() makes it available to the next batch. Memory
  /// beyond kMostKeptStaging bytes ends there, once its copies are done.
  std::unique_ptr<Staging> batch_staging(std::size_t bytes) const;
  void give_back(std::unique_ptr<Staging> staging) const noexcept;
  static constexpr std::size_t kMostKeptStaging = std::size_t{1} << 28;

  /// Null for one rank.
  DeviceRanks const* ranks() const { return ranks_.get(); }
  RuntimeCounters const& counters() const { return counters_; }
  MemoryCount& memory() const { return memory_; }

 private:
  friend class ArenaScope;
  /// A large allocation that is cut into small ones, one after the other. It is freed with the last of them; while an
  /// ArenaScope lives, not before the scope ends.
  struct ArenaPiece {
    unsigned char* data;
    std::size_t bytes;
    std::size_t used = 0;
    int in_use = 0;
    bool open = true;  // Allows further cuts.
  };
  /// The largest allocation that is cut from a piece without an ArenaScope, where the caller allocates: a call of
  /// PyTorch's allocator takes as long as a kernel launch.
  static constexpr std::size_t kMostOfSmall = std::size_t{1} << 18;
  void* allocate_alone(std::size_t bytes, cudaStream_t stream) const;
  void release_alone(void* memory, std::size_t bytes, cudaStream_t stream) const noexcept;
  void* cut_from_arena(std::size_t bytes) const;
  void close_arena() const noexcept;

  int index_;
  int multiprocessors_ = 0;
  int float64_ratio_ = 2;
  int capability_ = 0;
  std::int64_t memory_bytes_ = 0;
  std::string name_;
  DeviceAllocator allocator_;
  cudaMemPool_t pool_ = nullptr;  // Null if there is an allocator.
  mutable RuntimeCounters counters_;
  mutable MemoryCount memory_;
  mutable std::vector<ArenaPiece> arena_;
  mutable int arena_scopes_ = 0;
  mutable std::vector<std::unique_ptr<Staging>> stagings_;
  std::unique_ptr<Stream> stream_;
  PinnedArray<unsigned char> staging_;
  mutable std::int64_t staged_ = 0;  // Bytes of staging_ in use.
  mutable std::weak_ptr<void> scratch_;
  std::unique_ptr<Stream> capture_stream_;
  std::shared_ptr<DeviceRanks const> ranks_;
};

/// While a scope lives, device memory for the runtime's stream is cut from a few large pieces. Released memory is not
/// handed out again within the scope, since enqueued work may still use it.
class ArenaScope {
 public:
  explicit ArenaScope(Runtime const& runtime) : runtime_(runtime) { ++runtime_.arena_scopes_; }
  ~ArenaScope() {
    if (--runtime_.arena_scopes_ == 0) runtime_.close_arena();
  }
  ArenaScope(ArenaScope const&) = delete;
  ArenaScope& operator=(ArenaScope const&) = delete;

 private:
  Runtime const& runtime_;
};

/// Device memory, allocated and freed in stream order. Its contents are uninitialised.
template <class T>
class DeviceArray {
 public:
  DeviceArray() = default;
  /// Memory in the order of the runtime's stream.
  DeviceArray(std::shared_ptr<Runtime const> const& runtime, std::int64_t size)
      : DeviceArray(runtime, size, runtime->stream()) {}
  DeviceArray(std::shared_ptr<Runtime const> runtime, std::int64_t size, cudaStream_t stream)
      : runtime_(std::move(runtime)), stream_(stream), size_(size) {
    if (size > 0) data_ = static_cast<T*>(runtime_->allocate(to_size(bytes()), stream));
  }
  ~DeviceArray() {
    if (data_) runtime_->release(data_, to_size(bytes()), stream_);
  }
  DeviceArray(DeviceArray&& other) noexcept { swap(other); }
  DeviceArray& operator=(DeviceArray&& other) noexcept {
    swap(other);
    return *this;
  }

  T* data() const { return data_; }
  std::int64_t size() const { return size_; }
  std::int64_t bytes() const { return size_ * static_cast<std::int64_t>(sizeof(T)); }

 private:
  void swap(DeviceArray& other) {
    std::swap(runtime_, other.runtime_);
    std::swap(stream_, other.stream_);
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
  }
  std::shared_ptr<Runtime const> runtime_;
  cudaStream_t stream_ = nullptr;
  T* data_ = nullptr;
  std::int64_t size_ = 0;
};

/// Page-locked memory for copies to the device.
class Staging {
 public:
  explicit Staging(std::size_t bytes) : memory_(static_cast<std::int64_t>(bytes)) {}
  ~Staging() { cudaEventSynchronize(copied_.get()); }
  Staging(Staging const&) = delete;
  Staging& operator=(Staging const&) = delete;
  unsigned char* data() const { return memory_.data(); }
  std::size_t bytes() const { return to_size(memory_.size()); }
  /// Copies bytes `begin` to `end` to the same offsets from `device`.
  void copy_to(unsigned char* device, std::size_t begin, std::size_t end, cudaStream_t stream) {
    MONGE_CUDA_TRY(cudaMemcpyAsync(device + begin, data() + begin, end - begin, cudaMemcpyHostToDevice, stream));
    MONGE_CUDA_TRY(cudaEventRecord(copied_.get(), stream));
  }
  /// Whether the last copy is done.
  bool idle() const {
    if (cudaEventQuery(copied_.get()) == cudaSuccess) return true;
    (void)cudaGetLastError();  // "Not ready" is not an error.
    return false;
  }

 private:
  PinnedArray<unsigned char> memory_;
  Event copied_;
};

/// A recorded sequence of launches.
class Graph {
 public:
  /// Records the launches of `enqueue(stream)`.
  template <class Enqueue>
  Graph(Runtime const& runtime, Enqueue&& enqueue) {
    cudaStream_t const stream = runtime.capture_stream();
    cudaGraph_t graph = nullptr;
    MONGE_CUDA_TRY(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    try {
      enqueue(stream);
    } catch (...) {
      if (cudaStreamEndCapture(stream, &graph) == cudaSuccess && graph) cudaGraphDestroy(graph);
      throw;
    }
    MONGE_CUDA_TRY(cudaStreamEndCapture(stream, &graph));
    cudaError_t const code = cudaGraphInstantiate(&executable_, graph, 0);
    cudaGraphDestroy(graph);
    check(code, "cudaGraphInstantiate");
  }
  ~Graph() { cudaGraphExecDestroy(executable_); }
  Graph(Graph const&) = delete;
  Graph& operator=(Graph const&) = delete;
  void launch(cudaStream_t stream) const { MONGE_CUDA_TRY(cudaGraphLaunch(executable_, stream)); }

 private:
  cudaGraphExec_t executable_ = nullptr;
};

}  // namespace monge::cuda
