// Cross moments from which searches begin, and lower bounds of the objective.
#pragma once
#include <optional>
#include <vector>

#include <monge/gromov.hpp>

#include "gromov/gromov_problem.hpp"

namespace monge {

struct StartingPoint {
  GromovStartKind kind;
  DenseMatrix cross;
};

/// A lower bound of alpha E + (1 - alpha) <M, .> and, where it is the cost of a plan, the plan's cross moment.
struct GromovBound {
  double value = 0;
  std::optional<DenseMatrix> cross;
};

/// Clouds of more points have no exact plan of their descriptors, nor of the bound by moments with features.
inline constexpr std::int64_t kMostDescribed = 4096;
bool is_small(GromovProblem const& problem);

/// By norms and principal moments.
GromovBound moment_bound(Context const& context, GromovProblem const& problem);
/// By the distributions of the distances from each point (Memoli's third bound), for problems that are small.
GromovBound descriptor_bound(Context const& context, GromovProblem const& problem);

/// The starts that the options ask for. `described` is the descriptors' cross moment, if it is known.
std::vector<StartingPoint> starting_points(GromovProblem const& problem, GromovOptions const& options,
                                           std::optional<DenseMatrix> const& given,
                                           std::optional<DenseMatrix> const& described);

}  // namespace monge
