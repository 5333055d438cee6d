// The monge program: arguments in, an exit code and one line for every error out.
#pragma once

namespace monge::cli {

int run_program(int argc, char const* const* argv);

}  // namespace monge::cli
