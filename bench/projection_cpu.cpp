// Time of a batched projection and of its gradient on the CPU, beside the limits of the machine: `./dev bench`.
#include <benchmark/benchmark.h>
#include <monge/monge.hpp>

#include <random>
#include <string>
#include <vector>

#include "machine_limits.hpp"

namespace {

using namespace monge;

struct Case {
  ProjectionPreset preset;
  int size;
  std::int64_t batch;
};

std::vector<float> normal_numbers(std::size_t count, unsigned seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(generator);
  return values;
}

void set_rates(benchmark::State& state, Case const& c, int arrays) {
  state.SetItemsProcessed(state.iterations() * c.batch);
  state.SetBytesProcessed(state.iterations() * c.batch * c.size * c.size * arrays *
                          static_cast<std::int64_t>(sizeof(float)));
}

void forward(benchmark::State& state, Case c) {
  auto const entries = static_cast<std::size_t>(c.batch * c.size * c.size);
  std::vector<float> const logits = normal_numbers(entries, 1);
  std::vector<float> out(entries);
  Context const context = Context::cpu();
  ProjectionOptions const options = projection_preset(c.preset);
  for (auto _ : state)
    project(context, {logits.data(), c.batch, c.size, c.size}, {out.data(), c.batch, c.size, c.size}, options);
  set_rates(state, c, 2);
}

void backward(benchmark::State& state, Case c) {
  auto const entries = static_cast<std::size_t>(c.batch * c.size * c.size);
  std::vector<float> const logits = normal_numbers(entries, 1), d_out = normal_numbers(entries, 2);
  std::vector<float> d_logits(entries);
  Context const context = Context::cpu();
  ProjectionOptions const options = projection_preset(c.preset);
  for (auto _ : state)
    project_backward(context, {logits.data(), c.batch, c.size, c.size}, {d_out.data(), c.batch, c.size, c.size},
                     {d_logits.data(), c.batch, c.size, c.size}, options);
  set_rates(state, c, 3);
}

void add(Case const& c) {
  std::string const label =
      std::string(name(c.preset)) + "/n=" + std::to_string(c.size) + "/B=" + std::to_string(c.batch);
  benchmark::RegisterBenchmark(("project/" + label).c_str(), forward, c)->UseRealTime()->Unit(benchmark::kMillisecond);
  benchmark::RegisterBenchmark(("project_backward/" + label).c_str(), backward, c)
      ->UseRealTime()
      ->Unit(benchmark::kMillisecond);
}

}  // namespace

int main(int argc, char** argv) {
  using namespace monge;
  bench::register_limits();
  using P = ProjectionPreset;
  for (P const preset : {P::mhc_paper, P::deepseek, P::megatron, P::blog}) {
    for (std::int64_t const batch : {std::int64_t{1} << 12, std::int64_t{1} << 16, std::int64_t{1} << 20})
      add({preset, 4, batch});
  }
  add({P::mhc_paper, 8, 1 << 16});
  add({P::mhc_paper, 16, 1 << 14});
  add({P::mhc_paper, 64, 1 << 10});
  return bench::run(argc, argv);
}
