#include "program.hpp"

int main(int argc, char** argv) {
  return monge::cli::run_program(argc, argv);
}
