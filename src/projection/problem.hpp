// A projection as backends compute it: every convention is one sequence of half-steps.
#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

#include <monge/projection.hpp>

namespace monge {

/// The half-steps are, in this order: a column step if `lead`; `pairs` times a row step and a column step; a row step
/// if `trail`. Each divides by
///   q_i = sum_j K_ij v_j  (+ or max)  eps * w_i,   u_i = a_i / q_i,
/// where w_i = q_i / a_i of the step before (denominator, clamp) or of the start (scaling). For K scaled at the start
/// by e^{-s_i} on the side that goes first, w_i starts as e^{-s_i} instead of 1, which makes the shift exact for every
/// mode.
struct ProjectionProblem {
  int rows = 0, columns = 0;              ///< Size of P, dustbin included.
  int logit_rows = 0, logit_columns = 0;  ///< Size of the input.
  std::int64_t batch = 0;
  ProjectionStart start = ProjectionStart::exp;
  EpsilonMode epsilon_mode = EpsilonMode::none;
  float epsilon = 0;         ///< Guard of the sums; 0 for the modes none and matrix.
  float matrix_epsilon = 0;  ///< Added to K.
  float inverse_temperature = 1;
  float tolerance = 0;
  float dustbin_score = 0;
  float implicit_tolerance = 0;
  bool columns_first = false;
  bool lead = false, trail = false;
  int pairs = 0;
  bool log_domain = false;
  bool implicit = false;
  bool unit_marginals = true;
  std::vector<float> a, b;  ///< Always filled: rows, columns.

  bool dustbin() const { return rows != logit_rows; }
  /// Whether sums can be clamped in the first pair of steps alone. If none is clamped there, the rows sum to 1 after
  /// each row step: no column sum exceeds n, and each later row sum is at least 1 / n of the one before. The same holds
  /// with rows and columns exchanged.
  bool clamps_in_first_pair_only() const {
    return epsilon_mode == EpsilonMode::clamp && start == ProjectionStart::exp_shifted && !columns_first &&
           unit_marginals && static_cast<float>(2 * std::max(rows, columns)) * epsilon <= 1;
  }
};

/// Checks the options and the size of the matrices, and reads the marginals.
ProjectionProblem projection_problem(Backend const& backend, int logit_rows, int logit_columns, std::int64_t batch,
                                     ProjectionOptions const& options);

}  // namespace monge
