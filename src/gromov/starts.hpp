// Shared parts of starts and lower bounds. The starts of points are in starts.cpp, too.
#pragma once
#include <functional>

#include "gromov/gromov_problem.hpp"

namespace monge {

/// Problems of more points have no exact plan of their descriptors; nor have points the bound by moments with features.
inline constexpr std::int64_t kMostDescribed = 4096;
bool is_small(GromovProblem const& problem);

/// Calls visit(i, j, mass) for each pair of the plan between x and y with the weights a and b that keeps their order.
void match_sorted(DenseVector const& x, DenseVector const& y, DenseVector const& a, DenseVector const& b,
                  std::function<void(std::int64_t, std::int64_t, double)> const& visit);

/// For each point the means of its distances over ranges of their quantiles, of equal mass, times the root of that
/// mass. row(i, out) writes the n distances from point i; several threads call it.
DenseMatrix descriptors(int threads, DenseVector const& weights, double total,
                        std::function<void(std::int64_t, Eigen::Ref<DenseVector>)> const& row);

}  // namespace monge
