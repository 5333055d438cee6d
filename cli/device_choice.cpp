#include "device_choice.hpp"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <monge/error.hpp>

#include "option_text.hpp"
#include "ranks.hpp"

namespace monge::cli {
namespace {

Device device_named(std::string const& text) {
  constexpr std::string_view kCuda = "cuda:";
  if (text == "cpu") return {};
  if (text == "cuda") return {DeviceType::cuda, 0};
  int index = 0;
  if (!text.starts_with(kCuda) || !parse(std::string_view(text).substr(kCuda.size()), index) || index < 0) {
    throw Error(ErrorCode::invalid_argument, fmt::format("device: is '{}'; must be auto, cpu, cuda or cuda:0", text));
  }
  return {DeviceType::cuda, index};
}

}  // namespace

DeviceChoice choose_device(std::string const& text, int threads) {
  if (threads < 0) {
    throw Error(ErrorCode::invalid_argument, fmt::format("threads: is {}; must be >= 0, 0 being all cores", threads));
  }
  std::vector<DeviceInfo> const usable = devices();
  auto const info_of = [&](Device device) {
    return std::find_if(usable.begin(), usable.end(), [&](DeviceInfo const& info) { return info.device == device; });
  };
  Device device;
  std::string reason;
  std::optional<Communicator> ranks = communicator();
  int const gpus = static_cast<int>(usable.size()) - 1;
  if (ranks) {
    LocalRank const local = local_rank();
    bool const each_has_one = local.size <= gpus;
    reason = fmt::format("{} ranks", ranks->size);
    if (text == "auto") {
      device = each_has_one ? Device{DeviceType::cuda, local.rank} : Device{};
      if (!each_has_one)
        reason += fmt::format("; auto: {} CUDA devices for {} ranks of this machine", gpus, local.size);
    } else {
      device = device_named(text);
      if (text == "cuda" && gpus > 0) device.index = local.rank % gpus;
    }
  } else if (text == "auto") {
    Device const gpu{DeviceType::cuda, 0};
    device = info_of(gpu) != usable.end() ? gpu : Device{};
    reason = device == gpu ? "auto: the first CUDA device" : "auto: " + cuda_unavailable_reason();
  } else {
    device = device_named(text);
  }
  // Throws for a device that does not exist.
  bool const cpu = device.type == DeviceType::cpu;
  CudaOptions const on_device{.index = device.index};
  Context context = ranks ? (cpu ? Context::distributed(std::move(*ranks), threads)
                                 : Context::distributed(std::move(*ranks), on_device))
                          : (cpu ? Context::cpu(threads) : Context::cuda(on_device));
  auto const found = info_of(device);
  DeviceInfo info;
  info.device = device;
  if (found != usable.end()) info = *found;
  if (cpu && threads > 0) info.units = threads;
  return {std::move(context), std::move(info), std::move(reason)};
}

std::string device_text(DeviceChoice const& choice) {
  DeviceInfo const& info = choice.info;
  bool const cpu = info.device.type == DeviceType::cpu;
  return fmt::format("{}: {}, {} {}{}", to_string(info.device), info.instruction_set, info.units,
                     cpu ? (info.units == 1 ? "thread" : "threads") : "multiprocessors",
                     choice.reason.empty() ? "" : fmt::format(" ({})", choice.reason));
}

}  // namespace monge::cli
