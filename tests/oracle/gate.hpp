// A stream that is held up, for tests of what runs in it.
#pragma once
#include <atomic>
#include <chrono>
#include <thread>

#include "oracle/cuda_check.hpp"

namespace monge::oracle {

/// Holds a stream up until it is opened; opens by itself where the host waits for the stream.
class Gate {
 public:
  explicit Gate(cudaStream_t stream) : stream_(stream) { check(cudaLaunchHostFunc(stream, wait, &open_)); }
  Gate(Gate const&) = delete;
  Gate& operator=(Gate const&) = delete;
  ~Gate() {
    open();
    cudaStreamSynchronize(stream_);
  }
  void open() { open_ = true; }

 private:
  static void wait(void* open) {
    using namespace std::chrono_literals;
    auto const deadline = std::chrono::steady_clock::now() + 20s;
    while (!*static_cast<std::atomic<bool>*>(open) && std::chrono::steady_clock::now() < deadline)
      std::this_thread::sleep_for(1ms);
  }

  cudaStream_t stream_;
  std::atomic<bool> open_ = false;
};

}  // namespace monge::oracle
