#include "cuda/launch/batch.hpp"

#include <algorithm>
#include <cstring>

#include "cuda/launch/pack.hpp"

namespace monge::cuda {
namespace {

constexpr std::size_t kSegmentBytes = std::size_t{1} << 20;
constexpr std::size_t kAlignment = 16;

}  // namespace

Batch::~Batch() {
  for (Segment& segment : segments_) runtime_->give_back(std::move(segment.host));
}

Batch::Place Batch::stage(std::size_t bytes) {
  bytes = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  if (segments_.empty() || segments_.back().used + bytes > segments_.back().host->bytes()) {
    std::unique_ptr<Staging> host = runtime_->batch_staging(std::max(bytes, kSegmentBytes));
    DeviceArray<unsigned char> device(runtime_, static_cast<std::int64_t>(host->bytes()));
    segments_.push_back({std::move(host), std::move(device)});
  }
  Segment& segment = segments_.back();
  Place const place{segment.host->data() + segment.used, segment.device.data() + segment.used};
  segment.used += bytes;
  return place;
}

void Batch::record(void const* one, void const* many, LaunchShape const& shape, void const* arguments,
                   std::size_t bytes) {
  Place const place = stage(bytes);
  std::memcpy(place.host, arguments, bytes);
  if (step_ == steps_.size()) steps_.emplace_back();
  std::vector<Group>& groups = steps_[step_++];
  auto const found = std::find_if(groups.begin(), groups.end(), [&](Group const& group) {
    return group.one == one && group.shape.shared_bytes == shape.shared_bytes && group.shape.cluster == shape.cluster;
  });
  Group& group = found != groups.end() ? *found : groups.emplace_back(Group{one, many, shape, {}});
  group.entries.push_back({problems_ - 1, shape.blocks, place});
}

void Batch::upload(void const* from, void* to, std::size_t bytes) {
  Place const place = stage(bytes);
  std::memcpy(place.host, from, bytes);
  copy_words(place.device, to, static_cast<std::int64_t>(bytes), *this);
}

void Batch::upload() {
  for (std::vector<Group>& groups : steps_) {
    for (Group& group : groups) {
      if (!group.many) continue;
      std::size_t blocks = 0;
      for (Entry const& entry : group.entries) blocks += static_cast<std::size_t>(entry.blocks);
      Place const place = stage(blocks * sizeof(BlockOfMany));
      auto* next = static_cast<BlockOfMany*>(place.host);
      for (Entry const& entry : group.entries) {
        for (int block = 0; block < entry.blocks; ++block) *next++ = {entry.arguments.device, block};
      }
      group.table = static_cast<BlockOfMany const*>(place.device);
    }
  }
  for (Segment& segment : segments_) segment.host->copy_to(segment.device.data(), segment.used, runtime_->stream());
}

void Batch::launch(std::size_t first, std::size_t last, std::size_t problems) const {
  for (std::size_t step = first; step < std::min(last, steps_.size()); ++step) {
    for (Group const& group : steps_[step]) launch(group, problems);
  }
}

void Batch::launch() {
  upload();
  launch(0, steps_.size(), problems_);
}

/// The part of the group's launch that belongs to the first problems.
void Batch::launch(Group const& group, std::size_t problems) const {
  int blocks = 0;
  for (Entry const& entry : group.entries) {
    if (entry.problem >= problems) break;
    if (group.table) {
      blocks += entry.blocks;
    } else {
      void* parameters[] = {entry.arguments.host};
      launch(group, group.one, entry.blocks, parameters);
    }
  }
  if (!group.table || blocks == 0) return;
  BlockOfMany const* table = group.table;
  void* parameters[] = {&table};
  launch(group, group.many, blocks, parameters);
  runtime_->count_batch_launch();
}

void Batch::launch(Group const& group, void const* kernel, int blocks, void** parameters) const {
  launch_shape(kernel, group.shape, blocks, runtime_->stream(), parameters);
}

}  // namespace monge::cuda
