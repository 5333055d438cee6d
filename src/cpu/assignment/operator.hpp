// Linear sum assignment on the CPU: one thread a problem.
#pragma once
#include "seam/assignment_operator.hpp"

namespace monge::cpu {

class Assigner final : public AssignmentOperator {
 public:
  explicit Assigner(int threads) : threads_(threads) {}
  void assign(AssignmentCosts const& costs, AssignmentOutput const& out, bool maximize) const override;

 private:
  int threads_;
};

}  // namespace monge::cpu
