// What this CPU can do, measured in the same run as the kernels that are held against it.
#pragma once
#include <benchmark/benchmark.h>
#include <omp.h>
#include <monge/context.hpp>

#include <cstdint>
#include <string>
#include <vector>

#include "provenance.hpp"

namespace monge::bench {

using Lanes = float __attribute__((vector_size(64)));  // the compiler splits it where registers are narrower
inline constexpr int kLanes = 16;

/// Fused multiply-adds per second, all threads: 12 independent chains.
inline void fma_rate(benchmark::State& state) {
  constexpr int kChains = 12, kSteps = 100000;
  for (auto _ : state) {
#pragma omp parallel
    {
      Lanes sums[kChains];
      for (int c = 0; c < kChains; ++c) sums[c] = Lanes{} + static_cast<float>(c);  // equal chains would be merged
      Lanes const factor = Lanes{} + 0.999f, term = Lanes{} + 1e-3f;
      for (int step = 0; step < kSteps; ++step) {
#pragma GCC unroll 12
        for (int c = 0; c < kChains; ++c) sums[c] = sums[c] * factor + term;
      }
      for (Lanes& sum : sums) benchmark::DoNotOptimize(sum);
    }
  }
  state.counters["fma_per_second"] =
      benchmark::Counter(static_cast<double>(state.iterations()) * kChains * kSteps * kLanes * omp_get_max_threads(),
                         benchmark::Counter::kIsRate);
}

/// Base-2 exponentials per second, all threads: a degree-5 polynomial, in registers and L1.
inline void exp2_rate(benchmark::State& state) {
  constexpr int kValues = 4096, kRepeats = 200;
  using Integers = std::int32_t __attribute__((vector_size(64)));
  std::vector<std::vector<Lanes>> values(static_cast<std::size_t>(omp_get_max_threads()),
                                         std::vector<Lanes>(kValues / kLanes, Lanes{} - 3.7f));
  for (auto _ : state) {
#pragma omp parallel
    {
      auto const& mine = values[static_cast<std::size_t>(omp_get_thread_num())];
      for (int repeat = 0; repeat < kRepeats; ++repeat) {
        Lanes sum0{}, sum1{};
        for (std::size_t i = 0; i + 1 < mine.size(); i += 2) {
          Lanes const shifted0 = mine[i] + 12582912.0f, shifted1 = mine[i + 1] + 12582912.0f;
          Lanes const r0 = mine[i] - (shifted0 - 12582912.0f), r1 = mine[i + 1] - (shifted1 - 12582912.0f);
          Lanes p0 = r0 * 0.00133f + 0.00967f, p1 = r1 * 0.00133f + 0.00967f;
          p0 = p0 * r0 + 0.0555f, p1 = p1 * r1 + 0.0555f;
          p0 = p0 * r0 + 0.2402f, p1 = p1 * r1 + 0.2402f;
          p0 = p0 * r0 + 0.6931f, p1 = p1 * r1 + 0.6931f;
          p0 = p0 * r0 + 1.0f, p1 = p1 * r1 + 1.0f;
          sum0 +=
              reinterpret_cast<Lanes>(reinterpret_cast<Integers>(p0) + (reinterpret_cast<Integers>(shifted0) << 23));
          sum1 +=
              reinterpret_cast<Lanes>(reinterpret_cast<Integers>(p1) + (reinterpret_cast<Integers>(shifted1) << 23));
        }
        benchmark::DoNotOptimize(sum0);
        benchmark::DoNotOptimize(sum1);
        benchmark::ClobberMemory();
      }
    }
  }
  state.counters["exp2_per_second"] =
      benchmark::Counter(static_cast<double>(state.iterations()) * kValues * kRepeats * omp_get_max_threads(),
                         benchmark::Counter::kIsRate);
}

/// Bytes per second that all threads read from memory.
inline void read_rate(benchmark::State& state) {
  std::vector<Lanes> values(std::size_t{1} << 22, Lanes{} + 1.0f);  // 256 MiB
  auto const count = static_cast<std::int64_t>(values.size());
  for (auto _ : state) {
#pragma omp parallel
    {
      Lanes sums[4] = {};
#pragma omp for schedule(static)
      for (std::int64_t i = 0; i < count; i += 4) {
        for (int c = 0; c < 4; ++c) sums[c] += values[static_cast<std::size_t>(i + c)];
      }
      benchmark::DoNotOptimize(sums);
    }
  }
  state.SetBytesProcessed(state.iterations() * count * static_cast<std::int64_t>(sizeof(Lanes)));
}

/// The limits, as the first benchmarks of a program.
inline void register_limits() {
  benchmark::RegisterBenchmark("limit/fma_float32", fma_rate)->UseRealTime();
  benchmark::RegisterBenchmark("limit/exp2_float32", exp2_rate)->UseRealTime();
  benchmark::RegisterBenchmark("limit/read", read_rate)->UseRealTime();
}

/// The rest of main(): runs what is registered and names the machine in the results.
inline int run(int argc, char** argv) {
  DeviceInfo const processor = devices().front();
  benchmark::AddCustomContext("monge", version());
  benchmark::AddCustomContext("commit", commit());
  benchmark::AddCustomContext("processor", processor.name);
  benchmark::AddCustomContext("instruction_set", processor.instruction_set);
  benchmark::AddCustomContext("threads", std::to_string(processor.units));
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}

}  // namespace monge::bench
