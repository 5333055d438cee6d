// Launches of many problems, recorded problem by problem and carried out together.
#pragma once
#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include "cuda/launch/queue.hpp"
#include "cuda/runtime/runtime.hpp"

namespace monge::cuda {

/// The launches of a problem are its steps, in their order. Step k of all problems is one launch, or one for each
/// kernel that it has among them: problems that are alike take as many launches together as one of them takes alone.
///
/// While a batch lives, device memory comes from the runtime's arena: what a recorded launch works on may be given back
/// before it runs.
class Batch {
 public:
  explicit Batch(std::shared_ptr<Runtime const> const& runtime) : runtime_(runtime), scope_(*runtime) {}
  ~Batch();
  Batch(Batch const&) = delete;
  Batch& operator=(Batch const&) = delete;

  /// What is launched from now on are the first steps of another problem.
  void next_problem() {
    ++problems_;
    step_ = 0;
  }
  /// One more step of this problem; called by Queue.
  void record(void const* one, void const* many, LaunchShape const& shape, void const* arguments, std::size_t bytes);

  /// A step that copies a few numbers of the host's, `bytes` a multiple of 8; the source may be reused at once.
  void upload(void const* from, void* to, std::size_t bytes);

  /// All there is.
  void launch();
  /// In two parts, for steps that are launched again and again: the arguments to the device, and then the steps from
  /// `first` to `last` (excluded) of the first `problems` problems.
  void upload();
  void launch(std::size_t first, std::size_t last, std::size_t problems) const;
  std::size_t steps() const { return steps_.size(); }

 private:
  /// Page-locked memory and what it is copied to.
  struct Segment {
    std::unique_ptr<Staging> host;
    DeviceArray<unsigned char> device;
    std::size_t used = 0;
  };
  struct Place {
    void* host;
    void const* device;
  };
  struct Entry {
    std::size_t problem;
    int blocks;
    Place arguments;
  };
  /// The launches of one step with one kernel.
  struct Group {
    void const* one;
    void const* many;
    LaunchShape shape;  // But for the blocks.
    std::vector<Entry> entries;
    BlockOfMany const* table = nullptr;  // Of all their blocks; null where the kernel has no form for many.
  };
  Place stage(std::size_t bytes);
  void launch(Group const& group, std::size_t problems) const;
  void launch(Group const& group, void const* kernel, int blocks, void** parameters) const;

  std::shared_ptr<Runtime const> runtime_;
  ArenaScope scope_;
  std::vector<Segment> segments_;
  std::vector<std::vector<Group>> steps_;
  std::size_t problems_ = 0;
  std::size_t step_ = 0;
};

/// Launches of several problems together, or those of one as they come.
class Together {
 public:
  Together(std::shared_ptr<Runtime const> const& runtime, std::size_t problems) : runtime_(*runtime) {
    if (problems > 1) batch_.emplace(runtime);
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
  std::optional<Batch> batch_;
};

}  // namespace monge::cuda
