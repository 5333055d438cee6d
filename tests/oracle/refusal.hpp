// The message by which the library refuses an argument.
#pragma once
#include <functional>
#include <string>

#include <gtest/gtest.h>
#include <monge/error.hpp>

namespace monge::oracle {

/// The message of the error that `call` throws, or "no error".
inline std::string refusal_of(std::function<void()> const& call, ErrorCode code = ErrorCode::invalid_argument) {
  try {
    call();
  } catch (Error const& error) {
    EXPECT_EQ(error.code(), code);
    return error.what();
  }
  return "no error";
}

}  // namespace monge::oracle
