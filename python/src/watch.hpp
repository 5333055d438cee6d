// The watch over a solve from Python: signals, and the caller's progress function.
#pragma once
#include <nanobind/nanobind.h>

#include <chrono>
#include <exception>
#include <functional>
#include <utility>

namespace monge::python {

namespace nb = nanobind;

/// Constructed and destroyed with the interpreter's lock; its callback takes the lock when it needs it.
class Watch {
 public:
  /// `progress` is None or is called with the library's progress at each check; if it returns False, the solve stops.
  explicit Watch(nb::object progress) : progress_(std::move(progress)) {}

  /// For the `progress` of options; State is Progress, RegularizedProgress or ExactProgress.
  template <class State>
  std::function<bool(State const&)> callback() {
    return [this](State const& state) {
      return goes_on([&] {
        Shown<State> const shown(state);
        return progress_(shown.object);
      });
    };
  }

  /// Throws the exception of a signal or of the progress function. A KeyboardInterrupt gets `result` as its attribute
  /// of this name.
  void rethrow(nb::object const& result = {});

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::milliseconds kBetweenSignals{20};

  /// A copy of the state, which the caller may keep. Its potentials can be read as long as this exists.
  template <class State>
  struct Shown {
    explicit Shown(State const& state) : object(nb::cast(state)) {}
    ~Shown() {
      if constexpr (requires(State & copy) { copy.potentials; }) nb::cast<State&>(object).potentials = nullptr;
    }
    Shown(Shown const&) = delete;
    nb::object object;
  };

  /// `answer` calls progress_.
  bool goes_on(std::function<nb::object()> const& answer);

  nb::object progress_;
  Clock::time_point next_ = Clock::now() + kBetweenSignals;
  std::exception_ptr error_;
};

}  // namespace monge::python
