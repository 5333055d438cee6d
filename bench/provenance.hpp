// What a result file says about the run that made it.
#pragma once
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <string>
#include <vector>

#include <monge/context.hpp>

namespace monge::bench {

/// The commit of the sources: MONGE_COMMIT in the environment, where a copy has no repository; else what git says.
inline std::string commit() {
  if (char const* const given = std::getenv("MONGE_COMMIT")) return given;
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> const git(popen("git describe --always --dirty 2> /dev/null", "r"),
                                                            pclose);
  char text[64] = "";
  if (!git || !std::fgets(text, sizeof text, git.get())) return "unknown";
  return std::string(text, std::string(text).find_last_not_of('\n') + 1);
}

/// The fields "date" to "versions" without braces, to be called before the run: "load" is the mean number of busy
/// processes in the last minute.
inline std::string provenance_of_run() {
  std::time_t const now = std::time(nullptr);
  char date[16], load_text[32];
  std::strftime(date, sizeof date, "%Y-%m-%d", std::gmtime(&now));
  double load = 0;
  getloadavg(&load, 1);
  std::snprintf(load_text, sizeof load_text, "%.1f", load);
  std::string versions;
  for (auto const& [name, version] : component_versions())
    versions += (versions.empty() ? "\"" : ", \"") + name + "\": \"" + version + "\"";
  return std::string("\"date\": \"") + date + "\", \"commit\": \"" + commit() + "\", \"load\": " + load_text +
         ", \"versions\": {" + versions + "}";
}

/// The fields "device" to "versions" of a run on the device of a context, without braces.
inline std::string provenance_on(Device device = {}) {
  std::vector<DeviceInfo> const all = devices();
  DeviceInfo const& info = *std::ranges::find(all, device, &DeviceInfo::device);
  return "\"device\": \"" + info.name + "\", \"instruction_set\": \"" + info.instruction_set +
         "\", \"units\": " + std::to_string(info.units) + ", " + provenance_of_run();
}

}  // namespace monge::bench
