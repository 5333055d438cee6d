// The projection of a range of matrices on one thread, for the instruction set found at run time.
#pragma once
#include <cstddef>
#include <cstdint>

#include <monge/projection.hpp>

#include "core/projection_options.hpp"

namespace monge::cpu {

/// Matrices [first, last). For the forward pass `result` is the output and `gradient` is not used; for the backward
/// pass `gradient` is d_out and `result` d_logits.
struct ProjectionRange {
  ProjectionProblem const* problem;
  BatchView logits;
  BatchView gradient;
  MutableBatchView result;
  float* d_dustbin_score;  ///< Of the whole batch, or null.
  std::int64_t first, last;
  float* scratch;  ///< projection_scratch() floats, 64-byte aligned.
};

/// Matrices that go through the registers together, at most: ranges start at its multiples.
inline constexpr std::int64_t kProjectionLanes = 32;

std::size_t projection_scratch(ProjectionProblem const& problem, bool backward);
void project_range(ProjectionRange const& range);
void project_backward_range(ProjectionRange const& range);

}  // namespace monge::cpu
