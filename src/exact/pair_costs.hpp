// Costs of single pairs, in float64 on the host from the caller's points, matrix or sparse matrix.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <monge/exact.hpp>

#include "core/numbers.hpp"
#include "exact/network_simplex.hpp"
#include "seam/backend.hpp"

namespace monge {

class PairCosts {
 public:
  /// Copies points; a matrix must stay. Throws Error for points and costs of labels that are not finite, lengths of 0
  /// and bad labels.
  PairCosts(Backend const& backend, Geometry const& geometry);
  /// Copies the pairs. Throws Error for indices and costs that are not valid.
  PairCosts(Backend const& backend, SparseCost const& cost);

  /// Sets the costs of arcs, which are +infinity for forbidden pairs. A matrix on a device is copied in blocks: one
  /// copy serves successive arcs of one row or column, and of the rows or columns that lie behind it in memory. Throws
  /// Error for costs that are NaN or -infinity, or overflow.
  void set(std::span<Arc> arcs) const;
  /// Whether a pair can have the cost +infinity.
  bool may_forbid() const { return d_ == 0; }
  /// All pairs of a sparse matrix, in order; otherwise none is listed.
  bool is_sparse() const { return !row_begin_.empty(); }
  std::span<Arc const> pairs() const { return pairs_; }
  std::span<Arc const> row(std::int64_t i) const {
    auto const edge = [&](std::int64_t row) { return pairs_.data() + row_begin_[to_size(row)]; };
    return {edge(i), edge(i + 1)};
  }

 private:
  /// Points, in rows of width d; for the cosine they have length 1.
  struct Side {
    std::vector<double> points;
    std::vector<std::int64_t> labels;
  };
  double of_points(std::int64_t i, std::int64_t j) const;
  void set_from_device(std::span<Arc> arcs) const;

  Backend const& backend_;
  PointCloud clouds_ = {};
  MatrixView matrix_ = {};
  bool transposed_ = false;
  std::size_t d_ = 0;  // 0 for a matrix.
  Side x_, y_;
  std::shared_ptr<LabelCosts const> label_costs_;
  std::vector<Arc> pairs_;  // Pairs of a sparse matrix.
  std::vector<std::int64_t> row_begin_;
};

}  // namespace monge
