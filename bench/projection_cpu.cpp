// Batched 4 x 4 projection on the CPU, forward and backward: milliseconds, medians over repeats. Prints JSON.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <random>
#include <vector>

#include <monge/monge.hpp>

namespace {

template <class Call>
double median_ms(Call&& call) {
  std::vector<double> times;
  for (int r = 0; r < 13; ++r) {
    auto const start = std::chrono::steady_clock::now();
    call();
    times.push_back(std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count());
  }
  std::sort(times.begin() + 2, times.end());
  return times[2 + (times.size() - 2) / 2];
}

}  // namespace

int main() {
  monge::Context const context = monge::Context::cpu();
  monge::DeviceInfo const info = monge::devices().front();
  std::printf("{\n  \"processor\": \"%s\", \"instruction_set\": \"%s\", \"threads\": %d,\n  \"cases\": [",
              info.name.c_str(), info.instruction_set.c_str(), info.units);
  char const* separator = "";
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  for (std::int64_t const batch : {std::int64_t{4096}, std::int64_t{65536}, std::int64_t{1} << 20}) {
    std::vector<float> logits(static_cast<std::size_t>(batch * 16)), gradient(logits.size()), out(logits.size());
    for (float& x : logits) x = normal(random);
    for (float& x : gradient) x = normal(random);
    for (char const* name : {"mhc_paper", "deepseek", "blog"}) {
      monge::ProjectionOptions const options = monge::projection_preset(name);
      double const forward = median_ms([&] {
        monge::project(context, {logits.data(), batch, 4, 4}, {out.data(), batch, 4, 4}, options);
      });
      double const backward = median_ms([&] {
        monge::project_backward(context, {logits.data(), batch, 4, 4}, {gradient.data(), batch, 4, 4},
                                {out.data(), batch, 4, 4}, options);
      });
      std::printf("%s\n    {\"preset\": \"%s\", \"batch\": %lld, \"forward_ms\": %.3f, \"backward_ms\": %.3f}",
                  separator, name, static_cast<long long>(batch), forward, backward);
      separator = ",";
    }
  }
  std::printf("\n  ]\n}\n");
  return 0;
}
