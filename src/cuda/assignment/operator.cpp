#include "cuda/assignment/operator.hpp"

#include <algorithm>
#include <limits>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include <monge/error.hpp>

#include "core/require.hpp"
#include "cuda/assignment/shortest_paths.hpp"
#include "cuda/launch/transfer.hpp"

namespace monge::cuda {
namespace {

/// Matrices in device memory: in place, or as copies of host memory.
class ReachableMatrices {
 public:
  explicit ReachableMatrices(SharedRuntime const& runtime) : runtime_(runtime) {}

  /// `count` matrices of this shape, `distance` elements apart.
  AssignmentMatrix operator()(MatrixView const& matrix, std::int64_t count = 1, std::int64_t distance = 0) {
    if (std::max(matrix.rows(), matrix.columns()) > kLargestAssignment)
      throw Error(ErrorCode::unsupported, "cost: is " + std::to_string(matrix.rows()) + " x " +
                                              std::to_string(matrix.columns()) + "; on CUDA a matrix must be at most " +
                                              std::to_string(kLargestAssignment) + " x " +
                                              std::to_string(kLargestAssignment));
    AssignmentMatrix reachable{matrix.data(), matrix.row_stride(), static_cast<int>(matrix.rows()),
                               static_cast<int>(matrix.columns())};
    if (matrix.device().type == DeviceType::cuda || matrix.rows() == 0 || matrix.columns() == 0) return reachable;
    std::int64_t const elements = (count - 1) * distance + (matrix.rows() - 1) * matrix.row_stride() + matrix.columns();
    DeviceArray<unsigned char> const& copy = copies_.emplace_back(runtime_, elements * size_of(matrix.type()));
    upload(*runtime_, matrix.data(), copy.data(), copy.bytes());
    reachable.data = copy.data();
    return reachable;
  }

 private:
  SharedRuntime const& runtime_;
  std::vector<DeviceArray<unsigned char>> copies_;
};

AssignmentSizes sizes_of(IndexView const& sizes) {
  return {sizes.empty() ? nullptr : sizes.data, sizes.stride};
}

}  // namespace

void Assigner::assign(AssignmentCosts const& costs, AssignmentOutput const& out, bool maximize) const {
  DeviceGuard const guard(runtime_->index());
  ReachableMatrices reach(runtime_);
  Output rows(runtime_, out.row_indices), columns(runtime_, out.column_indices), status(runtime_, out.status);
  AssignmentResults const results{.rows = static_cast<std::int64_t*>(rows.view().data),
                                  .columns = static_cast<std::int64_t*>(columns.view().data),
                                  .status = static_cast<std::int64_t*>(status.view().data),
                                  .row_stride = rows.view().stride,
                                  .column_stride = columns.view().stride,
                                  .status_stride = status.view().stride,
                                  .pairs = out.row_indices.columns};
  if (auto const* const batch = std::get_if<SizedBatch>(&costs)) {
    BatchView const& view = batch->costs;
    constexpr std::int64_t kMost = std::numeric_limits<int>::max();
    require(view.batch() <= kMost, "cost: has {} matrices; on CUDA must have at most {}", view.batch(), kMost);
    AssignmentMatrix const first = reach(matrix_at(view, 0), view.batch(), view.batch_stride());
    assign_batch({first, view.batch_stride(), sizes_of(batch->rows), sizes_of(batch->columns)}, view.batch(),
                 view.type(), maximize, results, runtime_->stream());
  } else {
    auto const& views = std::get<std::span<MatrixView const>>(costs);
    std::vector<AssignmentMatrix> matrices;
    matrices.reserve(views.size());
    for (MatrixView const& view : views) matrices.push_back(reach(view));
    assign_list(matrices, views[0].type(), maximize, results, runtime_->stream());
  }
  rows.finish();
  columns.finish();
  status.finish();
}

}  // namespace monge::cuda
