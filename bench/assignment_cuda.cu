// Linear sum assignments on a CUDA device: batches of float32 matrices with uniform random costs, beside the time to
// read the costs once, and beside the CPU of this machine, whose pairs must be the same. Prints JSON.
//
//   assignment_cuda [repeats]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <vector>

#include <monge/assignment.hpp>

#include "cuda/backend.hpp"
#include "cuda/launch/transfer.hpp"
#include "cuda_limits.cuh"

namespace {

using namespace monge;

AssignmentOutput output(std::int64_t* indices, std::int64_t problems, std::int64_t pairs, Device device) {
  return {{indices, problems, pairs, pairs, device},
          {indices + problems * pairs, problems, pairs, pairs, device},
          {indices + 2 * problems * pairs, problems, 1, 1, device}};
}

}  // namespace

int main(int argc, char** argv) {
  int const repeats = argc > 1 ? std::atoi(argv[1]) : 20;
  cuda::Stream const stream(cudaStreamNonBlocking);
  Context const gpu = Context::cuda({.stream = stream.get()});
  Device const device = gpu.device();
  auto const runtime = std::make_shared<cuda::Runtime const>(CudaOptions{.stream = stream.get()});
  std::printf("{\n  %s,\n  \"cases\": [", bench::provenance(0).c_str());
  std::int64_t const bytes = std::int64_t{1} << 30;
  cuda::DeviceArray<float> const large(runtime, bytes / 4);
  MONGE_CUDA_TRY(cudaMemsetAsync(large.data(), 0, static_cast<std::size_t>(bytes), stream.get()));
  double const read_rate = bench::read_rate(stream.get(), runtime->multiprocessors(), large.data(), large.data(),
                                            static_cast<std::size_t>(bytes));
  struct Case {
    std::int64_t problems;
    int rows, columns;
  };
  char const* separator = "";
  for (auto const& [problems, rows, columns] :
       {Case{4096, 64, 64}, Case{1024, 256, 256}, Case{1, 256, 256}, Case{1, 2048, 2048}, Case{64, 100, 20}}) {
    std::mt19937 random(1);
    std::uniform_real_distribution<float> uniform;
    std::vector<float> costs(static_cast<std::size_t>(problems * rows * columns));
    for (float& cost : costs) cost = uniform(random);
    cuda::DeviceArray<float> const on_device = cuda::uploaded(runtime, costs);
    std::int64_t const pairs = std::min(rows, columns), size = 2 * problems * pairs + problems;
    cuda::DeviceArray<std::int64_t> const found(runtime, size);
    std::vector<std::int64_t> expected(static_cast<std::size_t>(size));
    auto const start = std::chrono::steady_clock::now();
    linear_sum_assignment(Context::cpu(), BatchView(costs.data(), problems, rows, columns),
                          output(expected.data(), problems, pairs, {}));
    double const cpu_ms = 1e3 * std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    BatchView const batch(on_device.data(), problems, rows, columns, kContiguous, kContiguous, device);
    double const ms = bench::median_ms(stream.get(), repeats, [&] {
      linear_sum_assignment(gpu, batch, output(found.data(), problems, pairs, device));
    });
    bool const same = cuda::download(*runtime, found.data(), size) == expected;
    std::printf(
        "%s\n    {\"problems\": %lld, \"rows\": %d, \"columns\": %d, \"ms\": %.4f, \"read_ms\": %.4f, "
        "\"cpu_ms\": %.3f, \"same_pairs\": %s}",
        separator, static_cast<long long>(problems), rows, columns, ms,
        4e3 * static_cast<double>(costs.size()) / read_rate, cpu_ms, same ? "true" : "false");
    std::fflush(stdout);
    separator = ",";
  }
  std::printf("\n  ]\n}\n");
  return 0;
}
