#include "cuda/runtime/nccl.hpp"

#include <dlfcn.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <utility>

#include <fmt/format.h>
#include <monge/error.hpp>

#include "core/numbers.hpp"
#include "cuda/runtime/check.hpp"
#include "cuda/runtime/steps.hpp"

namespace monge::cuda {
namespace {

constexpr char const* kName = "libnccl.so.2";

/// The functions in use, as nccl.h declares them.
struct Library {
  int (*new_id)(Nccl::Id*) = nullptr;
  int (*begin)(void** communicator, int size, Nccl::Id, int rank) = nullptr;
  int (*end)(void* communicator) = nullptr;
  int (*abort)(void* communicator) = nullptr;
  int (*find_error)(void* communicator, int* code) = nullptr;
  int (*all_gather)(void const* from, void* to, std::size_t count, int type, void* communicator,
                    cudaStream_t) = nullptr;
  char const* (*text)(int code) = nullptr;
  std::string missing;  // The reason why NCCL cannot be used.

  Library() {
    // The library stays open: the threads that it starts may outlive every communicator.
    void* const opened = dlopen(kName, RTLD_NOW | RTLD_LOCAL);
    if (opened == nullptr) {
      char const* const error = dlerror();
      missing = error ? error : kName;
      return;
    }
    find(opened, "ncclGetUniqueId", new_id);
    find(opened, "ncclCommInitRank", begin);
    find(opened, "ncclCommDestroy", end);
    find(opened, "ncclCommAbort", abort);
    find(opened, "ncclCommGetAsyncError", find_error);
    find(opened, "ncclAllGather", all_gather);
    find(opened, "ncclGetErrorString", text);
  }
  template <class Function>
  void find(void* opened, char const* name, Function& function) {
    function = reinterpret_cast<Function>(dlsym(opened, name));
    if (function == nullptr) missing = std::string(kName) + " has no " + name;
  }
  void check(int code, char const* call) const {
    if (code != 0) throw Error(ErrorCode::device_failure, std::string(call) + ": " + text(code));
  }
};

Library const& library() {
  static Library const opened;
  return opened;
}

}  // namespace

std::string Nccl::unavailable_reason() {
  return library().missing;
}

Nccl::Id Nccl::new_id() {
  Id id{};
  library().check(library().new_id(&id), "ncclGetUniqueId");
  return id;
}

/// Data of the thread of a communicator and of its users. A step is counted before and behind each gather, so an odd
/// count that stays is a gather that waits for another rank.
struct Nccl::State {
  using Clock = std::chrono::steady_clock;

  std::string late() const {
    return fmt::format("ranks: not all of the {} ranks came within {} s (limit); rank {} waits no longer", size, limit,
                       rank);
  }
  void enqueue(void* all, std::size_t bytes, cudaStream_t stream) const {
    constexpr int kBytes = 0;  // ncclInt8
    void const* const mine = static_cast<std::byte const*>(all) + to_size(rank) * bytes;
    steps.add(stream);
    library().check(library().all_gather(mine, all, bytes, kBytes, communicator, stream), "ncclAllGather");
    steps.add(stream);
  }
  void run(Id const& id, int device) {
    std::string error;
    try {
      MONGE_CUDA_TRY(cudaSetDevice(device));
      library().check(library().begin(&communicator, size, id, rank), "ncclCommInitRank");
      // The first gather makes connections. No user may wait for these with the mutex.
      Stream const stream(cudaStreamNonBlocking);
      PinnedArray<std::byte> const scratch(size);
      enqueue(scratch.data(), 1, stream.get());
      MONGE_CUDA_TRY(cudaStreamSynchronize(stream.get()));
    } catch (Error const& caught) {
      error = caught.what();
    }
    std::unique_lock lock(mutex);
    if (failure.empty()) failure = error;
    joined = true;
    changed.notify_all();
    watch(lock);
    bool const fails = !failure.empty();
    lock.unlock();  // The end waits until users have destroyed their graphs, and other ranks their communicators.
    if (communicator) fails ? library().abort(communicator) : library().end(communicator);
    lock.lock();
    ended = true;
    changed.notify_all();
  }
  void watch(std::unique_lock<std::mutex>& lock) {
    constexpr std::chrono::milliseconds kPeriod(50);
    constexpr int kInProgress = 7;
    std::uint32_t last = 0;
    Clock::time_point since = Clock::now();
    while (failure.empty() && !changed.wait_for(lock, kPeriod, [&] { return ends; })) {
      Clock::time_point const now = Clock::now();
      std::uint32_t const done = steps.done();
      if (std::exchange(last, done) != done) since = now;
      int code = 0;
      library().find_error(communicator, &code);
      if (code != 0 && code != kInProgress) failure = fmt::format("ranks: a gather failed: {}", library().text(code));
      if (done % 2 == 1 && std::chrono::duration<double>(now - since).count() > limit) failure = late();
    }
  }

  int rank, size;
  double limit;
  StepCount steps{};
  void* communicator = nullptr;  // ncclComm_t
  std::condition_variable changed{};
  std::mutex mutex{};  // For enqueue(), from `joined` on, and for these:
  bool joined = false, ends = false, ended = false;
  std::string failure{};
};

Nccl::Nccl(Id const& id, int rank, int size, double limit) : state_(new State{rank, size, limit}) {
  int device = 0;
  MONGE_CUDA_TRY(cudaGetDevice(&device));
  thread_ = std::thread([state = state_, id, device] { state->run(id, device); });
  std::unique_lock lock(state_->mutex);
  bool const joined =
      state_->changed.wait_for(lock, std::chrono::duration<double>(limit), [&] { return state_->joined; });
  if (joined && state_->failure.empty()) return;
  if (!joined) state_->failure = state_->late();
  std::string const failure = state_->failure;
  lock.unlock();
  end();
  throw Error(ErrorCode::device_failure, failure);
}

Nccl::~Nccl() {
  end();
}

void Nccl::end() {
  std::unique_lock lock(state_->mutex);
  state_->ends = true;
  state_->changed.notify_all();
  std::chrono::duration<double> const patience(state_->failure.empty() ? state_->limit : 1.0);
  bool const ended = state_->changed.wait_for(lock, patience, [&] { return state_->ended; });
  lock.unlock();
  // A thread that waits for a lost rank may never return.
  ended ? thread_.join() : thread_.detach();
}

void Nccl::abandon() {
  std::scoped_lock const lock(state_->mutex);
  if (state_->failure.empty()) state_->failure = "ranks: a message failed";
}

std::unique_lock<std::mutex> Nccl::in_use() const {
  std::unique_lock lock(state_->mutex);
  if (!state_->failure.empty()) throw Error(ErrorCode::device_failure, state_->failure);
  return lock;
}

void Nccl::all_gather(void* all, std::size_t bytes, cudaStream_t stream) const {
  auto const lock = in_use();
  state_->enqueue(all, bytes, stream);
}

void Nccl::launch(Graph const& graph, cudaStream_t stream) const {
  auto const lock = in_use();
  graph.launch(stream);
}

std::string Nccl::failure() const {
  std::scoped_lock const lock(state_->mutex);
  return state_->failure;
}

}  // namespace monge::cuda
