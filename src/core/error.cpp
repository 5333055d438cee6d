#include <monge/error.hpp>

namespace monge {

std::string_view name(ErrorCode code) {
  switch (code) {
    case ErrorCode::invalid_argument:
      return "invalid_argument";
    case ErrorCode::unsupported:
      return "unsupported";
    case ErrorCode::out_of_memory:
      return "out_of_memory";
    case ErrorCode::device_failure:
      return "device_failure";
    case ErrorCode::input_output:
      return "input_output";
  }
  return "unknown";
}

}  // namespace monge
