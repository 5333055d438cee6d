// Records launches problem by problem, and launches them for many problems together.
#pragma once
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "cuda/launch/queue.hpp"
#include "cuda/runtime/runtime.hpp"

namespace monge::cuda {

/// Data for the device: written to page-locked host memory and copied in large pieces.
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
  /// Copies the data reserved after the last send().
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

/// The launches of a problem are its steps, in order. Step k of all problems becomes one launch for each distinct
/// kernel. A batch of similar problems takes as many launches as one problem. Memory of recorded launches must stay
/// allocated until they are launched; an ArenaScope takes care of it.
class Batch {
 public:
  explicit Batch(std::shared_ptr<Runtime const> runtime)
      : runtime_(std::move(runtime)), arguments_(runtime_), tables_(runtime_) {}
  Batch(Batch const&) = delete;
  Batch& operator=(Batch const&) = delete;

  /// Starts the steps of another problem.
  void next_problem() { begins_.push_back(launches_.size()); }
  /// Adds a step to this problem; called by Queue.
  void record(void const* one, void const* many, LaunchShape const& shape, void const* arguments, std::size_t bytes);
  /// Adds a step that copies a few numbers from the host, `bytes` a multiple of 8. The source may be reused at once.
  void upload(void const* from, void* to, std::size_t bytes);

  /// Launches all steps of all problems.
  void launch();

  /// Repeated steps: arrange() sets the problems that take part and their order; launch() launches the steps from
  /// `first` to `last` (excluded) of the first `problems` of them.
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
    std::vector<std::size_t> places;      // Positions of the problems in the order.
    std::vector<Launch const*> launches;  // Launches of these problems.
    std::vector<int> blocks;              // Blocks of the grid for each problem, after merging.
    BlockOfMany const* table = nullptr;   // One entry for each block; null if the kernel has no `many`.
  };
  void make_table(Group& group);
  void launch(Group const& group, std::size_t problems) const;
  void launch(LaunchShape const& shape, int blocks, void const* kernel, void** parameters) const;

  std::shared_ptr<Runtime const> runtime_;
  std::vector<Launch> launches_;     // Problem by problem.
  std::vector<std::size_t> begins_;  // The first launch of each problem.
  Uploads arguments_, tables_;
  std::vector<std::vector<Group>> steps_;  // Groups in the order of arrange().
};

/// Launches of several problems together; launches of one problem at once.
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
