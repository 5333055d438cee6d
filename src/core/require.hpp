// Checks of arguments.
#pragma once
#include <utility>

#include <fmt/format.h>
#include <monge/error.hpp>

namespace monge {

/// Throws invalid_argument with a line of the form "field: is VALUE; must be ...".
template <class... Args>
void require(bool condition, fmt::format_string<Args...> format, Args&&... args) {
  if (!condition) throw Error(ErrorCode::invalid_argument, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace monge
