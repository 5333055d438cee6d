// SPLR: a quasi-Newton method for the dual whose matrix is sparse plus low rank.
#pragma once
#include <functional>
#include <limits>

#include <monge/entropic.hpp>

#include "seam/backend.hpp"

namespace monge {

/// The state of a solve at an iterate.
struct SplrCheck {
  int iteration = 0;
  int passes = 0;       ///< Evaluations, sweeps, and selections of pairs.
  double l1_error = 0;  ///< |P 1 - a|_1 + |P^T 1 - b|_1, relative to the larger mass.
  double l2_error = 0;  ///< The 2-norm of both errors, relative to the same mass.
  double value = 0;     ///< The criterion's value.
  double dual = 0;
  double per_row = 0;  ///< Pairs a row, on average, that the sparse part may have.
};

struct SplrLimits {
  double tolerance = 0;  ///< Bound of the criterion's value.
  int passes = 0;        ///< No iteration begins after this many.
  /// Called at the start and after each iteration; false stops the solve.
  std::function<bool(SplrCheck const&)> observe = {};
  Criterion criterion = Criterion::l1;
  int iterations = std::numeric_limits<int>::max();  ///< The most iterations.
};

struct SplrResult {
  Status status;  ///< converged, iteration_limit, precision_limit or stopped.
  SplrCheck last;
};

/// The end of a step or of the candidate's sweeps: the rise of minus the dual, and the 2-norm of the gradient.
struct SplrEnd {
  double rise, l2;
};
/// Whether the end of the sweeps is the next iterate: its dual is higher than that of the step, and its gradient not
/// many times as large.
bool takes_candidate(SplrEnd const& candidate, SplrEnd const& step);

/// Maximises the dual of the balanced problem from the operator's potentials. The operator then has the best potentials
/// or, with tolerance 0, the last ones. It is float64, has no penalties and is of two measures (not is_self());
/// `marginals` are its weights.
///
/// An iteration solves with a sparse matrix (EntrySolver), made of some large entries of P and its full marginals and
/// corrected by the last step as in BFGS, and searches along the direction (docs/math.md, section 16). Every
/// `pattern_reuse` iterations pairs are chosen anew, and the end of some Sinkhorn sweeps, the candidate, may become the
/// next iterate. Points of zero weight take no part.
///
/// Sources: Wang and Qiu, *The Sparse-Plus-Low-Rank Quasi-Newton Method for Entropic-Regularized Optimal Transport*
/// (2025); cuRegOT (2026) for reuse and candidate.
SplrResult run_splr(EntropicOperator& entropic, Marginals const& marginals, double eps, SplrOptions const& options,
                    SplrLimits const& limits);

}  // namespace monge
