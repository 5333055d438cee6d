// The generation of kernels for the current device.
#pragma once

namespace monge::cuda {

/// Instruction sets of kernels, the oldest first. A kernel of one generation runs on all later ones.
enum class Generation {
  sm_80,   // mma.sync. All supported devices have it.
  sm_90,   // Clusters of blocks, barriers in shared memory, overlapping launches.
  sm_90a,  // wgmma. Only Hopper has it.
};

/// Tests lower it to run the kernels of older devices: generation() is at most this, and with sm_80
/// most_shared_bytes() is kLeastSharedBytes.
inline thread_local Generation newest_generation = Generation::sm_90a;

/// The newest generation for which this build has code that runs on the current device.
Generation generation();

/// Bytes of shared memory that a block may have: on every supported device, and on the current one.
inline constexpr int kLeastSharedBytes = 99 * 1024;
int most_shared_bytes();

}  // namespace monge::cuda
