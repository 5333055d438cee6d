// NVIDIA's collectives between devices, from libnccl.so.2, which is opened at run time: the build needs nothing of it.
#pragma once
#include <array>
#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include <cuda_runtime_api.h>

namespace monge::cuda {

class Graph;

/// The communicator of this rank. A thread of its own makes it, watches its gathers and ends it. Where another rank
/// does not come to a gather, this thread ends the gather, so no wait for the stream is without an end.
class Nccl {
 public:
  /// An ncclUniqueId, which rank 0 makes and gives to all ranks.
  struct Id {
    std::array<char, 128> bytes;
  };
  /// Empty if the library can be opened; otherwise why not.
  static std::string unavailable_reason();
  static Id new_id();

  /// All ranks make one at the same time, for the current device. Ranks wait for each other for `limit` seconds.
  Nccl(Id const& id, int rank, int size, double limit);
  /// Waits until the other ranks end theirs, for `limit` seconds or, after a failure, for one. After that time the
  /// communicator keeps its memory.
  ~Nccl();
  /// Ends all gathers, as the loss of a rank does: the communicator has failed.
  void abandon();
  Nccl(Nccl const&) = delete;
  Nccl& operator=(Nccl const&) = delete;

  /// `all` has `bytes` bytes for each rank; this rank's are at their place.
  void all_gather(void* all, std::size_t bytes, cudaStream_t stream) const;
  /// A graph that holds gathers.
  void launch(Graph const& graph, cudaStream_t stream) const;
  /// The reason why gathers were ended: then `all` of these and of later gathers is not complete. Empty if none was.
  std::string failure() const;

 private:
  void end();
  /// Throws after a failure. While the result lives, no gather is ended.
  std::unique_lock<std::mutex> in_use() const;
  struct State;
  std::shared_ptr<State> state_;
  std::thread thread_;
};

}  // namespace monge::cuda
