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
  if (ranks) {
    reason = fmt::format("{} ranks", ranks->size);
    if (text != "auto" && text != "cpu")
      throw Error(ErrorCode::unsupported, fmt::format("device: is {}; must be cpu with {} ranks", text, ranks->size));
  } else if (text == "auto") {
    Device const gpu{DeviceType::cuda, 0};
    device = info_of(gpu) != usable.end() ? gpu : Device{};
    reason = device == gpu ? "auto: the first CUDA device" : "auto: " + cuda_unavailable_reason();
  } else {
    device = device_named(text);
  }
  // Throws for a device that does not exist.
  Context context = ranks                            ? Context::distributed(std::move(*ranks), threads)
                    : device.type == DeviceType::cpu ? Context::cpu(threads)
                                                     : Context::cuda({.index = device.index});
  auto const found = info_of(device);
  DeviceInfo info;
  info.device = device;
  if (found != usable.end()) info = *found;
  if (device.type == DeviceType::cpu && threads > 0) info.units = threads;
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
