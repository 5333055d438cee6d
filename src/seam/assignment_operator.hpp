// The seam of the linear sum assignment: one call for many problems. Arguments have been validated.
#pragma once
#include <cstdint>
#include <span>
#include <variant>

#include <monge/assignment.hpp>

namespace monge {

/// Matrices of one shape whose sizes in use lie on the device, or anywhere matrices of any shapes.
struct SizedBatch {
  BatchView costs;
  IndexView rows, columns;  ///< Empty, or on the device of the operator.
};
using AssignmentCosts = std::variant<SizedBatch, std::span<MatrixView const>>;

class AssignmentOperator {
 public:
  virtual ~AssignmentOperator() = default;
  virtual void assign(AssignmentCosts const& costs, AssignmentOutput const& out, bool maximize) const = 0;
};

/// The matrix at position t.
inline MatrixView matrix_at(BatchView const& batch, std::int64_t t) {
  auto const* const bytes = static_cast<char const*>(batch.data()) + t * batch.batch_stride() * size_of(batch.type());
  return {bytes, batch.type(), batch.rows(), batch.columns(), batch.row_stride(), batch.device()};
}

}  // namespace monge
