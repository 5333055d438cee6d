#include "cpu/assignment/operator.hpp"

#include <algorithm>
#include <limits>
#include <vector>

#include "core/numbers.hpp"
#include "core/side_by_side.hpp"
#include "cpu/assignment/shortest_paths.hpp"

namespace monge::cpu {
namespace {

/// Copies the costs in float64, negated to maximise, with the longer side as columns. Returns false if one is NaN or
/// -inf.
template <class T>
bool fill(AssignmentMatrix& to, MatrixView const& from, bool maximize) {
  bool const transposed = from.columns() < from.rows();
  double const sign = maximize ? -1 : 1;
  bool valid = true;
  for (std::int64_t i = 0; i < from.rows(); ++i) {
    T const* const row = from.as<T>() + i * from.row_stride();
    double* const line = transposed ? to.costs.get() + i : to.costs.get() + i * to.stride;
    std::int64_t const step = transposed ? to.stride : 1;
    for (std::int64_t j = 0; j < from.columns(); ++j) {
      double const cost = sign * static_cast<double>(row[j]);
      valid &= cost > -std::numeric_limits<double>::infinity();
      line[j * step] = cost;
    }
  }
  for (std::int64_t i = 0; i < to.rows; ++i)
    std::fill(to.costs.get() + i * to.stride + to.columns, to.costs.get() + (i + 1) * to.stride,
              std::numeric_limits<double>::infinity());
  return valid;
}

struct Pairs {
  std::int64_t *rows, *columns;
  std::int64_t capacity;
};

AssignmentStatus assign_one(MatrixView const& cost, bool maximize, Pairs const& to) {
  std::fill_n(to.rows, to.capacity, std::int64_t{-1});
  std::fill_n(to.columns, to.capacity, std::int64_t{-1});
  if (cost.rows() == 0 || cost.columns() == 0) return AssignmentStatus::optimal;
  bool const transposed = cost.columns() < cost.rows();
  AssignmentMatrix matrix(std::min(cost.rows(), cost.columns()), std::max(cost.rows(), cost.columns()));
  bool const valid =
      cost.type() == DataType::float64 ? fill<double>(matrix, cost, maximize) : fill<float>(matrix, cost, maximize);
  if (!valid) return AssignmentStatus::invalid;
  std::vector<std::int64_t> column_of;
  if (!shortest_paths(matrix, column_of)) return AssignmentStatus::infeasible;
  if (transposed) {
    std::vector<std::int64_t> partner(to_size(matrix.columns), -1);
    for (std::int64_t i = 0; i < matrix.rows; ++i) partner[to_size(column_of[to_size(i)])] = i;
    std::int64_t k = 0;
    for (std::int64_t j = 0; j < matrix.columns; ++j) {
      if (partner[to_size(j)] < 0) continue;
      to.rows[k] = j;
      to.columns[k++] = partner[to_size(j)];
    }
  } else {
    for (std::int64_t i = 0; i < matrix.rows; ++i) to.rows[i] = i;
    std::copy(column_of.begin(), column_of.end(), to.columns);
  }
  return AssignmentStatus::optimal;
}

}  // namespace

void Assigner::assign(AssignmentCosts const& costs, AssignmentOutput const& out, bool maximize) const {
  auto const* const batch = std::get_if<SizedBatch>(&costs);
  auto const count = to_size(out.status.rows);
  side_by_side(static_cast<int>(std::clamp<std::size_t>(count, 1, to_size(threads_))), count, [&](std::size_t t) {
    auto const at = static_cast<std::int64_t>(t);
    MatrixView const cost = batch ? matrix_at(batch->costs, at) : std::get<std::span<MatrixView const>>(costs)[t];
    Pairs const pairs{out.row_indices.data + at * out.row_indices.row_stride,
                      out.column_indices.data + at * out.column_indices.row_stride, out.row_indices.columns};
    out.status.data[at * out.status.row_stride] = static_cast<std::int64_t>(assign_one(cost, maximize, pairs));
  });
}

}  // namespace monge::cpu
