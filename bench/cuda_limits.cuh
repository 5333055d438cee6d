// What one GPU can do, measured in the run that it is compared with, and where the run was: shared by the benchmarks.
#pragma once
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include <monge/context.hpp>

#include "cuda/device/numerics.cuh"
#include "cuda/runtime/runtime.hpp"
#include "provenance.hpp"

namespace monge::bench {

/// Median milliseconds of `repeats` calls of enqueue(), after two more.
template <class Enqueue>
double median_ms(cudaStream_t stream, int repeats, Enqueue&& enqueue) {
  cuda::Event start(cudaEventDefault), stop(cudaEventDefault);
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

namespace limits {

inline constexpr int kRounds = 4096;

static __global__ void exponentials(float* out) {
  float x[8];
  for (int k = 0; k < 8; ++k) x[k] = -1.0f - static_cast<float>(threadIdx.x + k) / 512;
  for (int r = 0; r < kRounds; ++r) {
#pragma unroll
    for (int k = 0; k < 8; ++k) x[k] = cuda::fast_exp2(x[k]);
  }
  float sum = 0;
  for (int k = 0; k < 8; ++k) sum += x[k];
  if (sum == 12345.0f) *out = sum;
}

static __global__ void products(float* out) {
  float c[8][4] = {};
  // Halves near 1 with varying bits: zeros would run faster than real data.
  std::uint32_t a[4], b[8][2];
  for (int k = 0; k < 4; ++k) a[k] = 0x3c003c00u ^ (threadIdx.x * 2654435761u >> 9 & 0x03ff03ffu);
  for (int k = 0; k < 8; ++k)
    b[k][0] = b[k][1] = 0xbc003c00u ^ ((threadIdx.x + 32 * k) * 2246822519u >> 7 & 0x03ff03ffu);
  for (int r = 0; r < kRounds; ++r) {
#pragma unroll
    for (int k = 0; k < 8; ++k) cuda::mma_16x8x16(c[k], a, b[k][0], b[k][1]);
  }
  float sum = 0;
  for (int k = 0; k < 8; ++k) sum += c[k][0] + c[k][1] + c[k][2] + c[k][3];
  if (sum == 12345.0f) *out = sum;
}

static __global__ void copy(float4 const* from, float4* to, std::int64_t count) {
  std::int64_t const stride = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += stride)
    __stcs(to + i, __ldcs(from + i));
}

static __global__ void exponentials_in_double(double* out) {
  double x[4];
  for (int k = 0; k < 4; ++k) x[k] = -1.0 - static_cast<double>(threadIdx.x + k) / 512;
  for (int r = 0; r < kRounds; ++r) {
#pragma unroll
    for (int k = 0; k < 4; ++k) x[k] = cuda::power_of_two(-x[k]);
  }
  double const sum = x[0] + x[1] + x[2] + x[3];
  if (sum == 12345.0) *out = sum;
}

static __global__ void read(float4 const* from, float* to, std::int64_t count) {
  std::int64_t const stride = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  float sum = 0;
#pragma unroll 8
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += stride) {
    float4 const v = __ldcs(from + i);
    sum += v.x + v.y + v.z + v.w;
  }
  if (sum == 12345.0f) *to = sum;
}

static __global__ void nothing() {}

}  // namespace limits

/// Exponentials (ex2.approx) a second.
inline double exp2_rate(cudaStream_t stream, int multiprocessors, float* scratch) {
  unsigned const blocks = static_cast<unsigned>(multiprocessors) * 8;
  double const ms = median_ms(stream, 7, [&] { limits::exponentials<<<blocks, 256, 0, stream>>>(scratch); });
  return 8.0 * limits::kRounds * 256 * blocks / (ms * 1e-3);
}

/// Exponentials (power_of_two) in double a second.
inline double double_exp2_rate(cudaStream_t stream, int multiprocessors, double* scratch) {
  unsigned const blocks = static_cast<unsigned>(multiprocessors) * 8;
  double const ms = median_ms(stream, 7, [&] { limits::exponentials_in_double<<<blocks, 256, 0, stream>>>(scratch); });
  return 4.0 * limits::kRounds * 256 * blocks / (ms * 1e-3);
}

/// Bytes read a second by a kernel that does nothing else. `bytes` must be far more than the L2 cache.
inline double read_rate(cudaStream_t stream, int multiprocessors, void const* from, float* scratch, std::size_t bytes) {
  double const ms = median_ms(stream, 9, [&] {
    limits::read<<<static_cast<unsigned>(multiprocessors) * 8, 512, 0, stream>>>(
        static_cast<float4 const*>(from), scratch, static_cast<std::int64_t>(bytes / 16));
  });
  return 1e3 * static_cast<double>(bytes) / ms;
}

/// fp16 products (mma.sync m16n8k16 from registers), flop a second.
inline double fp16_product_rate(cudaStream_t stream, int multiprocessors, float* scratch) {
  unsigned const blocks = static_cast<unsigned>(multiprocessors) * 8;
  double const ms = median_ms(stream, 7, [&] { limits::products<<<blocks, 256, 0, stream>>>(scratch); });
  return 8.0 * limits::kRounds * 4096 * (256 / 32) * blocks / (ms * 1e-3);
}

/// Bytes read plus bytes written a second, by cudaMemcpy and by a kernel. `bytes` must be far more than the L2 cache.
struct CopyRates {
  double memcpy, kernel;
};
inline CopyRates copy_rates(cudaStream_t stream, int multiprocessors, void const* from, void* to, std::size_t bytes) {
  double const memcpy_ms =
      median_ms(stream, 9, [&] { MONGE_CUDA_TRY(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream)); });
  double const kernel_ms = median_ms(stream, 9, [&] {
    limits::copy<<<static_cast<unsigned>(multiprocessors) * 16, 256, 0, stream>>>(
        static_cast<float4 const*>(from), static_cast<float4*>(to), static_cast<std::int64_t>(bytes / 16));
  });
  return {2e3 * static_cast<double>(bytes) / memcpy_ms, 2e3 * static_cast<double>(bytes) / kernel_ms};
}

/// The fields "device" to "versions" of a result file, without braces.
inline std::string provenance(int device) {
  cudaDeviceProp properties{};
  int driver = 0, runtime = 0, khz = 0;
  MONGE_CUDA_TRY(cudaGetDeviceProperties(&properties, device));
  MONGE_CUDA_TRY(cudaDriverGetVersion(&driver));
  MONGE_CUDA_TRY(cudaRuntimeGetVersion(&runtime));
  MONGE_CUDA_TRY(cudaDeviceGetAttribute(&khz, cudaDevAttrClockRate, device));
  // "NVRM version: NVIDIA UNIX ... Kernel Module  580.126.09  Release Build ...": the only word of digits and dots.
  std::string word, kernel_module = "unknown";
  for (std::ifstream file("/proc/driver/nvidia/version"); kernel_module == "unknown" && file >> word;)
    if (word.find('.') != std::string::npos && word.find_first_not_of("0123456789.") == std::string::npos)
      kernel_module = word;
  char text[512];
  std::snprintf(text, sizeof text,
                "\"device\": \"%s\", \"multiprocessors\": %d, \"highest_clock_mhz\": %d,\n  \"cuda\": \"%d.%d\", "
                "\"driver\": \"%s (CUDA %d.%d)\", ",
                properties.name, properties.multiProcessorCount, khz / 1000, runtime / 1000, runtime % 1000 / 10,
                kernel_module.c_str(), driver / 1000, driver % 1000 / 10);
  return text + provenance_of_run();
}

}  // namespace monge::bench
