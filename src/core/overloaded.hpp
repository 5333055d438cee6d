// One function for each alternative of a variant.
#pragma once

namespace monge {

template <class... Functions>
struct Overloaded : Functions... {
  using Functions::operator()...;
};
template <class... Functions>
Overloaded(Functions...) -> Overloaded<Functions...>;  // Clang deduces it from version 17 on.

}  // namespace monge
