// Which kernels the current device gets.
#pragma once

namespace monge::cuda {

/// Instruction sets that kernels are written for, the oldest first. A kernel of one runs on all that follow.
enum class Generation {
  sm_80,   // mma.sync. All supported devices have it.
  sm_90,   // Clusters of blocks, barriers in shared memory, launches that overlap.
  sm_90a,  // wgmma. Hopper alone has it.
};

/// The newest generation that this build has code of for the current device.
Generation generation();

/// Bytes of shared memory that a block may have on every supported device.
inline constexpr int kLeastSharedBytes = 99 * 1024;
/// The same on the current device.
int most_shared_bytes();

/// While one lives, generation() is at most `newest` on this thread, and most_shared_bytes() is kLeastSharedBytes if
/// that is sm_80. Tests run the kernels of older devices by it.
class GenerationLimit {
 public:
  explicit GenerationLimit(Generation newest);
  ~GenerationLimit();
  GenerationLimit(GenerationLimit const&) = delete;
  GenerationLimit& operator=(GenerationLimit const&) = delete;

 private:
  Generation before_;
};

}  // namespace monge::cuda
