// Ranks with a device each: the part of a rank in a number of items, and the gather that completes all parts.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include <cuda_runtime_api.h>

#include "cuda/runtime/nccl.hpp"
#include "ranks/ranks.hpp"

namespace monge::cuda {

/// Items `first` to `first` + `count` - 1 are this rank's. An array that is gathered has `each` items for every rank,
/// `all` together; the last ranks may have fewer items or none.
struct RankPart {
  int first, count, each, all;
};

class DeviceRanks {
 public:
  /// All ranks make it within a call. The current device is this rank's. Devices are joined by NCCL where all ranks
  /// can open it and each has a device of its own, and otherwise by way of host memory.
  explicit DeviceRanks(std::shared_ptr<Ranks> ranks);
  ~DeviceRanks();

  int rank() const { return ranks_->rank(); }
  int size() const { return ranks_->size(); }
  /// Whether gather() enqueues; otherwise it waits, and cannot be recorded in a graph.
  bool enqueues() const { return nccl_.has_value(); }
  /// Completes an array in host memory. Meets the other ranks.
  void exchange(SharedItems const& items) const { ranks_->exchange({&items, 1}); }
  /// The first of this many items for each rank, and their number: parts as equal as there can be.
  std::vector<std::int64_t> edges(std::size_t items) const;
  /// The part of this rank in `count` items, a multiple of `unit`, in whole units.
  RankPart part_of(int count, int unit) const;

  /// Precedes gathers that are enqueued: throws on all ranks if one has left the call.
  void meet() const;
  /// Throws if gathers that were enqueued have been ended, because a rank did not come or NCCL failed.
  void check() const;
  /// Launches a graph that holds gathers. Throws where gathers have been ended: their communicator is gone.
  void launch(Graph const& graph, cudaStream_t stream) const;
  /// `data` has `bytes` for each rank. Copies the part of this rank to the others.
  void gather(void* data, std::int64_t bytes, cudaStream_t stream) const;

 private:
  std::shared_ptr<Ranks> ranks_;
  std::optional<Nccl> nccl_;
};

}  // namespace monge::cuda
