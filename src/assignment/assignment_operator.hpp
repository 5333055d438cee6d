// The seam of the linear sum assignment: one call for many problems. Arguments have been validated.
#pragma once
#include <span>

#include <monge/assignment.hpp>

namespace monge {

class AssignmentOperator {
 public:
  virtual ~AssignmentOperator() = default;
  virtual void assign(std::span<MatrixView const> costs, AssignmentOutput const& out, bool maximize) const = 0;
};

}  // namespace monge
