#include "interrupt.hpp"

#include <unistd.h>

#include <csignal>
#include <string_view>

#include "exit_code.hpp"

namespace monge::cli {
namespace {

std::sig_atomic_t volatile noted = 0;
std::sig_atomic_t volatile at_terminal = 0;

extern "C" void leave(int) {
  std::string_view line = "\nmonge: interrupted; nothing was written\n";
  if (at_terminal == 0) line.remove_prefix(1);  // Without a terminal there is no progress line to end.
  [[maybe_unused]] auto const ignored = ::write(STDERR_FILENO, line.data(), line.size());
  ::_exit(kInterrupted);
}

extern "C" void note(int) {
  noted = 1;
}

void on_interrupt(void (*handler)(int)) {
  struct sigaction action = {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART | static_cast<int>(SA_RESETHAND);
  // Systems that run batches of jobs send SIGTERM some time before they kill.
  for (int const signal : {SIGINT, SIGTERM}) sigaction(signal, &action, nullptr);
}

}  // namespace

void leave_on_interrupt() {
  at_terminal = ::isatty(STDERR_FILENO);
  on_interrupt(leave);
}

void note_interrupt() {
  on_interrupt(note);
}

bool interrupted() {
  return noted != 0;
}

}  // namespace monge::cli
