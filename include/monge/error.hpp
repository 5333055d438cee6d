// Errors of calls. The end of a solve is a Status (report.hpp), never an exception.
#pragma once
#include <monge/export.hpp>
#include <stdexcept>
#include <string>

#include <monge/names.hpp>

namespace monge {

/// The kinds of failure, for bindings to map (ValueError, MemoryError, ...).
enum class ErrorCode {
  invalid_argument,  ///< A value, shape or option that no implementation accepts.
  unsupported,       ///< Valid, but not on this device or in this build; the message names an alternative.
  out_of_memory,     ///< Host or device memory, or the threads of the system, ran out. Outputs may be incomplete; the
                     ///< context and its plans and solvers work on.
  device_failure,    ///< The CUDA runtime or a message between ranks failed; the context is unusable afterwards.
  input_output,      ///< A file could not be read or written.
};

constexpr auto names_of(ErrorCode) {
  using enum ErrorCode;
  return std::to_array<Named<ErrorCode>>({{invalid_argument, "invalid_argument"},
                                          {unsupported, "unsupported"},
                                          {out_of_memory, "out_of_memory"},
                                          {device_failure, "device_failure"},
                                          {input_output, "input_output"}});
}

/// Thrown by every function that cannot do its work. what() is one line: the field, the value it had, and what is
/// allowed.
class MONGE_API Error : public std::runtime_error {
 public:
  Error(ErrorCode code, std::string const& message) : std::runtime_error(message), code_(code) {}
  ErrorCode code() const noexcept { return code_; }

 private:
  ErrorCode code_;
};

}  // namespace monge
