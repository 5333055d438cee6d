// The sentence of a report about the end of a solve.
#pragma once
#include <string>

#include "entropic/sinkhorn.hpp"

namespace monge {

/// What the message about the end of a solve needs beside the report.
struct SolveEnd {
  double value;               // The criterion's.
  bool is_annealing;          // Whether the caller stopped the solve above its final eps.
  double entry_rounding;      // LogitScale::entry_rounding() of all points.
  double potential_rounding;  // LogitScale::potential_rounding().
  double value_loss;          // The result of restore_digits().
};

/// The message for the problem's report, which is otherwise complete.
std::string end_message(SinkhornProblem const& problem, SolveEnd const& end);

}  // namespace monge
