// The part of a result that its methods need.
#pragma once
#include <memory>

#include <monge/gromov.hpp>

#include "gromov/gromov_problem.hpp"

namespace monge {

struct Gromov::State {
  Context context;
  std::unique_ptr<GromovProblem const> problem;
  DenseMatrix used;  // The cross moment of the last step's costs.
};

}  // namespace monge
