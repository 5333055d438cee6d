// From the text of --device to a Context.
#pragma once
#include <string>

#include <monge/context.hpp>

namespace monge::cli {

struct DeviceChoice {
  Context context;
  DeviceInfo info;
  std::string reason;  ///< For "auto": why it is this device; the number of ranks; or empty.
};

/// `text` is auto, cpu, cuda (the first device) or cuda:N; or cuda:all or a list of devices, which starts a rank for
/// each device. `threads` is for the CPU; 0 takes all cores. Of several ranks on CPUs each takes `threads` threads.
/// `rank_limit` is Communicator::limit. Throws Error.
DeviceChoice choose_device(std::string const& text, int threads, double rank_limit);

/// "cpu: AVX3, 2 threads (auto: no CUDA device)", for summaries.
std::string device_text(DeviceChoice const& choice);

}  // namespace monge::cli
