#include "progress_line.hpp"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string_view>

#include <fmt/format.h>

namespace monge::cli {
namespace {

constexpr double kSecondsBetweenLines = 0.1;
constexpr char const* kEraseLine = "\r\x1b[K";

bool can_erase_lines() {
  char const* terminal = std::getenv("TERM");
  return isatty(STDERR_FILENO) != 0 && terminal != nullptr && std::string_view(terminal) != "dumb";
}

}  // namespace

ProgressLine::ProgressLine(bool wanted) : enabled_(wanted && can_erase_lines()) {}

bool ProgressLine::is_due(double seconds) {
  if (!enabled_ || seconds < next_seconds_) return false;
  next_seconds_ = seconds + kSecondsBetweenLines;
  return true;
}

void ProgressLine::show(Progress const& progress) {
  if (!is_due(progress.seconds)) return;
  print(fmt::format("sweep {:5}   eps {:.3g}   marginal error {:.2e}   {:.1f} s", progress.iteration, progress.eps,
                    progress.marginal_error, progress.seconds));
}

void ProgressLine::show(RegularizedProgress const& progress) {
  if (!is_due(progress.seconds)) return;
  print(fmt::format("iteration {:5}   weight {:.3g}   residual {:.2e}   {:.1f} s", progress.iteration, progress.weight,
                    progress.primal_residual, progress.seconds));
}

void ProgressLine::show(ExactProgress const& progress) {
  if (!is_due(progress.seconds)) return;
  print(fmt::format("pass {:3}   {} candidates   {:.2e} of the mass left   {:.1f} s", progress.iteration,
                    progress.candidates, progress.missing, progress.seconds));
}

void ProgressLine::show(GromovProgress const& progress) {
  if (!is_due(progress.seconds)) return;
  print(fmt::format("start {:3}   step {:4}   value {:.6g}   change {:.2e}   lower bound {:.6g}   {:.1f} s",
                    progress.start, progress.iteration, progress.value, progress.change, progress.lower_bound,
                    progress.seconds));
}

void ProgressLine::show(std::string_view work) {
  if (enabled_) print(fmt::format("{} ...", work));
}

void ProgressLine::print(std::string const& text) {
  fmt::print(stderr, "{}{}", kEraseLine, text);
  std::fflush(stderr);
  shown_ = true;
}

void ProgressLine::erase() {
  if (!shown_) return;
  fmt::print(stderr, "{}", kEraseLine);
  std::fflush(stderr);
  shown_ = false;
}

}  // namespace monge::cli
