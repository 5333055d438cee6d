// One line about the progress of a run: shown on a terminal only, and erased at the end.
#pragma once
#include <string>
#include <string_view>

#include <monge/exact.hpp>
#include <monge/gromov.hpp>
#include <monge/regularized.hpp>
#include <monge/report.hpp>

#include "interrupt.hpp"

namespace monge::cli {

class ProgressLine {
 public:
  /// The line is shown if it is `wanted` and standard error is a terminal.
  explicit ProgressLine(bool wanted);
  ~ProgressLine() { erase(); }
  ProgressLine(ProgressLine const&) = delete;
  ProgressLine& operator=(ProgressLine const&) = delete;

  void show(Progress const& progress);
  void show(RegularizedProgress const& progress);
  void show(ExactProgress const& progress);
  void show(GromovProgress const& progress);
  /// Shows the present work, such as "map".
  void show(std::string_view work);
  void erase();

 private:
  /// Whether enough time has passed since the last line.
  bool is_due(double seconds);
  void print(std::string const& text);

  bool enabled_;
  bool shown_ = false;
  double next_seconds_ = 0;
};

/// A callback that shows the progress of a solve, and stops the solve after a noted Ctrl-C.
inline auto shown_by(ProgressLine& line) {
  return [&line](auto const& progress) {
    line.show(progress);
    return !interrupted();
  };
}

}  // namespace monge::cli
