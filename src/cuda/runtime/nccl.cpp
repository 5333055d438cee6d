#include "cuda/runtime/nccl.hpp"

#include <dlfcn.h>

#include <monge/error.hpp>

namespace monge::cuda {
namespace {

constexpr char const* kName = "libnccl.so.2";

/// The functions in use, as nccl.h declares them.
struct Library {
  int (*new_id)(Nccl::Id*) = nullptr;
  int (*begin)(void** communicator, int size, Nccl::Id, int rank) = nullptr;
  int (*end)(void* communicator) = nullptr;
  int (*all_gather)(void const* from, void* to, std::size_t count, int type, void* communicator,
                    cudaStream_t) = nullptr;
  char const* (*text)(int code) = nullptr;
  std::string missing;  // Why it cannot be used.

  Library() {
    // It stays open, as the threads that it starts may outlive every communicator.
    void* const opened = dlopen(kName, RTLD_NOW | RTLD_LOCAL);
    if (opened == nullptr) {
      char const* const error = dlerror();
      missing = error ? error : kName;
      return;
    }
    find(opened, "ncclGetUniqueId", new_id);
    find(opened, "ncclCommInitRank", begin);
    find(opened, "ncclCommDestroy", end);
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

Nccl::Nccl(Id const& id, int rank, int size) : rank_(rank) {
  library().check(library().begin(&communicator_, size, id, rank), "ncclCommInitRank");
}

Nccl::~Nccl() {
  library().end(communicator_);
}

void Nccl::all_gather(void* all, std::size_t bytes, cudaStream_t stream) const {
  constexpr int kBytes = 0;  // ncclInt8
  void const* const mine = static_cast<std::byte const*>(all) + static_cast<std::size_t>(rank_) * bytes;
  library().check(library().all_gather(mine, all, bytes, kBytes, communicator_, stream), "ncclAllGather");
}

}  // namespace monge::cuda
