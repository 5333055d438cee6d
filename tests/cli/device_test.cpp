// The commands on each device, against each other: a GPU must give what the CPU gives.
#include <cmath>

#include "oracle/backend_test.hpp"
#include "program.hpp"

namespace monge::cli {
namespace {

class DeviceProgram : public Program, public testing::WithParamInterface<DeviceType> {
 protected:
  void SetUp() override { oracle::require_device(GetParam()); }
  static std::string device() { return to_string({GetParam(), 0}); }

  /// Exit code 0 on the device and on the CPU; the two reports.
  std::pair<nlohmann::json, nlohmann::json> run_both(std::vector<std::string> arguments) const {
    std::vector<nlohmann::json> reports;
    for (std::string const& where : {device(), std::string("cpu")}) {
      std::vector<std::string> all = arguments;
      all.insert(all.end(), {"--json", "--device", where, "--out", output(where)});
      Outcome const outcome = run(all);
      EXPECT_EQ(outcome.code, 0) << outcome.err;
      reports.push_back(nlohmann::json::parse(outcome.out, nullptr, false));
    }
    return {reports[0], reports[1]};
  }
  std::string output(std::string const& where) const { return path((where == "cpu" ? "cpu" : "device") + suffix); }
  std::string suffix;
};

std::string device_name(testing::TestParamInfo<DeviceType> const& info) {
  return info.param == DeviceType::cpu ? "cpu" : "cuda";
}

TEST_P(DeviceProgram, Solves) {
  auto const [here, cpu] = run_both({"solve", points("x.npy", 300, 3, 1), points("y.npy", 200, 3, 2), "--eps", "0.05"});
  EXPECT_EQ(here["device"], device());
  EXPECT_EQ(here["status"], "converged");
  if (GetParam() == DeviceType::cuda) {
    EXPECT_THAT(here["instruction_set"].get<std::string>(), testing::StartsWith("sm_"));
    EXPECT_NE(here["versions"]["cuda_runtime"], "none");
    EXPECT_NE(here["versions"]["cuda_driver"], "none");
  }
  // Both plans are within 1e-6 of their marginals, so their values differ by about that much of the largest potential.
  EXPECT_NEAR(here["transport_cost"], cpu["transport_cost"].get<double>(), 1e-5);
}

TEST_P(DeviceProgram, Projects) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  std::vector<float> logits(50 * 4 * 4);
  for (float& x : logits) x = normal(random);
  write_array(path("logits.npy"), {{50, 4, 4}, logits});
  suffix = ".npy";
  for (auto const& [value, preset] : kNames<ProjectionPreset>) {
    auto const [here, cpu] = run_both({"project", path("logits.npy"), "--preset", std::string(preset)});
    EXPECT_EQ(here["device"], device());
    EXPECT_EQ(here["options"], [&] {
      nlohmann::json options = cpu["options"];
      options["device"] = device();
      return options;
    }());
    Array const mine = read_array("device", output(device())), other = read_array("cpu", output("cpu"));
    ASSERT_EQ(mine.shape, other.shape);
    auto const& a = std::get<std::vector<float>>(mine.values);
    auto const& b = std::get<std::vector<float>>(other.values);
    // Each is within 1e-6, relative to entries of at most 4 (the dustbin's corner), of the float64 projection.
    for (std::size_t e = 0; e < a.size(); ++e) ASSERT_NEAR(a[e], b[e], 8e-6) << preset << " " << e;
  }
}

TEST_P(DeviceProgram, TheTypeAloneIsItsFirstDevice) {
  Outcome const outcome = run({"solve", points("x.npy", 9, 3, 1), points("y.npy", 8, 3, 2), "--eps", "0.5", "--json",
                               "--out", path("result"), "--device", GetParam() == DeviceType::cpu ? "cpu" : "cuda"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(nlohmann::json::parse(outcome.out)["device"], device());
}

INSTANTIATE_TEST_SUITE_P(, DeviceProgram, testing::Values(DeviceType::cpu, DeviceType::cuda), device_name);

}  // namespace
}  // namespace monge::cli
