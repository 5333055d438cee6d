#include "device_choice.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <exception>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <monge/error.hpp>

#include "option_text.hpp"
#include "ranks.hpp"

namespace monge::cli {
namespace {

constexpr char const* kAllowed = "must be auto, cpu, cuda, cuda:0, cuda:0,1 or cuda:all";

Device device_named(std::string_view text, std::string_view whole) {
  constexpr std::string_view kCuda = "cuda:";
  if (text == "cpu") return {};
  if (text == "cuda") return {DeviceType::cuda, 0};
  int index = 0;
  if (!text.starts_with(kCuda) || !parse(text.substr(kCuda.size()), index) || index < 0)
    throw Error(ErrorCode::invalid_argument, fmt::format("device: is '{}'; {}", whole, kAllowed));
  return {DeviceType::cuda, index};
}

/// The number of CUDA devices. Another process counts them, because this one may still fork.
int count_gpus() {
  pid_t const process = fork();
  if (process == 0) {
    int count = 0;
    try {
      count = static_cast<int>(devices().size()) - 1;
    } catch (std::exception const&) {  // This process finds the same, and says so.
    }
    _exit(count);
  }
  int status = 0;
  return process > 0 && waitpid(process, &status, 0) == process && WIFEXITED(status) ? WEXITSTATUS(status) : 0;
}

/// The devices that cuda:all or a list like cuda:0,1 names. Each device is for one rank.
std::vector<Device> devices_named(std::string const& text) {
  std::vector<Device> named;
  bool const all = text == "cuda:all";
  for (std::size_t begin = 0; !all && begin <= text.size();) {
    std::size_t const end = std::min(text.find(',', begin), text.size());
    std::string const item = text.substr(begin, end - begin);
    bool const is_index = begin > 0 && !item.starts_with("c");
    named.push_back(device_named(is_index ? "cuda:" + item : item, text));
    begin = end + 1;
  }
  auto const is_cuda = [](Device device) { return device.type == DeviceType::cuda; };
  if (!all && (named.size() == 1 || std::none_of(named.begin(), named.end(), is_cuda))) return named;
  int const gpus = count_gpus();
  for (int index = 0; all && index < gpus; ++index) named.push_back({DeviceType::cuda, index});
  if (gpus == 0) throw Error(ErrorCode::unsupported, fmt::format("device: is {}; {}", text, cuda_unavailable_reason()));
  for (Device const device : named) {
    if (is_cuda(device) && device.index >= gpus)
      throw Error(ErrorCode::unsupported,
                  fmt::format("device: is {}; this machine has cuda:0 to cuda:{}", text, gpus - 1));
  }
  return named;
}

}  // namespace

DeviceChoice choose_device(std::string const& text, int threads, double rank_limit) {
  if (threads < 0) {
    throw Error(ErrorCode::invalid_argument, fmt::format("threads: is {}; must be >= 0, 0 being all cores", threads));
  }
  if (!(rank_limit > 0 && rank_limit <= 1e6)) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("rank_limit: is {}; must be > 0 and <= 1e6 seconds", rank_limit));
  }
  std::vector<Device> named;
  if (text != "auto") named = devices_named(text);
  if (named.size() > 1) {
    if (under_mpirun())
      throw Error(ErrorCode::invalid_argument, fmt::format("device: is {}; must be one device under mpirun", text));
    start_ranks(static_cast<int>(named.size()), rank_limit);
  }
  std::vector<DeviceInfo> const usable = devices();
  auto const info_of = [&](Device device) {
    return std::find_if(usable.begin(), usable.end(), [&](DeviceInfo const& info) { return info.device == device; });
  };
  Device device;
  std::string reason;
  std::optional<Communicator> ranks = communicator(rank_limit);
  int const gpus = static_cast<int>(usable.size()) - 1;
  if (named.size() > 1) {
    device = named[static_cast<std::size_t>(this_rank())];
    reason = fmt::format("{} ranks", named.size());
  } else if (ranks) {
    LocalRank const local = local_rank();
    bool const each_has_one = local.size <= gpus;
    reason = fmt::format("{} ranks", ranks->size);
    if (text == "auto") {
      device = each_has_one ? Device{DeviceType::cuda, local.rank} : Device{};
      if (!each_has_one)
        reason += fmt::format("; auto: {} CUDA devices for {} ranks of this machine", gpus, local.size);
    } else {
      device = named[0];
      if (text == "cuda" && gpus > 0) device.index = local.rank % gpus;
    }
  } else if (text == "auto") {
    Device const gpu{DeviceType::cuda, 0};
    device = info_of(gpu) != usable.end() ? gpu : Device{};
    reason = device == gpu ? "auto: the first CUDA device" : "auto: " + cuda_unavailable_reason();
  } else {
    device = named[0];
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
