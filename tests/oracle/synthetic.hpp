// The synthetic problems of the papers on quasi-Newton methods (SPLR, cuRegOT): squared distances, the largest 1.
#pragma once
#include <cstdint>

#include "oracle/problem.hpp"

namespace monge::oracle {

/// Synthetic I: n points of N(0, I) and m of N(offset, I) in d dimensions, uniform weights. Offset 0 is the paper's
/// `iid`; 2 is as hard as its `diff`, whose Gaussians are not printed.
Problem gaussian_problem(std::int64_t n, std::int64_t m, double offset, std::uint64_t seed, std::int64_t d = 20);

/// Synthetic II: from Exp(1) to 0.2 N(1, 0.2^2) + 0.8 N(3, 0.5^2), by their densities at n and m points of [0, 5].
Problem mixture_problem(std::int64_t n, std::int64_t m);

/// In the manner of the features that a network makes of images: nonnegative, d = 512 of them, which little more than
/// 24 directions explain, of two classes; uniform weights.
Problem feature_problem(std::int64_t n, std::int64_t m, std::uint64_t seed);

/// The same costs as a matrix.
Problem as_matrix(Problem const& problem, bool transposed = false);

}  // namespace monge::oracle
