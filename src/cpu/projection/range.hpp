// The projection of a range of matrices on one thread, for the instruction set found at run time.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <monge/projection.hpp>

#include "core/numbers.hpp"
#include "projection/problem.hpp"

namespace monge::cpu {

/// Matrices [first, last). For the forward pass `result` is the output and `gradient` is not used; for the backward
/// pass `gradient` is d_out and `result` d_logits.
struct ProjectionRange {
  ProjectionProblem const* problem;
  BatchView logits;
  BatchView gradient;
  MutableBatchView result;
  float* d_dustbin_score;  ///< Derivatives for the whole batch, or null.
  std::int64_t first, last;
  float* scratch;  ///< projection_scratch() floats, 64-byte aligned.
};

/// The largest number of matrices in a group. Ranges start at multiples of it.
inline constexpr std::int64_t kProjectionLanes = 32;

/// Floats that a Group (group-inl.hpp) places in `scratch`.
inline std::size_t projection_scratch(ProjectionProblem const& problem, bool backward) {
  auto const n = to_size(problem.rows), m = to_size(problem.columns);
  std::size_t packs = std::max(n * m, 2 * std::max(n, m)) + std::max(n, m) + n * m + 2 * (n + m);
  if (backward) packs += 2 * n * m + 2 * (n + m) + (n + m) * (to_size(problem.pairs) + 2);
  return packs * kProjectionLanes;
}

void project_range(ProjectionRange const& range);
void project_backward_range(ProjectionRange const& range);

}  // namespace monge::cpu
