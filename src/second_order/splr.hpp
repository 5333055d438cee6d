// SPLR: a quasi-Newton method for the dual whose matrix is sparse plus low rank.
#pragma once
#include <cstdint>
#include <functional>

#include <monge/entropic.hpp>

#include "backend/backend.hpp"

namespace monge {

/// How far a solve has come.
struct SplrCheck {
  int iteration = 0;
  int passes = 0;       ///< Evaluations, sweeps, and selections of pairs.
  double l1_error = 0;  ///< |P 1 - a|_1 + |P^T 1 - b|_1, relative to the larger mass.
  double l2_error = 0;  ///< The 2-norm of both together, relative to the same.
  double value = 0;     ///< What the criterion says.
  double dual = 0;
  std::int64_t pairs = 0;  ///< In the sparse part.
};

struct SplrLimits {
  double tolerance = 0;  ///< On what the criterion says.
  int passes = 0;        ///< No iteration begins after so many.
  /// Called for the start and after each iteration; false: no more.
  std::function<bool(SplrCheck const&)> observe = {};
  Criterion criterion = Criterion::l1;
};

struct SplrResult {
  Status status;  ///< converged, iteration_limit, precision_limit or stopped.
  SplrCheck last;
};

/// Where a step or the sweeps beside it end: by how much minus the dual is higher there, and the 2-norm of the
/// gradient.
struct SplrEnd {
  double rise, l2;
};
/// Whether the end of the sweeps is the next iterate: its dual is higher than that of the step, and its gradient not
/// many times as large.
bool takes_candidate(SplrEnd const& candidate, SplrEnd const& step);

/// Maximises the dual of the balanced problem from the operator's potentials, and leaves it there. The operator is
/// float64, has no penalties and is of two measures (not is_self()); `marginals` are its weights.
///
/// An iteration solves with the sparse matrix that some large entries of P and all of its marginals make, corrected by
/// the step before as in BFGS, and searches along the direction (docs/math.md, section 16). Pairs are chosen, and their
/// matrix is analysed, every `pattern_reuse` iterations. Sweeps of Sinkhorn then offer another next iterate; they run
/// while the host orders and factors. Points of no weight take no part.
///
/// Sources: Wang and Qiu, *The Sparse-Plus-Low-Rank Quasi-Newton Method for Entropic-Regularized Optimal Transport*
/// (2025); cuRegOT (2026) for reuse and candidate.
SplrResult run_splr(EntropicOperator& entropic, Marginals const& marginals, double eps, SplrOptions const& options,
                    SplrLimits const& limits);

}  // namespace monge
