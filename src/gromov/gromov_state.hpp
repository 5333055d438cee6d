// The part of a result that its methods need.
#pragma once
#include <memory>

#include <monge/gromov.hpp>

#include "gromov/gromov_problem.hpp"

namespace monge {

struct Gromov::State {
  Context context;
  std::unique_ptr<GromovProblem const> problem;
  DenseMatrix used;   // The image of the last step's costs.
  DenseMatrix costs;  // Costs that the plan of matrices reads.
};

}  // namespace monge
