// Time of one half-step of the CUDA operator, from its graphs, and the ceilings of the machine it ran on. Prints JSON.
//
//   cuda_halfstep [--quick]
//
// A half-step takes n m exponentials and products n m (2 d) flop of scores (three times that in float32, d > 8). The
// ceilings are measured in the same run: exponentials (ex2.approx), fp16 products (mma.sync m16n8k16 from registers),
// copies.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "cuda_limits.cuh"
#include "operators/backend.hpp"

namespace {

using monge::bench::median_ms;
using monge::cuda::Stream;

double half_step_us(monge::Backend const& backend, cudaStream_t stream, int n, int d, monge::Precision precision) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<float> x(static_cast<std::size_t>(n) * d), y(x.size());
  for (float& v : x) v = normal(random);
  for (float& v : y) v = normal(random);
  std::vector<double> const weight(n, 1.0 / n);
  monge::PointCloud const geometry{monge::MatrixView(x.data(), n, d), monge::MatrixView(y.data(), n, d)};
  auto const problem = backend.entropic_operator(geometry, weight, weight, precision, 0);
  monge::Sweep const sweep{.eps = 0.1 * d};
  double const once = median_ms(stream, 3, [&] { problem->sweep(sweep, 10); });
  int const repeats = std::clamp(static_cast<int>(400 / once), 3, 50);
  double const ms = median_ms(stream, repeats, [&] { problem->sweep(sweep, 10); });
  monge::SweepErrors const errors = problem->errors();
  if (!(errors.column < 1)) std::fprintf(stderr, "n %d d %d: column error %g\n", n, d, errors.column);
  return 1000 * ms / 20;
}

}  // namespace

int main(int argc, char** argv) {
  bool const quick = argc > 1 && std::strcmp(argv[1], "--quick") == 0;
  Stream const stream(cudaStreamNonBlocking);
  monge::Context const context = monge::Context::cuda({.stream = stream.get()});
  monge::DeviceInfo const info = backend_of(context).info();

  float* memory = nullptr;
  std::size_t const copy_bytes = std::size_t{2} << 30;
  MONGE_CUDA_TRY(cudaMalloc(&memory, 2 * copy_bytes));
  MONGE_CUDA_TRY(cudaMemset(memory, 1, 2 * copy_bytes));
  double const exp_rate = monge::bench::exp2_rate(stream.get(), info.units, memory);
  double const mma_rate = monge::bench::fp16_product_rate(stream.get(), info.units, memory);
  double const copy_rate = monge::bench::copy_rates(stream.get(), info.units, memory,
                                                    reinterpret_cast<char*>(memory) + copy_bytes, copy_bytes)
                               .memcpy;
  MONGE_CUDA_TRY(cudaFree(memory));
  std::printf(
      "{\n  %s,\n  \"ceilings\": {\"exp2_per_s\": %.4g, \"fp16_mma_flop_per_s\": %.4g, "
      "\"copy_bytes_per_s\": %.4g},\n  \"half_steps\": [",
      monge::bench::provenance(0).c_str(), exp_rate, mma_rate, copy_rate);

  struct Case {
    int n, d;
    monge::Precision precision;
    char const* name;
  };
  std::vector<Case> cases;
  for (int d : {3, 4, 8, 16, 64, 128, 512}) {
    cases.push_back({10000, d, monge::Precision::float32, "float32"});
    cases.push_back({10000, d, monge::Precision::tf32, "tf32"});
  }
  if (!quick) {
    for (int n : {1000, 5000}) cases.push_back({n, 64, monge::Precision::float32, "float32"});
    cases.push_back({10000, 64, monge::Precision::float64, "float64"});
    cases.push_back({50000, 64, monge::Precision::tf32, "tf32"});
    cases.push_back({50000, 64, monge::Precision::float32, "float32"});
    cases.push_back({100000, 3, monge::Precision::float32, "float32"});
  }
  char const* separator = "";
  for (Case const& one : cases) {
    double const us = half_step_us(backend_of(context), stream.get(), one.n, one.d, one.precision);
    double const pairs = static_cast<double>(one.n) * one.n;
    bool const products_used = one.d > 8 && one.precision != monge::Precision::float64;
    double const flop = products_used ? pairs * 2 * one.d * (one.precision == monge::Precision::tf32 ? 1 : 3) : 0;
    std::printf(
        "%s\n    {\"n\": %d, \"d\": %d, \"precision\": \"%s\", \"us\": %.2f, \"exp_floor_us\": %.2f, "
        "\"mma_floor_us\": %.2f}",
        separator, one.n, one.d, one.name, us, 1e6 * pairs / exp_rate, 1e6 * flop / mma_rate);
    std::fflush(stdout);
    separator = ",";
  }
  std::printf("\n  ]\n}\n");
  return 0;
}
