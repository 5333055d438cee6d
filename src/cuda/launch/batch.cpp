#include "cuda/launch/batch.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "core/numbers.hpp"
#include "cuda/launch/copy_words.hpp"
#include "cuda/launch/sizes.hpp"

namespace monge::cuda {
namespace {

constexpr std::size_t kSegmentBytes = std::size_t{1} << 20;
constexpr std::size_t kAlignment = 16;

/// Blocks are merged while at least this many are left for each multiprocessor.
constexpr int kWaves = 3;

/// Whether the blocks of both launches can share one grid.
bool go_together(LaunchShape const& a, LaunchShape const& b) {
  return a.threads == b.threads && a.shared_bytes == b.shared_bytes && a.rows == b.rows && a.cluster == b.cluster;
}

}  // namespace

/// Copies from the memory may still run: the runtime hands it out again when they are done (Staging::idle()).
Uploads::~Uploads() {
  for (Segment& segment : segments_) runtime_->give_back(std::move(segment.host));
}

Uploads::Place Uploads::reserve(std::size_t bytes) {
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

void Uploads::send() {
  for (Segment& segment : segments_) {
    if (segment.sent == segment.used) continue;
    segment.host->copy_to(segment.device.data(), segment.sent, segment.used, runtime_->stream());
    segment.sent = segment.used;
  }
}

void Batch::record(void const* one, void const* many, LaunchShape const& shape, void const* arguments,
                   std::size_t bytes) {
  Uploads::Place const place = arguments_.reserve(bytes);
  std::memcpy(place.host, arguments, bytes);
  launches_.push_back({one, many, shape, place});
}

void Batch::upload(void const* from, void* to, std::size_t bytes) {
  Uploads::Place const place = arguments_.reserve(bytes);
  std::memcpy(place.host, from, bytes);
  copy_words(place.device, to, static_cast<std::int64_t>(bytes), *this);
}

void Batch::arrange(std::span<std::size_t const> order) {
  steps_.clear();
  for (std::size_t place = 0; place < order.size(); ++place) {
    std::size_t const problem = order[place];
    std::size_t const end = problem + 1 < begins_.size() ? begins_[problem + 1] : launches_.size();
    for (std::size_t k = begins_[problem]; k < end; ++k) {
      std::size_t const step = k - begins_[problem];
      if (step == steps_.size()) steps_.emplace_back();
      Launch const& launch = launches_[k];
      std::vector<Group>& groups = steps_[step];
      auto group = std::find_if(groups.begin(), groups.end(), [&](Group const& candidate) {
        Launch const& first = *candidate.launches[0];
        return first.one == launch.one && go_together(first.shape, launch.shape);
      });
      if (group == groups.end()) group = groups.insert(groups.end(), Group{});
      group->places.push_back(place);
      group->launches.push_back(&launch);
    }
  }
  tables_ = Uploads(runtime_);
  for (std::vector<Group>& groups : steps_) {
    for (Group& group : groups) make_table(group);
  }
  arguments_.send();
  tables_.send();
}

void Batch::make_table(Group& group) {
  Launch const& first = *group.launches[0];
  int blocks = 0;
  for (Launch const* launch : group.launches) blocks += launch->shape.blocks;
  int const merged =
      first.many ? std::clamp(blocks / (kWaves * runtime_->multiprocessors()), 1, first.shape.merged) : 1;
  for (Launch const* launch : group.launches) group.blocks.push_back(divided_up(launch->shape.blocks, merged));
  if (!first.many) return;
  int const count = std::accumulate(group.blocks.begin(), group.blocks.end(), 0);
  Uploads::Place const place = tables_.reserve(to_size(count) * sizeof(BlockOfMany));
  auto* next = static_cast<BlockOfMany*>(place.host);
  for (Launch const* launch : group.launches) {
    for (int block = 0; block < launch->shape.blocks; block += merged)
      *next++ = {launch->arguments.device, block, std::min(merged, launch->shape.blocks - block)};
  }
  group.table = static_cast<BlockOfMany const*>(place.device);
}

void Batch::launch(std::size_t first, std::size_t last, std::size_t problems) const {
  for (std::size_t step = first; step < std::min(last, steps_.size()); ++step) {
    for (Group const& group : steps_[step]) launch(group, problems);
  }
}

void Batch::launch() {
  std::vector<std::size_t> all(begins_.size());
  std::iota(all.begin(), all.end(), std::size_t{0});
  arrange(all);
  launch(0, steps_.size(), all.size());
}

/// Launches the part of the group that belongs to the first `problems` problems.
void Batch::launch(Group const& group, std::size_t problems) const {
  auto const count = std::lower_bound(group.places.begin(), group.places.end(), problems) - group.places.begin();
  if (count == 0) return;
  if (!group.table) {
    for (std::ptrdiff_t k = 0; k < count; ++k) {
      Launch const& own = *group.launches[to_size(k)];
      void* parameters[] = {own.arguments.host};
      launch(own.shape, own.shape.blocks, own.one, parameters);
    }
    return;
  }
  BlockOfMany const* table = group.table;
  void* parameters[] = {&table};
  Launch const& any = *group.launches[0];
  launch(any.shape, std::accumulate(group.blocks.begin(), group.blocks.begin() + count, 0), any.many, parameters);
  runtime_->count_batch_launch();
}

void Batch::launch(LaunchShape const& shape, int blocks, void const* kernel, void** parameters) const {
  launch_shape(kernel, shape, blocks, runtime_->stream(), parameters);
}

}  // namespace monge::cuda
