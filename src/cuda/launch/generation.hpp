// Which kernels the current device gets.
#pragma once

namespace monge::cuda {

/// Instruction sets that kernels are written for, the oldest first. A kernel of one runs on all that follow.
enum class Generation {
  sm_80,   // mma.sync. All supported devices have it.
  sm_90,   // Clusters of blocks, barriers in shared memory, launches that overlap.
  sm_90a,  // wgmma. Hopper alone has it.
};

/// Tests lower it to run the kernels of older devices: generation() is at most this, and with sm_80
/// most_shared_bytes() is kLeastSharedBytes.
inline thread_local Generation newest_generation = Generation::sm_90a;

/// The newest generation that this build has code of for the current device.
Generation generation();

/// Bytes of shared memory that a block may have on every supported device, and on the current one.
inline constexpr int kLeastSharedBytes = 99 * 1024;
int most_shared_bytes();

}  // namespace monge::cuda
