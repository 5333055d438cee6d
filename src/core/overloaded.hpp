// One function for each alternative of a variant.
#pragma once

namespace monge {

template <class... Functions>
struct Overloaded : Functions... {
  using Functions::operator()...;
};

}  // namespace monge
