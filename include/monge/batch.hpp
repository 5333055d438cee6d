// Many problems in one call. Small problems fill a device together; one alone would leave it idle.
#pragma once
#include <span>
#include <vector>

#include <monge/entropic.hpp>
#include <monge/export.hpp>

namespace monge {

/// One problem of a batch: the arguments of solve(), and a warm start.
struct BatchProblem {
  Geometry geometry;
  VectorView a = {};  ///< Weights (n) and (m); empty: uniform.
  VectorView b = {};
  VectorView f = {};  ///< Warm start (n) in units of C, with g; empty: none.
  VectorView g = {};  ///< Warm start (m).
};

/// Solves each problem as solve() does, to the same bits. The problems take their sweeps together: on CUDA a half-step
/// is one launch for all of them. On the CPU problems too small for two threads run in parallel, one thread each, and
/// so does Newton's method of problems on CUDA that it takes to the CPU (Report::newton_on_host). Other steps of
/// Newton's method on CUDA, and steps of SPLR, run one problem after the other. Sizes, dimensions and kinds of geometry
/// may differ. Each problem stops by itself, and has its own status, certificate and, with precision auto, refinement.
/// Plans are returned in the order of the problems. On CUDA the plans of a batch share memory, which is freed with the
/// last of them.
///
/// SolveOptions::f and g must be empty; cache_bytes applies to each problem. progress is called at each check of each
/// problem, on the caller's thread; where problems are solved in parallel, their calls have no order among each other.
/// Progress::problem is the index of the problem. If progress returns false, this problem alone stops. The seconds in a
/// report count each step in which the problem took part, alone or with others.
///
/// Throws Error as solve() does. A wrong argument of any problem throws before the first sweep. The message begins with
/// the problem: "problem 3: x: ...".
MONGE_API std::vector<Plan> solve_batch(Context const& context, std::span<BatchProblem const> problems,
                                        SolveOptions const& options = {});

/// plan_of() of each problem, with the potentials of the problem.
MONGE_API std::vector<Plan> plans_of(Context const& context, std::span<BatchProblem const> problems,
                                     SolveOptions const& options);

}  // namespace monge
