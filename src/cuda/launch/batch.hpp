// Launches of many problems, recorded problem by problem and carried out together.
#pragma once
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "cuda/launch/queue.hpp"
#include "cuda/runtime/runtime.hpp"

namespace monge::cuda {

/// Bytes on their way to the device: written on the host, in page-locked memory, and copied in large pieces.
class Uploads {
 public:
  explicit Uploads(std::shared_ptr<Runtime const> runtime) : runtime_(std::move(runtime)) {}
  ~Uploads();
  Uploads(Uploads&&) = default;
  Uploads& operator=(Uploads&& other) noexcept {
    std::swap(runtime_, other.runtime_);
    std::swap(segments_, other.segments_);
    return *this;
  }

  struct Place {
    void* host;
    void const* device;
  };
  Place reserve(std::size_t bytes);
  /// What has been reserved since the last time.
  void send();

 private:
  struct Segment {
    std::unique_ptr<Staging> host;
    DeviceArray<unsigned char> device;
    std::size_t used = 0, sent = 0;
  };
  std::shared_ptr<Runtime const> runtime_;
  std::vector<Segment> segments_;
};

/// The launches of a problem are its steps, in their order. Step k of all problems is one launch, or one for each
/// kernel that it has among them: problems that are alike take as many launches together as one of them takes alone.
/// What a recorded launch works on must stay as it is until it has been launched; an ArenaScope sees to that.
class Batch {
 public:
  explicit Batch(std::shared_ptr<Runtime const> runtime)
      : runtime_(std::move(runtime)), arguments_(runtime_), tables_(runtime_) {}
  Batch(Batch const&) = delete;
  Batch& operator=(Batch const&) = delete;

  /// What is launched from now on are the first steps of another problem.
  void next_problem() { begins_.push_back(launches_.size()); }
  /// One more step of this problem; called by Queue.
  void record(void const* one, void const* many, LaunchShape const& shape, void const* arguments, std::size_t bytes);
  /// A step that copies a few numbers of the host's, `bytes` a multiple of 8; the source may be reused at once.
  void upload(void const* from, void* to, std::size_t bytes);

  /// All steps of all problems.
  void launch();

  /// For steps that are launched again and again: the problems that take part, in an order that holds for the launches
  /// to come; and the steps from `first` to `last` (excluded) of the first `problems` of them.
  void arrange(std::span<std::size_t const> order);
  void launch(std::size_t first, std::size_t last, std::size_t problems) const;

 private:
  /// One step of one problem.
  struct Launch {
    void const* one;
    void const* many;
    LaunchShape shape;
    Uploads::Place arguments;
  };
  /// The launches of one step with one kernel.
  struct Group {
    std::vector<std::size_t> places;      // Of the problems in the order.
    std::vector<Launch const*> launches;  // Theirs.
    std::vector<int> blocks;              // Of the grid, for each; fewer than its own where some are merged.
    BlockOfMany const* table = nullptr;   // Of all blocks; null where the kernel has no form for many.
  };
  void make_table(Group& group);
  void launch(Group const& group, std::size_t problems) const;
  void launch(LaunchShape const& shape, int blocks, void const* kernel, void** parameters) const;

  std::shared_ptr<Runtime const> runtime_;
  std::vector<Launch> launches_;     // Of one problem after the other.
  std::vector<std::size_t> begins_;  // Of the problems' launches.
  Uploads arguments_, tables_;
  std::vector<std::vector<Group>> steps_;  // As arranged.
};

/// Launches of several problems together, or those of one as they come.
class Together {
 public:
  Together(std::shared_ptr<Runtime const> const& runtime, std::size_t problems) : runtime_(*runtime) {
    if (problems < 2) return;
    scope_.emplace(runtime_);
    batch_.emplace(runtime);
  }
  Together(Together const&) = delete;
  Together& operator=(Together const&) = delete;

  void next_problem() {
    if (batch_) batch_->next_problem();
  }
  Queue queue() { return batch_ ? Queue(*batch_) : Queue(runtime_.stream()); }
  void launch() {
    if (batch_) batch_->launch();
  }

 private:
  Runtime const& runtime_;
  std::optional<ArenaScope> scope_;
  std::optional<Batch> batch_;
};

}  // namespace monge::cuda
