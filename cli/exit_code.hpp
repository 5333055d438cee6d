// Exit codes of the program.
#pragma once
#include <monge/report.hpp>

namespace monge::cli {

inline constexpr int kDone = 0;           ///< Converged, or ran the sweeps that were asked for.
inline constexpr int kFailed = 2;         ///< Wrong use, bad input or a failure; nothing was written.
inline constexpr int kShort = 3;          ///< Ended short of the tolerance, or lacks requested entries; the other
                                          ///< results were written.
inline constexpr int kInterrupted = 130;  ///< Ctrl-C; the state of the solve was written.

/// The exit code of a solve that has all of its results.
inline int code_of(Status status) {
  return status == Status::converged || status == Status::completed ? kDone : kShort;
}

}  // namespace monge::cli
