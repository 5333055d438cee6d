// Douglas-Rachford splitting on its operators, one or many in step (docs/math.md, section 17).
#pragma once
#include <span>

#include <monge/regularized.hpp>

#include "regularized/regularized_run.hpp"
#include "seam/backend.hpp"

namespace monge {

/// Solves problems whose method is splitting, each with its operator made, and fills in their reports except for the
/// set-up time. `index[k]` is the number of problem k for progress and ProblemError.
void run_splitting(Backend const& backend, std::span<RegularizedRun* const> runs, std::span<int const> index,
                   RegularizedOptions const& options);

}  // namespace monge
