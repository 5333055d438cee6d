#include "interrupt.hpp"

#include <csignal>

namespace monge::cli {
namespace {

std::sig_atomic_t volatile pressed = 0;

extern "C" void note_interrupt(int) {
  pressed = 1;
}

}  // namespace

void catch_interrupt() {
  struct sigaction action = {};
  action.sa_handler = note_interrupt;
  action.sa_flags = SA_RESTART | static_cast<int>(SA_RESETHAND);
  sigaction(SIGINT, &action, nullptr);
}

bool interrupted() {
  return pressed != 0;
}

}  // namespace monge::cli
