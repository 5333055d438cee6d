// Seconds of the phases of a run.
#pragma once
#include <chrono>
#include <utility>

namespace monge::cli {

class Stopwatch {
 public:
  /// Seconds since construction or the last call.
  double lap() {
    auto const now = std::chrono::steady_clock::now();
    return std::chrono::duration<double>(now - std::exchange(start_, now)).count();
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace monge::cli
