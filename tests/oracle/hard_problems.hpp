// Problems on which entropic solvers end short: mass has to cross gaps of many eps.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "oracle/problem.hpp"

namespace monge::oracle {

struct HardProblem {
  std::string name;
  Problem problem;
  double eps;
};

/// Six families (Gaussians, four tight clusters of unequal masses, lattices with ties, Student's t with 1.2 degrees of
/// freedom, tenfold duplicates, tiny clouds 10^4 apart) in 1, 2, 5 and 30 dimensions, each at eps of 1, 0.1, 0.01 and
/// 0.001 times the clouds' mean squared spread: 96 problems of n and n + 7 points, a skewed, b uniform. n is a multiple
/// of 10.
std::vector<HardProblem> hard_problems(std::uint64_t seed, std::int64_t n = 200);

}  // namespace monge::oracle
