// The bytes of a backend's arrays, and their peak while a piece of work runs.
#pragma once
#include <algorithm>
#include <cstdint>
#include <mutex>
#include <utility>
#include <vector>

namespace monge {

/// Threads may use it at the same time.
class MemoryCount {
 public:
  void add(std::int64_t bytes) {
    std::lock_guard const lock(mutex_);
    held_ += bytes;
    for (std::int64_t* peak : peaks_) *peak = std::max(*peak, held_);
  }
  void subtract(std::int64_t bytes) {
    std::lock_guard const lock(mutex_);
    held_ -= bytes;
  }
  /// For a fork, which must not copy a mutex that another thread holds.
  std::mutex& mutex() { return mutex_; }

 private:
  friend class MemoryPeak;
  std::mutex mutex_;
  std::int64_t held_ = 0;
  std::vector<std::int64_t*> peaks_;
};

/// Bytes that count while it lives.
class CountedBytes {
 public:
  CountedBytes() = default;
  CountedBytes(MemoryCount& count, std::int64_t bytes) : count_(&count), bytes_(bytes) { count.add(bytes); }
  CountedBytes(CountedBytes&& other) noexcept : count_(other.count_), bytes_(std::exchange(other.bytes_, 0)) {}
  CountedBytes& operator=(CountedBytes&& other) noexcept {
    std::swap(count_, other.count_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~CountedBytes() {
    if (bytes_ > 0) count_->subtract(bytes_);
  }

 private:
  MemoryCount* count_ = nullptr;
  std::int64_t bytes_ = 0;
};

/// The most bytes that there were since it was made.
class MemoryPeak {
 public:
  explicit MemoryPeak(MemoryCount& count) : count_(count) {
    std::lock_guard const lock(count_.mutex_);
    bytes_ = count_.held_;
    count_.peaks_.push_back(&bytes_);
  }
  ~MemoryPeak() {
    std::lock_guard const lock(count_.mutex_);
    std::erase(count_.peaks_, &bytes_);
  }
  MemoryPeak(MemoryPeak const&) = delete;
  MemoryPeak& operator=(MemoryPeak const&) = delete;

  std::int64_t bytes() const {
    std::lock_guard const lock(count_.mutex_);
    return bytes_;
  }

 private:
  MemoryCount& count_;
  std::int64_t bytes_;
};

}  // namespace monge
