// Linear sum assignment on CUDA: one block a problem.
#pragma once
#include <memory>
#include <utility>

#include "cuda/runtime/runtime.hpp"
#include "seam/assignment_operator.hpp"

namespace monge::cuda {

/// Waits only for results in host memory, and allocates only for arrays there.
class Assigner final : public AssignmentOperator {
 public:
  explicit Assigner(std::shared_ptr<Runtime const> runtime) : runtime_(std::move(runtime)) {}
  void assign(AssignmentCosts const& costs, AssignmentOutput const& out, bool maximize) const override;

 private:
  std::shared_ptr<Runtime const> runtime_;
};

}  // namespace monge::cuda
