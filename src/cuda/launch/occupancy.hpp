// What planning a launch has to know of a kernel.
#pragma once

namespace monge::cuda {

struct Occupancy {
  int resident_blocks = 0;    // At a time, on a multiprocessor.
  int resident_clusters = 0;  // At a time, on the device; of blocks in clusters only.
};
/// On the current device. Asking CUDA takes the host some microseconds, so answers are kept, and a kernel that is asked
/// about may have all the shared memory of the device from then on.
Occupancy occupancy_of(void const* kernel, int threads, int shared_bytes, int cluster = 1);
template <class... Parameters>
Occupancy occupancy_of(void (*kernel)(Parameters...), int threads, int shared_bytes, int cluster = 1) {
  return occupancy_of(reinterpret_cast<void const*>(kernel), threads, shared_bytes, cluster);
}

}  // namespace monge::cuda
