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

#include "cuda/device/ptx.cuh"
#include "cuda/runtime/runtime.hpp"
#include "operators/backend.hpp"

namespace {

using monge::cuda::Event;
using monge::cuda::Stream;

__global__ void exponentials(float* out, int rounds) {
  float x[8];
  for (int k = 0; k < 8; ++k) x[k] = -1.0f - static_cast<float>(threadIdx.x + k) / 512;
  for (int r = 0; r < rounds; ++r) {
#pragma unroll
    for (int k = 0; k < 8; ++k) x[k] = monge::cuda::fast_exp2(x[k]);
  }
  float sum = 0;
  for (int k = 0; k < 8; ++k) sum += x[k];
  if (sum == 12345.0f) *out = sum;
}

__global__ void products(float* out, int rounds) {
  float c[8][4] = {};
  // Halves near 1 with varying bits: zeros would run faster than real data.
  std::uint32_t a[4], b[8][2];
  for (int k = 0; k < 4; ++k) a[k] = 0x3c003c00u ^ (threadIdx.x * 2654435761u >> 9 & 0x03ff03ffu);
  for (int k = 0; k < 8; ++k)
    b[k][0] = b[k][1] = 0xbc003c00u ^ ((threadIdx.x + 32 * k) * 2246822519u >> 7 & 0x03ff03ffu);
  for (int r = 0; r < rounds; ++r) {
#pragma unroll
    for (int k = 0; k < 8; ++k) monge::cuda::mma_16x8x16(c[k], a, b[k][0], b[k][1]);
  }
  float sum = 0;
  for (int k = 0; k < 8; ++k) sum += c[k][0] + c[k][1] + c[k][2] + c[k][3];
  if (sum == 12345.0f) *out = sum;
}

/// Median milliseconds of `repeats` calls of enqueue().
template <class Enqueue>
double median_ms(cudaStream_t stream, int repeats, Enqueue&& enqueue) {
  Event start, stop;
  std::vector<float> times;
  for (int r = 0; r < repeats + 2; ++r) {
    MONGE_CUDA_TRY(cudaEventRecord(start.get(), stream));
    enqueue();
    MONGE_CUDA_TRY(cudaEventRecord(stop.get(), stream));
    MONGE_CUDA_TRY(cudaEventSynchronize(stop.get()));
    float ms = 0;
    MONGE_CUDA_TRY(cudaEventElapsedTime(&ms, start.get(), stop.get()));
    if (r >= 2) times.push_back(ms);
  }
  std::nth_element(times.begin(), times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2), times.end());
  return times[times.size() / 2];
}

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
  Stream const stream;
  monge::Context const context = monge::Context::cuda(0, stream.get());
  monge::DeviceInfo const info = context.backend().info();

  float* memory = nullptr;
  std::size_t const copy_bytes = std::size_t{2} << 30;
  MONGE_CUDA_TRY(cudaMalloc(&memory, 2 * copy_bytes));
  MONGE_CUDA_TRY(cudaMemset(memory, 1, 2 * copy_bytes));
  unsigned const blocks = static_cast<unsigned>(info.units) * 8;
  int const rounds = 4096;
  double const exp_ms =
      median_ms(stream.get(), 7, [&] { exponentials<<<blocks, 256, 0, stream.get()>>>(memory, rounds); });
  double const mma_ms = median_ms(stream.get(), 7, [&] { products<<<blocks, 256, 0, stream.get()>>>(memory, rounds); });
  double const copy_ms = median_ms(stream.get(), 7, [&] {
    MONGE_CUDA_TRY(cudaMemcpyAsync(reinterpret_cast<char*>(memory) + copy_bytes, memory, copy_bytes,
                                   cudaMemcpyDeviceToDevice, stream.get()));
  });
  MONGE_CUDA_TRY(cudaFree(memory));
  double const exp_rate = 8.0 * rounds * 256 * blocks / (exp_ms * 1e-3);
  double const mma_rate = 8.0 * rounds * 4096 * (256 / 32) * blocks / (mma_ms * 1e-3);
  std::printf(
      "{\n  \"device\": \"%s\",\n  \"ceilings\": {\"exp2_per_s\": %.4g, \"fp16_mma_flop_per_s\": %.4g, "
      "\"copy_bytes_per_s\": %.4g},\n  \"half_steps\": [",
      info.name.c_str(), exp_rate, mma_rate, 2.0 * static_cast<double>(copy_bytes) / (copy_ms * 1e-3));

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
    double const us = half_step_us(context.backend(), stream.get(), one.n, one.d, one.precision);
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
