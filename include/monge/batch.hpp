// Many problems in one call: small ones fill a device together where each alone would leave it idle.
#pragma once
#include <span>
#include <vector>

#include <monge/entropic.hpp>

namespace monge {

/// One problem of a batch: what solve() takes, and a warm start of its own.
struct BatchProblem {
  Geometry geometry;
  VectorView a = {};  ///< Weights (n) and (m); empty: uniform.
  VectorView b = {};
  VectorView f = {};  ///< Warm start (n) in units of C, with g; empty: none.
  VectorView g = {};  ///< Warm start (m).
};

/// Solves each problem as solve() does, to the same bits, with steps that all take together: on CUDA each is one launch
/// for all of them, on the CPU problems go side by side where each is worth one thread. Sizes, dimensions and kinds of
/// geometry may differ. Each problem stops by itself, and has a status, a certificate and, with precision auto, a
/// refinement of its own. Plans come in the order of the problems; on CUDA those of a batch share memory, which goes
/// with the last of them.
///
/// Of the options, f and g must be empty, cache_bytes is for each problem, and progress is called at each check of each
/// problem: Progress::problem says of which, and false stops that one. Seconds in the reports are those of the steps
/// that the problem took part in, whoever else did.
///
/// Throws Error as solve() does, before any sweep where an argument is wrong; the line begins with the problem:
/// "problem 3: x: ...".
std::vector<Plan> solve_batch(Context const& context, std::span<BatchProblem const> problems,
                              SolveOptions const& options);

}  // namespace monge
