// The linear problem of a partial step with entropy (docs/math.md, section 21).
#pragma once
#include <vector>

#include "gromov/matrix.hpp"

namespace monge {

/// The plan P_ij = a_i b_j exp((f_i + g_j - C_ij) / eps).
struct PartialPlan {
  std::vector<double> f, g;
  int sweeps = 0;
  bool converged = false;
};

/// log sum_j w_j exp((g_j - C_ij) / eps) of each row.
DenseVector log_sums(int threads, DenseMatrix const& costs, DenseVector const& weights,
                     std::vector<double> const& potential, double eps);

/// Minimises <C, P> + eps KL(P | a b^T) over P 1 <= a, P^T 1 <= b, sum P = mass, from the potentials g of `start`, if
/// there are any. Ends when rows exceed a by at most this tolerance of the mass in sum; columns do not exceed b. `C`
/// is n x m.
PartialPlan solve_partial(int threads, DenseMatrix const& costs, DenseVector const& a, DenseVector const& b,
                          double mass, double eps, double tolerance, int sweeps, PartialPlan start);

}  // namespace monge
