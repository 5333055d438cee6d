// Properties of a kernel for planning its launch.
#pragma once

namespace monge::cuda {

struct Occupancy {
  int resident_blocks = 0;    // Blocks on a multiprocessor at a time.
  int resident_clusters = 0;  // Clusters on the device at a time, if the kernel has them.
};
/// The occupancy of the current device. CUDA needs some microseconds for an answer, so answers are kept. From the first
/// call on, the kernel may use all shared memory of the device.
Occupancy occupancy_of(void const* kernel, int threads, int shared_bytes, int cluster = 1);
template <class... Parameters>
Occupancy occupancy_of(void (*kernel)(Parameters...), int threads, int shared_bytes, int cluster = 1) {
  return occupancy_of(reinterpret_cast<void const*>(kernel), threads, shared_bytes, cluster);
}

}  // namespace monge::cuda
