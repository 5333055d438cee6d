// SPLR: a quasi-Newton method for the dual whose matrix is sparse plus low rank.
#pragma once
#include <cstdint>
#include <functional>

#include <monge/entropic.hpp>

#include "operators/backend.hpp"

namespace monge {

/// How far a solve has come.
struct SplrCheck {
  int iteration = 0;
  int passes = 0;       ///< Evaluations, sweeps, and selections of pairs.
  double l1_error = 0;  ///< |P 1 - a|_1 + |P^T 1 - b|_1, relative to the larger mass.
  double l2_error = 0;  ///< The 2-norm of both differences together, relative to the same.
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

/// Maximises the dual of the balanced problem from the operator's potentials, and leaves it there. The operator is
/// float64, has no penalties and is of two measures (not is_self()); `marginals` are its weights.
///
/// One potential of the columns is fixed. With r = P 1, c = P^T 1 and E the chosen entries of P, a step solves with
///   B = [ diag(r)  E ; E^T  diag(c) ] / eps + tau I,   tau at most the norm of the gradient,
/// corrected by the last step and its change of the gradient as in BFGS, and a line search follows. A sparse matrix of
/// some entries and of the sums of all is as well conditioned as the Hessian (Corollary 3.4 of Wang and Qiu), so the
/// pairs are chosen anew only every `pattern_reuse` iterations. Then `candidate_sweeps` sweeps of Sinkhorn offer
/// another next iterate; the device makes them while the host orders and factors the matrix, if the backend enqueues
/// sweeps.
///
/// Sources: Wang and Qiu, *The Sparse-Plus-Low-Rank Quasi-Newton Method for Entropic-Regularized Optimal Transport*
/// (2025); cuRegOT (2026) for reuse and candidate.
SplrResult run_splr(EntropicOperator& entropic, Marginals const& marginals, double eps, SplrOptions const& options,
                    SplrLimits const& limits);

}  // namespace monge
