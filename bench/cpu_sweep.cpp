// Time of one sweep on the CPU, n = m = 10,000, beside the limits of the machine: `./dev bench`.
#include <benchmark/benchmark.h>
#include <sys/resource.h>
#include <monge/monge.hpp>

#include <random>
#include <string>
#include <vector>

#include "machine_limits.hpp"

namespace {

using namespace monge;

std::vector<float> gaussian_cloud(std::int64_t n, std::int64_t d, unsigned seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal(0.0f, 1.0f / std::sqrt(static_cast<float>(d)));
  std::vector<float> points(static_cast<std::size_t>(n * d));
  for (float& value : points) value = normal(generator);
  return points;
}

struct Case {
  std::int64_t n, d;
  Schedule schedule;
  Precision precision;
  double cache_bytes;
};

/// Seconds of `sweeps` further sweeps, set-up and first pass excluded.
double seconds_of_sweeps(Case const& c, PointCloud const& geometry, int sweeps) {
  Context const context = Context::cpu();
  SolveOptions options{.eps = 0.1,
                       .tolerance = 0,
                       .schedule = c.schedule,
                       .annealing = 1,
                       .precision = c.precision,
                       .check_every = 1,
                       .certificate = false,
                       .cache_bytes = c.cache_bytes};
  options.iterations = sweeps + 2;
  double start = 0, end = 0;
  options.progress = [&](Progress const& progress) {
    if (progress.iteration == 2) start = progress.seconds;
    end = progress.seconds;
    return true;
  };
  solve(context, geometry, options);
  return end - start;
}

void sweep(benchmark::State& state, Case c) {
  std::vector<float> const x = gaussian_cloud(c.n, c.d, 1), y = gaussian_cloud(c.n, c.d, 2);
  PointCloud const geometry{MatrixView(x.data(), c.n, c.d), MatrixView(y.data(), c.n, c.d)};
  for (auto _ : state) state.SetIterationTime(seconds_of_sweeps(c, geometry, 8) / 8);
  state.counters["pairs_per_second"] =
      benchmark::Counter(static_cast<double>(state.iterations()) * static_cast<double>(c.n) * static_cast<double>(c.n),
                         benchmark::Counter::kIsRate);
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  state.counters["peak_MB"] = static_cast<double>(usage.ru_maxrss) / 1024.0;
}

void add(Case const& c, std::string const& suffix) {
  std::string const label = "sweep/" + std::string(name(c.schedule)) + "/" + std::string(name(c.precision)) +
                            "/n=" + std::to_string(c.n) + "/d=" + std::to_string(c.d) + suffix;
  benchmark::RegisterBenchmark(label.c_str(), sweep, c)->UseManualTime()->Unit(benchmark::kMillisecond)->MinTime(0.5);
}

}  // namespace

int main(int argc, char** argv) {
  using namespace monge;
  bench::register_limits();
  // Growing memory last: peak_MB is that of the process so far.
  add({50000, 3, Schedule::alternating, Precision::float32, 0}, "");
  add({50000, 64, Schedule::alternating, Precision::float32, 0}, "");
  for (std::int64_t d : {3, 64, 512}) {
    for (Schedule schedule : {Schedule::alternating, Schedule::symmetric, Schedule::overrelaxed})
      add({10000, d, schedule, Precision::float32, 0}, "");
    add({10000, d, Schedule::alternating, Precision::float64, 0}, "");
  }
  for (std::int64_t d : {64, 512}) add({10000, d, Schedule::alternating, Precision::float32, 1 << 30}, "/cached");
  return bench::run(argc, argv);
}
