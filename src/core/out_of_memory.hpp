// std::bad_alloc leaves a public call as an Error of the library.
#pragma once
#include <new>
#include <string>

#include <monge/error.hpp>

namespace monge {

/// For a handler of std::bad_alloc in the public function of this name.
[[noreturn]] inline void throw_out_of_memory(char const* call) {
  throw Error(ErrorCode::out_of_memory, std::string(call) + ": the host has too little memory");
}

}  // namespace monge
