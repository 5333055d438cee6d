// NVIDIA's collectives between devices, from libnccl.so.2, which is opened at run time: the build needs nothing of it.
#pragma once
#include <array>
#include <cstddef>
#include <string>

#include <cuda_runtime_api.h>

namespace monge::cuda {

/// The communicator of this rank.
class Nccl {
 public:
  /// What rank 0 makes and gives to all ranks; ncclUniqueId.
  struct Id {
    std::array<char, 128> bytes;
  };
  /// Empty if the library can be opened; otherwise why not.
  static std::string unavailable_reason();
  static Id new_id();

  /// All ranks make one at the same time, for the current device.
  Nccl(Id const& id, int rank, int size);
  ~Nccl();
  Nccl(Nccl const&) = delete;
  Nccl& operator=(Nccl const&) = delete;

  /// `all` has `bytes` bytes for each rank; this rank's are at their place.
  void all_gather(void* all, std::size_t bytes, cudaStream_t stream) const;

 private:
  void* communicator_ = nullptr;  // ncclComm_t
  int rank_;
};

}  // namespace monge::cuda
