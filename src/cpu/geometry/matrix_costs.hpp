// A given cost matrix, read in place: C' = C - c0, where c0 is its smallest finite cost, so an offset costs no digits.
#pragma once
#include <memory>
#include <vector>

#include <monge/geometry.hpp>

#include "cpu/pass/costs.hpp"
#include "cpu/runtime/threads.hpp"

namespace monge::cpu {

template <class T>
class MatrixCosts final : public Costs<T> {
 public:
  /// Surveys the matrix in one read. Throws invalid_argument for a cost that is neither finite nor +infinity, or for a
  /// point of positive weight without a finite cost to another one.
  MatrixCosts(CostMatrix const& geometry, std::span<double const> a, std::span<double const> b, Workers const& workers);

  double factor() const override { return unit_; }
  std::span<double const> norm(Side side) const override { return norm_[static_cast<int>(side)]; }
  std::span<double const> shift(Side side) const override { return shift_[static_cast<int>(side)]; }
  ScoreSource<T> scores(Side rows) const override;
  std::shared_ptr<Costs<Other<T>> const> twin(Geometry const& geometry) const override;
  /// Copies the scores of these points.
  std::unique_ptr<Costs<T> const> part(Side side, std::span<std::int64_t const> points) const override;

 private:
  template <class>
  friend class MatrixCosts;
  MatrixCosts(std::int64_t n, std::int64_t m, MatrixView cost, bool transposed);
  StoredCosts stored(Side rows) const;

  MatrixView cost_;  // The caller's matrix, or scores_.
  bool transposed_;
  double origin_ = 0, stored_unit_ = 1;  // score = (cost - origin) / stored_unit
  double unit_ = 1;                      // C' = unit score
  std::vector<double> norm_[2], shift_[2];
  std::unique_ptr<T[]> scores_;  // Owned by a part.
};

}  // namespace monge::cpu
