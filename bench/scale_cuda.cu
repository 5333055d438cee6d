// Ranks with a CUDA device each, beside one device in the same run: docs/scale.md. Prints JSON.
//   scale_cuda [--large] DEVICES [repetitions]
// --large takes problems of seconds: of one size (strong scaling), and of 100,000 points a device (weak scaling).
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "core/stopwatch.hpp"
#include "cuda/backend.hpp"
#include "cuda/runtime/check.hpp"
#include "cuda/runtime/device_ranks.hpp"
#include "cuda/runtime/runtime.hpp"
#include "provenance.hpp"
#include "ranks/meeting.hpp"

namespace {

using namespace monge;

/// Numbers in (0, 1) that depend on their place alone.
__global__ void fill(float* data, std::int64_t size, float shift) {
  for (std::int64_t i = blockIdx.x * std::int64_t{blockDim.x} + threadIdx.x; i < size;
       i += std::int64_t{gridDim.x} * blockDim.x) {
    std::uint64_t h = (static_cast<std::uint64_t>(i) + 1) * 0x9e3779b97f4a7c15;
    h = (h ^ h >> 31) * 0xbf58476d1ce4e5b9;
    data[i] = static_cast<float>((h >> 40) * 0x1p-24) + shift;
  }
}

class Array {
 public:
  Array(std::int64_t size, float shift) {
    MONGE_CUDA_TRY(cudaMalloc(&data_, static_cast<std::size_t>(size) * sizeof(float)));
    fill<<<2048, 256>>>(data_, size, shift);
    MONGE_CUDA_TRY(cudaDeviceSynchronize());
  }
  ~Array() { cudaFree(data_); }
  Array(Array const&) = delete;
  float* data() const { return data_; }

 private:
  float* data_ = nullptr;
};

/// Seconds of the best repetition: of the whole call, and of its sweeps alone.
struct Times {
  double total = 1e9, sweeps = 1e9;
};

/// What a rank times on its device. The first call warms up.
struct Measurement {
  std::string name;
  double goal;
  std::function<Times(Context const&, Device, int repetitions)> run;
};

template <class Call>
Times best(int repetitions, Call const& call) {
  Times times;
  for (int k = 0; k <= repetitions; ++k) {
    Stopwatch const watch;
    double const sweeps = call();
    double const total = watch.seconds();
    if (k > 0) times = {std::min(times.total, total), std::min(times.sweeps, sweeps)};
  }
  return times;
}

SolveOptions fixed(int sweeps, bool certificate) {
  return {.eps_relative = 0.05,
          .tolerance = 0,
          .iterations = sweeps,
          .schedule = Schedule::alternating,
          .annealing = 1,
          .precision = Precision::float32,
          .certificate = certificate};
}

Measurement points(std::int64_t n, std::int64_t d, int sweeps, bool certificate, double goal) {
  std::string const name = "points " + std::to_string(n) + " x " + std::to_string(d) + ", " + std::to_string(sweeps) +
                           (certificate ? " sweeps and certificate" : " sweeps");
  return {name, goal, [=](Context const& context, Device device, int repetitions) {
            Array const x(n * d, 0), y(n * d, 0.1f);
            PointCloud const clouds{{x.data(), n, d, d, device}, {y.data(), n, d, d, device}};
            return best(repetitions, [&] {
              return solve(context, clouds, {}, {}, fixed(sweeps, certificate)).report().seconds.sweeps;
            });
          }};
}

Measurement matrix(std::int64_t n, int sweeps, bool certificate, double goal) {
  std::string const name = "matrix " + std::to_string(n) + ", " + std::to_string(sweeps) +
                           (certificate ? " sweeps and certificate" : " sweeps");
  return {name, goal, [=](Context const& context, Device device, int repetitions) {
            Array const cost(n * n, 0);
            CostMatrix const matrix{{cost.data(), n, n, n, device}};
            return best(repetitions, [&] {
              return solve(context, matrix, {}, {}, fixed(sweeps, certificate)).report().seconds.sweeps;
            });
          }};
}

Measurement hessian(std::int64_t n, std::int64_t d, int steps, double goal) {
  std::string const name = "Hessian product " + std::to_string(n) + " x " + std::to_string(d) + ", " +
                           std::to_string(steps) + " steps of conjugate gradients";
  return {name, goal, [=](Context const& context, Device device, int repetitions) {
            Array const x(n * d, 0), y(n * d, 0.1f), v(n * d, -0.5f), out(n * d, 0);
            PointCloud const clouds{{x.data(), n, d, d, device}, {y.data(), n, d, d, device}};
            Plan const plan = solve(context, clouds, {}, {}, fixed(20, true));
            return best(repetitions, [&] {
              plan.hessian_product({.x = {v.data(), n, d, d, device}}, {.x = {out.data(), n, d, d, device}},
                                   {.tolerance = 0, .iterations = steps});
              cudaDeviceSynchronize();
              return 0.0;
            });
          }};
}

Measurement batch(int problems, std::int64_t n, std::int64_t d, int sweeps, double goal) {
  std::string const name = std::to_string(problems) + " problems of " + std::to_string(n) + " x " + std::to_string(d) +
                           ", " + std::to_string(sweeps) + " sweeps and certificate";
  return {name, goal, [=](Context const& context, Device device, int repetitions) {
            Array const x(problems * n * d, 0), y(problems * n * d, 0.1f);
            std::vector<BatchProblem> batch;
            for (int k = 0; k < problems; ++k)
              batch.push_back(
                  {PointCloud{{x.data() + k * n * d, n, d, d, device}, {y.data() + k * n * d, n, d, d, device}}});
            SolveOptions options = fixed(sweeps, true);
            options.check_every = sweeps;
            return best(repetitions, [&] { return solve_batch(context, batch, options)[0].report().seconds.sweeps; });
          }};
}

}  // namespace

int main(int count, char** arguments) {
  bool const large = count > 1 && std::string(arguments[1]) == "--large";
  int const first_number = large ? 2 : 1;
  int const devices = count > first_number ? std::atoi(arguments[first_number]) : 2;
  int const repetitions = count > first_number + 1 ? std::atoi(arguments[first_number + 1]) : large ? 1 : 3;
  std::vector<Measurement> const measurements =
      large ? std::vector<Measurement>{points(1000000, 64, 3, false, 0),
                                       points(1000000, 3, 5, false, 0),
                                       points(100000, 3072, 3, false, 0),
                                       matrix(100000, 50, false, 0),
                                       hessian(200000, 64, 10, 0),
                                       batch(512, 1000, 64, 200, 0),
                                       points(100000 * devices, 64, 5, false, 0),
                                       points(100000 * devices, 3, 10, false, 0)}
            : std::vector<Measurement>{points(200000, 64, 10, false, 1.95), points(200000, 64, 10, true, 1.95),
                                       points(200000, 3, 20, false, 1.9),   points(20000, 64, 200, false, 1.6),
                                       points(10000, 64, 200, false, 0),    matrix(60000, 50, false, 1.9),
                                       matrix(60000, 50, true, 1.9),        hessian(100000, 64, 10, 1.9),
                                       batch(64, 1000, 64, 200, 1.8)};
  std::printf("{%s, \"devices\": %d, \"measurements\": [", bench::provenance_on({monge::DeviceType::cuda, 0}).c_str(),
              devices);
  bool first = true;
  for (Measurement const& measurement : measurements) {
    MONGE_CUDA_TRY(cudaSetDevice(0));
    Times const alone = measurement.run(Context::cuda(), {DeviceType::cuda, 0}, repetitions);
    oracle::Meeting meeting(devices, 60);
    auto const outcomes = oracle::on_ranks(devices, [&](int rank) {
      MONGE_CUDA_TRY(cudaSetDevice(rank));
      Context const context = Context::distributed(meeting.communicator(rank), CudaOptions{.index = rank});
      if (!cuda::runtime_of(context).ranks()->enqueues()) throw std::runtime_error("the devices have no NCCL");
      return measurement.run(context, {DeviceType::cuda, rank}, repetitions);
    });
    for (auto const& outcome : outcomes) {
      if (!outcome.result) std::fprintf(stderr, "%s: %s\n", measurement.name.c_str(), outcome.error.c_str());
    }
    if (!outcomes[0].result) return 1;
    Times const shared = *outcomes[0].result;
    std::printf(
        "%s\n  {\"name\": \"%s\", \"goal\": %.2f, \"one\": %.6f, \"shared\": %.6f, \"ratio\": %.3f, "
        "\"sweeps_one\": %.6f, \"sweeps_shared\": %.6f, \"sweeps_ratio\": %.3f}",
        first ? "" : ",", measurement.name.c_str(), measurement.goal, alone.total, shared.total,
        alone.total / shared.total, alone.sweeps, shared.sweeps,
        shared.sweeps > 0 ? alone.sweeps / shared.sweeps : 0.0);
    std::fflush(stdout);
    first = false;
  }
  std::printf("\n]}\n");
  return 0;
}
