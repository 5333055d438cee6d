#include "interrupt.hpp"

#include <unistd.h>

#include <csignal>
#include <string_view>

#include "exit_code.hpp"

namespace monge::cli {
namespace {

std::sig_atomic_t volatile noted = 0;

extern "C" void leave(int) {
  constexpr std::string_view kLine = "monge: interrupted; nothing was written\n";
  [[maybe_unused]] auto const ignored = ::write(STDERR_FILENO, kLine.data(), kLine.size());
  ::_exit(kInterrupted);
}

extern "C" void note(int) {
  noted = 1;
}

void on_interrupt(void (*handler)(int)) {
  struct sigaction action = {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART | static_cast<int>(SA_RESETHAND);
  sigaction(SIGINT, &action, nullptr);
}

}  // namespace

void leave_on_interrupt() {
  on_interrupt(leave);
}

void note_interrupt() {
  on_interrupt(note);
}

bool interrupted() {
  return noted != 0;
}

}  // namespace monge::cli
