#include "cuda/runtime/device_ranks.hpp"

#include <cstddef>
#include <cstring>
#include <vector>

#include "core/numbers.hpp"
#include "cuda/runtime/check.hpp"

namespace monge::cuda {
namespace {

/// The message by which ranks choose how to join their devices.
struct Introduction {
  cudaUUID_t device;
  bool has_nccl;
  Nccl::Id id;  // The id that rank 0 has made.
};

bool same(cudaUUID_t const& p, cudaUUID_t const& q) {
  return std::memcmp(&p, &q, sizeof p) == 0;
}

}  // namespace

DeviceRanks::DeviceRanks(std::shared_ptr<Ranks> ranks) : ranks_(std::move(ranks)) {
  int device = 0;
  cudaDeviceProp properties;
  MONGE_CUDA_TRY(cudaGetDevice(&device));
  MONGE_CUDA_TRY(cudaGetDeviceProperties(&properties, device));
  std::vector<Introduction> all(to_size(size()));
  Introduction& mine = all[to_size(rank())];
  mine = {properties.uuid, Nccl::unavailable_reason().empty(), {}};
  if (rank() == 0 && mine.has_nccl) mine.id = Nccl::new_id();
  std::vector<std::int64_t> const one_each = edges(all.size());
  exchange(shared_items(all.data(), 1, one_each));
  for (std::size_t r = 0; r < all.size(); ++r) {
    auto const shares_device = [&](Introduction const& other) { return same(other.device, all[r].device); };
    if (!all[r].has_nccl || std::any_of(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(r), shares_device))
      return;
  }
  nccl_.emplace(all[0].id, rank(), size(), ranks_->limit());
}

DeviceRanks::~DeviceRanks() {
  if (nccl_ && ranks_->lost()) nccl_->abandon();
}

std::vector<std::int64_t> DeviceRanks::edges(std::size_t items) const {
  std::vector<std::int64_t> edges(to_size(size()) + 1);
  for (std::size_t r = 0; r < edges.size(); ++r) edges[r] = static_cast<std::int64_t>(items * r / to_size(size()));
  return edges;
}

RankPart DeviceRanks::part_of(int count, int unit) const {
  int const units = count / unit, each = (units + size() - 1) / size() * unit;
  int const first = static_cast<int>(std::min<std::int64_t>(std::int64_t{each} * rank(), count));
  return {first, std::min(each, count - first), each, each * size()};
}

void DeviceRanks::meet() const {
  check();
  if (nccl_) ranks_->meet();
}

void DeviceRanks::check() const {
  if (!nccl_ || !ranks_->in_call()) return;
  std::string const failure = nccl_->failure();
  if (failure.empty()) return;
  ranks_->lose();
  throw Error(ErrorCode::device_failure, failure);
}

void DeviceRanks::launch(Graph const& graph, cudaStream_t stream) const {
  check();
  nccl_->launch(graph, stream);
}

void DeviceRanks::gather(void* data, std::int64_t bytes, cudaStream_t stream) const {
  check();
  if (nccl_) return nccl_->all_gather(data, to_size(bytes), stream);
  std::int64_t const all = bytes * size(), first = bytes * rank();
  std::vector<std::byte> host(to_size(all));
  MONGE_CUDA_TRY(cudaMemcpyAsync(host.data() + first, static_cast<std::byte*>(data) + first, to_size(bytes),
                                 cudaMemcpyDeviceToHost, stream));
  MONGE_CUDA_TRY(cudaStreamSynchronize(stream));
  std::vector<std::int64_t> const of_ranks = edges(host.size());
  exchange(shared_items(host.data(), 1, of_ranks));
  MONGE_CUDA_TRY(cudaMemcpyAsync(data, host.data(), host.size(), cudaMemcpyHostToDevice, stream));
  MONGE_CUDA_TRY(cudaStreamSynchronize(stream));
}

}  // namespace monge::cuda
