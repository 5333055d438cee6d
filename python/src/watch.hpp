// What looks after a solve from Python: signals, and the caller's progress function.
#pragma once
#include <nanobind/nanobind.h>

#include <chrono>
#include <exception>
#include <functional>
#include <utility>

namespace monge::python {

namespace nb = nanobind;

/// Made and ended with the interpreter's lock; its callback takes the lock when there is something to do.
class Watch {
 public:
  /// `progress` is None or is called with what the library says at each check; False stops the solve.
  explicit Watch(nb::object progress) : progress_(std::move(progress)) {}

  /// For the `progress` of options, State being a Progress or a RegularizedProgress.
  template <class State>
  std::function<bool(State const&)> callback() {
    return [this](State const& state) { return goes_on([&] { return nb::cast(state); }); };
  }

  /// Raises what a signal or the progress function raised.
  void rethrow() {
    if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::milliseconds kBetweenSignals{20};

  bool goes_on(std::function<nb::object()> const& state);

  nb::object progress_;
  Clock::time_point next_ = Clock::now() + kBetweenSignals;
  std::exception_ptr error_;
};

}  // namespace monge::python
