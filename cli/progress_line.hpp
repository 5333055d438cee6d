// One line that tells how a solve is getting on; shown on a terminal only, and erased at the end.
#pragma once
#include <monge/entropic.hpp>

namespace monge::cli {

class ProgressLine {
 public:
  /// `wanted` and standard error being a terminal decide together.
  explicit ProgressLine(bool wanted);
  ~ProgressLine() { erase(); }
  ProgressLine(ProgressLine const&) = delete;
  ProgressLine& operator=(ProgressLine const&) = delete;

  void show(Progress const& progress);
  void erase();

 private:
  bool enabled_;
  bool shown_ = false;
  double next_seconds_ = 0;
};

}  // namespace monge::cli
