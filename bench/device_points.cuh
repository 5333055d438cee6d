// What the benchmarks of whole solves share: points on the device, and medians.
#pragma once
#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include <monge/array.hpp>

#include "cuda/runtime/check.hpp"

namespace monge::bench {

/// Gaussian points of many clouds, one after the other.
class DevicePoints {
 public:
  DevicePoints(std::int64_t rows, std::int64_t d, unsigned seed) : d_(d) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    std::vector<float> host(static_cast<std::size_t>(rows * d));
    for (float& value : host) value = normal(random);
    MONGE_CUDA_TRY(cudaMalloc(&data_, host.size() * sizeof(float)));
    MONGE_CUDA_TRY(cudaMemcpy(data_, host.data(), host.size() * sizeof(float), cudaMemcpyHostToDevice));
  }
  ~DevicePoints() { cudaFree(data_); }
  DevicePoints(DevicePoints const&) = delete;
  DevicePoints& operator=(DevicePoints const&) = delete;
  MatrixView view(std::int64_t first, std::int64_t rows) const {
    return {data_ + first * d_, rows, d_, d_, {DeviceType::cuda, 0}};
  }

 private:
  std::int64_t d_;
  float* data_ = nullptr;
};

inline double median(std::vector<double> values) {
  auto const middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace monge::bench
