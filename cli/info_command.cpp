#include "info_command.hpp"

#include <memory>

#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <monge/context.hpp>

#include "exit_code.hpp"
#include "report_json.hpp"

namespace monge::cli {
namespace {

void print_json(std::vector<DeviceInfo> const& usable, std::string const& why_no_cuda) {
  nlohmann::ordered_json json;
  json["versions"] = versions_json();
  json["backends"] = {{"cpu", {{"usable", true}, {"reason", nullptr}}},
                      {"cuda", {{"usable", why_no_cuda.empty()}, {"reason", nullptr}}}};
  if (!why_no_cuda.empty()) json["backends"]["cuda"]["reason"] = why_no_cuda;
  json["devices"] = nlohmann::ordered_json::array();
  for (DeviceInfo const& info : usable) json["devices"].push_back(device_json(info));
  fmt::print("{}", json_text(json));
}

void print_text(std::vector<DeviceInfo> const& usable, std::string const& why_no_cuda) {
  std::string parts;
  for (ComponentVersion const& component : component_versions()) {
    if (component.name != "monge")
      parts += fmt::format("{}{} {}", parts.empty() ? "" : ", ", component.name, component.version);
  }
  fmt::print("monge {} ({})\n", version(), parts);
  for (DeviceInfo const& info : usable) {
    bool const cpu = info.device.type == DeviceType::cpu;
    fmt::print("{:<8} {}\n", to_string(info.device), info.name);
    fmt::print("{:<8} {}, {} {}, {:.1f} GiB\n", "", info.instruction_set, info.units,
               cpu ? "threads" : "multiprocessors", static_cast<double>(info.memory_bytes) / (1 << 30));
  }
  if (!why_no_cuda.empty()) fmt::print("{:<8} not usable: {}\n", "cuda", why_no_cuda);
}

}  // namespace

void add_info_command(CLI::App& app, int& exit_code) {
  CLI::App* const command = app.add_subcommand("info", "List backends, devices and instruction sets");
  auto const json = std::make_shared<bool>(false);
  command->add_flag("--json", *json, "print JSON");
  command->callback([json, &exit_code] {
    (*json ? print_json : print_text)(devices(), cuda_unavailable_reason());
    exit_code = kDone;
  });
}

}  // namespace monge::cli
