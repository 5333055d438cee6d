// Device memory of a test's own, and a pool of it that keeps accounts.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <span>
#include <vector>

#include <monge/array.hpp>
#include <monge/context.hpp>

#include "oracle/cuda_check.hpp"

namespace monge::oracle {

/// A copy in device memory, rows padded like those of `Stored`.
template <class T>
class OnDevice {
 public:
  OnDevice(std::span<double const> values, std::int64_t rows, std::int64_t columns, std::int64_t padding = 0)
      : rows_(rows), columns_(columns), stride_(columns + padding), host_(rows * stride_) {
    for (std::int64_t i = 0; i < rows; ++i) {
      for (std::int64_t k = 0; k < columns; ++k) host_[i * stride_ + k] = static_cast<T>(values[i * columns + k]);
    }
    check(cudaMalloc(reinterpret_cast<void**>(&data_), host_.size() * sizeof(T)));
    check(cudaMemcpy(data_, host_.data(), host_.size() * sizeof(T), cudaMemcpyHostToDevice));
  }
  OnDevice(OnDevice const&) = delete;
  OnDevice& operator=(OnDevice const&) = delete;
  ~OnDevice() {
    cudaFree(data_);
    if (registered_) cudaHostUnregister(host_.data());
  }

  void fill(double value) {
    std::fill(host_.begin(), host_.end(), static_cast<T>(value));
    check(cudaMemcpy(data_, host_.data(), host_.size() * sizeof(T), cudaMemcpyHostToDevice));
  }
  /// On the legacy default stream, which this does not wait for. Rows without padding.
  void write_later(std::span<double const> values) {
    std::copy(values.begin(), values.end(), host_.begin());
    check(cudaHostRegister(host_.data(), host_.size() * sizeof(T), cudaHostRegisterDefault));
    registered_ = true;
    check(cudaMemcpyAsync(data_, host_.data(), host_.size() * sizeof(T), cudaMemcpyHostToDevice, cudaStreamLegacy));
  }

  MatrixView matrix() const { return {data_, rows_, columns_, stride_, device()}; }
  MutableMatrixView mutable_matrix() { return {data_, rows_, columns_, stride_, device()}; }
  VectorView vector() const { return {data_, rows_, stride_, device()}; }
  MutableVectorView mutable_vector() { return {data_, rows_, stride_, device()}; }

  std::vector<double> values() {
    check(cudaMemcpy(host_.data(), data_, host_.size() * sizeof(T), cudaMemcpyDeviceToHost));
    std::vector<double> result;
    for (std::int64_t i = 0; i < rows_; ++i) {
      for (std::int64_t k = 0; k < columns_; ++k) result.push_back(host_[i * stride_ + k]);
    }
    return result;
  }

 private:
  static Device device() { return {DeviceType::cuda, 0}; }
  std::int64_t rows_, columns_, stride_;
  std::vector<T> host_;
  T* data_ = nullptr;
  bool registered_ = false;
};

/// A pool that knows what is out and fails once `limit` allocations were made.
struct Pool {
  struct Block {
    std::size_t bytes;
    void* stream;
  };
  std::map<void*, Block> out;
  int allocations = 0, wrong_releases = 0;
  std::size_t bytes = 0, most_bytes = 0, largest_block = 0;
  int limit = 1000000;
  std::mutex mutex;  // Small problems of Newton's method have a thread each.

  DeviceAllocator allocator() {
    auto const allocate = [this](std::size_t size, void* stream) -> void* {
      std::scoped_lock const lock(mutex);
      if (allocations == limit) return nullptr;
      void* memory = nullptr;
      check(cudaMallocAsync(&memory, size, static_cast<cudaStream_t>(stream)));
      ++allocations;
      out[memory] = {size, stream};
      bytes += size;
      most_bytes = std::max(most_bytes, bytes);
      largest_block = std::max(largest_block, size);
      return memory;
    };
    auto const release = [this](void* memory, std::size_t size, void* stream) {
      std::scoped_lock const lock(mutex);
      auto const block = out.find(memory);
      if (block == out.end() || block->second.bytes != size || block->second.stream != stream) ++wrong_releases;
      if (block != out.end()) out.erase(block);
      bytes -= size;
      cudaFreeAsync(memory, static_cast<cudaStream_t>(stream));
    };
    return {allocate, release};
  }
};

}  // namespace monge::oracle
